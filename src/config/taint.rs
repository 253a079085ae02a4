//! Turns `key=value:effect` into a taint, checked as the API server would.

use std::fmt;

use serde::Serialize;

use super::labels;
use super::problem::quoted;

/// One entry of `spec.taints`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Taint {
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: Effect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl Taint {
    /// Reads the syntax of `--register-with-taints`: `key=value:effect`, the value optional. An error is a sentence.
    pub fn parse(text: &str) -> Result<Taint, String> {
        let (key_value, effect) = text.split_once(':').unwrap_or((text, ""));
        let (key, value) = key_value.split_once('=').unwrap_or((key_value, ""));
        if !text.contains(':') || effect.contains(':') || value.contains('=') {
            return Err(format!("{} is not of the form key=value:effect or key:effect", quoted(text)));
        }
        Taint::new(key, value, effect)
    }

    /// The parts of a taint, as a settings file spells them. An error is a sentence.
    pub fn new(key: &str, value: &str, effect: &str) -> Result<Taint, String> {
        labels::check_key(key).map_err(|wrong| format!("key {}: {wrong}", quoted(key)))?;
        labels::check_value(value).map_err(|wrong| format!("value {}: {wrong}", quoted(value)))?;
        let known = [Effect::NoSchedule, Effect::PreferNoSchedule, Effect::NoExecute];
        let unknown = || format!("unknown effect {}: use NoSchedule, PreferNoSchedule or NoExecute", quoted(effect));
        let effect = known.into_iter().find(|known| known.to_string() == effect).ok_or_else(unknown)?;
        Ok(Taint { key: key.to_owned(), value: value.to_owned(), effect })
    }

    /// The API server refuses two taints of the same key and effect.
    pub fn collides_with(&self, other: &Taint) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

impl fmt::Display for Effect {
    /// As the API spells it: its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if !self.value.is_empty() {
            write!(f, "={}", self.value)?;
        }
        write!(f, ":{}", self.effect)
    }
}

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
        for (text, reason) in [
            ("", "is not of the form"),
            ("key", "is not of the form"),
            ("key=value", "is not of the form"),
            ("key=a=b:NoSchedule", "is not of the form"),
            ("key:NoSchedule:NoExecute", "is not of the form"),
            (":NoSchedule", "key \"\": the name must"),
            ("=value:NoSchedule", "key \"\": the name must"),
            ("a b=value:NoSchedule", "key \"a b\": the name may"),
            ("key=-value:NoSchedule", "value \"-value\": "),
            ("key:", "unknown effect"),
            ("key:noschedule", "unknown effect"),
            ("key=value:Never", "unknown effect"),
        ] {
            let error = Taint::parse(text).unwrap_err();
            assert!(error.contains(reason), "{error}");
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
