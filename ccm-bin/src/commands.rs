//! `plan` and `gc`: commands beside running, with the manager's flags and a few of their own.

use std::{fmt::Write as _, io::Write as _, time::Duration};

use ccm_core::{
    cloud::Registry,
    config::{Env, GoDuration, Settings},
    gc, plan,
    runtime::{Clock, Random},
    session::{Inputs, SessionError},
};

use crate::Exit;

/// A flag of a command.
struct OwnFlag {
    name: &'static str,
    /// The word for its value; empty where there is none to give.
    value: &'static str,
    default: &'static str,
    help: &'static str,
}

const OUTPUT: OwnFlag = OwnFlag {
    name: "output",
    value: "text|json",
    default: "text",
    help: "How the answer is printed.",
};

const DELETE: OwnFlag = OwnFlag {
    name: "delete",
    value: "",
    default: "false",
    help: "Remove what was left behind and is older than --min-age.",
};

const MIN_AGE: OwnFlag = OwnFlag {
    name: "min-age",
    value: "duration",
    default: "1h",
    help: "What is younger is left, and so is what has no known age.",
};

/// What is younger than this by default is left: longer than any object takes to come to its owner.
const DEFAULT_MIN_AGE: Duration = Duration::from_secs(60 * 60);

/// A command.
pub(crate) struct Spec {
    name: &'static str,
    about: &'static str,
    flags: &'static [OwnFlag],
    /// What each exit status means.
    statuses: [&'static str; 3],
}

const PLAN: Spec = Spec {
    name: "plan",
    about: "Prints what the manager would change in the cloud and at the API server if it started \
            now with the same flags, and changes nothing.",
    flags: &[OUTPUT],
    statuses: [
        "nothing would be changed",
        "the plan could not be made, or not completely",
        "something would be changed, or an object cannot be served",
    ],
};

const GC: Spec = Spec {
    name: "gc",
    about: "Lists what carries this cluster's tags in the cloud and has no owner: load balancers, \
            target groups, security groups, rules, routes. Safe beside a running manager.",
    flags: &[OUTPUT, DELETE, MIN_AGE],
    statuses: [
        "nothing is left behind, or nothing any more",
        "the list could not be made, or something could not be removed",
        "something is left behind",
    ],
};

const ALL: [&Spec; 2] = [&PLAN, &GC];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Output {
    #[default]
    Text,
    Json,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// See [`plan::plan`].
    Plan,
    /// See [`gc::gc`].
    Gc(gc::Options),
}

/// A command as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    task: Task,
    output: Output,
}

/// Takes command and own flags out of a command line; what is left are the manager's flags. `None`
/// when no command is asked for.
///
/// # Errors
/// One line for each own flag that cannot be read.
pub(crate) fn take(args: &mut Vec<String>) -> Option<Result<Asked, Vec<String>>> {
    let spec = ALL
        .into_iter()
        .find(|spec| args.first().is_some_and(|a| a == spec.name))?;
    let mut rest = Vec::with_capacity(args.len());
    let mut given: Vec<(&OwnFlag, String)> = Vec::new();
    let mut errors = Vec::new();
    let mut words = std::mem::take(args).into_iter().skip(1);
    while let Some(word) = words.next() {
        let bare = word.strip_prefix("--").unwrap_or_default();
        let (name, value) = match bare.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (bare, None),
        };
        let name = name.replace('_', "-");
        let Some(flag) = spec.flags.iter().find(|flag| flag.name == name) else {
            rest.push(word);
            continue;
        };
        let value = match value {
            Some(value) => Some(value),
            None if flag.value.is_empty() => Some("true".to_owned()),
            None => words.next(),
        };
        match value {
            Some(value) => given.push((flag, value)),
            None => errors.push(format!("--{name}: needs a value: {}", flag.value)),
        }
    }
    *args = rest;
    Some(read(spec, given, errors))
}

fn read(
    spec: &Spec,
    given: Vec<(&OwnFlag, String)>,
    mut errors: Vec<String>,
) -> Result<Asked, Vec<String>> {
    let mut output = Output::Text;
    let mut options = gc::Options {
        delete: false,
        min_age: DEFAULT_MIN_AGE,
    };
    for (flag, value) in given {
        match (flag.name, value.as_str()) {
            ("output", "text") => output = Output::Text,
            ("output", "json") => output = Output::Json,
            ("delete", "true") => options.delete = true,
            ("delete", "false") => options.delete = false,
            ("min-age", text) => match min_age(text) {
                Ok(age) => options.min_age = age,
                Err(error) => errors.push(format!("--min-age: {error}")),
            },
            (name, value) => {
                let accepted = if flag.value.is_empty() {
                    "true or false"
                } else {
                    flag.value
                };
                errors.push(format!("--{name}: {value:?} is not one of {accepted}"));
            }
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let task = if spec.name == GC.name {
        Task::Gc(options)
    } else {
        Task::Plan
    };
    Ok(Asked { task, output })
}

fn min_age(text: &str) -> Result<Duration, String> {
    let age = GoDuration::parse(text).map_err(|error| error.to_string())?;
    age.to_std()
        .ok_or_else(|| format!("{text:?} is negative: write for example 1h"))
}

/// Does it. Prints to standard output.
pub(crate) async fn run(asked: Asked, settings: Settings, clouds: Registry, env: Env) -> Exit {
    let inputs = Inputs {
        settings,
        clouds,
        env,
        clock: Clock::system(),
        random: Random::from_system(),
        client: None,
    };
    match answer(asked, inputs).await {
        Ok((text, exit)) => {
            // Whoever closes the pipe has read enough.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            exit
        }
        Err(error) => crate::refuse(&[error.to_string()]),
    }
}

async fn answer(asked: Asked, inputs: Inputs) -> Result<(String, Exit), SessionError> {
    let json = asked.output == Output::Json;
    Ok(match asked.task {
        Task::Plan => {
            let report = Box::pin(plan::plan(inputs)).await?;
            let exit = match report.verdict() {
                plan::Verdict::Nothing => Exit::Success,
                plan::Verdict::Something => Exit::Something,
                plan::Verdict::Incomplete => Exit::Failure,
            };
            (
                if json {
                    report.to_json()
                } else {
                    report.to_string()
                },
                exit,
            )
        }
        Task::Gc(options) => {
            let report = Box::pin(gc::gc(inputs, options)).await?;
            let exit = match report.verdict() {
                gc::Verdict::Nothing => Exit::Success,
                gc::Verdict::Something => Exit::Something,
                gc::Verdict::Failed => Exit::Failure,
            };
            (
                if json {
                    report.to_json()
                } else {
                    report.to_string()
                },
                exit,
            )
        }
    })
}

/// What the help says of the commands.
pub(crate) fn help(program: &str) -> String {
    let mut text = String::from("\nCommands (each takes the flags above as well):\n");
    for spec in ALL {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  {program} {} [flags]\n", spec.name);
        let _ = writeln!(text, "          {}", spec.about);
        for flag in spec.flags {
            let _ = writeln!(
                text,
                "      --{} {} {} (default {})",
                flag.name, flag.value, flag.help, flag.default
            );
        }
    }
    text
}

/// The reference page of the commands as Markdown.
pub(crate) fn reference() -> String {
    let mut text = String::from(
        "# Commands\n\n<!-- Made by `cargo xtask docs` from the commands' own table; do not edit. -->\n\n\
         Without a command the manager runs. A command is the first argument; it takes all flags of \
         the manager (see [flags](flags.md)) and reads them, the kubeconfig and the cloud-config file \
         as the manager does, but starts no controller, serves nothing and takes no lease. Answers \
         go to standard output, the log to standard error (warnings only, unless `-v` asks for \
         more).\n",
    );
    for spec in ALL {
        let _ = write!(
            text,
            "\n## {}\n\n{}\n\n| Flag | Value | Default | Meaning |\n|---|---|---|---|\n",
            spec.name, spec.about
        );
        for flag in spec.flags {
            let value = flag.value.replace('|', " or ");
            let _ = writeln!(
                text,
                "| `--{}` | {value} | `{}` | {} |",
                flag.name, flag.default, flag.help
            );
        }
        text.push_str("\n| Exit status | Meaning |\n|---|---|\n");
        for (status, meaning) in spec.statuses.iter().enumerate() {
            let _ = writeln!(text, "| {status} | {meaning} |");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(line: &str) -> (Option<Result<Asked, Vec<String>>>, Vec<String>) {
        let mut args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let asked = take(&mut args);
        (asked, args)
    }

    #[test]
    fn own_flags_are_taken_and_the_managers_are_left() {
        let plan = |output| Asked {
            task: Task::Plan,
            output,
        };
        let gc = |delete, seconds| Asked {
            task: Task::Gc(gc::Options {
                delete,
                min_age: Duration::from_secs(seconds),
            }),
            output: Output::Text,
        };
        for (line, want, rest) in [
            ("plan", plan(Output::Text), ""),
            ("plan --output json -v=2", plan(Output::Json), "-v=2"),
            (
                "plan --cloud-provider=aws --output=json",
                plan(Output::Json),
                "--cloud-provider=aws",
            ),
            ("gc --kubeconfig k", gc(false, 3600), "--kubeconfig k"),
            ("gc --delete --min-age=90m", gc(true, 5400), ""),
            ("gc --delete=false --min_age 0", gc(false, 0), ""),
        ] {
            let (asked, left) = taken(line);
            assert_eq!(asked, Some(Ok(want)), "{line}");
            assert_eq!(left.join(" "), rest, "{line}");
        }
        // A flag of the other command is none of ours: the manager's reader names it.
        let (asked, left) = taken("plan --delete");
        assert!(matches!(asked, Some(Ok(_))));
        assert_eq!(left, ["--delete"]);
        assert_eq!(taken("--cloud-provider=aws plan").0, None);
    }

    #[test]
    fn a_value_that_cannot_be_read_is_named_with_what_is_accepted() {
        for (line, parts) in [
            ("plan --output yaml", ["--output", "text|json"]),
            ("plan --output", ["--output", "needs a value"]),
            ("gc --delete=perhaps", ["--delete", "true or false"]),
            ("gc --min-age 5", ["--min-age", "5s"]),
            ("gc --min-age=-1h", ["--min-age", "negative"]),
        ] {
            let Some(Err(errors)) = taken(line).0 else {
                panic!("{line} is accepted");
            };
            assert_eq!(errors.len(), 1, "{errors:?}");
            for part in parts {
                assert!(errors[0].contains(part), "{line}: {errors:?}");
            }
        }
    }

    #[test]
    fn the_help_and_the_reference_name_every_own_flag() {
        for text in [help("ccm"), reference()] {
            for flag in ALL.iter().flat_map(|spec| spec.flags) {
                assert!(text.contains(&format!("--{}", flag.name)), "{text}");
            }
        }
    }
}
