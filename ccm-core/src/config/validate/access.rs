//! Who is asking at the secure port, and who may ask (specification: controllers §7.1 step 3).

use super::{check::Check, path, switch_on};
use crate::config::{
    AuthenticationSettings, AuthorizationSettings, FeatureGate, LowArgs, RequestHeaderSettings,
};

pub(super) fn authentication(args: &LowArgs, check: &mut Check<'_>) -> AuthenticationSettings {
    let given = &args.authentication;
    AuthenticationSettings {
        kubeconfig: path(&given.kubeconfig),
        skip_lookup: given.skip_lookup,
        tolerate_lookup_failure: given.tolerate_lookup_failure,
        token_cache: check.not_negative(
            "--authentication-token-webhook-cache-ttl",
            given.token_cache_ttl,
        ),
        client_ca: path(&given.client_ca_file),
        request_header: request_header(args, check),
    }
}

fn request_header(args: &LowArgs, check: &mut Check<'_>) -> RequestHeaderSettings {
    let given = &args.authentication;
    // The flag, its values, the header that the API server's aggregation sends.
    for (flag, values, standard) in [
        (
            "--requestheader-username-headers",
            &given.username_headers,
            "X-Remote-User",
        ),
        (
            "--requestheader-group-headers",
            &given.group_headers,
            "X-Remote-Group",
        ),
        (
            "--requestheader-extra-headers-prefix",
            &given.extra_prefix,
            "X-Remote-Extra-",
        ),
    ] {
        let standard_is_there = values.is_empty() || holds(values, standard);
        if names_are_filled(flag, values, check) {
            check.warn(!standard_is_there, || {
                format!("{flag} lacks {standard}: requests through the API server are not known")
            });
        }
    }
    names_are_filled("--requestheader-allowed-names", &given.allowed_names, check);
    uid_headers(args, check);
    RequestHeaderSettings {
        client_ca: path(&given.requestheader_ca_file),
        allowed_names: given.allowed_names.clone(),
        username: given.username_headers.clone(),
        uid: given.uid_headers.clone(),
        group: given.group_headers.clone(),
        extra_prefix: given.extra_prefix.clone(),
    }
}

fn uid_headers(args: &LowArgs, check: &mut Check<'_>) {
    const FLAG: &str = "--requestheader-uid-headers";
    let values = &args.authentication.uid_headers;
    if values.is_empty() || !names_are_filled(FLAG, values, check) {
        return;
    }
    let gate = FeatureGate::RemoteRequestHeaderUid;
    if !args.feature_gates.enabled(gate) {
        check.errors.push(format!(
            "{FLAG}={} needs {}",
            values.join(","),
            switch_on(gate)
        ));
        return;
    }
    check.that(holds(values, "X-Remote-Uid"), || {
        format!("{FLAG} must hold X-Remote-Uid, got {:?}", values.join(","))
    });
}

/// Whether no name is blank.
fn names_are_filled(flag: &str, values: &[String], check: &mut Check<'_>) -> bool {
    let filled = values.iter().all(|value| !value.trim().is_empty());
    check.that(filled, || {
        format!("{flag} must hold no empty name, got {:?}", values.join(","))
    });
    filled
}

fn holds(values: &[String], name: &str) -> bool {
    values.iter().any(|value| value.eq_ignore_ascii_case(name))
}

pub(super) fn authorization(args: &LowArgs, check: &mut Check<'_>) -> AuthorizationSettings {
    let given = &args.authorization;
    for path in &given.always_allow_paths {
        let stem = path.strip_suffix('*').unwrap_or(path);
        check.that(!stem.contains('*'), || {
            format!("--authorization-always-allow-paths: {path:?} may have a * only at its end")
        });
    }
    AuthorizationSettings {
        kubeconfig: path(&given.kubeconfig),
        always_allow: given.always_allow_paths.clone(),
        allow_cache: check.not_negative(
            "--authorization-webhook-cache-authorized-ttl",
            given.authorized_ttl,
        ),
        deny_cache: check.not_negative(
            "--authorization-webhook-cache-unauthorized-ttl",
            given.unauthorized_ttl,
        ),
    }
}
