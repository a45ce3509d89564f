//! The table of flags: names, types and defaults of the Go managers (specification: controllers
//! §7.3) and our own.

use std::sync::LazyLock;

use super::flag::Flag;

/// A flag item. `$field` is its place in `LowArgs`; `custom` gives the whole effect by hand.
macro_rules! flag {
    (custom $section:ident, $kind:ident, $name:literal, $default:literal, $set:expr, $help:expr) => {
        flag!(@ $section, $kind, $name, $default, $help, $set)
    };
    (
        $section:ident, $kind:ident, $name:literal, $default:literal, $($field:ident).+, $help:expr
    ) => {
        flag!(@ $section, $kind, $name, $default, $help, |args, text| {
            args.$($field).+ = flag!(@read $kind, text);
            Ok(())
        })
    };
    (@read Bool, $text:ident) => { $crate::config::flag::parse_bool($text)? };
    (@read Int, $text:ident) => { $crate::config::flag::parse_int($text)? };
    (@read Number, $text:ident) => { $crate::config::flag::parse_int($text)? };
    (@read Level, $text:ident) => { $crate::config::flag::parse_level($text)? };
    (@read Duration, $text:ident) => { $crate::config::flag::parse_duration($text)? };
    (@read Text, $text:ident) => { $text.to_owned() };
    (@read Modules, $text:ident) => { $text.to_owned() };
    (@read List, $text:ident) => { $crate::config::flag::parse_list($text) };
    (@read IntList, $text:ident) => { $crate::config::flag::parse_int_list($text)? };
    (@read Ip, $text:ident) => { Some($crate::config::flag::parse_ip($text)?) };
    (@read Quantity, $text:ident) => { $crate::config::flag::parse_quantity($text)? };
    (@ $section:ident, $kind:ident, $name:literal, $default:literal, $help:expr, $set:expr) => {
        $crate::config::flag::Flag {
            name: $name,
            short: None,
            kind: $crate::config::flag::Kind::$kind,
            default: $default,
            help: $help,
            section: $crate::config::flag::Section::$section,
            deprecated: None,
            inert: None,
            own: false,
            set: $set,
        }
    };
}

mod access;
mod controllers;
mod generic;
mod process;
mod serving;
#[cfg(test)]
mod tests;

impl Flag {
    const fn own(mut self) -> Self {
        self.own = true;
        self
    }

    const fn short(mut self, letter: char) -> Self {
        self.short = Some(letter);
        self
    }

    const fn deprecated(mut self, reason: &'static str) -> Self {
        self.deprecated = Some(reason);
        self
    }

    const fn inert(mut self, reason: &'static str) -> Self {
        self.inert = Some(reason);
        self
    }
}

/// All flags, in the order of the help within each section.
pub fn flags() -> &'static [Flag] {
    static FLAGS: LazyLock<Vec<Flag>> = LazyLock::new(|| {
        [
            generic::FLAGS,
            controllers::FLAGS,
            serving::FLAGS,
            access::FLAGS,
            process::FLAGS,
        ]
        .concat()
    });
    &FLAGS
}
