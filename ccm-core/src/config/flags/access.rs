//! Flags of who is asking at the secure port, and who may ask.

use crate::config::flag::Flag;

pub(super) const FLAGS: &[Flag] = &[
    flag!(
        Authentication,
        Text,
        "authentication-kubeconfig",
        "",
        authentication.kubeconfig,
        "The path of a kubeconfig for TokenReviews and for the cluster's authentication settings. \
         Empty: the pod's service account; outside a cluster tokens are not looked up."
    ),
    flag!(
        Authentication,
        Bool,
        "authentication-skip-lookup",
        "false",
        authentication.skip_lookup,
        "Whether the cluster's authentication settings are left unread."
    ),
    flag!(
        Authentication,
        Duration,
        "authentication-token-webhook-cache-ttl",
        "10s",
        authentication.token_cache_ttl,
        "How long the answer of a TokenReview is kept."
    ),
    flag!(
        Authentication,
        Bool,
        "authentication-tolerate-lookup-failure",
        "false",
        authentication.tolerate_lookup_failure,
        "Whether the start goes on when the cluster's authentication settings cannot be read; \
         then nobody is known by certificate."
    ),
    flag!(
        Authentication,
        Text,
        "client-ca-file",
        "",
        authentication.client_ca_file,
        "The authorities of client certificates, PEM. Empty: the cluster's."
    ),
    flag!(
        Authentication,
        List,
        "requestheader-allowed-names",
        "",
        authentication.allowed_names,
        "The common names of proxies that may set identity headers. Empty: any that \
         --requestheader-client-ca-file vouches for."
    ),
    flag!(
        Authentication,
        Text,
        "requestheader-client-ca-file",
        "",
        authentication.requestheader_ca_file,
        "The authorities of the proxies' certificates, PEM. Empty: the cluster's."
    ),
    flag!(
        Authentication,
        List,
        "requestheader-extra-headers-prefix",
        "x-remote-extra-",
        authentication.extra_prefix,
        "The prefixes of headers with further facts about the user."
    ),
    flag!(
        Authentication,
        List,
        "requestheader-group-headers",
        "x-remote-group",
        authentication.group_headers,
        "The headers with the user's groups."
    ),
    flag!(
        Authentication,
        List,
        "requestheader-uid-headers",
        "",
        authentication.uid_headers,
        "The headers with the user's id. Needs the feature gate RemoteRequestHeaderUID, and \
         X-Remote-Uid among them."
    ),
    flag!(
        Authentication,
        List,
        "requestheader-username-headers",
        "x-remote-user",
        authentication.username_headers,
        "The headers with the user's name."
    ),
    flag!(
        Authorization,
        List,
        "authorization-always-allow-paths",
        "/healthz,/readyz,/livez",
        authorization.always_allow_paths,
        "The paths that anybody may ask; a * at the end stands for any rest. Empty: none."
    ),
    flag!(
        Authorization,
        Text,
        "authorization-kubeconfig",
        "",
        authorization.kubeconfig,
        "The path of a kubeconfig for SubjectAccessReviews. Empty: the pod's service account; \
         outside a cluster everything else is forbidden."
    ),
    flag!(
        Authorization,
        Duration,
        "authorization-webhook-cache-authorized-ttl",
        "10s",
        authorization.authorized_ttl,
        "How long an answer that allows is kept."
    ),
    flag!(
        Authorization,
        Duration,
        "authorization-webhook-cache-unauthorized-ttl",
        "10s",
        authorization.unauthorized_ttl,
        "How long an answer that forbids is kept."
    ),
];
