//! Requests to a manager's secure port, as curl sends them.

use std::path::Path;

use anyhow::{Context, Result};
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub enum Who<'a> {
    /// Nobody in particular.
    Anybody,
    /// The owner of a bearer token.
    Token(&'a str),
    /// The owner of a client certificate: its file and the file of its key.
    Certificate(&'a Path, &'a Path),
}

/// Somebody who asks a secure port of this machine.
pub struct Caller(Client);

impl Caller {
    /// Asks `port`; believes any certificate, as `curl -k` does.
    ///
    /// # Errors
    /// A file cannot be read.
    pub async fn new(port: u16, who: Who<'_>) -> Result<Self> {
        let cluster = json!({ "insecure-skip-tls-verify": true });
        Self::with(port, cluster, who).await
    }

    /// Asks `port`; believes only certificates that the authority in this file has signed.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn believing(port: u16, authority: &Path) -> Result<Self> {
        let cluster = json!({ "certificate-authority": authority });
        Self::with(port, cluster, Who::Anybody).await
    }

    async fn with(port: u16, mut cluster: Value, who: Who<'_>) -> Result<Self> {
        ccm_testkit::install_tls();
        let cluster_fields = cluster.as_object_mut().context("no object")?;
        let url = format!("https://127.0.0.1:{port}");
        cluster_fields.insert("server".to_owned(), json!(url));
        let user = match who {
            Who::Anybody => json!({}),
            Who::Token(token) => json!({ "token": token }),
            Who::Certificate(certificate, key) => {
                json!({ "client-certificate": certificate, "client-key": key })
            }
        };
        let config = json!({
            "clusters": [{ "name": "c", "cluster": cluster }],
            "users": [{ "name": "u", "user": user }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "x",
        });
        let kubeconfig = Kubeconfig::from_yaml(&config.to_string())?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        config.default_retry = false;
        Ok(Self(Client::try_from(config)?))
    }

    /// Status and body of a path.
    ///
    /// # Errors
    /// Nobody listens, or its certificate is not believed.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let request = http::Request::get(path).body(Body::empty())?;
        let answer = self.0.send(request).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}
