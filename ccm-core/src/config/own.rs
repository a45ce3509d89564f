//! The flags of a provider, as given.

use std::collections::BTreeMap;

use super::{
    LowArgs,
    flag::{Flag, Kind, Section, SetFn, parse_bool, parse_float, parse_int, parse_pairs},
};

impl Flag {
    /// A flag that only one provider has. `title` is its group in the help. The value is checked by
    /// its kind and kept as text; [`OwnFlags`] reads it.
    ///
    /// Kinds that need a reader of their own (certificates, quantities, …) are taken as text.
    pub const fn of_provider(
        title: &'static str,
        kind: Kind,
        name: &'static str,
        default: &'static str,
        help: &'static str,
    ) -> Self {
        let set: SetFn = match kind {
            Kind::Bool => |_, text| parse_bool(text).map(drop),
            Kind::Int | Kind::Number => |_, text| parse_int(text).map(drop),
            Kind::Float | Kind::Double => |_, text| parse_float(text).map(drop),
            Kind::Pairs => |_, text| parse_pairs(text).map(drop),
            _ => |_, _| Ok(()),
        };
        Self {
            name,
            short: None,
            kind,
            default,
            help,
            section: Section::Provider(title),
            deprecated: None,
            inert: None,
            own: false,
            set,
        }
    }
}

/// One flag of a provider on the command line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OwnFlag {
    /// The provider.
    pub(super) provider: &'static str,
    /// Its values in the order of the command line; the default when it is not given.
    pub(super) values: Vec<String>,
    /// Whether it is given.
    pub(super) given: bool,
}

/// The flags of the selected provider, by name without dashes. Every value was accepted by its
/// flag's kind. A name that is no flag of the provider reads as if it were not given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnFlags(BTreeMap<&'static str, Vec<String>>);

impl OwnFlags {
    /// Those of the provider.
    pub(super) fn of(args: &LowArgs, provider: &str) -> Self {
        let flags = args.own_flags.iter();
        Self(
            flags
                .filter(|(_, flag)| flag.provider == provider)
                .map(|(name, flag)| (*name, flag.values.clone()))
                .collect(),
        )
    }

    /// Flags with these values, for tests of a provider.
    pub fn given(flags: &[(&'static str, &str)]) -> Self {
        let mut all: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        for (name, value) in flags {
            all.entry(name).or_default().push((*value).to_owned());
        }
        Self(all)
    }

    /// Every value, in the order of the command line.
    pub fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The last value; empty when there is none.
    pub fn text(&self, name: &str) -> &str {
        self.all(name)
            .last()
            .map(String::as_str)
            .unwrap_or_default()
    }

    /// The last value of a boolean.
    pub fn is_set(&self, name: &str) -> bool {
        parse_bool(self.text(name)).unwrap_or_default()
    }

    /// The last value of an integer.
    pub fn int(&self, name: &str) -> i32 {
        parse_int(self.text(name)).unwrap_or_default()
    }

    /// The last value of a number.
    pub fn number(&self, name: &str) -> f64 {
        parse_float(self.text(name)).unwrap_or_default()
    }

    /// The pairs of all values; of a key given twice the last value stands.
    pub fn pairs(&self, name: &str) -> BTreeMap<String, String> {
        let all = self.all(name).iter();
        all.filter_map(|text| parse_pairs(text).ok())
            .flatten()
            .collect()
    }
}
