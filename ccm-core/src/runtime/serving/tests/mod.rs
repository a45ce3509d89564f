//! The secure port from outside: TLS over pipes in memory on virtual time, reviews by a simulated
//! API server.

mod access;
mod bounds;
mod certificates;
mod lookup;

use std::{collections::BTreeMap, net::Ipv4Addr, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use bytes::Bytes;
use ccm_kubesim::{KubeSim, Options, User};
use http::Request;
use http_body_util::BodyExt as _;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prometheus::Registry;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
};
use serde_json::json;
use tokio::io::DuplexStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{certificates::Certificates, secure::Port, *};
use crate::{
    config::{
        AuthenticationSettings, AuthorizationSettings, CertificateSettings, RequestHeaderSettings,
        ServingSettings,
    },
    runtime::{Clock, Health, Loops, QueueMetrics, Random},
};

/// The token of our own client.
const OURS: &str = "token-of-the-manager";
/// The token of a scraper that may read metrics.
const SCRAPER: &str = "token-of-the-scraper";
/// The token of somebody who may not.
const STRANGER: &str = "token-of-a-stranger";

fn clock() -> Clock {
    Clock::anchored("2026-06-01T00:00:00Z".parse().unwrap())
}

fn serving() -> ServingSettings {
    ServingSettings {
        address: Ipv4Addr::LOCALHOST.into(),
        port: 0,
        certificate: CertificateSettings::SelfSigned,
        sni: Vec::new(),
        tls13_only: false,
        cipher_suites: Vec::new(),
        curves: Vec::new(),
        http2: true,
        http2_max_streams: None,
        permit_address_sharing: false,
        permit_port_sharing: false,
    }
}

fn authentication() -> AuthenticationSettings {
    AuthenticationSettings {
        kubeconfig: None,
        skip_lookup: true,
        tolerate_lookup_failure: false,
        token_cache: Duration::from_secs(10),
        client_ca: None,
        request_header: RequestHeaderSettings {
            client_ca: None,
            allowed_names: Vec::new(),
            username: vec!["x-remote-user".into()],
            uid: Vec::new(),
            group: vec!["x-remote-group".into()],
            extra_prefix: vec!["x-remote-extra-".into()],
        },
    }
}

fn authorization() -> AuthorizationSettings {
    AuthorizationSettings {
        kubeconfig: None,
        always_allow: ["/healthz", "/readyz", "/livez"].map(str::to_owned).into(),
        allow_cache: Duration::from_secs(10),
        deny_cache: Duration::from_secs(10),
    }
}

fn api_server() -> KubeSim {
    let token = |token: &str, name: &str| (token.to_owned(), User::named(name));
    KubeSim::new(Options {
        tokens: BTreeMap::from([
            token(OURS, "manager"),
            token(SCRAPER, "scraper"),
            token(STRANGER, "stranger"),
        ]),
        granted_paths: Some(BTreeMap::from([
            ("scraper".to_owned(), ["/metrics".to_owned()].into()),
            ("readers".to_owned(), ["/metrics".to_owned()].into()),
        ])),
        ..Options::default()
    })
}

fn client_of(sim: &KubeSim) -> kube::Client {
    let service = tower::ServiceBuilder::new()
        .map_request(|mut request: Request<kube::client::Body>| {
            let token = format!("Bearer {OURS}").parse().unwrap();
            request.headers_mut().insert("authorization", token);
            request
        })
        .service(sim.service());
    kube::Client::new(service, "default")
}

/// Somebody who signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    fn client(&self, name: &str, groups: &[&str]) -> ClientPair {
        self.signed(name, groups, |_| {})
    }

    fn signed(
        &self,
        name: &str,
        groups: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> ClientPair {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = rcgen::DistinguishedName::new();
        for group in groups {
            let name = DnType::OrganizationName;
            params.distinguished_name.push(name, *group);
        }
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        ClientPair {
            chain: vec![certificate.der().clone()],
            key: key.serialize_der(),
        }
    }
}

/// A client certificate and its key.
struct ClientPair {
    chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
}

/// A secure port without a socket.
struct World {
    sim: KubeSim,
    registry: Registry,
    health: Health,
    port: Port,
    gate: Gatekeeper,
    router: Router,
    certificates: Option<Certificates>,
}

impl World {
    async fn new(authentication: AuthenticationSettings) -> Self {
        Self::with(serving(), authentication, api_server()).await
    }

    async fn with(
        serving: ServingSettings,
        authentication: AuthenticationSettings,
        sim: KubeSim,
    ) -> Self {
        let client = client_of(&sim);
        Self::start(serving, authentication, sim, Some(client))
            .await
            .unwrap()
    }

    async fn start(
        serving: ServingSettings,
        authentication: AuthenticationSettings,
        sim: KubeSim,
        client: Option<kube::Client>,
    ) -> Result<Self, ServingError> {
        let registry = Registry::new();
        let (clock, random) = (clock(), Random::seeded(1));
        let metrics = DelegatedMetrics::new(&registry).unwrap();
        let authenticator = Authenticator::start(
            &authentication,
            client.clone(),
            clock.clone(),
            random.clone(),
            &metrics,
        )
        .await?;
        let authorizer = Authorizer::new(&authorization(), client, random, &metrics);
        let certificates = Certificates::load(&serving, &clock).await?;
        let health = Health::new();
        let queues = QueueMetrics::new(&registry).unwrap();
        let endpoints = Endpoints::new(health.clone(), queues, registry.clone()).unwrap();
        let router = endpoints.secure(Inspection {
            configz: json!({}),
            loops: Loops::new(clock),
            profiling: true,
            set_verbosity: None,
        });
        Ok(Self {
            sim,
            registry,
            health,
            port: Port::new(&serving, &certificates)?,
            gate: Gatekeeper::new(authenticator, authorizer),
            router,
            certificates: Some(certificates),
        })
    }

    /// Keeps certificates and authorities up to date from now on.
    fn keep_current(&mut self) {
        let (gate, certificates) = (self.gate.clone(), self.certificates.take().unwrap());
        tokio::spawn(async move { gate.keep_current().await });
        tokio::spawn(certificates.keep_current());
    }

    /// The client's end of a new connection.
    fn pipe(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(256 * 1024);
        let (router, gate) = (self.router.clone(), self.gate.clone());
        tokio::spawn(self.port.clone().connection(theirs, router, gate));
        ours
    }

    async fn connect(&self, config: ClientConfig) -> std::io::Result<TlsStream<DuplexStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, self.pipe()).await
    }

    /// The answer to `GET path` with these headers.
    async fn get(
        &self,
        path: &str,
        pair: Option<&ClientPair>,
        headers: &[(&str, &str)],
    ) -> (u16, String) {
        let stream = self.connect(trusting(pair)).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let answer = sender.send_request(request(path, headers)).await.unwrap();
        read(answer).await
    }

    async fn with_token(&self, path: &str, token: &str) -> (u16, String) {
        let header = ("authorization", format!("Bearer {token}"));
        self.get(path, None, &[(header.0, &header.1)]).await
    }

    fn reviews(&self, kind: &str) -> u64 {
        let requests = self.sim.requests();
        requests.sum(|key| key.resource.starts_with(kind))
    }

    /// Lines of the exposition that start so.
    fn series(&self, start: &str) -> Vec<String> {
        let text = prometheus::TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap();
        let lines = text.lines().filter(|line| line.starts_with(start));
        lines.map(str::to_owned).collect()
    }
}

fn request(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::get(path).header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

async fn read(answer: http::Response<hyper::body::Incoming>) -> (u16, String) {
    let status = answer.status().as_u16();
    let body: Bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// A client that takes any server, with or without a certificate of its own.
fn trusting(pair: Option<&ClientPair>) -> ClientConfig {
    trusting_with(pair, rustls::DEFAULT_VERSIONS)
}

fn trusting_with(
    pair: Option<&ClientPair>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer));
    match pair {
        None => config.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::try_from(pair.key.clone()).unwrap();
            config
                .with_client_auth_cert(pair.chain.clone(), key)
                .unwrap()
        }
    }
}

#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = ring::default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

async fn speak_h2(stream: TlsStream<DuplexStream>) -> http2::SendRequest<Body> {
    let executor = TokioExecutor::new();
    let (sender, connection) = http2::handshake(executor, TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

/// Looks every few seconds of virtual time, for some minutes.
async fn in_minutes(what: &str, mut check: impl AsyncFnMut() -> bool) {
    for _ in 0..60 {
        if check().await {
            return;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    panic!("{what}: not within minutes");
}
