//! The flags of the tagging controller.

use ccm_core::config::{Flag, Kind, OwnFlags};

use crate::tags::Tags;

/// The group in the help.
const TITLE: &str = "Tagging-controller";
/// The one kind of resource that is tagged.
const INSTANCE: &str = "instance";

const TAGS: &str = "tags";
const RESOURCES: &str = "resources";
const RATE: &str = "tagging-controller-rate-limit";
const BURST: &str = "tagging-controller-burst-limit";
const WORKERS: &str = "tagging-controller-concurrent-node-syncs";
const BATCHING: &str = "tagging-controller-enable-batching";

/// The flags. What is wrong with them is told only if the controller runs.
pub const FLAGS: &[Flag] = &[
    Flag::of_provider(
        TITLE,
        Kind::Pairs,
        TAGS,
        "",
        "Tags of the Nodes' machines, as key=value.",
    ),
    Flag::of_provider(
        TITLE,
        Kind::Array,
        RESOURCES,
        "",
        "What is tagged: instance is the only kind.",
    ),
    Flag::of_provider(
        TITLE,
        Kind::Double,
        RATE,
        "0",
        "Nodes taken up a second; 0, or no burst, is no limit. Retries have a limit of their own.",
    ),
    Flag::of_provider(
        TITLE,
        Kind::Number,
        BURST,
        "0",
        "Nodes taken up at once, together with the rate.",
    ),
    Flag::of_provider(
        TITLE,
        Kind::Number,
        WORKERS,
        "1",
        "Nodes worked on at once.",
    ),
    Flag::of_provider(
        TITLE,
        Kind::Bool,
        BATCHING,
        "false",
        "Whether the calls of Nodes that are worked on at once are joined.",
    ),
];

/// Why the controller cannot start.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("Tagging controller inputs are not properly set: {0}")]
pub struct InputError(String);

/// What the flags say.
#[derive(Clone, Debug, PartialEq)]
pub struct TaggingSettings {
    /// `--tags`, at least one.
    pub tags: Tags,
    /// `--tagging-controller-rate-limit` a second and `--tagging-controller-burst-limit`, both above
    /// zero; `None` without a limit.
    pub limit: Option<(f64, f64)>,
    /// `--tagging-controller-concurrent-node-syncs`, at least 1.
    pub workers: usize,
    /// `--tagging-controller-enable-batching`.
    pub batching: bool,
}

impl TaggingSettings {
    /// Reads the flags.
    ///
    /// # Errors
    /// The first thing that is wrong, in the Go manager's order and words.
    pub fn of(flags: &OwnFlags) -> Result<Self, InputError> {
        let wrong = |text: String| Err(InputError(text));
        let tags = flags.pairs(TAGS);
        if tags.is_empty() {
            return wrong("--tags must not be empty and must be a form of key=value".to_owned());
        }
        let resources = flags.all(RESOURCES);
        if resources.is_empty() {
            return wrong("--resources must not be empty; write --resources=instance".to_owned());
        }
        let (rate, burst) = (flags.number(RATE), flags.int(BURST));
        for (flag, negative) in [(RATE, rate < 0.0), (BURST, burst < 0)] {
            if negative {
                return wrong(format!("--{flag} should not be less than zero"));
            }
        }
        let workers = usize::try_from(flags.int(WORKERS)).unwrap_or_default();
        if workers == 0 {
            return wrong(format!("--{WORKERS} must be a positive number"));
        }
        if let Some(other) = resources.iter().find(|one| *one != INSTANCE) {
            return wrong(format!(
                "{other} is not a supported resource. Current supported resources [{INSTANCE}]; \
                 write --resources=instance"
            ));
        }
        Ok(Self {
            tags,
            limit: (rate > 0.0 && burst > 0).then(|| (rate, f64::from(burst))),
            workers,
            batching: flags.is_set(BATCHING),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ccm_core::{
        cloud::{BuildError, Factory, Own, Registry},
        config::{LowArgs, Settings},
    };

    use super::*;
    use crate::tagging::CONTROLLER;

    fn clouds() -> Registry {
        let fail = || BuildError::Config("not built".to_owned());
        let factory = |name| {
            Factory::new(
                name,
                Arc::new(move |_| Box::pin(async move { Err(fail()) })),
            )
        };
        let own = Own {
            flags: FLAGS,
            controllers: &[CONTROLLER],
        };
        Registry::new(vec![factory("aws").with_own(own), factory("gcp")]).unwrap()
    }

    fn settings(args: &[&str]) -> Result<Settings, String> {
        let low = LowArgs::read_for(args.iter().copied(), &clouds());
        Settings::from_args(&low).map_err(|errors| errors.to_string())
    }

    fn on_aws(args: &[&str]) -> Result<TaggingSettings, String> {
        let args: Vec<&str> = ["--cloud-provider=aws"]
            .iter()
            .chain(args)
            .copied()
            .collect();
        let settings = settings(&args).unwrap();
        TaggingSettings::of(&settings.own_flags).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_are_read_as_by_the_go_manager() {
        let read = on_aws(&[
            "--tags=team=a,stage=prod",
            "--tags=team=b",
            "--resources=instance",
            "--resources",
            "instance",
        ])
        .unwrap();
        let tags = [("team", "b"), ("stage", "prod")];
        let tags = tags.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let want = TaggingSettings {
            tags,
            limit: None,
            workers: 1,
            batching: false,
        };
        assert_eq!(read, want);
        let read = on_aws(&[
            "--tags=a=1,2",
            "--resources=instance",
            "--tagging-controller-rate-limit=0.5",
            "--tagging-controller-burst-limit=7",
            "--tagging-controller-concurrent-node-syncs=60",
            "--tagging-controller-enable-batching",
        ])
        .unwrap();
        assert_eq!(read.tags["a"], "1,2");
        assert_eq!(read.limit, Some((0.5, 7.0)));
        assert_eq!((read.workers, read.batching), (60, true));
        for half in [
            "--tagging-controller-rate-limit=5",
            "--tagging-controller-burst-limit=5",
        ] {
            let read = on_aws(&["--tags=a=1", "--resources=instance", half]).unwrap();
            assert_eq!(read.limit, None, "{half}");
        }
    }

    /// REQ-AWS-TC-12
    #[test]
    fn wrong_flags_are_told_in_the_go_managers_words() {
        for (args, want) in [
            (
                &["--resources=instance"][..],
                "--tags must not be empty and must be a form of key=value",
            ),
            (&["--tags=a=1"], "--resources must not be empty"),
            (
                &["--tags=a=1", "--resources=foo"],
                "foo is not a supported resource. Current supported resources [instance]",
            ),
            (
                &["--tags=a=1", "--resources=instance,foo"],
                "instance,foo is not a supported resource.",
            ),
            (
                &[
                    "--tags=a=1",
                    "--resources=foo",
                    "--tagging-controller-rate-limit=-1",
                ],
                "--tagging-controller-rate-limit should not be less than zero",
            ),
            (
                &[
                    "--tags=a=1",
                    "--resources=foo",
                    "--tagging-controller-burst-limit=-1",
                ],
                "--tagging-controller-burst-limit should not be less than zero",
            ),
            (
                &[
                    "--tags=a=1",
                    "--resources=foo",
                    "--tagging-controller-concurrent-node-syncs=0",
                ],
                "--tagging-controller-concurrent-node-syncs must be a positive number",
            ),
        ] {
            let error = on_aws(args).unwrap_err();
            let want = format!("Tagging controller inputs are not properly set: {want}");
            assert!(error.starts_with(&want), "{error}");
        }
    }

    /// REQ-AWS-TC-13, REQ-AWS-TC-17
    #[test]
    fn flags_that_do_not_fit_together_are_no_error_while_the_controller_is_off() {
        let read = settings(&["--cloud-provider=aws", "--resources=foo"]).unwrap();
        assert!(!read.named_controllers.contains(&CONTROLLER.name));
        let read = settings(&["--cloud-provider=aws", "--controllers=*,tagging"]).unwrap();
        assert!(read.named_controllers.contains(&CONTROLLER.name));
    }

    #[test]
    fn flags_and_controller_are_known_only_with_aws() {
        let error = settings(&["--cloud-provider=gcp", "--tags=a=1"]).unwrap_err();
        assert!(
            error.contains("--tags is a flag of --cloud-provider=aws"),
            "{error}"
        );
        let error = settings(&["--cloud-provider=gcp", "--controllers=tagging"]).unwrap_err();
        assert!(error.contains("\"tagging\" is not in the list"), "{error}");
        assert!(settings(&["--cloud-provider=gcp"]).is_ok());
        for (flag, want) in [
            ("--tags=a", "a must be formatted as key=value"),
            ("--tagging-controller-burst-limit=x", "\"x\""),
            ("--tagging-controller-rate-limit=x", "not a number"),
        ] {
            let error = settings(&["--cloud-provider=aws", flag]).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }
}
