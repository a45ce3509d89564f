//! Who asks, and which client certificates are believed.

use std::{collections::BTreeMap, sync::Arc};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use serde::Serialize;
use x509_parser::{parse_x509_certificate, prelude::X509Name, x509::AttributeTypeAndValue};

/// A caller without credentials.
const ANONYMOUS: &str = "system:anonymous";
/// The group of those callers.
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of all others.
const AUTHENTICATED: &str = "system:authenticated";

/// A caller as the cluster knows it. The field names are those of a `SubjectAccessReview`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// The user's name.
    pub user: String,
    /// The user's unique id; empty: not told.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups, in the order in which they were told.
    pub groups: Vec<String>,
    /// Whatever else was told.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    pub(super) fn anonymous() -> Self {
        Self {
            user: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// With the group that every authenticated caller is in.
    pub(super) fn authenticated(mut self) -> Self {
        let known = [AUTHENTICATED, UNAUTHENTICATED];
        if !self.groups.iter().any(|group| known.contains(&&**group)) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// The subject of a certificate, as far as it names a caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Subject {
    /// The last one, as Go's library reads it; may be empty.
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
}

impl Subject {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let (_, parsed) = parse_x509_certificate(certificate)
            .map_err(|_| "the client certificate cannot be parsed".to_owned())?;
        let name: &X509Name<'_> = parsed.subject();
        let common_names = name.iter_common_name().map(text);
        let organizations = name.iter_organization().map(text);
        Ok(Self {
            common_name: common_names.last().transpose()?.unwrap_or_default(),
            organizations: organizations.collect::<Result<_, _>>()?,
        })
    }
}

fn text(part: &AttributeTypeAndValue<'_>) -> Result<String, String> {
    part.as_str()
        .map(str::to_owned)
        .map_err(|_| "the subject of the client certificate is not plain text".to_owned())
}

/// A bundle of authorities whose client certificates are believed.
#[derive(Clone)]
pub(super) struct Trust(Arc<dyn ClientCertVerifier>);

impl Trust {
    /// The authorities of a PEM file.
    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|_| "is not valid PEM".to_owned())?;
            roots
                .add(certificate)
                .map_err(|error| format!("holds an unusable certificate: {error}"))?;
        }
        if roots.is_empty() {
            return Err("holds no certificate".to_owned());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map(Self)
            .map_err(|error| error.to_string())
    }

    /// Whether an authority of ours vouches for the first certificate as one of a client, now.
    pub(super) fn check(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), String> {
        let Some((client, intermediates)) = chain.split_first() else {
            return Err("there is no client certificate".to_owned());
        };
        self.0
            .verify_client_cert(client, intermediates, now)
            .map(|_| ())
            .map_err(|error| format!("the client certificate is not trusted: {error}"))
    }

    /// The caller of a client certificate; `None` if it names none.
    pub(super) fn identity(
        &self,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Option<Identity>, String> {
        let Some(client) = chain.first() else {
            return Ok(None);
        };
        self.check(chain, now)?;
        let subject = Subject::of(client)?;
        Ok((!subject.common_name.is_empty()).then(|| Identity {
            user: subject.common_name,
            groups: subject.organizations,
            ..Identity::default()
        }))
    }
}
