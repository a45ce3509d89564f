//! A certificate authority of a test's own.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};

/// Signs certificates.
#[derive(Debug)]
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Authority {
    /// An authority with a new key.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        Ok(Self {
            certificate: params.self_signed(&key)?.pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Its own certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// For a server on this machine.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn server(&self) -> Result<Pair> {
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        self.sign(&CertificateParams::new(names)?)
    }

    /// For a user: the API server takes the name from the common name and the groups from the
    /// organisations.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Pair> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = named(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Pair> {
        let key = KeyPair::generate()?;
        Ok(Pair {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn named(name: &str, groups: &[&str]) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    for group in groups {
        names.push(DnType::OrganizationName, *group);
    }
    names
}
