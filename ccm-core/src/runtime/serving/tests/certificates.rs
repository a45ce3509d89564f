//! Certificates of the port (REQ-APP-20).

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use x509_parser::{extensions::GeneralName, parse_x509_certificate};

use super::*;
use crate::config::SniSettings;

/// A new pair in PEM.
fn pair(name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn write_pair(folder: &Path, name: &str, pair: &(String, String)) -> (PathBuf, PathBuf) {
    let paths = (
        folder.join(format!("{name}.crt")),
        folder.join(format!("{name}.key")),
    );
    fs::write(&paths.0, &pair.0).unwrap();
    fs::write(&paths.1, &pair.1).unwrap();
    paths
}

fn from_files((certificate, key): (PathBuf, PathBuf)) -> ServingSettings {
    ServingSettings {
        certificate: CertificateSettings::Files { certificate, key },
        ..serving()
    }
}

fn from_directory(directory: &Path) -> ServingSettings {
    ServingSettings {
        certificate: CertificateSettings::Directory {
            directory: directory.to_owned(),
            pair: "cloud-controller-manager",
        },
        ..serving()
    }
}

async fn load_error(settings: &ServingSettings) -> String {
    let loaded = Certificates::load(settings, &clock()).await;
    loaded.err().unwrap().to_string()
}

async fn world(settings: ServingSettings) -> World {
    World::with(settings, authentication(), api_server()).await
}

/// The certificate that a client of this name gets.
async fn served(world: &World, name: &str) -> CertificateDer<'static> {
    let connector = TlsConnector::from(Arc::new(trusting(None)));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = connector.connect(name, world.pipe()).await.unwrap();
    let chain = stream.get_ref().1.peer_certificates().unwrap();
    chain[0].clone()
}

fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let (_, parsed) = parse_x509_certificate(certificate).unwrap();
    let names = parsed.subject_alternative_name().unwrap().unwrap();
    let names = names.value.general_names.iter().map(|name| match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress(bytes) => {
            let bytes: Vec<_> = bytes.iter().map(ToString::to_string).collect();
            bytes.join(".")
        }
        other => format!("{other:?}"),
    });
    names.collect()
}

/// REQ-APP-20
#[tokio::test(start_paused = true)]
async fn without_a_certificate_one_is_made_in_memory_and_made_anew_before_it_ends() {
    let mut settings = serving();
    settings.address = Ipv4Addr::new(10, 0, 0, 7).into();
    let mut world = world(settings).await;
    let first = served(&world, "x").await;
    assert_eq!(names_of(&first), ["10.0.0.7", "localhost", "127.0.0.1"]);
    world.keep_current();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(served(&world, "x").await, first);
    let (_, parsed) = parse_x509_certificate(&first).unwrap();
    let ends = parsed.validity().not_after.timestamp();
    let start = clock().now().as_second();
    assert_eq!((ends - start) / 86_400, 365);
    tokio::time::advance(Duration::from_secs(336 * 86_400)).await;
    in_minutes("a new certificate", async || {
        served(&world, "x").await != first
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_wildcard_address_is_no_name() {
    let mut settings = serving();
    settings.address = Ipv4Addr::UNSPECIFIED.into();
    let world = world(settings).await;
    assert_eq!(
        names_of(&served(&world, "x").await),
        ["localhost", "127.0.0.1"]
    );
}

/// REQ-APP-20
#[tokio::test(start_paused = true)]
async fn a_directory_gets_a_pair_once_and_its_key_is_private() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("new/pki");
    let first = served(&world(from_directory(&directory)).await, "x").await;
    let key = directory.join("cloud-controller-manager.key");
    let mode = fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = served(&world(from_directory(&directory)).await, "x").await;
    assert_eq!(again, first);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
    fs::remove_file(&key).unwrap();
    let error = load_error(&from_directory(&directory)).await;
    let start = format!("--cert-dir {}: ", directory.display());
    assert!(error.starts_with(&start), "{error}");
    assert!(
        error
            .contains("cloud-controller-manager.crt is there without cloud-controller-manager.key"),
        "{error}"
    );
    // A file where the directory should be.
    let error = load_error(&from_directory(
        &directory.join("cloud-controller-manager.crt/x"),
    ))
    .await;
    assert!(error.contains("--cert-dir"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_does_not_match_its_key_is_refused_with_both_flags() {
    let folder = tempfile::tempdir().unwrap();
    let mixed = (pair("a").0, pair("b").1);
    let settings = from_files(write_pair(folder.path(), "tls", &mixed));
    let error = load_error(&settings).await;
    let expected = format!(
        "--tls-cert-file {0}.crt and --tls-private-key-file {0}.key: the certificate does not \
         match the key; give the two files of one pair",
        folder.path().join("tls").display()
    );
    assert_eq!(error, expected);
}

#[tokio::test(start_paused = true)]
async fn an_unusable_file_is_named_without_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = pair("a");
    let secret: String = key.lines().nth(1).unwrap().chars().take(20).collect();
    let broken = key.replace("PRIVATE KEY", "PRIVATE THING");
    for (content, flag, problem) in [
        (
            ("".to_owned(), key.clone()),
            "--tls-cert-file",
            "holds no certificate",
        ),
        (
            (certificate.clone(), broken),
            "--tls-private-key-file",
            "holds no private key in PEM",
        ),
        (
            (certificate.clone(), key.replacen('M', "A", 1)),
            "--tls-private-key-file",
            "holds an unusable key",
        ),
        (
            (key.clone(), certificate),
            "--tls-cert-file",
            "holds no certificate",
        ),
    ] {
        let settings = from_files(write_pair(folder.path(), "tls", &content));
        let error = load_error(&settings).await;
        assert!(
            error.starts_with(flag) && error.contains(problem),
            "{error}"
        );
        assert!(!error.contains(&secret), "{error}");
    }
    let (certificate, key) = write_pair(folder.path(), "tls", &pair("a"));
    fs::remove_file(&key).unwrap();
    let error = load_error(&from_files((certificate, key))).await;
    assert!(error.starts_with("--tls-private-key-file "), "{error}");
    assert!(error.contains("cannot be read: "), "{error}");
}

/// REQ-APP-20
#[tokio::test(start_paused = true)]
async fn changed_files_are_read_again_and_a_bad_pair_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (pair("first"), pair("second"));
    let paths = write_pair(folder.path(), "tls", &first);
    let mut world = world(from_files(paths)).await;
    world.keep_current();
    let name = async |world: &World| names_of(&served(world, "x").await);
    assert_eq!(name(&world).await, ["first"]);
    // Half of the change only.
    write_pair(folder.path(), "tls", &(second.0.clone(), first.1));
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(name(&world).await, ["first"]);
    write_pair(folder.path(), "tls", &second);
    in_minutes("the new pair", async || name(&world).await == ["second"]).await;
    fs::remove_file(folder.path().join("tls.key")).unwrap();
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(name(&world).await, ["second"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_gets_the_certificate_of_the_name_it_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = from_files(write_pair(folder.path(), "tls", &pair("default")));
    for (file, names) in [
        ("a.example.com", vec![]),
        ("b", vec!["*.example.org".to_owned()]),
    ] {
        let (certificate, key) = write_pair(folder.path(), file, &pair(file));
        settings.sni.push(SniSettings {
            certificate,
            key,
            names,
        });
    }
    let mut world = world(settings).await;
    for (asked, got) in [
        ("a.example.com", "a.example.com"),
        ("x.example.org", "b"),
        ("other", "default"),
    ] {
        assert_eq!(names_of(&served(&world, asked).await), [got], "{asked}");
    }
    world.keep_current();
    write_pair(folder.path(), "b", &pair("b2"));
    in_minutes("the new pair", async || {
        names_of(&served(&world, "x.example.org").await) == ["b2"]
    })
    .await;
}
