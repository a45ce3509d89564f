//! Where the API server is and with what one identifies oneself, from flags and files.

use std::path::Path;

use http::Uri;
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use super::{super::informer::error_chain, ClientError};
use crate::config::ApiSettings;

/// The flag of the manager's own file.
const KUBECONFIG: &str = "--kubeconfig";

/// The Go library's order of precedence: a file (with `--master` over its server), `--master`
/// alone, the pod's service account.
pub(super) async fn load(settings: &ApiSettings) -> Result<Config, ClientError> {
    let master = match &settings.master {
        Some(text) => Some(parse_master(text)?),
        None => None,
    };
    match (&settings.kubeconfig, master) {
        (Some(path), master) => {
            let mut config = from_kubeconfig(KUBECONFIG, path).await?;
            if let Some(url) = master {
                config.cluster_url = url;
            }
            Ok(config)
        }
        (None, Some(url)) => Ok(Config::new(url)),
        (None, None) => {
            Config::incluster().map_err(|error| ClientError::InCluster(error_chain(&error)))
        }
    }
}

fn parse_master(text: &str) -> Result<Uri, ClientError> {
    let wrong = || ClientError::Master(text.to_owned());
    let url: Uri = text.parse().map_err(|_| wrong())?;
    match url.scheme_str() {
        Some("http" | "https") if url.host().is_some_and(|host| !host.is_empty()) => Ok(url),
        _ => Err(wrong()),
    }
}

/// The current context of a file; `flag` names it in errors.
pub(super) async fn from_kubeconfig(
    flag: &'static str,
    path: &Path,
) -> Result<Config, ClientError> {
    let fail = |problem: String| ClientError::Kubeconfig {
        flag,
        path: path.to_owned(),
        problem,
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| fail(problem(&error)))?;
    if let Some(proxy) = configured_proxy(&kubeconfig) {
        return Err(fail(format!(
            "its cluster has the proxy-url {proxy:?}; proxies are not supported, remove it or \
             give the file of a cluster that is reached directly"
        )));
    }
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| fail(problem(&error)))
}

/// The host of the proxy that the file asks for in its current context. Its URL may hold a
/// password.
fn configured_proxy(kubeconfig: &Kubeconfig) -> Option<String> {
    let current = kubeconfig.current_context.as_deref()?;
    let context = kubeconfig.contexts.iter().find(|c| c.name == current)?;
    let name = &context.context.as_ref()?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|c| &c.name == name)?;
    let proxy = cluster.cluster.as_ref()?.proxy_url.as_deref()?;
    let host = proxy
        .parse::<Uri>()
        .ok()
        .and_then(|url| Some(url.host()?.to_owned()));
    Some(host.unwrap_or_default())
}

/// What is wrong with a kubeconfig, without quoting its content: that may be a secret.
fn problem(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, _) => {
            format!("cannot be read: {error}; check the path and the file's permissions")
        }
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!(
                "is not a valid kubeconfig: line {}, column {}",
                at.line(),
                at.column()
            ),
            None => "is not a valid kubeconfig".to_owned(),
        },
        KubeconfigError::CurrentContextNotSet => {
            "has no current-context; set one with kubectl config use-context".to_owned()
        }
        other => error_chain(other),
    }
}
