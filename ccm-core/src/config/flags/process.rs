//! Flags of the connection, of debugging and of the log.

use crate::config::{
    VersionForm,
    flag::{Flag, VersionArg, parse_bool, parse_version},
};

/// Why the flags about how log lines are written change nothing.
const UNBUFFERED: &str = "every log line goes to standard error at once";

pub(super) const FLAGS: &[Flag] = &[
    flag!(
        Debugging,
        Bool,
        "contention-profiling",
        "false",
        contention_profiling,
        "Whether waits for locks are profiled."
    )
    .inert("there is no such profile here"),
    flag!(
        Debugging,
        Bool,
        "profiling",
        "true",
        profiling,
        "Whether the secure port serves /debug pages to whoever may get them."
    ),
    flag!(
        Misc,
        Text,
        "health-bind-address",
        "",
        health_bind_address,
        "IP:port of /healthz, /livez, /readyz and /metrics over plain HTTP, for example \
         127.0.0.1:10268. Empty: off, the secure port serves them."
    )
    .own(),
    flag!(
        Misc,
        Text,
        "kubeconfig",
        "",
        kubeconfig,
        "The path of a kubeconfig file. Empty: the pod's service account, or --master."
    ),
    flag!(
        Misc,
        Text,
        "master",
        "",
        master,
        "The URL of the API server; it overrides the one in the kubeconfig."
    ),
    flag!(
        Misc,
        Duration,
        "node-status-update-frequency",
        "5m0s",
        node_status_update_frequency,
        "The time between two refreshes of Node addresses."
    ),
    flag!(
        custom Global, Bool, "help", "",
        |args, text| {
            args.help = parse_bool(text)?;
            Ok(())
        },
        "Print this help."
    )
    .short('h'),
    flag!(
        Global,
        Duration,
        "log-flush-frequency",
        "5s",
        logging.flush_frequency,
        "The longest time between two flushes of the log."
    )
    .inert(UNBUFFERED),
    flag!(
        Global,
        Quantity,
        "log-json-info-buffer-size",
        "0",
        logging.json_buffer,
        "The buffer for lines that tell no error. Needs the feature gate LoggingAlphaOptions."
    )
    .inert(UNBUFFERED),
    flag!(
        Global,
        Bool,
        "log-json-split-stream",
        "false",
        logging.json_split_stream,
        "Whether lines that tell no error go to standard output. Needs the feature gate \
         LoggingAlphaOptions."
    )
    .inert(UNBUFFERED),
    flag!(
        Global,
        Quantity,
        "log-text-info-buffer-size",
        "0",
        logging.text_buffer,
        "As --log-json-info-buffer-size, for the text form."
    )
    .inert(UNBUFFERED),
    flag!(
        Global,
        Bool,
        "log-text-split-stream",
        "false",
        logging.text_split_stream,
        "As --log-json-split-stream, for the text form."
    )
    .inert(UNBUFFERED),
    flag!(
        Global,
        Text,
        "logging-format",
        "text",
        logging.format,
        "The form of the log: text or json."
    ),
    flag!(
        Global,
        Level,
        "v",
        "0",
        logging.verbosity,
        "How much is logged: 0 and 1 what changes, 2 to 4 also what is decided, from 5 on \
         everything of ours, from 8 on also what the Kubernetes client library does."
    )
    .short('v'),
    flag!(
        custom Global, Version, "version", "false",
        |args, text| {
            (args.version, args.reported_version) = match parse_version(text)? {
                VersionArg::Off => (None, None),
                VersionArg::Print => (Some(VersionForm::Text), None),
                VersionArg::PrintRaw => (Some(VersionForm::Raw), None),
                VersionArg::Report(version) => (None, Some(version)),
            };
            Ok(())
        },
        "Print the version; --version=raw prints all that is known of the build; \
         --version=v1.2.3 prints nothing and is the version that is reported from then on."
    ),
    flag!(
        Global,
        Modules,
        "vmodule",
        "",
        logging.vmodule,
        "Verbosities of single files, as pattern=N,other=N. Only for the text form."
    )
    .inert("the patterns are names of Go files; see -v"),
];
