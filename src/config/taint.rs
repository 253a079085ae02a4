//! Turns `key=value:effect` into a taint, checked as the API server would.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::labels;

/// One entry of `spec.taints`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    pub key: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: Effect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

/// Why a text is not a taint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaintError {
    /// Not `key=value:effect` or `key:effect`.
    Form(String),
    Key {
        taint: String,
        wrong: &'static str,
    },
    Value {
        taint: String,
        wrong: &'static str,
    },
    Effect {
        taint: String,
        effect: String,
    },
}

impl Taint {
    /// Reads the syntax of `--register-with-taints`: `key=value:effect`, the value optional.
    pub fn parse(text: &str) -> Result<Taint, TaintError> {
        let form = || TaintError::Form(text.to_owned());
        let (key_value, effect) = text.split_once(':').ok_or_else(form)?;
        let (key, value) = key_value.split_once('=').unwrap_or((key_value, ""));
        if effect.contains(':') || value.contains('=') {
            return Err(form());
        }
        Taint::new(key, value, effect).map_err(|error| error.about(text))
    }

    /// Checks the parts of a taint, as a settings file spells them.
    pub fn new(key: &str, value: &str, effect: &str) -> Result<Taint, TaintError> {
        let taint = || format!("{key}={value}:{effect}");
        labels::check_key(key).map_err(|wrong| TaintError::Key { taint: taint(), wrong })?;
        labels::check_value(value).map_err(|wrong| TaintError::Value { taint: taint(), wrong })?;
        let effect =
            Effect::parse(effect).ok_or_else(|| TaintError::Effect { taint: taint(), effect: effect.to_owned() })?;
        Ok(Taint { key: key.to_owned(), value: value.to_owned(), effect })
    }

    /// The API server refuses two taints of the same key and effect.
    pub fn collides_with(&self, other: &Taint) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

impl Effect {
    fn parse(text: &str) -> Option<Effect> {
        [Effect::NoSchedule, Effect::PreferNoSchedule, Effect::NoExecute].into_iter().find(|known| known.word() == text)
    }

    /// As the API spells it.
    pub fn word(self) -> &'static str {
        match self {
            Effect::NoSchedule => "NoSchedule",
            Effect::PreferNoSchedule => "PreferNoSchedule",
            Effect::NoExecute => "NoExecute",
        }
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if !self.value.is_empty() {
            write!(f, "={}", self.value)?;
        }
        write!(f, ":{}", self.effect.word())
    }
}

impl TaintError {
    /// The machine word.
    pub fn word(&self) -> &'static str {
        match self {
            TaintError::Form(_) => "taint-form",
            TaintError::Key { .. } => "taint-key",
            TaintError::Value { .. } => "taint-value",
            TaintError::Effect { .. } => "taint-effect",
        }
    }

    /// The same error about the text as the user wrote it.
    fn about(self, text: &str) -> TaintError {
        let taint = text.to_owned();
        match self {
            TaintError::Form(_) => TaintError::Form(taint),
            TaintError::Key { wrong, .. } => TaintError::Key { taint, wrong },
            TaintError::Value { wrong, .. } => TaintError::Value { taint, wrong },
            TaintError::Effect { effect, .. } => TaintError::Effect { taint, effect },
        }
    }
}

impl fmt::Display for TaintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaintError::Form(taint) => write!(f, "taint {taint:?} is not of the form key=value:effect or key:effect"),
            TaintError::Key { taint, wrong } => write!(f, "key of taint {taint:?}: {wrong}"),
            TaintError::Value { taint, wrong } => write!(f, "value of taint {taint:?}: {wrong}"),
            TaintError::Effect { taint, effect } => write!(
                f,
                "taint {taint:?} has the unknown effect {effect:?}; use NoSchedule, PreferNoSchedule or NoExecute"
            ),
        }
    }
}

impl std::error::Error for TaintError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_survive_the_round_trip_through_text() {
        for text in ["dedicated=edge:NoSchedule", "example.com/a.b:NoExecute", "k=v:PreferNoSchedule"] {
            assert_eq!(Taint::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Taint::parse("key=:NoSchedule").unwrap().to_string(), "key:NoSchedule");
    }

    #[test]
    fn what_is_not_a_taint_is_refused_with_the_part_that_is_wrong() {
        for (text, word) in [
            ("", "taint-form"),
            ("key", "taint-form"),
            ("key=value", "taint-form"),
            ("key=a=b:NoSchedule", "taint-form"),
            ("key:NoSchedule:NoExecute", "taint-form"),
            (":NoSchedule", "taint-key"),
            ("=value:NoSchedule", "taint-key"),
            ("a b=value:NoSchedule", "taint-key"),
            ("key=-value:NoSchedule", "taint-value"),
            ("key:", "taint-effect"),
            ("key:noschedule", "taint-effect"),
            ("key=value:Never", "taint-effect"),
        ] {
            let error = Taint::parse(text).unwrap_err();
            assert_eq!(error.word(), word, "{text:?}");
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn key_and_effect_are_what_makes_two_taints_collide() {
        let taint = Taint::parse("key=a:NoSchedule").unwrap();
        assert!(taint.collides_with(&Taint::parse("key=b:NoSchedule").unwrap()));
        assert!(!taint.collides_with(&Taint::parse("key=a:NoExecute").unwrap()));
    }

    #[test]
    fn the_api_spells_a_taint_as_the_types_do() {
        let taint = Taint::parse("key:NoExecute").unwrap();
        assert_eq!(serde_json::to_string(&taint).unwrap(), r#"{"key":"key","effect":"NoExecute"}"#);
    }
}
