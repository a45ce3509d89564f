//! The log: to standard error, as text or JSON, as much as `-v` says.

use std::sync::Arc;

use ccm_core::{
    config::{LogFormat, LoggingSettings},
    runtime::SetVerbosity,
};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    filter::Targets, fmt, layer::SubscriberExt as _, reload, util::SubscriberInitExt as _,
};

/// From this verbosity on the client library's own log is shown.
const LIBRARIES_FROM: i32 = 8;

/// Starts logging; returns what changes its verbosity. Where a log is there already (several
/// managers in one process) it stays.
pub(crate) fn init(settings: LoggingSettings) -> SetVerbosity {
    let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let (filter, handle) = reload::Layer::new(filter(settings.verbosity));
    let outcome = match settings.format {
        LogFormat::Text => tracing_subscriber::registry()
            .with(filter)
            .with(layer)
            .try_init(),
        LogFormat::Json => tracing_subscriber::registry()
            .with(filter)
            .with(layer.json().flatten_event(true))
            .try_init(),
    };
    if outcome.is_err() {
        tracing::debug!("a log is there already, it stays");
    }
    Arc::new(move |text| set_verbosity(&handle, text))
}

/// The verbosity at which only warnings are shown: what a command prints must not be drowned.
const WARNINGS_ONLY: i32 = i32::MIN;

/// The settings for a command: warnings only, unless more is asked for.
pub(crate) const fn for_commands(settings: LoggingSettings) -> LoggingSettings {
    LoggingSettings {
        verbosity: if settings.verbosity == 0 {
            WARNINGS_ONLY
        } else {
            settings.verbosity
        },
        ..settings
    }
}

/// The answer is that of the Go managers.
fn set_verbosity<S>(handle: &reload::Handle<Targets, S>, text: &str) -> Result<String, String> {
    let verbosity = text
        .trim()
        .parse()
        .map_err(|_| format!("{text:?} is not a verbosity: write a number such as 4"))?;
    handle
        .reload(filter(verbosity))
        .map_err(|error| error.to_string())?;
    Ok(format!(
        "successfully set klog.logging.verbosity to {verbosity}"
    ))
}

/// Our crates by verbosity. Other libraries stay at warnings: what they log below that may hold
/// credentials. The client library repeats every failed request and every failed watch although
/// whoever made it reports it, so those parts are silent at first.
fn filter(verbosity: i32) -> Targets {
    let ours = match verbosity {
        ..1 if verbosity == WARNINGS_ONLY => LevelFilter::WARN,
        ..=1 => LevelFilter::INFO,
        2..=4 => LevelFilter::DEBUG,
        5.. => LevelFilter::TRACE,
    };
    let (requests, client) = if verbosity >= LIBRARIES_FROM {
        (LevelFilter::DEBUG, LevelFilter::DEBUG)
    } else {
        (LevelFilter::OFF, LevelFilter::WARN)
    };
    Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("ccm", ours)
        .with_target("kube", client)
        // An answer that cannot be read is logged there as a whole.
        .with_target("kube_client::client", requests)
        .with_target("kube_runtime::watcher", requests)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn the_verbosity_can_be_changed_and_only_to_a_number() {
        let (_layer, handle) = reload::Layer::<_, tracing_subscriber::Registry>::new(filter(0));
        let shows_debug = || {
            let shows = |filter: &Targets| filter.would_enable("ccm_core", &Level::DEBUG);
            handle.with_current(shows).unwrap()
        };
        assert!(!shows_debug());
        let answer = set_verbosity(&handle, "4").unwrap();
        assert_eq!(answer, "successfully set klog.logging.verbosity to 4");
        assert!(shows_debug());
        assert!(
            set_verbosity(&handle, "loud")
                .unwrap_err()
                .contains("a number")
        );
        assert!(shows_debug());
    }

    #[test]
    fn verbosity_decides_what_is_logged() {
        for (verbosity, target, level, shown) in [
            (
                WARNINGS_ONLY,
                "ccm_core::runtime::manager",
                Level::INFO,
                false,
            ),
            (
                WARNINGS_ONLY,
                "ccm_core::runtime::manager",
                Level::WARN,
                true,
            ),
            (0, "ccm_core::runtime::manager", Level::INFO, true),
            (1, "ccm_core::runtime::manager", Level::DEBUG, false),
            (2, "ccm_aws::instances", Level::DEBUG, true),
            (4, "ccm_aws::instances", Level::TRACE, false),
            (5, "ccm_core::kube", Level::TRACE, true),
            (10, "hyper::proto", Level::DEBUG, false),
            (10, "aws_sigv4::http_request", Level::TRACE, false),
            (0, "aws_config::imds", Level::WARN, true),
            (0, "kube_client::client::builder", Level::ERROR, false),
            (8, "kube_client::client::builder", Level::DEBUG, true),
            // Our own line tells of a failed watch.
            (0, "kube_runtime::watcher", Level::WARN, false),
            (0, "kube_runtime::controller", Level::WARN, true),
        ] {
            let enabled = filter(verbosity).would_enable(target, &level);
            assert_eq!(enabled, shown, "-v={verbosity} {target} {level}");
        }
    }
}
