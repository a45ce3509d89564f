//! Why the secure port cannot be served.

use std::{net::SocketAddr, path::PathBuf};

/// Why the secure port cannot be served. Every text names the flag, its value and the fix; none
/// holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// The address cannot be used.
    #[error(
        "--bind-address {}, --secure-port {}: cannot listen: {problem}; choose a free port and an \
         address of this machine, or --secure-port=0 to serve nothing",
        address.ip(),
        address.port()
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's word.
        problem: String,
    },
    /// A file with a certificate, a key or a bundle of authorities cannot be used.
    #[error("{flag} {}: {problem}; check the path, its permissions and its content", path.display())]
    File {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong, without the content.
        problem: String,
    },
    /// A certificate and a key that are no pair.
    #[error(
        "{certificate_flag} {} and {key_flag} {}: the certificate does not match the key; give the \
         two files of one pair",
        certificate.display(),
        key.display()
    )]
    NoPair {
        /// The flag that names the certificate.
        certificate_flag: &'static str,
        /// The file of the certificate.
        certificate: PathBuf,
        /// The flag that names the key.
        key_flag: &'static str,
        /// The file of the key.
        key: PathBuf,
    },
    /// The directory cannot hold the pair.
    #[error(
        "--cert-dir {}: {problem}; make the directory writable and complete or remove the pair in \
         it, or leave the flag empty for a certificate in memory",
        directory.display()
    )]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// No certificate could be made.
    #[error("no self-signed certificate: {0}; give --tls-cert-file and --tls-private-key-file")]
    SelfSigned(String),
    /// A TLS flag.
    #[error("{flag} {value}: {problem}")]
    Tls {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The cluster's authentication configuration.
    #[error(
        "configmap kube-system/extension-apiserver-authentication: {0}; bind the role \
         extension-apiserver-authentication-reader in kube-system to this account, or give \
         --authentication-tolerate-lookup-failure or --authentication-skip-lookup"
    )]
    Lookup(String),
}
