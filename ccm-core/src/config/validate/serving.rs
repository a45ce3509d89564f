//! The secure port and the webhooks' port (specification: controllers §7.1 step 3, §7.3).

use std::path::PathBuf;

use super::check::Check;
use crate::config::{CertificateSettings, LowArgs, ServingSettings, low_args::ServingArgs};

/// The name of the pair of files in `--cert-dir`.
const PAIR: &str = "cloud-controller-manager";
/// What the TLS library has, by Go's names: first those of TLS 1.2, then those of TLS 1.3.
pub(super) const CIPHER_SUITES: [&str; 9] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];
/// Go's older names of two of them.
const OLD_NAMES: [(&str, &str); 2] = [
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
];
/// The key exchange groups of the TLS library: P-256, P-384, X25519.
pub(super) const CURVES: [i32; 3] = [23, 24, 29];
/// Groups of Go that the TLS library does not have: P-521 and the three with ML-KEM.
const CURVES_OF_GO: [i32; 4] = [25, 4587, 4588, 4589];

/// The secure port; `None` with `--secure-port=0`.
pub(super) fn serving(args: &LowArgs, check: &mut Check<'_>) -> Option<ServingSettings> {
    let given = &args.secure;
    let port = check.port("--secure-port", given.port);
    let tls = tls(given, "--", check);
    let streams = u32::try_from(given.http2_max_streams);
    check.that(streams.is_ok(), || {
        format!(
            "--http2-max-streams-per-connection must not be negative, got {}",
            given.http2_max_streams
        )
    });
    (port != 0).then(|| ServingSettings {
        // Always there: the flag has a default.
        address: given
            .bind_address
            .unwrap_or_else(|| std::net::Ipv4Addr::UNSPECIFIED.into()),
        port,
        certificate: tls.certificate,
        sni: given.sni.clone(),
        tls13_only: tls.tls13_only,
        cipher_suites: tls.cipher_suites,
        curves: tls.curves,
        http2: !given.disable_http2,
        http2_max_streams: streams.ok().filter(|streams| *streams > 0),
        permit_address_sharing: given.permit_address_sharing,
        permit_port_sharing: given.permit_port_sharing,
    })
}

/// No webhook is hosted: the flags are checked and that is all (REQ-APP-24).
pub(super) fn webhooks(args: &LowArgs, check: &mut Check<'_>) {
    let given = &args.webhook;
    let port = check.port("--webhook-secure-port", given.port);
    check.together(
        &["secure-port", "webhook-secure-port"],
        port == 0 || given.port != args.secure.port,
        || format!("--webhook-secure-port must not be the port of --secure-port, got {port}"),
    );
    tls(given, "--webhook-", check);
    for webhook in &args.webhooks {
        if webhook == "*" {
            check
                .warnings
                .push("--webhooks=* selects nothing: this program hosts no webhook".to_owned());
        } else {
            check.errors.push(format!(
                "--webhooks: {webhook:?} is not in the list of known webhooks, which is empty; \
                 leave the flag out"
            ));
        }
    }
}

/// What both listeners have.
struct Tls {
    certificate: CertificateSettings,
    tls13_only: bool,
    cipher_suites: Vec<String>,
    curves: Vec<i32>,
}

fn tls(given: &ServingArgs, prefix: &str, check: &mut Check<'_>) -> Tls {
    let version = given.min_version.as_str();
    check.that(
        matches!(
            version,
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" | "VersionTLS13"
        ),
        || format!("{prefix}tls-min-version must be VersionTLS12 or VersionTLS13, got {version:?}"),
    );
    check.warn(matches!(version, "VersionTLS10" | "VersionTLS11"), || {
        format!("{prefix}tls-min-version={version}: TLS 1.2 is the lowest version here")
    });
    Tls {
        certificate: certificate(given, prefix, check),
        tls13_only: version == "VersionTLS13",
        cipher_suites: cipher_suites(&given.cipher_suites, prefix, check),
        curves: curves(&given.curves, prefix, check),
    }
}

fn certificate(given: &ServingArgs, prefix: &str, check: &mut Check<'_>) -> CertificateSettings {
    let (certificate, key) = (given.cert_file.as_str(), given.key_file.as_str());
    check.that(certificate.is_empty() || !key.is_empty(), || {
        format!("{prefix}tls-cert-file={certificate:?} needs {prefix}tls-private-key-file too")
    });
    check.that(key.is_empty() || !certificate.is_empty(), || {
        format!("{prefix}tls-private-key-file={key:?} needs {prefix}tls-cert-file too")
    });
    if !certificate.is_empty() {
        CertificateSettings::Files {
            certificate: PathBuf::from(certificate),
            key: PathBuf::from(key),
        }
    } else if given.cert_dir.is_empty() {
        CertificateSettings::SelfSigned
    } else {
        CertificateSettings::Directory {
            directory: PathBuf::from(&given.cert_dir),
            pair: PAIR,
        }
    }
}

fn cipher_suites(given: &[String], prefix: &str, check: &mut Check<'_>) -> Vec<String> {
    let mut suites = Vec::new();
    let mut unknown = Vec::new();
    for name in given {
        let today = OLD_NAMES.iter().find(|(old, _)| old == name);
        let today = today.map_or(name.as_str(), |(_, today)| today);
        if CIPHER_SUITES.contains(&today) {
            suites.push(today.to_owned());
        } else {
            unknown.push(format!("{name:?}"));
        }
    }
    check.that(unknown.is_empty(), || {
        format!(
            "{prefix}tls-cipher-suites: {} not supported; write some of {}",
            unknown.join(", "),
            CIPHER_SUITES.join(", ")
        )
    });
    suites
}

fn curves(given: &[i32], prefix: &str, check: &mut Check<'_>) -> Vec<i32> {
    let unknown: Vec<_> = given
        .iter()
        .filter(|id| !CURVES.contains(id) && !CURVES_OF_GO.contains(id))
        .collect();
    let (ours, left_out): (Vec<i32>, Vec<i32>) = given.iter().partition(|id| CURVES.contains(id));
    if !unknown.is_empty() || (ours.is_empty() && !given.is_empty()) {
        check.errors.push(format!(
            "{prefix}tls-curve-preferences must hold some of 23 (P-256), 24 (P-384), 29 (X25519), \
             got {given:?}"
        ));
        return Vec::new();
    }
    check.warn(!left_out.is_empty(), || {
        format!(
            "{prefix}tls-curve-preferences: {left_out:?} left out, the TLS library does not have it"
        )
    });
    ours
}
