//! Starting programs, and saying what is done and how long it took.

use std::{
    collections::VecDeque,
    process::{Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// Runs a program to its end; it prints where we print.
///
/// # Errors
/// It cannot be started or ends with another status than 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("starting {}", shown(command)))?;
    must_succeed(command, status)
}

/// Runs a program to its end and returns what it printed; its errors go where ours go.
///
/// # Errors
/// It cannot be started, ends with another status than 0, or prints no UTF-8.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("starting {}", shown(command)))?;
    must_succeed(command, output.status)?;
    String::from_utf8(output.stdout)
        .with_context(|| format!("{} printed something else than text", shown(command)))
}

fn must_succeed(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs all commands, `at_once` at a time, and prints the output of each when it has ended. After a
/// failure nothing more is started.
///
/// # Errors
/// The first that failed, by name.
pub(crate) fn run_all(commands: Vec<(String, Command)>, at_once: usize) -> Result<()> {
    let waiting = Mutex::new(VecDeque::from(commands));
    let failed: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let work = || {
        while lock(&failed).is_none() {
            let Some((name, mut command)) = lock(&waiting).pop_front() else {
                return;
            };
            let (result, took) = timed(|| run_quietly(&name, &mut command));
            match result {
                Ok(()) => println!("   {name}: done in {}", duration(took)),
                Err(error) => {
                    lock(&failed).get_or_insert(error);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(work);
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn run_quietly(name: &str, command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {}", shown(command)))?;
    // In one piece, so that two commands do not mix.
    print!(
        "-- {name}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if !output.status.success() {
        bail!("{name} failed with {}", output.status);
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| {
            let word = word.to_string_lossy();
            if word.is_empty() || word.contains(' ') {
                format!("'{word}'")
            } else {
                word.into_owned()
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs `work` and measures it.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    #[expect(
        clippy::disallowed_methods,
        reason = "xtask measures real time; nothing is decided by it"
    )]
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// Announces a step, does it, and says how long it took.
///
/// # Errors
/// The step's own.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("-- {name}");
    let (result, took) = timed(work);
    if result.is_ok() {
        println!("   done in {}", duration(took));
    }
    result
}

/// `0.4 s`, `12 s`, `4 min 5 s`.
pub(crate) fn duration(took: Duration) -> String {
    let seconds = took.as_secs();
    if seconds < 10 {
        format!("{:.1} s", took.as_secs_f64())
    } else if seconds < 60 {
        format!("{seconds} s")
    } else {
        format!("{} min {} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> (String, Command) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        (script.to_owned(), command)
    }

    #[test]
    fn after_a_failure_nothing_more_is_started() {
        let file = std::env::temp_dir().join(format!("ccm-xtask-{}", std::process::id()));
        let touch = format!("touch {}", file.display());
        let error = run_all(vec![sh("exit 3"), sh(&touch)], 1).unwrap_err();
        assert!(error.to_string().contains("exit 3 failed"), "{error}");
        assert!(!file.exists());
        run_all(vec![sh("true"), sh(&touch)], 2).unwrap();
        assert!(file.exists());
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn durations_read_as_people_say_them() {
        for (millis, want) in [(420, "0.4 s"), (12_900, "12 s"), (245_000, "4 min 5 s")] {
            assert_eq!(duration(Duration::from_millis(millis)), want);
        }
    }

    #[test]
    fn a_failing_program_is_named_with_its_arguments() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sh -c 'exit 3' ended with exit status: 3"
        );
    }
}
