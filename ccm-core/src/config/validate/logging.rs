//! The log.

use super::{check::Check, switch_on};
use crate::config::{FeatureGate, LogFormat, LoggingSettings, LowArgs};

pub(super) fn logging(args: &LowArgs, check: &mut Check<'_>) -> LoggingSettings {
    let given = &args.logging;
    let format = match given.format.as_str() {
        "json" => LogFormat::Json,
        "text" => LogFormat::Text,
        other => {
            check.errors.push(format!(
                "--logging-format must be \"text\" or \"json\", got {other:?}"
            ));
            LogFormat::Text
        }
    };
    check.period("--log-flush-frequency", given.flush_frequency);
    vmodule(&given.vmodule, format, check);
    if !args.feature_gates.enabled(FeatureGate::LoggingAlphaOptions) {
        for (flag, value, used) in [
            (
                "--log-text-split-stream",
                "true".to_owned(),
                given.text_split_stream,
            ),
            (
                "--log-json-split-stream",
                "true".to_owned(),
                given.json_split_stream,
            ),
            (
                "--log-text-info-buffer-size",
                given.text_buffer.to_string(),
                given.text_buffer != 0,
            ),
            (
                "--log-json-info-buffer-size",
                given.json_buffer.to_string(),
                given.json_buffer != 0,
            ),
        ] {
            check.that(!used, || {
                let gate = switch_on(FeatureGate::LoggingAlphaOptions);
                format!("{flag}={value} needs {gate}")
            });
        }
    }
    LoggingSettings {
        format,
        verbosity: given.verbosity,
    }
}

fn vmodule(text: &str, format: LogFormat, check: &mut Check<'_>) {
    let is_module = |item: &str| {
        item.split_once('=').is_some_and(|(pattern, level)| {
            !pattern.is_empty() && !level.contains('=') && level.parse::<u32>().is_ok()
        })
    };
    let fine = text
        .split(',')
        .all(|item| item.is_empty() || is_module(item));
    check.that(fine, || {
        format!("--vmodule must be pattern=N, comma separated, got {text:?}")
    });
    check.that(
        !fine || text.is_empty() || format == LogFormat::Text,
        || format!("--vmodule={text} is only for --logging-format=text"),
    );
}
