//! The TLS side of the secure port: versions, cipher suites, curves, client certificates
//! (specification: controllers §7.3).

use std::sync::Arc;

use rustls::{
    CipherSuite, DigitallySignedStruct, DistinguishedName, NamedGroup, ServerConfig,
    SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature,
        verify_tls13_signature,
    },
    pki_types::{CertificateDer, UnixTime},
    server::{
        ResolvesServerCert,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::{TLS12, TLS13},
};

use super::ServingError;
use crate::config::ServingSettings;

/// The name of HTTP/2 in the handshake.
pub(super) const H2: &[u8] = b"h2";

const SUITES_FLAG: &str = "--tls-cipher-suites";
const CURVES_FLAG: &str = "--tls-curve-preferences";

/// The configuration of the port.
pub(super) fn server_config(
    settings: &ServingSettings,
    certificates: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, ServingError> {
    let provider = provider(&settings.cipher_suites, &settings.curves)?;
    let versions = if settings.tls13_only {
        &[&TLS13][..]
    } else {
        &[&TLS13, &TLS12][..]
    };
    let clients = AnyClient(provider.signature_verification_algorithms);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .map_err(|error| ServingError::Tls {
            flag: SUITES_FLAG,
            value: settings.cipher_suites.join(","),
            problem: format!("{error}; leave the flag empty"),
        })?
        .with_client_cert_verifier(Arc::new(clients))
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if settings.http2 {
        config.alpn_protocols.insert(0, H2.to_vec());
    }
    Ok(config)
}

fn provider(suites: &[String], curves: &[i32]) -> Result<CryptoProvider, ServingError> {
    let mut provider = ring::default_provider();
    if !suites.is_empty() {
        let wanted = wanted_suites(suites)?;
        // As Go: the suites of TLS 1.3 are not for choice.
        provider
            .cipher_suites
            .retain(|suite| suite.tls13().is_some() || wanted.contains(&suite.suite()));
    }
    if !curves.is_empty() {
        let mut groups = Vec::new();
        for number in curves {
            let group = group_of(*number)?;
            let known = provider.kx_groups.iter().find(|have| have.name() == group);
            match known {
                Some(group) if !groups.iter().any(|have| same(*have, *group)) => {
                    groups.push(*group);
                }
                Some(_) => {}
                None => tracing::warn!(number, "{CURVES_FLAG}: this curve is not offered here"),
            }
        }
        if groups.is_empty() {
            let numbers: Vec<_> = curves.iter().map(ToString::to_string).collect();
            return Err(ServingError::Tls {
                flag: CURVES_FLAG,
                value: numbers.join(","),
                problem: "none of these curves is offered here; give 29 (X25519), 23 (P-256) or \
                          24 (P-384), or leave the flag empty"
                    .to_owned(),
            });
        }
        provider.kx_groups = groups;
    }
    Ok(provider)
}

fn same(
    one: &dyn rustls::crypto::SupportedKxGroup,
    other: &dyn rustls::crypto::SupportedKxGroup,
) -> bool {
    one.name() == other.name()
}

/// The curves that Go knows.
fn group_of(number: i32) -> Result<NamedGroup, ServingError> {
    match number {
        23 => Ok(NamedGroup::secp256r1),
        24 => Ok(NamedGroup::secp384r1),
        25 => Ok(NamedGroup::secp521r1),
        29 => Ok(NamedGroup::X25519),
        4587 => Ok(NamedGroup::secp256r1MLKEM768),
        4588 => Ok(NamedGroup::X25519MLKEM768),
        4589 => Ok(NamedGroup::Unknown(4589)),
        other => Err(ServingError::Tls {
            flag: CURVES_FLAG,
            value: other.to_string(),
            problem: "no such curve; the numbers are 23, 24, 25, 29, 4587, 4588, 4589".to_owned(),
        }),
    }
}

/// The suites by their names in Go. Those that are not offered here for their weakness are told
/// and left out, so that a list made for the Go manager still works.
fn wanted_suites(names: &[String]) -> Result<Vec<CipherSuite>, ServingError> {
    let mut wanted = Vec::new();
    for name in names {
        match suite_of(name) {
            Some(suite) => wanted.push(suite),
            None if WEAK.contains(&name.as_str()) => {
                tracing::warn!(
                    suite = name,
                    "{SUITES_FLAG}: this weak suite is not offered"
                );
            }
            None => {
                return Err(ServingError::Tls {
                    flag: SUITES_FLAG,
                    value: name.clone(),
                    problem: "no such cipher suite; use Go's names, for example \
                              TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
                        .to_owned(),
                });
            }
        }
    }
    Ok(wanted)
}

fn suite_of(name: &str) -> Option<CipherSuite> {
    Some(match name {
        "TLS_AES_128_GCM_SHA256" => CipherSuite::TLS13_AES_128_GCM_SHA256,
        "TLS_AES_256_GCM_SHA384" => CipherSuite::TLS13_AES_256_GCM_SHA384,
        "TLS_CHACHA20_POLY1305_SHA256" => CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => {
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        }
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => {
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        }
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"
        | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" => {
            CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        }
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => {
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        }
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => {
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
        }
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" => {
            CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
        }
        _ => return None,
    })
}

/// What Go has and we do not: CBC modes, RC4, 3DES, key exchange without forward secrecy.
const WEAK: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Asks for a client certificate, does without, and takes any: who is believed is decided at each
/// request. What the handshake proves is that the client has the key.
#[derive(Debug)]
struct AnyClient(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn suites_are_chosen_by_the_names_of_go() {
        let chosen = names(&[
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_RSA_WITH_AES_128_CBC_SHA",
        ]);
        let provider = provider(&chosen, &[]).unwrap();
        let suites: Vec<_> = provider
            .cipher_suites
            .iter()
            .map(rustls::SupportedCipherSuite::suite)
            .collect();
        assert!(suites.contains(&CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256));
        assert!(suites.contains(&CipherSuite::TLS13_AES_256_GCM_SHA384));
        assert!(!suites.contains(&CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384));
        let error = super::provider(&names(&["AES"]), &[])
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("--tls-cipher-suites AES: "), "{error}");
    }

    #[test]
    fn curves_are_chosen_in_order_by_number() {
        let provider = provider(&[], &[24, 4588, 29, 24]).unwrap();
        let groups: Vec<_> = provider.kx_groups.iter().map(|g| g.name()).collect();
        assert_eq!(groups, [NamedGroup::secp384r1, NamedGroup::X25519]);
        for (curves, text) in [
            (vec![25], "--tls-curve-preferences 25: none of these"),
            (vec![29, 7], "--tls-curve-preferences 7: no such curve"),
        ] {
            let error = super::provider(&[], &curves).unwrap_err().to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }
}
