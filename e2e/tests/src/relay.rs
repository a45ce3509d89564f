//! The network between the manager and the API server, to be cut.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context, Result};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Passes connections on, or closes all of them while it is cut. Ends when it is dropped.
pub struct Relay {
    port: u16,
    open: watch::Sender<bool>,
    refused: Arc<AtomicUsize>,
    _stop: DropGuard,
}

impl Relay {
    /// Listens on a free port of 127.0.0.1 for connections to `target`.
    ///
    /// # Errors
    /// There is no port.
    pub async fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let (open, is_open) = watch::channel(true);
        let refused = Arc::new(AtomicUsize::new(0));
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(pass_all(
            listener,
            target,
            is_open,
            refused.clone(),
        )));
        Ok(Self {
            port,
            open,
            refused,
            _stop: stop.drop_guard(),
        })
    }

    /// The kubeconfig with this relay in place of the server, written to `path`.
    ///
    /// # Errors
    /// A file cannot be read or written, or names another server.
    pub fn write_kubeconfig(
        &self,
        kubeconfig: &std::path::Path,
        server: &str,
        path: &std::path::Path,
    ) -> Result<()> {
        let text = std::fs::read_to_string(kubeconfig)?;
        let (scheme, _) = server.split_once("://").context("no URL")?;
        let through = format!("{scheme}://127.0.0.1:{}", self.port);
        anyhow::ensure!(text.contains(server), "{server} is not in the kubeconfig");
        std::fs::write(path, text.replace(server, &through))?;
        Ok(())
    }

    /// Breaks all connections and takes no new ones.
    pub fn cut(&self) {
        self.open.send_replace(false);
    }

    /// Takes connections again.
    pub fn restore(&self) {
        self.open.send_replace(true);
    }

    /// Connections that got nowhere so far: cut, or nobody listens behind.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

async fn pass_all(
    listener: TcpListener,
    target: SocketAddr,
    is_open: watch::Receiver<bool>,
    refused: Arc<AtomicUsize>,
) {
    // An accept that fails is a connection that its client has given up.
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        if *is_open.borrow() {
            tokio::spawn(pass(stream, target, is_open.clone(), Arc::clone(&refused)));
        } else {
            refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn pass(
    mut near: TcpStream,
    target: SocketAddr,
    mut is_open: watch::Receiver<bool>,
    refused: Arc<AtomicUsize>,
) {
    let Ok(mut far) = TcpStream::connect(target).await else {
        refused.fetch_add(1, Ordering::Relaxed);
        return;
    };
    // Both ends close when this returns, whatever the reason.
    tokio::select! {
        biased;
        _ = is_open.wait_for(|open| !open) => {}
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
    }
}
