//! Which certificate a client gets by the name it asks for.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{
    pki_types::CertificateDer,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use x509_parser::{extensions::GeneralName, parse_x509_certificate};

/// The certificates of this moment.
pub(super) struct Choice {
    pub(super) default: Arc<CertifiedKey>,
    pub(super) named: BTreeMap<String, Arc<CertifiedKey>>,
}

impl Choice {
    /// `named` in the order of the flag: an earlier one beats a later one, and names of the flag
    /// beat names of certificates, as upstream.
    pub(super) fn new(
        default: Arc<CertifiedKey>,
        named: &[(&[String], Arc<CertifiedKey>)],
    ) -> Self {
        let mut by_name = BTreeMap::new();
        let (given, implied): (Vec<_>, Vec<_>) =
            named.iter().partition(|(names, _)| !names.is_empty());
        for (names, key) in given {
            for name in *names {
                let name = name.to_ascii_lowercase();
                by_name.entry(name).or_insert_with(|| Arc::clone(key));
            }
        }
        for (_, key) in implied {
            for name in key.cert.first().map(names_of).unwrap_or_default() {
                by_name.entry(name).or_insert_with(|| Arc::clone(key));
            }
        }
        Self {
            default,
            named: by_name,
        }
    }

    fn of(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let named = name.and_then(|name| {
            let name = name.to_ascii_lowercase();
            self.named.get(&name).or_else(|| {
                let (_, parent) = name.split_once('.')?;
                self.named.get(&format!("*.{parent}"))
            })
        });
        Arc::clone(named.unwrap_or(&self.default))
    }
}

/// The names of a certificate: its alternative names, else its common name.
fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = parse_x509_certificate(certificate) else {
        return Vec::new();
    };
    let names: Vec<String> = match parsed.subject_alternative_name() {
        Ok(Some(alternatives)) => {
            let names = alternatives.value.general_names.iter();
            names.filter_map(dns_name).collect()
        }
        _ => {
            let common = parsed.subject().iter_common_name();
            let text = common.filter_map(|name| name.as_str().ok());
            text.map(str::to_owned).collect()
        }
    };
    names.iter().map(|name| name.to_ascii_lowercase()).collect()
}

fn dns_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        // Clients ask for no addresses.
        _ => None,
    }
}

/// What the handshake asks; the certificates can be exchanged.
pub(super) struct Resolver(RwLock<Arc<Choice>>);

impl Resolver {
    pub(super) fn new(choice: Choice) -> Self {
        Self(RwLock::new(Arc::new(choice)))
    }

    /// From now on these.
    pub(super) fn set(&self, choice: Choice) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(choice);
    }

    fn choose(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let choice = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        choice.of(name)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The certificates come with their keys.
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.choose(hello.server_name()))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::{crypto::ring, pki_types::PrivateKeyDer};

    use super::*;

    fn certificate(names: &[&str]) -> Arc<CertifiedKey> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let chain = vec![certificate.der().clone()];
        Arc::new(CertifiedKey::from_der(chain, key, &ring::default_provider()).unwrap())
    }

    #[test]
    fn given_names_beat_those_of_certificates_and_earlier_ones_later_ones() {
        let default = certificate(&["default"]);
        let implied = certificate(&["a.example.com", "b.example.com", "10.0.0.1"]);
        let given = certificate(&["other"]);
        let later = certificate(&["other"]);
        let of_flag = ["A.example.com".to_owned(), "*.example.org".to_owned()];
        let choice = Choice::new(
            Arc::clone(&default),
            &[
                (&[], Arc::clone(&implied)),
                (&of_flag, Arc::clone(&given)),
                (&of_flag, later),
            ],
        );
        for (name, expected) in [
            (None, &default),
            (Some("unknown"), &default),
            (Some("a.example.com"), &given),
            (Some("B.EXAMPLE.com"), &implied),
            (Some("x.example.org"), &given),
            (Some("x.y.example.org"), &default),
            (Some("example.org"), &default),
        ] {
            assert!(Arc::ptr_eq(&choice.of(name), expected), "{name:?}");
        }
    }
}
