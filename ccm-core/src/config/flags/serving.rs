//! Flags of the secure port and of the webhooks' port.

use crate::config::flag::{Flag, parse_cert_key};

/// Why the flags of the webhooks' port change nothing.
const NO_WEBHOOKS: &str = "this program hosts no webhook, the port is never opened";

pub(super) const FLAGS: &[Flag] = &[
    flag!(
        SecureServing,
        Ip,
        "bind-address",
        "0.0.0.0",
        secure.bind_address,
        "The address of the secure port."
    ),
    flag!(
        SecureServing,
        Text,
        "cert-dir",
        "",
        secure.cert_dir,
        "The directory of cloud-controller-manager.crt and .key; a self-signed pair is written \
         there if there is none. Empty: one is made in memory. Of no account with --tls-cert-file."
    ),
    flag!(
        SecureServing,
        Bool,
        "disable-http2-serving",
        "false",
        secure.disable_http2,
        "Whether HTTP/2 is off on the secure port."
    ),
    flag!(
        SecureServing,
        Number,
        "http2-max-streams-per-connection",
        "0",
        secure.http2_max_streams,
        "HTTP/2 streams of one connection at once; 0 means the library's default."
    ),
    flag!(
        SecureServing,
        Bool,
        "permit-address-sharing",
        "false",
        secure.permit_address_sharing,
        "Whether SO_REUSEADDR is set on the secure port."
    ),
    flag!(
        SecureServing,
        Bool,
        "permit-port-sharing",
        "false",
        secure.permit_port_sharing,
        "Whether SO_REUSEPORT is set on the secure port."
    ),
    flag!(
        SecureServing,
        Number,
        "secure-port",
        "10258",
        secure.port,
        "The HTTPS port of health, metrics and configuration. 0: no such port."
    ),
    flag!(
        SecureServing,
        Text,
        "tls-cert-file",
        "",
        secure.cert_file,
        "The certificate chain of the secure port, PEM, the server's first; read again when it \
         changes."
    ),
    flag!(
        SecureServing,
        List,
        "tls-cipher-suites",
        "",
        secure.cipher_suites,
        "The cipher suites, by Go's names. Empty: all that are supported, which are \
         TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, \
         TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, \
         TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 and, \
         for TLS 1.3, TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384, \
         TLS_CHACHA20_POLY1305_SHA256."
    ),
    flag!(
        SecureServing,
        IntList,
        "tls-curve-preferences",
        "",
        secure.curves,
        "The key exchange groups by number: 29 (X25519), 23 (P-256), 24 (P-384). Empty: all three. \
         25 and 4587 to 4589 are left out with a warning: the TLS library has no such group."
    ),
    flag!(
        SecureServing,
        Text,
        "tls-min-version",
        "",
        secure.min_version,
        "The lowest TLS version: VersionTLS12 (also meant by empty, VersionTLS10 and VersionTLS11: \
         lower ones are not supported) or VersionTLS13."
    ),
    flag!(
        SecureServing,
        Text,
        "tls-private-key-file",
        "",
        secure.key_file,
        "The key to --tls-cert-file, PEM; read again when it changes."
    ),
    flag!(
        custom SecureServing, CertKey, "tls-sni-cert-key", "",
        |args, text| {
            args.secure.sni.push(parse_cert_key(text)?);
            Ok(())
        },
        "A certificate and its key for some server names, as certificate,key or \
         certificate,key:name,*.other.name; without names those in the certificate. May be \
         repeated."
    ),
    flag!(
        Webhook,
        List,
        "webhooks",
        "",
        webhooks,
        "The webhooks to host. There are none: only * and the empty value are accepted."
    )
    .inert(NO_WEBHOOKS),
    flag!(
        WebhookServing,
        Ip,
        "webhook-bind-address",
        "0.0.0.0",
        webhook.bind_address,
        "The address of the webhooks' port."
    )
    .inert(NO_WEBHOOKS),
    flag!(
        WebhookServing,
        Text,
        "webhook-cert-dir",
        "",
        webhook.cert_dir,
        "As --cert-dir, for webhooks; the pair is cloud-controller-manager-webhook."
    )
    .inert(NO_WEBHOOKS),
    flag!(
        WebhookServing,
        Bool,
        "webhook-disable-http2-serving",
        "false",
        webhook.disable_http2,
        "As --disable-http2-serving, for webhooks."
    )
    .inert(NO_WEBHOOKS),
    flag!(
        WebhookServing,
        Number,
        "webhook-secure-port",
        "10260",
        webhook.port,
        "The HTTPS port of webhooks. Not the same as --secure-port."
    )
    .inert(NO_WEBHOOKS),
    flag!(
        WebhookServing,
        Text,
        "webhook-tls-cert-file",
        "",
        webhook.cert_file,
        "As --tls-cert-file, for webhooks."
    )
    .inert(NO_WEBHOOKS),
    flag!(
        WebhookServing,
        List,
        "webhook-tls-cipher-suites",
        "",
        webhook.cipher_suites,
        "As --tls-cipher-suites, for webhooks."
    )
    .inert(NO_WEBHOOKS),
    flag!(
        WebhookServing,
        IntList,
        "webhook-tls-curve-preferences",
        "",
        webhook.curves,
        "As --tls-curve-preferences, for webhooks."
    )
    .inert(NO_WEBHOOKS),
    flag!(
        WebhookServing,
        Text,
        "webhook-tls-min-version",
        "",
        webhook.min_version,
        "As --tls-min-version, for webhooks."
    )
    .inert(NO_WEBHOOKS),
    flag!(
        WebhookServing,
        Text,
        "webhook-tls-private-key-file",
        "",
        webhook.key_file,
        "As --tls-private-key-file, for webhooks."
    )
    .inert(NO_WEBHOOKS),
    flag!(
        custom WebhookServing, CertKey, "webhook-tls-sni-cert-key", "",
        |args, text| {
            args.webhook.sni.push(parse_cert_key(text)?);
            Ok(())
        },
        "As --tls-sni-cert-key, for webhooks."
    )
    .inert(NO_WEBHOOKS),
];
