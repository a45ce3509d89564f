//! The secure port (specification: controllers §7.1, §7.3, §7.4).

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use http::Request;
use rustls::{ServerConfig, pki_types::CertificateDer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    Gatekeeper, ServingError,
    certificates::Certificates,
    connection::{accept, http1, http2},
    tls::{H2, server_config},
};
use crate::{config::ServingSettings, runtime::Clock};

/// A client that does not finish the handshake in this time is cut off.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// Requests at once on an HTTP/2 connection: what API servers allow those they do not know.
const STREAMS: u32 = 100;

/// Connections that wait in the kernel's queue.
const WAITING: u32 = 128;

/// The secure port, bound and with its certificates read.
pub struct SecureServing {
    listener: TcpListener,
    address: SocketAddr,
    certificates: Certificates,
    port: Port,
}

/// What every connection needs. Cheap to clone.
#[derive(Clone)]
pub(super) struct Port {
    tls: TlsAcceptor,
    streams: u32,
}

impl SecureServing {
    /// Reads or makes the certificates and binds the port (REQ-APP-19, REQ-APP-20). Answers
    /// nobody yet.
    ///
    /// # Errors
    /// See [`ServingError`].
    pub async fn bind(settings: &ServingSettings, clock: &Clock) -> Result<Self, ServingError> {
        let certificates = Certificates::load(settings, clock).await?;
        let port = Port::new(settings, &certificates)?;
        let address = SocketAddr::new(settings.address, settings.port);
        let fail = |error: std::io::Error| ServingError::Listen {
            address,
            problem: error.to_string(),
        };
        let listener = listen(settings, address).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Self {
            listener,
            address,
            certificates,
            port,
        })
    }

    /// Where it listens.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests that `gate` lets through, and keeps certificates and authorities up to
    /// date, until `shutdown`; then all connections are closed at once.
    pub async fn run(self, router: Router, gate: Gatekeeper, shutdown: CancellationToken) {
        let Self {
            listener,
            address,
            certificates,
            port,
        } = self;
        tracing::info!(%address, "serving securely");
        let connections = accept(listener, shutdown.clone(), |stream| {
            // Answers are small and whole; waiting to fill packets helps nobody.
            let _ = stream.set_nodelay(true);
            port.clone()
                .connection(stream, router.clone(), gate.clone())
        });
        tokio::select! {
            biased;
            () = connections => {}
            () = certificates.keep_current() => {}
            () = gate.keep_current() => {}
        }
    }
}

fn listen(settings: &ServingSettings, address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Go sets this one on every listener, with and without --permit-address-sharing: without it a
    // restart fails while old connections fade.
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(settings.permit_port_sharing)?;
    socket.bind(address)?;
    socket.listen(WAITING)
}

impl Port {
    pub(super) fn new(
        settings: &ServingSettings,
        certificates: &Certificates,
    ) -> Result<Self, ServingError> {
        let config: ServerConfig = server_config(settings, certificates.resolver())?;
        Ok(Self {
            tls: TlsAcceptor::from(Arc::new(config)),
            streams: settings.http2_max_streams.unwrap_or(STREAMS),
        })
    }

    /// One connection from handshake to end.
    pub(super) async fn connection<Io>(self, io: Io, router: Router, gate: Gatekeeper)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = tokio::time::timeout(HANDSHAKE_WITHIN, self.tls.accept(io));
        let stream = match handshake.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => return tracing::debug!("TLS handshake took too long"),
        };
        let (_, session) = stream.get_ref();
        let speaks_h2 = session.alpn_protocol() == Some(H2);
        let chain: Arc<[CertificateDer<'static>]> =
            session.peer_certificates().unwrap_or_default().into();
        let answer = move |request: Request<Body>| {
            let (chain, router, gate) = (Arc::clone(&chain), router.clone(), gate.clone());
            async move { gate.answer(&chain, router, request).await }
        };
        if speaks_h2 {
            http2(stream, self.streams, answer).await;
        } else {
            http1(stream, answer).await;
        }
    }
}
