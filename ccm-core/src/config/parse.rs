//! The command line in Go's syntax (`pflag`).
//!
//! `--flag=value` and `--flag value`; booleans only with `=`; `_` counts as `-` in names; a flag
//! given twice: the last one wins, except for lists, which append; `-v=4`, `-v 4`, `-v4`.

use std::collections::BTreeMap;

use super::{LowArgs, flag::Flag, flags, own::OwnFlag};
use crate::cloud::Registry;

/// Everything that is wrong with a command line or with the settings, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<String>);

impl ConfigErrors {
    pub(super) const fn new(errors: Vec<String>) -> Self {
        Self(errors)
    }

    /// The errors, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl std::fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for ConfigErrors {}

impl LowArgs {
    /// Reads a command line without the program's name.
    ///
    /// # Errors
    /// Unknown flags, missing and malformed values, positional arguments: all of them at once.
    pub fn parse<I>(args: I) -> Result<Self, ConfigErrors>
    where
        I: IntoIterator<Item: Into<String>>,
    {
        let read = Self::read(args);
        if read.is_readable() {
            Ok(read)
        } else {
            Err(ConfigErrors::new(read.errors))
        }
    }

    /// Reads a command line without the program's name and keeps what is wrong with it, so that
    /// [`Settings::from_args`](super::Settings::from_args) can tell it together with what does not
    /// fit. A flag that cannot be read has its default.
    pub fn read<I>(args: I) -> Self
    where
        I: IntoIterator<Item: Into<String>>,
    {
        Self::read_for(args, &Registry::default())
    }

    /// As [`read`](Self::read), with the flags and controllers that only these clouds have.
    pub fn read_for<I>(args: I, clouds: &Registry) -> Self
    where
        I: IntoIterator<Item: Into<String>>,
    {
        let mut parser = Parser::with_defaults(clouds);
        let mut args = args.into_iter().map(Into::into);
        while let Some(arg) = args.next() {
            if arg == "--" {
                for rest in args.by_ref() {
                    parser.positional(&rest);
                }
            } else if let Some(long) = arg.strip_prefix("--") {
                parser.long(long, &mut args);
            } else if let Some(short) = arg.strip_prefix('-').filter(|s| !s.is_empty()) {
                parser.short(short, &mut args);
            } else {
                parser.positional(&arg);
            }
        }
        parser.args
    }
}

struct Parser {
    flags: Vec<&'static Flag>,
    args: LowArgs,
    given: BTreeMap<&'static str, String>,
}

impl Parser {
    fn with_defaults(clouds: &Registry) -> Self {
        let mut parser = Self {
            flags: flags().iter().collect(),
            args: LowArgs::default(),
            given: BTreeMap::new(),
        };
        for (provider, own) in clouds.own() {
            let names = own.controllers.iter().map(|own| (provider, own.name));
            parser.args.own_controllers.extend(names);
            parser.flags.extend(own.flags);
            for flag in own.flags {
                let default = Some(flag.default.to_owned()).filter(|text| !text.is_empty());
                let flag_ = OwnFlag {
                    provider,
                    values: default.into_iter().collect(),
                    given: false,
                };
                parser.args.own_flags.insert(flag.name, flag_);
            }
        }
        for flag in parser.flags.clone() {
            parser
                .args
                .effective
                .insert(flag.name, flag.default.to_owned());
            if !flag.default.is_empty() {
                parser.set(flag, flag.default);
            }
        }
        parser
    }

    fn find(&self, is_it: impl Fn(&Flag) -> bool) -> Option<&'static Flag> {
        self.flags.iter().copied().find(|flag| is_it(flag))
    }

    fn set(&mut self, flag: &Flag, value: &str) {
        if let Err(reason) = (flag.set)(&mut self.args, value) {
            self.args.errors.push(format!(
                "invalid argument {value:?} for \"--{}\": {reason}",
                flag.name
            ));
            self.args.unreadable.insert(flag.name);
        }
    }

    fn long(&mut self, text: &str, rest: &mut impl Iterator<Item = String>) {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let name = name.replace('_', "-");
        match self.find(|flag| flag.name == name) {
            Some(flag) => self.given(flag, value, rest),
            None => self.args.errors.push(unknown(&name, &self.flags)),
        }
    }

    /// `-v=4`, `-v 4`, `-v4`, `-h`.
    fn short(&mut self, text: &str, rest: &mut impl Iterator<Item = String>) {
        let mut letters = text.chars();
        let letter = letters.next();
        let after = letters.as_str();
        let Some(flag) = self.find(|flag| flag.short.is_some() && flag.short == letter) else {
            let letter = letter.unwrap_or('-');
            self.args
                .errors
                .push(format!("unknown shorthand flag: {letter:?} in -{text}"));
            return;
        };
        let value = if let Some(value) = after.strip_prefix('=') {
            Some(value.to_owned())
        } else if after.is_empty() {
            None
        } else if flag.kind.bare_value().is_none() {
            Some(after.to_owned())
        } else {
            // Several letters in one argument, as in `-hv=4`.
            self.given(flag, None, rest);
            return self.short(after, rest);
        };
        self.given(flag, value, rest);
    }

    fn given(
        &mut self,
        flag: &'static Flag,
        value: Option<String>,
        rest: &mut impl Iterator<Item = String>,
    ) {
        let bare = flag.kind.bare_value().map(str::to_owned);
        let Some(value) = value.or(bare).or_else(|| rest.next()) else {
            self.args
                .errors
                .push(format!("flag needs an argument: --{}", flag.name));
            self.args.unreadable.insert(flag.name);
            return;
        };
        let before = self.given.get(flag.name);
        let all = match (before, flag.kind.joint()) {
            (Some(before), Some(joint)) => format!("{before}{joint}{value}"),
            _ => value.clone(),
        };
        // Only a list is set as a whole: its default goes when the first value comes.
        let new = if flag.kind.is_list() { &all } else { &value };
        self.set(flag, new);
        if let Some(own) = self.args.own_flags.get_mut(flag.name)
            && !self.args.unreadable.contains(flag.name)
        {
            if !own.given {
                own.values.clear();
            }
            own.given = true;
            own.values.push(value);
        }
        if let Some(reason) = flag.deprecated
            && !self.given.contains_key(flag.name)
        {
            let warning = format!("flag --{} is deprecated: {reason}", flag.name);
            self.args.warnings.push(warning);
        }
        self.given.insert(flag.name, all.clone());
        self.args.effective.insert(flag.name, all);
    }

    fn positional(&mut self, text: &str) {
        self.args.errors.push(format!(
            "unexpected argument {text:?}: only flags are accepted (a boolean is written --flag=false)"
        ));
    }
}

fn unknown(name: &str, known: &[&Flag]) -> String {
    let nearest = known
        .iter()
        .filter(|flag| flag.deprecated.is_none())
        .map(|flag| (distance(name, flag.name), flag.name))
        .min();
    match nearest {
        // Half wrong is no longer a typing error.
        Some((steps, known)) if steps <= known.len() / 2 => {
            format!("unknown flag: --{name}; did you mean --{known}?")
        }
        _ => format!("unknown flag: --{name}; see --help"),
    }
}

/// Levenshtein's edit distance.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (slot, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let substitute = diagonal + usize::from(x != y);
            diagonal = *slot;
            left = substitute.min(left + 1).min(*slot + 1);
            *slot = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::GoDuration;

    fn parse(args: &[&str]) -> Result<LowArgs, String> {
        LowArgs::parse(args.iter().copied()).map_err(|error| error.to_string())
    }

    #[test]
    fn every_default_is_accepted_by_its_own_flag() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.cluster_name, "kubernetes");
        assert_eq!(args.concurrent_node_syncs, 1);
        assert_eq!(args.controllers, ["*"]);
        assert_eq!(args.node_monitor_period, GoDuration::from_secs(5));
        assert!(args.leader_elect && args.configure_cloud_routes);
        for flag in flags() {
            assert!(args.effective.contains_key(flag.name));
        }
    }

    #[test]
    fn values_stand_after_an_equals_sign_or_as_the_next_argument() {
        for args in [
            ["--cloud-provider=aws", "--node-monitor-period=7s", "-v=4"].as_slice(),
            &[
                "--cloud-provider",
                "aws",
                "--node-monitor-period",
                "7s",
                "-v",
                "4",
            ],
            &["--cloud-provider=aws", "--node-monitor-period=7s", "-v4"],
            &["--cloud-provider=aws", "--node-monitor-period=7s", "--v=4"],
        ] {
            let args = parse(args).unwrap();
            assert_eq!(args.cloud_provider, "aws");
            assert_eq!(args.node_monitor_period, GoDuration::from_secs(7));
            assert_eq!(args.logging.verbosity, 4);
        }
    }

    #[test]
    fn a_boolean_takes_its_value_only_after_an_equals_sign() {
        assert!(parse(&["--node-label-refresh"]).unwrap().node_label_refresh);
        let off = parse(&["--configure-cloud-routes=false"]).unwrap();
        assert!(!off.configure_cloud_routes);
        let error = parse(&["--configure-cloud-routes", "false"]).unwrap_err();
        assert!(error.contains("unexpected argument \"false\""), "{error}");
    }

    /// REQ-APP-04
    #[test]
    fn underscores_count_as_dashes_in_names() {
        let args = parse(&["--cloud_provider=my_cloud", "--concurrent_node-syncs=3"]).unwrap();
        assert_eq!(args.cloud_provider, "my_cloud");
        assert_eq!(args.concurrent_node_syncs, 3);
    }

    #[test]
    fn the_last_of_a_repeated_flag_wins_and_lists_append() {
        let args = parse(&[
            "--cluster-name=a",
            "--cluster-name=b",
            "--controllers=*",
            "--controllers=-route,-service",
        ])
        .unwrap();
        assert_eq!(args.cluster_name, "b");
        assert_eq!(args.controllers, ["*", "-route", "-service"]);
    }

    #[test]
    fn an_unknown_flag_is_named_with_the_nearest_known_one() {
        let error = parse(&["--cloud-providr=aws"]).unwrap_err();
        assert_eq!(
            error,
            "unknown flag: --cloud-providr; did you mean --cloud-provider?"
        );
        let error = parse(&["--zzz"]).unwrap_err();
        assert_eq!(error, "unknown flag: --zzz; see --help");
        let error = parse(&["-x"]).unwrap_err();
        assert_eq!(error, "unknown shorthand flag: 'x' in -x");
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let error = parse(&[
            "serve",
            "--concurrent-node-syncs=many",
            "--node-monitor-period=5",
            "--nope-nope-nope",
            "--kubeconfig",
        ])
        .unwrap_err();
        let lines: Vec<_> = error.lines().collect();
        assert_eq!(lines.len(), 5, "{error}");
        assert!(lines[1].contains("--concurrent-node-syncs"));
        assert!(lines[2].contains("missing unit in duration"));
        assert_eq!(lines[4], "flag needs an argument: --kubeconfig");
    }

    #[test]
    fn after_two_dashes_everything_is_positional() {
        let error = parse(&["--", "--help"]).unwrap_err();
        assert!(error.contains("unexpected argument \"--help\""));
    }

    #[test]
    fn a_deprecated_flag_works_and_warns_once() {
        let args = parse(&["--allow-untagged-cloud", "--allow-untagged-cloud=true"]).unwrap();
        assert!(args.allow_untagged_cloud);
        assert_eq!(args.warnings.len(), 1);
        assert!(args.warnings[0].contains("--allow-untagged-cloud is deprecated"));
    }

    #[test]
    fn version_and_help_are_seen() {
        use crate::config::VersionForm;
        assert!(parse(&["-h"]).unwrap().help());
        for (arg, want) in [
            ("--version", Some(VersionForm::Text)),
            ("--version=true", Some(VersionForm::Text)),
            ("--version=raw", Some(VersionForm::Raw)),
            ("--version=false", None),
        ] {
            assert_eq!(parse(&[arg]).unwrap().version(), want, "{arg}");
        }
    }

    proptest! {
        #[test]
        fn no_command_line_makes_the_parser_panic(args in proptest::collection::vec(".{0,24}", 0..6)) {
            let _ = LowArgs::parse(args);
        }

        #[test]
        fn a_text_survives_both_spellings(text in "[^\u{0}]{0,20}") {
            let joined = LowArgs::parse([format!("--cluster-name={text}")]).unwrap();
            let split = LowArgs::parse(["--cluster-name".to_owned(), text.clone()]).unwrap();
            prop_assert_eq!(&joined.cluster_name, &text);
            prop_assert_eq!(&split.cluster_name, &text);
        }

        /// A command line is what its flags say: the spelling does not count.
        #[test]
        fn spellings_mean_the_same(
            given in proptest::collection::vec(
                (proptest::sample::select(flags()), "[0-9a-zA-Z:,*.=-]{0,6}"), 0..6),
        ) {
            let joined = given.iter().map(|(flag, value)| format!("--{}={value}", flag.name));
            let split = given.iter().flat_map(|(flag, value)| {
                let name = flag.name.replace('-', "_");
                if flag.kind.bare_value().is_some() {
                    vec![format!("--{name}={value}")]
                } else {
                    vec![format!("--{name}"), value.clone()]
                }
            });
            prop_assert_eq!(LowArgs::read(joined), LowArgs::read(split));
        }
    }
}
