use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use proptest::prelude::*;

use super::{
    serving::{CIPHER_SUITES, CURVES},
    *,
};
use crate::config::{
    CertificateSettings, ControllerName, LeaderElectionSettings, LockOf, LoggingSettings,
    NodeIpamSettings, NodeLifecycleSettings, NodeSettings, RouteSettings, ServiceSettings, flags,
};

fn parse(args: &[&str]) -> Result<Settings, String> {
    let all = ["--cloud-provider=aws"].iter().chain(args).copied();
    Settings::parse(all).map_err(|error| error.to_string())
}

fn error(args: &[&str]) -> String {
    parse(args).unwrap_err()
}

#[test]
fn the_defaults_are_those_of_the_structures() {
    let settings = parse(&[]).unwrap();
    assert_eq!(settings.node, NodeSettings::default());
    assert_eq!(settings.node_lifecycle, NodeLifecycleSettings::default());
    assert_eq!(settings.service, ServiceSettings::default());
    assert_eq!(settings.api, ApiSettings::default());
    assert_eq!(settings.logging, LoggingSettings::default());
    assert_eq!(settings.cloud.cluster_name.as_str(), "kubernetes");
    assert_eq!(settings.cloud.config, None);
    assert_eq!(settings.health_address, None);
    assert_eq!(settings.route, RouteSettings::default());
    assert_eq!(settings.node_ipam, NodeIpamSettings::default());
    assert_eq!(
        settings.leader_election,
        Some(LeaderElectionSettings::default())
    );
    assert_eq!(settings.leader_migration, None);
    assert_eq!(settings.controller_start_interval, Duration::ZERO);
    assert!(settings.profiling && !settings.contention_profiling);
    assert!(!settings.use_service_account_credentials);
    assert_eq!(settings.reported_version, None);
    assert_eq!(settings.warnings, [""; 0]);
    assert_eq!(settings.shutdown_grace, Duration::from_secs(10));
    assert_eq!(settings.controllers, ControllerName::ALL.into());
}

/// REQ-APP-01
#[test]
fn an_empty_cloud_provider_is_refused_by_validation() {
    for args in [[].as_slice(), &["--cloud-provider="]] {
        let error = Settings::parse(args.iter().copied())
            .unwrap_err()
            .to_string();
        assert!(error.contains("--cloud-provider is required"), "{error}");
    }
}

/// REQ-APP-26
#[test]
fn numbers_and_periods_out_of_range_name_the_flag() {
    for (arg, part) in [
        (
            "--concurrent-node-syncs=0",
            "--concurrent-node-syncs must be at least 1, got 0",
        ),
        (
            "--concurrent-node-syncs=-1",
            "--concurrent-node-syncs must be at least 1",
        ),
        (
            "--concurrent-node-lifecycle-syncs=0",
            "--concurrent-node-lifecycle-syncs must be",
        ),
        (
            "--concurrent-service-syncs=0",
            "--concurrent-service-syncs must be at least 1",
        ),
        (
            "--concurrent-node-status-updates=-1",
            "status-updates must not be negative",
        ),
        (
            "--node-monitor-period=0",
            "--node-monitor-period must be longer than 0s, got 0s",
        ),
        (
            "--node-status-update-frequency=-5m",
            "must be longer than 0s, got -5m0s",
        ),
        (
            "--service-verify-period=0s",
            "--service-verify-period must be longer",
        ),
        (
            "--shutdown-grace-period=0s",
            "--shutdown-grace-period must be longer",
        ),
        (
            "--min-resync-period=-1s",
            "--min-resync-period must not be negative",
        ),
        (
            "--node-deletion-confirmations=0",
            "--node-deletion-confirmations must be at least 1",
        ),
        (
            "--node-deletion-max-share=1.5",
            "--node-deletion-max-share must be above 0",
        ),
        (
            "--cluster-name=",
            "--cluster-name: ClusterName must not be empty",
        ),
        (
            "--health-bind-address=:10268",
            "--health-bind-address must be IP:port",
        ),
        (
            "--logging-format=xml",
            "--logging-format must be \"text\" or \"json\"",
        ),
        ("--kube-api-burst=0", "--kube-api-burst must be at least 1"),
        ("--kube-api-qps=0", "--kube-api-qps must be at least 0.001"),
    ] {
        let error = error(&[arg]);
        assert!(error.contains(part), "{arg}: {error}");
        assert_eq!(error.lines().count(), 1, "{arg}: {error}");
    }
}

#[test]
fn all_errors_are_reported_at_once() {
    let error = error(&[
        "--concurrent-node-syncs=0",
        "--controllers=nope",
        "--secure-port=many",
        "--logging-format=xml",
        "--no-such-flag",
        "--node-monitor-period=5",
    ]);
    assert_eq!(error.lines().count(), 6, "{error}");
}

#[test]
fn zero_status_updates_mean_as_many_as_syncs() {
    let settings = parse(&["--concurrent-node-syncs=7"]).unwrap();
    assert_eq!(settings.node.status_updates, 7);
    let settings = parse(&["--concurrent-node-status-updates=2"]).unwrap();
    assert_eq!(settings.node.status_updates, 2);
}

#[test]
fn a_rate_needs_only_one_of_its_two_flags() {
    for (args, rate) in [
        ([].as_slice(), None),
        (&["--kube-api-qps=-1"], None),
        (
            &["--kube-api-qps=50"],
            Some(ApiRate {
                qps: 50.0,
                burst: 30,
            }),
        ),
        (
            &["--kube-api-burst=60"],
            Some(ApiRate {
                qps: 20.0,
                burst: 60,
            }),
        ),
        (
            &["--kube-api-qps=5", "--kube-api-burst=6"],
            Some(ApiRate { qps: 5.0, burst: 6 }),
        ),
    ] {
        assert_eq!(parse(args).unwrap().api.rate, rate, "{args:?}");
    }
}

#[test]
fn health_without_tls_is_asked_for() {
    let settings = parse(&["--health-bind-address=127.0.0.1:10268"]).unwrap();
    assert_eq!(settings.health_address, "127.0.0.1:10268".parse().ok());
}

/// REQ-ROUTE-01
#[test]
fn a_cluster_range_that_cannot_be_read_is_found_at_once_where_it_is_needed() {
    let bad = "--cluster-cidr=10.244.0.0/16,10.0.0.0/99";
    let error = error(&[bad]);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.contains("--cluster-cidr") && error.contains("10.0.0.0/99"),
        "{error}"
    );
    assert!(parse(&[bad, "--configure-cloud-routes=false"]).is_ok());
    let allocating = [
        bad,
        "--configure-cloud-routes=false",
        "--allocate-node-cidrs",
    ];
    assert!(parse(&allocating).is_err());
    assert!(
        parse(&["--cluster-cidr= 10.244.0.0/16 "]).is_ok(),
        "trimmed as a whole"
    );
}

/// REQ-IPAM-14
#[test]
fn service_ranges_that_cannot_be_read_are_a_warning_at_the_start_where_ranges_are_allocated() {
    let allocating = [
        "--allocate-node-cidrs",
        "--cluster-cidr=10.244.0.0/16",
        "--node-cidr-mask-size-ipv4=25",
    ];
    let with = |value: &str, flags: &[&str]| {
        let flag = format!("--service-cluster-ip-range={value}");
        parse(&[flags, &[flag.as_str()]].concat())
    };
    for (value, part) in [("10.0.0.0", "\"10.0.0.0\""), ("10.0.0.0/8, x", "\" x\"")] {
        let settings = with(value, &allocating).unwrap();
        let [warning] = settings.warnings.as_slice() else {
            panic!("{:?}", settings.warnings);
        };
        assert!(
            warning.starts_with("--service-cluster-ip-range: ")
                && warning.contains(part)
                && warning.contains("correct it"),
            "{warning}"
        );
        // As given: what can be read of it counts.
        assert_eq!(settings.node_ipam.service_cluster_ip_range, value);
    }
    let sound = with("10.0.0.0/16,fd00::/112", &allocating).unwrap();
    assert_eq!(sound.warnings, [""; 0]);
    // Where nobody allocates it is nobody's.
    let none: [&str; 0] = [];
    let off = [allocating[0], allocating[1], "--controllers=*,-nodeipam"];
    for flags in [&none[..], &off] {
        assert_eq!(with("10.0.0.0", flags).unwrap().warnings, [""; 0]);
        assert!(with("10.0.0.0/16,10.1.0.0/16", flags).is_ok());
        assert!(with("10.0.0.0/16,fd00::/112,fd01::/112", flags).is_err());
    }
}

/// REQ-IPAM-14
#[test]
fn service_ranges_of_one_family_are_refused_together_with_all_other_bad_flags() {
    let error = error(&[
        "--allocate-node-cidrs",
        "--cluster-cidr=10.244.0.0/16,nonsense",
        "--service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16",
        "--node-monitor-period=0s",
        "--node-cidr-mask-size-ipv4=33",
    ]);
    assert_eq!(error.lines().count(), 4, "{error}");
    for part in [
        "\"nonsense\"",
        "--service-cluster-ip-range must hold one range, or one of each family",
        "\"10.0.0.0/16,10.1.0.0/16\"",
        "--node-monitor-period",
        "--node-cidr-mask-size-ipv4",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// A bad value of every flag that has one.
const BAD: &[(&str, &str)] = &[
    ("allocate-node-cidrs", "maybe"),
    ("allow-untagged-cloud", "maybe"),
    ("authentication-skip-lookup", "maybe"),
    ("authentication-token-webhook-cache-ttl", "-1s"),
    ("authentication-tolerate-lookup-failure", "maybe"),
    ("authorization-always-allow-paths", "/a*b"),
    ("authorization-webhook-cache-authorized-ttl", "10"),
    ("authorization-webhook-cache-unauthorized-ttl", "-3s"),
    ("bind-address", "localhost"),
    ("cloud-provider", ""),
    ("cluster-name", ""),
    ("concurrent-node-lifecycle-syncs", "0"),
    ("concurrent-node-status-updates", "-1"),
    ("concurrent-node-syncs", "0"),
    ("concurrent-service-syncs", "many"),
    ("configure-cloud-routes", "maybe"),
    ("contention-profiling", "maybe"),
    ("controller-start-interval", "-1s"),
    ("controllers", "nope"),
    ("disable-http2-serving", "maybe"),
    ("enable-leader-migration", "maybe"),
    ("feature-gates", "Nope=true"),
    ("health-bind-address", "localhost"),
    ("help", "maybe"),
    ("http2-max-streams-per-connection", "-7"),
    ("kube-api-burst", "0"),
    ("kube-api-content-type", "text/html"),
    ("kube-api-qps", "fast"),
    ("leader-elect", "maybe"),
    ("leader-elect-lease-duration", "5s"),
    ("leader-elect-renew-deadline", "20s"),
    ("leader-elect-resource-lock", "endpoints"),
    ("leader-elect-resource-name", ""),
    ("leader-elect-resource-namespace", ""),
    ("leader-elect-retry-period", "9s"),
    ("log-flush-frequency", "0s"),
    ("log-json-info-buffer-size", "1KB"),
    ("log-json-split-stream", "true"),
    ("log-text-info-buffer-size", "64"),
    ("log-text-split-stream", "true"),
    ("logging-format", "xml"),
    ("min-resync-period", "-1s"),
    ("node-cidr-mask-size", "129"),
    ("node-cidr-mask-size-ipv4", "33"),
    ("node-cidr-mask-size-ipv6", "-1"),
    ("node-deletion-confirmations", "0"),
    ("node-deletion-max-share", "1.5"),
    ("node-label-refresh", "maybe"),
    ("node-monitor-period", "0s"),
    ("node-status-update-frequency", "5"),
    ("node-sync-period", "5"),
    ("permit-address-sharing", "maybe"),
    ("permit-port-sharing", "maybe"),
    ("profiling", "maybe"),
    ("requestheader-allowed-names", "a,"),
    ("requestheader-extra-headers-prefix", " "),
    ("requestheader-group-headers", "a,,b"),
    ("requestheader-uid-headers", "X-Id"),
    ("requestheader-username-headers", ",a"),
    ("route-reconciliation-period", "0s"),
    ("secure-port", "70000"),
    ("service-cluster-ip-range", "10.0.0.0/8,fd00::/8,fd01::/16"),
    ("service-verify-period", "0s"),
    ("shutdown-grace-period", "0s"),
    ("tls-cert-file", "a.crt"),
    ("tls-cipher-suites", "TLS_RSA_WITH_AES_128_CBC_SHA"),
    ("tls-curve-preferences", "7"),
    ("tls-min-version", "VersionTLS14"),
    ("tls-private-key-file", "a.key"),
    ("tls-sni-cert-key", "a.crt"),
    ("use-service-account-credentials", "maybe"),
    ("v", "-1"),
    ("version", "1.2"),
    ("vmodule", "a=b"),
    ("webhook-bind-address", "localhost"),
    ("webhook-disable-http2-serving", "maybe"),
    ("webhook-secure-port", "10258"),
    ("webhook-tls-cert-file", "a.crt"),
    ("webhook-tls-cipher-suites", "RC4"),
    ("webhook-tls-curve-preferences", "x"),
    ("webhook-tls-min-version", "1.2"),
    ("webhook-tls-private-key-file", "a.key"),
    ("webhook-tls-sni-cert-key", "a.crt"),
    ("webhooks", "nope"),
];

/// Paths and names: what they point at is looked at by whoever uses them.
const ANY_TEXT: &[&str] = &[
    "authentication-kubeconfig",
    "authorization-kubeconfig",
    "cert-dir",
    "cidr-allocator-type",
    "client-ca-file",
    "cloud-config",
    "cluster-cidr",
    "external-cloud-volume-plugin",
    "kubeconfig",
    "leader-migration-config",
    "master",
    "requestheader-client-ca-file",
    "webhook-cert-dir",
];

fn bad(at: usize) -> String {
    let (name, value) = BAD[at];
    format!("--{name}={value}")
}

/// REQ-APP-05, REQ-APP-26
#[test]
fn a_bad_value_is_one_line_that_names_flag_value_and_accepted_form() {
    const FORMS: [&str; 9] = [
        "write",
        "must",
        "needs",
        "not in the list",
        "required",
        "is not a",
        "may have",
        "unrecognized",
        "missing unit",
    ];
    for (at, (name, value)) in BAD.iter().enumerate() {
        let error = error(&[&bad(at)]);
        assert_eq!(error.lines().count(), 1, "--{name}={value}: {error}");
        assert!(error.contains(&format!("--{name}")), "--{name}: {error}");
        assert!(error.contains(value), "--{name}={value}: {error}");
        assert!(FORMS.iter().any(|form| error.contains(form)), "{error}");
    }
    let covered: BTreeSet<&str> = BAD
        .iter()
        .map(|(name, _)| *name)
        .chain(ANY_TEXT.iter().copied())
        .collect();
    let all: BTreeSet<&str> = flags().iter().map(|flag| flag.name).collect();
    assert_eq!(covered, all);
}

#[test]
fn two_bad_flags_are_two_lines() {
    // Not side by side in the table: neighbours may be the two halves of one condition.
    let apart = BAD.len() / 2;
    for at in 0..BAD.len() {
        let error = error(&[&bad(at), &bad((at + apart) % BAD.len())]);
        assert_eq!(error.lines().count(), 2, "{}: {error}", bad(at));
    }
}

#[test]
fn a_flag_that_cannot_be_read_is_not_also_compared_with_others() {
    let error = error(&[
        "--leader-elect-lease-duration=60",
        "--leader-elect-renew-deadline=20s",
    ]);
    assert_eq!(error.lines().count(), 1, "{error}");
    let error = Settings::parse(["--cloud-provider"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "flag needs an argument: --cloud-provider"
    );
}

#[test]
fn without_leader_election_its_flags_are_not_looked_at() {
    let settings = parse(&[
        "--leader-elect=false",
        "--leader-elect-resource-lock=endpoints",
        "--leader-elect-renew-deadline=20s",
        "--enable-leader-migration",
    ]);
    let settings = settings.unwrap();
    assert_eq!(settings.leader_election, None);
    assert_eq!(settings.leader_migration, None);
    assert_eq!(settings.warnings.len(), 1);
}

#[test]
fn a_retry_period_of_any_length_is_no_overflow() {
    let error = error(&["--leader-elect-retry-period=2562047h"]);
    assert!(error.contains("1.2 times"), "{error}");
}

/// REQ-APP-21
#[test]
fn leader_migration_has_a_default_and_a_file() {
    let settings = parse(&["--enable-leader-migration"]).unwrap();
    let migration = settings.leader_migration.unwrap();
    assert_eq!(
        migration.lock_of(ControllerName::NodeLifecycle),
        LockOf::Migration
    );
    assert_eq!(migration.lock_of(ControllerName::Route), LockOf::Main);

    let error = error(&[
        "--enable-leader-migration",
        "--leader-migration-config=/no/such/file",
    ]);
    assert!(
        error.starts_with("--leader-migration-config=/no/such/file: cannot be read: "),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
    let unread = parse(&["--leader-migration-config=/no/such/file"]).unwrap();
    assert_eq!(unread.leader_migration, None);
    assert_eq!(unread.warnings.len(), 1);
}

/// REQ-APP-21
#[test]
fn a_migration_file_is_read_and_its_mistakes_are_told_with_file_and_line() {
    let path = std::env::temp_dir().join(format!("ccm-migration-{}.yaml", std::process::id()));
    let flag = format!("--leader-migration-config={}", path.display());
    let text = "apiVersion: controllermanager.config.k8s.io/v1\n\
                kind: LeaderMigrationConfiguration\nleaderName: move\n\
                controllerLeaders:\n- {name: node-route-controller, component: '*'}\n";
    std::fs::write(&path, text).unwrap();
    let settings = parse(&["--enable-leader-migration", &flag]).unwrap();
    let migration = settings.leader_migration.unwrap();
    assert_eq!(migration.leader_name, "move");
    assert_eq!(migration.lock_of(ControllerName::Route), LockOf::Migration);

    let wrong = text.replace("component: '*'", "component: ''");
    let wrong = wrong.replace("kind: ", "kind: Other");
    std::fs::write(&path, wrong).unwrap();
    // It must be right even where it has no effect.
    for elect in ["--leader-elect=true", "--leader-elect=false"] {
        let error = error(&["--enable-leader-migration", &flag, elect]);
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), 2, "{error}");
        assert!(lines[0].starts_with(&format!("{flag}: line 2: kind must be")));
        assert!(lines[1].starts_with(&format!("{flag}: line 5: controllerLeaders[0].component")));
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn both_locks_must_not_be_the_same() {
    let error = error(&[
        "--enable-leader-migration",
        "--leader-elect-resource-name=cloud-provider-extraction-migration",
    ]);
    assert!(error.contains("leaderName must not be"), "{error}");
}

#[test]
fn the_secure_port_is_on_and_self_signed_by_default() {
    let serving = parse(&[]).unwrap().serving.unwrap();
    assert_eq!(serving.address.to_string(), "0.0.0.0");
    assert_eq!(serving.port, 10258);
    assert_eq!(serving.certificate, CertificateSettings::SelfSigned);
    assert!(serving.http2 && !serving.tls13_only);
    assert_eq!(serving.http2_max_streams, None);
    assert!(serving.cipher_suites.is_empty() && serving.curves.is_empty());
    assert_eq!(parse(&["--secure-port=0"]).unwrap().serving, None);
}

#[test]
fn the_secure_port_follows_its_flags() {
    let settings = parse(&[
        "--bind-address=::1",
        "--secure-port=0x2000",
        "--cert-dir=/certs",
        "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "--tls-cipher-suites=TLS_AES_128_GCM_SHA256",
        "--tls-curve-preferences=4588,29",
        "--tls-curve-preferences=23",
        "--tls-min-version=VersionTLS13",
        "--tls-sni-cert-key=a.crt,a.key",
        "--tls-sni-cert-key=b.crt,b.key:b.example.com",
        "--disable-http2-serving",
        "--http2-max-streams-per-connection=7",
        "--permit-port-sharing",
    ]);
    let settings = settings.unwrap();
    let serving = settings.serving.unwrap();
    assert_eq!(serving.address.to_string(), "::1");
    assert_eq!(serving.port, 8192);
    assert_eq!(
        serving.certificate,
        CertificateSettings::Directory {
            directory: PathBuf::from("/certs"),
            pair: "cloud-controller-manager",
        }
    );
    assert_eq!(
        serving.cipher_suites,
        [
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_AES_128_GCM_SHA256"
        ]
    );
    assert_eq!(serving.curves, [29, 23]);
    assert!(serving.tls13_only && !serving.http2);
    assert_eq!(serving.http2_max_streams, Some(7));
    assert!(serving.permit_port_sharing && !serving.permit_address_sharing);
    assert_eq!(serving.sni.len(), 2);
    assert_eq!(serving.sni[1].names, ["b.example.com"]);
    assert_eq!(settings.warnings.len(), 1, "{:?}", settings.warnings);
    assert!(settings.warnings[0].contains("[4588] left out"));

    let files = [
        "--tls-cert-file=a",
        "--tls-private-key-file=b",
        "--cert-dir=c",
    ];
    assert_eq!(
        parse(&files).unwrap().serving.unwrap().certificate,
        CertificateSettings::Files {
            certificate: PathBuf::from("a"),
            key: PathBuf::from("b"),
        }
    );
}

#[test]
fn old_tls_versions_are_accepted_with_a_warning() {
    for version in ["VersionTLS10", "VersionTLS11"] {
        let settings = parse(&[&format!("--tls-min-version={version}")]).unwrap();
        assert!(!settings.serving.unwrap().tls13_only);
        assert_eq!(settings.warnings.len(), 1);
        assert!(settings.warnings[0].contains("TLS 1.2 is the lowest"));
    }
    let only_missing = error(&["--tls-curve-preferences=25,4588"]);
    assert!(only_missing.contains("got [25, 4588]"), "{only_missing}");
}

#[test]
fn the_names_of_cipher_suites_and_groups_are_those_of_the_tls_library() {
    let provider = rustls::crypto::ring::default_provider();
    let suites: BTreeSet<String> = provider
        .cipher_suites
        .iter()
        .filter_map(|suite| suite.suite().as_str())
        .map(|name| name.replace("TLS13_", "TLS_"))
        .collect();
    let ours: BTreeSet<String> = CIPHER_SUITES.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(ours, suites);
    let groups: BTreeSet<i32> = provider
        .kx_groups
        .iter()
        .map(|group| u16::from(group.name()).into())
        .collect();
    assert_eq!(BTreeSet::from(CURVES), groups);
}

/// REQ-APP-24
#[test]
fn only_an_empty_list_of_webhooks_or_a_star_is_accepted() {
    for arg in ["--webhooks=", "--webhooks=*", "--webhook-secure-port=0"] {
        parse(&[arg]).unwrap();
    }
    assert_eq!(parse(&["--webhooks=*"]).unwrap().warnings.len(), 1);
    for arg in ["--webhooks=a", "--webhooks=-a", "--webhooks=*,-a"] {
        assert!(error(&[arg]).contains("known webhooks"), "{arg}");
    }
    let same = error(&["--secure-port=8443", "--webhook-secure-port=8443"]);
    assert!(same.contains("--webhook-secure-port must not be"), "{same}");
    parse(&["--secure-port=0", "--webhook-secure-port=0"]).unwrap();
}

#[test]
fn identity_headers_have_the_defaults_of_the_go_managers() {
    let settings = parse(&[]).unwrap();
    let authentication = settings.authentication;
    assert_eq!(authentication.request_header.username, ["x-remote-user"]);
    assert_eq!(authentication.request_header.group, ["x-remote-group"]);
    assert_eq!(
        authentication.request_header.extra_prefix,
        ["x-remote-extra-"]
    );
    assert!(authentication.request_header.uid.is_empty());
    assert_eq!(authentication.token_cache, Duration::from_secs(10));
    assert_eq!(authentication.kubeconfig, None);
    let authorization = settings.authorization;
    assert_eq!(
        authorization.always_allow,
        ["/healthz", "/readyz", "/livez"]
    );
    assert_eq!(authorization.allow_cache, Duration::from_secs(10));
    assert_eq!(authorization.deny_cache, Duration::from_secs(10));
    let none = parse(&["--authorization-always-allow-paths="]).unwrap();
    assert!(none.authorization.always_allow.is_empty());
}

#[test]
fn uid_headers_need_their_gate_and_the_standard_header() {
    let header = "--requestheader-uid-headers=x-remote-uid,X-Id";
    let settings = parse(&[header]).unwrap();
    assert_eq!(
        settings.authentication.request_header.uid,
        ["x-remote-uid", "X-Id"]
    );
    for gate in ["RemoteRequestHeaderUID=false", "AllBeta=false"] {
        let error = error(&[header, &format!("--feature-gates={gate}")]);
        assert!(
            error.contains("needs --feature-gates=RemoteRequestHeaderUID=true"),
            "{error}"
        );
    }
    let lacks = parse(&["--requestheader-group-headers=X-Group"]).unwrap();
    assert!(lacks.warnings[0].contains("lacks X-Remote-Group"));
}

/// REQ-APP-23, REQ-APP-25
#[test]
fn feature_gates_reach_what_they_switch() {
    let settings = parse(&[
        "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=true",
        "--feature-gates=WatchList=true",
    ]);
    let settings = settings.unwrap();
    assert!(settings.route.watch);
    let gates = &settings.feature_gates;
    assert!(gates.enabled(FeatureGate::WatchBasedRoutes));
    assert_eq!(
        settings.warnings,
        ["feature gate WatchList has no effect in this program"]
    );
    parse(&[
        "--feature-gates=AllAlpha=true",
        "--log-json-info-buffer-size=64Ki",
        "--log-text-split-stream",
    ])
    .unwrap();
    assert_eq!(
        error(&["--feature-gates=A=true,B"]),
        "invalid argument \"A=true,B\" for \"--feature-gates\": unrecognized feature gate: A; \
         missing bool value for B"
    );
}

#[test]
fn an_allocator_that_nobody_knows_is_wrong_only_where_ranges_are_allocated() {
    let flag = "--cidr-allocator-type=Mine";
    parse(&[flag]).unwrap();
    parse(&[flag, "--allocate-node-cidrs", "--controllers=*,-nodeipam"]).unwrap();
    let error = error(&[flag, "--allocate-node-cidrs"]);
    assert!(error.contains("got \"Mine\""), "{error}");
}

/// REQ-APP-05
#[test]
fn deprecated_flags_are_warned_of() {
    let settings = parse(&["--node-sync-period=10s"]).unwrap();
    assert_eq!(settings.warnings.len(), 1);
    assert!(settings.warnings[0].contains("--node-sync-period is deprecated"));
}

#[test]
fn a_given_version_is_reported() {
    let settings = parse(&["--version=v1.37.2-rc.1+x"]).unwrap();
    assert_eq!(settings.reported_version.as_deref(), Some("v1.37.2-rc.1+x"));
}

#[test]
fn a_verbosity_of_modules_is_for_text_only() {
    parse(&["--vmodule=gopher*=3,,x=0"]).unwrap();
    for (args, part) in [
        (
            ["--vmodule=a=1", "--logging-format=json"],
            "only for --logging-format=text",
        ),
        (["--vmodule==1", "-v=0"], "must be pattern=N"),
        (["--vmodule=a", "-v=0"], "must be pattern=N"),
        (["--vmodule=a=b=1", "-v=0"], "must be pattern=N"),
    ] {
        assert!(error(&args).contains(part), "{args:?}");
    }
}

fn any_flag() -> impl Strategy<Value = String> {
    let names: Vec<&str> = flags()
        .iter()
        .map(|flag| flag.name)
        // It would read files.
        .filter(|name| *name != "leader-migration-config")
        .collect();
    let value = prop_oneof![
        ".{0,20}",
        "-?[0-9]{1,19}(ns|us|ms|s|m|h)?",
        "[a-zA-Z0-9*,=:;./-]{0,16}",
        "[0-9]{1,6}(,[0-9]{1,6}){0,3}",
    ];
    (proptest::sample::select(names), value).prop_map(|(name, value)| format!("--{name}={value}"))
}

proptest! {
    #[test]
    fn no_values_make_the_validation_panic(args in proptest::collection::vec(any_flag(), 0..6)) {
        if let Err(errors) = Settings::parse(args) {
            for line in errors.iter() {
                prop_assert!(line.contains("--"), "{}", line);
            }
        }
    }
}
