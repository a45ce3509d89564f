use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::config::{LowArgs, Section};

/// Name, word for the type, default.
type Row = (&'static str, &'static str, &'static str);

/// Every flag of the specification's table, by section.
const TABLE: &[(Section, &[Row])] = &[
    (
        Section::Generic,
        &[
            ("allocate-node-cidrs", "", "false"),
            ("allow-untagged-cloud", "", "false"),
            ("cidr-allocator-type", "string", "RangeAllocator"),
            ("cloud-config", "string", ""),
            ("cloud-provider", "string", ""),
            ("cluster-cidr", "string", ""),
            ("cluster-name", "string", "kubernetes"),
            ("configure-cloud-routes", "", "true"),
            ("controller-start-interval", "duration", "0s"),
            ("controllers", "strings", "*"),
            ("external-cloud-volume-plugin", "string", ""),
            ("feature-gates", "mapStringBool", ""),
            // The two rates have a default only together: no rate.
            ("kube-api-burst", "int32", ""),
            ("kube-api-qps", "float32", ""),
            (
                "kube-api-content-type",
                "string",
                "application/vnd.kubernetes.protobuf",
            ),
            ("leader-elect", "", "true"),
            ("leader-elect-lease-duration", "duration", "15s"),
            ("leader-elect-renew-deadline", "duration", "10s"),
            ("leader-elect-retry-period", "duration", "2s"),
            ("leader-elect-resource-lock", "string", "leases"),
            (
                "leader-elect-resource-name",
                "string",
                "cloud-controller-manager",
            ),
            ("leader-elect-resource-namespace", "string", "kube-system"),
            ("min-resync-period", "duration", "12h0m0s"),
            ("node-cidr-mask-size", "int32", "0"),
            ("node-cidr-mask-size-ipv4", "int32", "0"),
            ("node-cidr-mask-size-ipv6", "int32", "0"),
            ("node-sync-period", "duration", "0s"),
            ("route-reconciliation-period", "duration", "10s"),
            ("service-cluster-ip-range", "string", ""),
            ("use-service-account-credentials", "", "false"),
        ],
    ),
    (
        Section::Node,
        &[
            ("concurrent-node-syncs", "int32", "1"),
            ("concurrent-node-status-updates", "int32", "0"),
        ],
    ),
    (
        Section::NodeLifecycle,
        &[
            ("concurrent-node-lifecycle-syncs", "int32", "1"),
            ("node-monitor-period", "duration", "5s"),
        ],
    ),
    (
        Section::Service,
        &[("concurrent-service-syncs", "int32", "1")],
    ),
    (
        Section::Debugging,
        &[
            ("profiling", "", "true"),
            ("contention-profiling", "", "false"),
        ],
    ),
    (
        Section::LeaderMigration,
        &[
            ("enable-leader-migration", "", "false"),
            ("leader-migration-config", "string", ""),
        ],
    ),
    (
        Section::SecureServing,
        &[
            ("bind-address", "ip", "0.0.0.0"),
            ("secure-port", "int", "10258"),
            ("cert-dir", "string", ""),
            ("tls-cert-file", "string", ""),
            ("tls-private-key-file", "string", ""),
            ("tls-cipher-suites", "strings", ""),
            ("tls-curve-preferences", "int32s", ""),
            ("tls-min-version", "string", ""),
            ("tls-sni-cert-key", "namedCertKey", ""),
            ("disable-http2-serving", "", "false"),
            ("http2-max-streams-per-connection", "int", "0"),
            ("permit-address-sharing", "", "false"),
            ("permit-port-sharing", "", "false"),
        ],
    ),
    (
        Section::Authentication,
        &[
            ("authentication-kubeconfig", "string", ""),
            ("authentication-skip-lookup", "", "false"),
            ("authentication-token-webhook-cache-ttl", "duration", "10s"),
            ("authentication-tolerate-lookup-failure", "", "false"),
            ("client-ca-file", "string", ""),
            ("requestheader-allowed-names", "strings", ""),
            ("requestheader-client-ca-file", "string", ""),
            (
                "requestheader-extra-headers-prefix",
                "strings",
                "x-remote-extra-",
            ),
            ("requestheader-group-headers", "strings", "x-remote-group"),
            ("requestheader-uid-headers", "strings", ""),
            ("requestheader-username-headers", "strings", "x-remote-user"),
        ],
    ),
    (
        Section::Authorization,
        &[
            (
                "authorization-always-allow-paths",
                "strings",
                "/healthz,/readyz,/livez",
            ),
            ("authorization-kubeconfig", "string", ""),
            (
                "authorization-webhook-cache-authorized-ttl",
                "duration",
                "10s",
            ),
            (
                "authorization-webhook-cache-unauthorized-ttl",
                "duration",
                "10s",
            ),
        ],
    ),
    (Section::Webhook, &[("webhooks", "strings", "")]),
    (
        Section::WebhookServing,
        &[
            ("webhook-bind-address", "ip", "0.0.0.0"),
            ("webhook-secure-port", "int", "10260"),
            ("webhook-cert-dir", "string", ""),
            ("webhook-tls-cert-file", "string", ""),
            ("webhook-tls-private-key-file", "string", ""),
            ("webhook-tls-cipher-suites", "strings", ""),
            ("webhook-tls-curve-preferences", "int32s", ""),
            ("webhook-tls-min-version", "string", ""),
            ("webhook-tls-sni-cert-key", "namedCertKey", ""),
            ("webhook-disable-http2-serving", "", "false"),
        ],
    ),
    (
        Section::Misc,
        &[
            ("kubeconfig", "string", ""),
            ("master", "string", ""),
            ("node-status-update-frequency", "duration", "5m0s"),
        ],
    ),
    (
        Section::Global,
        &[
            ("v", "level", "0"),
            ("vmodule", "pattern=N,...", ""),
            ("log-flush-frequency", "duration", "5s"),
            ("logging-format", "string", "text"),
            ("log-text-split-stream", "", "false"),
            ("log-json-split-stream", "", "false"),
            ("log-text-info-buffer-size", "quantity", "0"),
            ("log-json-info-buffer-size", "quantity", "0"),
            ("version", "version[=true]", "false"),
            ("help", "", ""),
        ],
    ),
];

/// REQ-APP-05
#[test]
fn every_flag_of_the_go_managers_is_there_with_its_type_default_and_section() {
    let want: BTreeMap<&str, (&str, &str, Section)> = TABLE
        .iter()
        .flat_map(|(section, rows)| {
            rows.iter()
                .map(|(name, word, default)| (*name, (*word, *default, *section)))
        })
        .collect();
    let have: BTreeMap<&str, (&str, &str, Section)> = flags()
        .iter()
        .filter(|flag| !flag.own)
        .map(|flag| (flag.name, (flag.kind.word(), flag.default, flag.section)))
        .collect();
    assert_eq!(have, want);
}

/// REQ-APP-05
#[test]
fn the_defaults_in_the_table_are_those_in_force() {
    let args = LowArgs::parse([""; 0]).unwrap();
    for flag in flags() {
        if flag.default.is_empty() {
            continue;
        }
        let given = LowArgs::parse([format!("--{}={}", flag.name, flag.default)]).unwrap();
        let warned = LowArgs {
            warnings: given.warnings.clone(),
            ..args.clone()
        };
        assert_eq!(given, warned, "--{}", flag.name);
    }
    let effective: Vec<_> = args.effective().collect();
    assert_eq!(effective.len(), flags().len());
}

/// REQ-APP-05
#[test]
fn deprecated_flags_are_known_and_nothing_else_is_deprecated() {
    let deprecated: Vec<_> = flags()
        .iter()
        .filter(|flag| flag.deprecated.is_some())
        .map(|flag| flag.name)
        .collect();
    assert_eq!(deprecated, ["allow-untagged-cloud", "node-sync-period"]);
    let args = LowArgs::parse(["--node-sync-period=10s", "--allow-untagged-cloud"]).unwrap();
    assert_eq!(args.warnings.len(), 2);
}

#[test]
fn our_own_flags_are_marked() {
    let own: BTreeSet<_> = flags()
        .iter()
        .filter(|flag| flag.own)
        .map(|flag| flag.name)
        .collect();
    assert_eq!(
        own.into_iter().collect::<Vec<_>>(),
        [
            "health-bind-address",
            "node-deletion-confirmations",
            "node-deletion-max-share",
            "node-label-refresh",
            "service-verify-period",
            "shutdown-grace-period",
        ]
    );
}

#[test]
fn names_are_unique_and_every_flag_has_help() {
    let names: BTreeSet<_> = flags().iter().map(|flag| flag.name).collect();
    assert_eq!(names.len(), flags().len());
    for flag in flags() {
        assert!(flag.help.ends_with('.'), "--{}", flag.name);
        assert!(!flag.name.contains('_'), "--{}", flag.name);
        assert!(
            flag.inert.is_none_or(|reason| !reason.ends_with('.')),
            "--{}",
            flag.name
        );
    }
}
