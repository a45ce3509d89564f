//! The certificates of the secure port: from files, from a directory, or made here; replaced when
//! their files change (REQ-APP-20).

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use tokio::{fs, io::AsyncWriteExt as _};

use super::{
    ServingError,
    sni::{Choice, Resolver},
    watched::{Unreadable, Watched},
};
use crate::{
    config::{CertificateSettings, ServingSettings},
    runtime::Clock,
};

/// Between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// A self-signed certificate holds for a year, as upstream.
const DAYS: i64 = 365;

/// One in memory is made anew this long before its end.
const RENEW_DAYS: i64 = 30;

/// Clocks of clients may be behind.
const BACKDATED_HOURS: i64 = 1;

/// All certificates of the port and where they come from.
pub(super) struct Certificates {
    resolver: Arc<Resolver>,
    default: Source,
    named: Vec<Pair>,
}

enum Source {
    Files(Pair),
    Made(Made),
}

/// A certificate in memory.
struct Made {
    address: IpAddr,
    clock: Clock,
    renew_at: Timestamp,
    key: Arc<CertifiedKey>,
}

/// A certificate and its key in files.
struct Pair {
    files: PairFiles,
    names: Vec<String>,
    watched: Watched,
    key: Arc<CertifiedKey>,
}

#[derive(Clone)]
struct PairFiles {
    certificate_flag: &'static str,
    certificate: PathBuf,
    key_flag: &'static str,
    key: PathBuf,
}

impl Certificates {
    /// Reads or makes all certificates.
    pub(super) async fn load(
        settings: &ServingSettings,
        clock: &Clock,
    ) -> Result<Self, ServingError> {
        let default = match &settings.certificate {
            CertificateSettings::Files { certificate, key } => {
                let files = PairFiles {
                    certificate_flag: "--tls-cert-file",
                    certificate: certificate.clone(),
                    key_flag: "--tls-private-key-file",
                    key: key.clone(),
                };
                Source::Files(Pair::load(files, Vec::new()).await?)
            }
            CertificateSettings::Directory { directory, pair } => {
                let files = in_directory(directory, pair, settings.address, clock).await?;
                Source::Files(Pair::load(files, Vec::new()).await?)
            }
            CertificateSettings::SelfSigned => {
                Source::Made(Made::new(settings.address, clock.clone())?)
            }
        };
        let mut named = Vec::new();
        for sni in &settings.sni {
            let files = PairFiles {
                certificate_flag: "--tls-sni-cert-key",
                certificate: sni.certificate.clone(),
                key_flag: "--tls-sni-cert-key",
                key: sni.key.clone(),
            };
            named.push(Pair::load(files, sni.names.clone()).await?);
        }
        let resolver = Arc::new(Resolver::new(choice(&default, &named)));
        Ok(Self {
            resolver,
            default,
            named,
        })
    }

    /// What the handshake asks.
    pub(super) fn resolver(&self) -> Arc<Resolver> {
        Arc::clone(&self.resolver)
    }

    /// Looks at the files again and again. Never ends. A bad new pair leaves the old one.
    pub(super) async fn keep_current(mut self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let mut changed = match &mut self.default {
                Source::Files(pair) => pair.look_again().await,
                Source::Made(made) => made.look_again(),
            };
            for pair in &mut self.named {
                changed |= pair.look_again().await;
            }
            if changed {
                self.resolver.set(choice(&self.default, &self.named));
            }
        }
    }
}

fn choice(default: &Source, named: &[Pair]) -> Choice {
    let default = match default {
        Source::Files(pair) => &pair.key,
        Source::Made(made) => &made.key,
    };
    let named: Vec<_> = named
        .iter()
        .map(|pair| (pair.names.as_slice(), Arc::clone(&pair.key)))
        .collect();
    Choice::new(Arc::clone(default), &named)
}

impl Pair {
    async fn load(files: PairFiles, names: Vec<String>) -> Result<Self, ServingError> {
        let mut watched = Watched::new(vec![files.certificate.clone(), files.key.clone()]);
        // The first look always tells something.
        let contents = watched.changed().await.unwrap_or_else(|| Ok(Vec::new()));
        let key = files.parse(contents)?;
        Ok(Self {
            files,
            names,
            watched,
            key,
        })
    }

    async fn look_again(&mut self) -> bool {
        let Some(contents) = self.watched.changed().await else {
            return false;
        };
        match self.files.parse(contents) {
            Ok(key) => {
                let certificate = self.files.certificate.display();
                tracing::info!(%certificate, "the serving certificate was read again");
                self.key = key;
                true
            }
            Err(error) => {
                // Also while one of the two files is new already and the other one not yet.
                tracing::warn!(%error, "the serving certificate is not replaced, the old one stays");
                false
            }
        }
    }
}

impl PairFiles {
    fn parse(
        &self,
        contents: Result<Vec<Vec<u8>>, Unreadable>,
    ) -> Result<Arc<CertifiedKey>, ServingError> {
        let fail = |of_key: bool, problem: String| ServingError::File {
            flag: if of_key {
                self.key_flag
            } else {
                self.certificate_flag
            },
            path: if of_key { &self.key } else { &self.certificate }.clone(),
            problem,
        };
        let contents = contents.map_err(|Unreadable { path, problem }| {
            fail(path == self.key && path != self.certificate, problem)
        })?;
        let [certificate, key] = contents.as_slice() else {
            return Err(fail(false, "was not read".to_owned()));
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|_| fail(false, "is not valid PEM".to_owned()))?;
        if chain.is_empty() {
            return Err(fail(false, "holds no certificate".to_owned()));
        }
        // What is wrong with a key is told without its content.
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| fail(true, "holds no private key in PEM".to_owned()))?;
        match CertifiedKey::from_der(chain, key, &ring::default_provider()) {
            Ok(key) => Ok(Arc::new(key)),
            Err(rustls::Error::InconsistentKeys(_)) => Err(ServingError::NoPair {
                certificate_flag: self.certificate_flag,
                certificate: self.certificate.clone(),
                key_flag: self.key_flag,
                key: self.key.clone(),
            }),
            Err(rustls::Error::InvalidCertificate(error)) => Err(fail(
                false,
                format!("holds an unusable certificate: {error}"),
            )),
            Err(error) => Err(fail(true, format!("holds an unusable key: {error}"))),
        }
    }
}

impl Made {
    fn new(address: IpAddr, clock: Clock) -> Result<Self, ServingError> {
        let now = clock.now();
        let (certificate, key) = self_signed(address, now)?;
        let fail = |error: &dyn std::fmt::Display| ServingError::SelfSigned(error.to_string());
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|error| fail(&error))?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider())
            .map_err(|error| fail(&error))?;
        let life = jiff::SignedDuration::from_hours((DAYS - RENEW_DAYS) * 24);
        Ok(Self {
            address,
            clock,
            renew_at: now.checked_add(life).unwrap_or(Timestamp::MAX),
            key: Arc::new(key),
        })
    }

    fn look_again(&mut self) -> bool {
        if self.clock.now() < self.renew_at {
            return false;
        }
        match Self::new(self.address, self.clock.clone()) {
            Ok(made) => {
                *self = made;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the serving certificate is not made anew");
                false
            }
        }
    }
}

/// A certificate for `localhost`, 127.0.0.1 and the bind address if it is one.
fn self_signed(
    address: IpAddr,
    now: Timestamp,
) -> Result<(rcgen::Certificate, KeyPair), ServingError> {
    let fail = |error: &dyn std::fmt::Display| ServingError::SelfSigned(error.to_string());
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    if !address.is_unspecified() && !names.contains(&address.to_string()) {
        names.insert(0, address.to_string());
    }
    let common_name = names.first().cloned().unwrap_or_default();
    let mut params = CertificateParams::new(names).map_err(|error| fail(&error))?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let from =
        time::OffsetDateTime::from_unix_timestamp(now.as_second()).map_err(|error| fail(&error))?;
    params.not_before = from - time::Duration::hours(BACKDATED_HOURS);
    params.not_after = from + time::Duration::days(DAYS);
    let key = KeyPair::generate().map_err(|error| fail(&error))?;
    let certificate = params.self_signed(&key).map_err(|error| fail(&error))?;
    Ok((certificate, key))
}

/// The pair in the directory, made if there is none.
async fn in_directory(
    directory: &Path,
    pair: &str,
    address: IpAddr,
    clock: &Clock,
) -> Result<PairFiles, ServingError> {
    let fail = |problem: String| ServingError::Directory {
        directory: directory.to_owned(),
        problem,
    };
    let files = PairFiles {
        certificate_flag: "--cert-dir",
        certificate: directory.join(format!("{pair}.crt")),
        key_flag: "--cert-dir",
        key: directory.join(format!("{pair}.key")),
    };
    let exists = async |path: &Path| {
        let found = fs::try_exists(path).await;
        found.map_err(|error| fail(format!("{}: {error}", path.display())))
    };
    match (exists(&files.certificate).await?, exists(&files.key).await?) {
        (true, true) => return Ok(files),
        (false, false) => {}
        (certificate, _) => {
            let (here, missing) = if certificate {
                ("crt", "key")
            } else {
                ("key", "crt")
            };
            return Err(fail(format!(
                "{pair}.{here} is there without {pair}.{missing}"
            )));
        }
    }
    let (certificate, key) = self_signed(address, clock.now())?;
    let cannot = |error: std::io::Error| fail(format!("the pair cannot be written: {error}"));
    fs::create_dir_all(directory).await.map_err(cannot)?;
    write(&files.key, 0o600, &key.serialize_pem())
        .await
        .map_err(cannot)?;
    write(&files.certificate, 0o644, &certificate.pem())
        .await
        .map_err(cannot)?;
    tracing::info!(directory = %directory.display(), "a self-signed serving certificate was made");
    Ok(files)
}

/// Writes a file that is never there in part, and never readable by more than `mode` allows.
async fn write(path: &Path, mode: u32, content: &str) -> std::io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    match fs::remove_file(&unfinished).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&unfinished)
        .await?;
    file.write_all(content.as_bytes()).await?;
    file.sync_all().await?;
    fs::rename(&unfinished, path).await
}
