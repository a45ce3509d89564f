//! Whose certificates are believed, from files and from the cluster, kept up to date
//! (specification: controllers §7.4).

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    ServingError,
    exchange::{ExchangeError, exchange},
    identity::Trust,
    request_header::{HeaderNames, Proxy},
    reviews::ANSWER_WITHIN,
    watched::Watched,
};
use crate::{
    config::{AuthenticationSettings, RequestHeaderSettings},
    runtime::Random,
};

/// Where the cluster tells whose certificates it believes.
const CONFIGMAP: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// Between two looks at the files.
const FILES_EVERY: Duration = Duration::from_secs(10);

/// Between two looks at the configmap: authorities change a few times in years.
const CLUSTER_EVERY: Duration = Duration::from_secs(60);

/// Tries of the first look, so that a moment of absence does not end the process.
const FIRST_TRIES: u32 = 3;

/// Between two of them.
const FIRST_TRIES_APART: Duration = Duration::from_secs(1);

/// Whose certificates are believed right now.
#[derive(Clone, Default)]
pub(super) struct Trusts {
    /// Of clients in their own name.
    pub(super) client: Option<Trust>,
    /// Of proxies that tell of callers in headers.
    pub(super) proxy: Option<Proxy>,
}

/// The sources of [`Trusts`]. What was read last stays when a later look fails.
pub(super) struct TrustSources {
    client_file: Option<PathBuf>,
    proxy: RequestHeaderSettings,
    cluster: Option<kube::Client>,
    random: Random,
    now: RwLock<Arc<Trusts>>,
}

/// What was seen at the last look.
pub(super) struct Looks {
    client_file: Option<Watched>,
    proxy_file: Option<Watched>,
    cluster: Option<Bytes>,
    cluster_problem: Option<String>,
}

impl TrustSources {
    /// Looks for the first time. Bad files are fatal, the cluster's configuration only unless that
    /// is tolerated.
    pub(super) async fn start(
        settings: &AuthenticationSettings,
        client: Option<kube::Client>,
        random: Random,
    ) -> Result<(Self, Looks), ServingError> {
        let all_in_files =
            settings.client_ca.is_some() && settings.request_header.client_ca.is_some();
        let cluster = client.filter(|_| !settings.skip_lookup && !all_in_files);
        let watched = |path: &Option<PathBuf>| path.clone().map(|path| Watched::new(vec![path]));
        let mut looks = Looks {
            client_file: watched(&settings.client_ca),
            proxy_file: watched(&settings.request_header.client_ca),
            cluster: None,
            cluster_problem: None,
        };
        let sources = Self {
            client_file: settings.client_ca.clone(),
            proxy: settings.request_header.clone(),
            cluster,
            random,
            now: RwLock::default(),
        };
        sources.look_at_files(&mut looks).await?;
        let tries = if settings.tolerate_lookup_failure {
            1
        } else {
            FIRST_TRIES
        };
        match sources.first_look_at_cluster(&mut looks, tries).await {
            Ok(()) => {}
            Err(problem) if settings.tolerate_lookup_failure => tracing::warn!(
                problem,
                "the cluster's authentication configuration cannot be read yet; client \
                 certificates are not believed until it can"
            ),
            Err(problem) => return Err(ServingError::Lookup(problem)),
        }
        Ok((sources, looks))
    }

    /// What is believed right now.
    pub(super) fn now(&self) -> Arc<Trusts> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks again and again. Never ends.
    pub(super) async fn keep_current(&self, mut looks: Looks) {
        let mut until_cluster = self.cluster_pause();
        loop {
            let pause = FILES_EVERY.min(until_cluster);
            tokio::time::sleep(pause).await;
            if let Err(error) = self.look_at_files(&mut looks).await {
                tracing::warn!(%error, "authorities not read again, the old ones stay");
            }
            until_cluster = until_cluster.saturating_sub(pause);
            if until_cluster.is_zero() {
                until_cluster = self.cluster_pause();
                self.look_at_cluster_again(&mut looks).await;
            }
        }
    }

    fn cluster_pause(&self) -> Duration {
        self.random.jitter(CLUSTER_EVERY, 0.1)
    }

    fn change(&self, change: impl FnOnce(&mut Trusts)) {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut now));
    }

    async fn look_at_files(&self, looks: &mut Looks) -> Result<(), ServingError> {
        let client = changed(looks.client_file.as_mut(), "--client-ca-file").await;
        let proxy = changed(looks.proxy_file.as_mut(), "--requestheader-client-ca-file").await;
        // What is good is taken although the other file is not.
        if let Ok(Some(trust)) = &client {
            self.change(|now| now.client = Some(trust.clone()));
        }
        if let Some(trust) = proxy? {
            let proxy = Proxy {
                trust,
                allowed_names: self.proxy.allowed_names.clone(),
                headers: HeaderNames {
                    username: self.proxy.username.clone(),
                    uid: self.proxy.uid.clone(),
                    group: self.proxy.group.clone(),
                    extra_prefix: self.proxy.extra_prefix.clone(),
                },
            };
            self.change(|now| now.proxy = Some(proxy));
        }
        client.map(drop)
    }

    async fn first_look_at_cluster(&self, looks: &mut Looks, tries: u32) -> Result<(), String> {
        let mut number = 1;
        loop {
            match self.look_at_cluster(&mut looks.cluster).await {
                Err(_) if number < tries => tokio::time::sleep(FIRST_TRIES_APART).await,
                outcome => return outcome,
            }
            number += 1;
        }
    }

    /// Tells a problem once.
    async fn look_at_cluster_again(&self, looks: &mut Looks) {
        let problem = self.look_at_cluster(&mut looks.cluster).await.err();
        if let Some(problem) = problem.as_deref()
            && looks.cluster_problem.as_deref() != Some(problem)
        {
            tracing::warn!(
                problem,
                "the cluster's authentication configuration is not read again, the old one stays"
            );
        }
        looks.cluster_problem = problem;
    }

    async fn look_at_cluster(&self, seen: &mut Option<Bytes>) -> Result<(), String> {
        let Some(client) = &self.cluster else {
            return Ok(());
        };
        // A cluster without it is served as the Go managers serve it: nobody is believed.
        let Some(body) = read_configmap(client).await? else {
            return Ok(());
        };
        if seen.as_ref() == Some(&body) {
            return Ok(());
        }
        let cluster = parse(&body)?;
        *seen = Some(body);
        self.change(|now| {
            if self.client_file.is_none() {
                now.client = cluster.client;
            }
            if self.proxy.client_ca.is_none() {
                now.proxy = cluster.proxy;
            }
        });
        Ok(())
    }
}

async fn changed(
    file: Option<&mut Watched>,
    flag: &'static str,
) -> Result<Option<Trust>, ServingError> {
    let Some(file) = file else { return Ok(None) };
    let path = file.path();
    let fail = |problem| ServingError::File {
        flag,
        path,
        problem,
    };
    match file.changed().await {
        None => Ok(None),
        Some(Err(unreadable)) => Err(fail(unreadable.problem)),
        Some(Ok(contents)) => Trust::from_pem(&contents.concat()).map(Some).map_err(fail),
    }
}

async fn read_configmap(client: &kube::Client) -> Result<Option<Bytes>, String> {
    let asked = exchange(client, Request::get(CONFIGMAP), Vec::new());
    match tokio::time::timeout(ANSWER_WITHIN, asked).await {
        Ok(Ok((_, body))) => Ok(Some(body)),
        Ok(Err(ExchangeError::Refused { code: 404, .. })) => Ok(None),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(ExchangeError::TooLate.to_string()),
    }
}

#[derive(Deserialize)]
struct ConfigMap {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

/// The configmap's content. Absent bundles are allowed: then nobody is believed.
fn parse(body: &[u8]) -> Result<Trusts, String> {
    let map: ConfigMap =
        serde_json::from_slice(body).map_err(|_| "the answer is no configmap".to_owned())?;
    let bundle = |key: &str| match map.data.get(key) {
        Some(pem) if !pem.trim().is_empty() => Trust::from_pem(pem.as_bytes())
            .map(Some)
            .map_err(|problem| format!("key {key} {problem}")),
        _ => Ok(None),
    };
    let names = |key: &str| list(&map.data, key);
    let proxy = match bundle("requestheader-client-ca-file")? {
        None => None,
        Some(trust) => Some(Proxy {
            trust,
            allowed_names: names("requestheader-allowed-names")?,
            headers: HeaderNames {
                username: names("requestheader-username-headers")?,
                uid: names("requestheader-uid-headers")?,
                group: names("requestheader-group-headers")?,
                extra_prefix: names("requestheader-extra-headers-prefix")?,
            },
        }),
    };
    Ok(Trusts {
        client: bundle("client-ca-file")?,
        proxy,
    })
}

fn list<T: DeserializeOwned>(data: &BTreeMap<String, String>, key: &str) -> Result<Vec<T>, String> {
    match data.get(key).map(|text| text.trim()) {
        None | Some("" | "null") => Ok(Vec::new()),
        Some(text) => {
            serde_json::from_str(text).map_err(|_| format!("key {key} is no JSON list of names"))
        }
    }
}
