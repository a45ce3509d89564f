//! What a client can hold of us, and the life of the port.

use std::net::SocketAddr;

use rustls::version::{TLS12, TLS13};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::*;

/// Reads until the other side is gone and says how long that took.
async fn until_closed(mut stream: impl tokio::io::AsyncRead + Unpin) -> (Duration, Vec<u8>) {
    let began = Instant::now();
    let mut rest = Vec::new();
    // Closed well or cut off; either ends the read.
    let _ = stream.read_to_end(&mut rest).await;
    (began.elapsed(), rest)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_shake_hands_is_cut_off() {
    let world = World::new(authentication()).await;
    let (took, _) = until_closed(world.pipe()).await;
    assert_eq!(took.as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_trickles_in_is_cut_off() {
    let world = World::new(authentication()).await;
    let stream = world.connect(trusting(None)).await.unwrap();
    let (reader, mut writer) = tokio::io::split(stream);
    tokio::spawn(async move {
        for byte in b"GET /healthz HTTP/1.1\r\nHost: x\r\n".iter().cycle() {
            if writer.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let (took, _) = until_closed(reader).await;
    assert!(took <= Duration::from_secs(11), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_too_large_is_refused() {
    let world = World::new(authentication()).await;
    let large = "x".repeat(200 * 1024);
    let (status, _) = world.get("/healthz", None, &[("x-large", &large)]).await;
    assert_eq!(status, 431);
    let fits = "x".repeat(40 * 1024);
    let (status, _) = world.get("/healthz", None, &[("x-large", &fits)]).await;
    assert_eq!(status, 200);
}

#[tokio::test(start_paused = true)]
async fn http2_is_spoken_unless_it_is_off() {
    let offering = || {
        let mut config = trusting(None);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    };
    let world = World::new(authentication()).await;
    let stream = world.connect(offering()).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut sender = speak_h2(stream).await;
    let ask = |path: &str| {
        let mut request = request(path, &[]);
        *request.uri_mut() = format!("https://localhost{path}").parse().unwrap();
        request.headers_mut().clear();
        request
    };
    let health = sender.send_request(ask("/healthz")).await.unwrap();
    assert_eq!(read(health).await, (200, "ok".to_owned()));
    let metrics = sender.send_request(ask("/metrics")).await.unwrap();
    assert_eq!(read(metrics).await.0, 403);
    let mut settings = serving();
    settings.http2 = false;
    let world = World::with(settings, authentication(), api_server()).await;
    let stream = world.connect(offering()).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[tokio::test(start_paused = true)]
async fn the_number_of_http2_requests_at_once_is_told() {
    for (setting, told) in [(None, 100), (Some(7), 7)] {
        let mut settings = serving();
        settings.http2_max_streams = setting;
        let world = World::with(settings, authentication(), api_server()).await;
        let mut config = trusting(None);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let mut stream = world.connect(config).await.unwrap();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        stream.write_all(preface).await.unwrap();
        // The first frame has the settings: a head of 9 bytes, then 2 bytes name, 4 bytes value.
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut values = vec![0; usize::from(head[2])];
        stream.read_exact(&mut values).await.unwrap();
        let max_concurrent_streams = [0, 3, 0, 0, 0, told];
        assert!(
            values
                .chunks(6)
                .any(|entry| entry == max_concurrent_streams),
            "{values:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_http2_connection_is_closed_with_and_without_a_word() {
    let world = World::new(authentication()).await;
    let offering = || {
        let mut config = trusting(None);
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    };
    let mut sender = speak_h2(world.connect(offering()).await.unwrap()).await;
    sender.ready().await.unwrap();
    let began = Instant::now();
    while !sender.is_closed() {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(began.elapsed() < Duration::from_secs(120));
    }
    assert!(began.elapsed() >= Duration::from_secs(85));
    let silent = world.connect(offering()).await.unwrap();
    let (took, _) = until_closed(silent).await;
    assert!(took <= Duration::from_secs(95), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn old_tls_is_refused_when_told() {
    let mut settings = serving();
    let world = World::with(settings.clone(), authentication(), api_server()).await;
    for version in [&TLS12, &TLS13] {
        let stream = world
            .connect(trusting_with(None, &[version]))
            .await
            .unwrap();
        let spoken = stream.get_ref().1.protocol_version();
        assert_eq!(spoken, Some(version.version));
    }
    settings.tls13_only = true;
    let world = World::with(settings, authentication(), api_server()).await;
    assert!(world.connect(trusting_with(None, &[&TLS12])).await.is_err());
    assert!(world.connect(trusting_with(None, &[&TLS13])).await.is_ok());
}

async fn healthy_over_tcp(address: SocketAddr) -> TlsStream<TcpStream> {
    let connector = TlsConnector::from(Arc::new(trusting(None)));
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let mut stream = connector.connect(name, stream).await.unwrap();
    let ask = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(ask).await.unwrap();
    let mut head = [0; 15];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    stream
}

/// REQ-APP-08, REQ-APP-20
#[tokio::test]
async fn the_port_answers_over_tcp_and_ends_at_once_with_connections_open() {
    let world = World::new(authentication()).await;
    let bound = SecureServing::bind(&serving(), &clock()).await.unwrap();
    let address = bound.local_addr();
    let shutdown = CancellationToken::new();
    let run = bound.run(world.router.clone(), world.gate.clone(), shutdown.clone());
    let server = tokio::spawn(run);
    let stream = healthy_over_tcp(address).await;
    shutdown.cancel();
    server.await.unwrap();
    until_closed(stream).await;
    assert!(TcpStream::connect(address).await.is_err());
    // A restart does not wait for old connections to fade.
    let again = ServingSettings {
        port: address.port(),
        ..serving()
    };
    assert!(SecureServing::bind(&again, &clock()).await.is_ok());
}

#[tokio::test]
async fn a_port_in_use_is_named_unless_it_may_be_shared() {
    let mut settings = serving();
    settings.permit_port_sharing = true;
    let first = SecureServing::bind(&settings, &clock()).await.unwrap();
    settings.port = first.local_addr().port();
    assert!(SecureServing::bind(&settings, &clock()).await.is_ok());
    settings.permit_port_sharing = false;
    let error = SecureServing::bind(&settings, &clock()).await.err();
    let error = error.unwrap().to_string();
    let start = format!(
        "--bind-address 127.0.0.1, --secure-port {}: cannot listen: ",
        settings.port
    );
    assert!(error.starts_with(&start), "{error}");
}

#[tokio::test]
async fn the_plain_server_answers_and_ends_at_once_with_connections_open() {
    let world = World::new(authentication()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(serve(listener, world.router.clone(), shutdown.clone()));
    let mut client = TcpStream::connect(address).await.unwrap();
    client
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let mut head = [0; 15];
    client.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    shutdown.cancel();
    server.await.unwrap();
    until_closed(client).await;
}
