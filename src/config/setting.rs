//! Turns one setting into what files, flags, help and completions have to know of it.

use super::scalars::{Draft, Report};
use super::settings::Settings;
use super::yaml::Value;

/// One setting: everything a person or a program wants to know of it.
pub struct Setting {
    /// Key in the settings file. A dot means a key of a map: `logging.verbosity`.
    pub name: &'static str,
    /// Flag, without its dashes; one letter means one dash.
    pub flag: &'static str,
    pub shape: Shape,
    /// As a file would say it; empty: none.
    pub default: &'static str,
    /// One sentence for the help text, without a full stop.
    pub meaning: &'static str,
    pub whose: Whose,
    pub(super) read: fn(&mut Draft, &Value, &mut Report<'_>),
    pub(super) print: fn(&Settings) -> Value,
}

/// What a value looks like; a flag's text is cut accordingly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Any text; holds what stands for it in the help.
    Text(&'static str),
    File,
    Directory,
    Boolean,
    Number,
    Duration,
    /// A map in a file; `KEY=VALUE,...` in a flag, or with another character instead of `=`.
    Map(char),
    /// A list in a file, commas in a flag; holds what stands for one item in the help.
    List(&'static str),
}

/// Where a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// A field of the kubelet's configuration file: name, default and meaning are the kubelet's.
    Kubelet,
    /// Only a flag of the kubelet; here also a key of the file.
    KubeletFlag,
    Ours,
}

impl Shape {
    /// What the help text shows in place of a value.
    pub fn placeholder(self) -> &'static str {
        match self {
            Shape::Text(placeholder) | Shape::List(placeholder) => placeholder,
            Shape::File => "FILE",
            Shape::Directory => "DIR",
            Shape::Boolean => "true|false",
            Shape::Number => "N",
            Shape::Duration => "DURATION",
            Shape::Map('<') => "SIGNAL<AMOUNT,...",
            Shape::Map(_) => "KEY=VALUE,...",
        }
    }
}

impl Setting {
    /// `--node-labels`, `-v`.
    pub fn dashed_flag(&self) -> String {
        format!("{}{}", if self.flag.len() == 1 { "-" } else { "--" }, self.flag)
    }
}
