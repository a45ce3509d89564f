//! What the lock protects, and its first content.

use std::collections::BTreeMap;

use serde_json::json;
use tokio::time::Instant;

use crate::{
    clock::Clock,
    meta::Writer,
    object,
    options::{Options, User},
    resources,
    store::Store,
    write::{How, Scope, Transaction},
};

/// Tokens made by the `token` subresource that are remembered.
const MAX_MINTED: usize = 10_000;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) rng: fastrand::Rng,
    minted: BTreeMap<String, User>,
}

impl State {
    /// A cluster with the namespaces and the Service that every cluster has.
    pub(crate) fn new(options: &Options, clock: &Clock) -> Self {
        let mut state = Self {
            store: Store::new(),
            rng: fastrand::Rng::with_seed(options.seed),
            minted: BTreeMap::new(),
        };
        let how = How {
            writer: Writer {
                manager: "kube-apiserver".to_owned(),
                subresource: None,
            },
            dry_run: false,
        };
        let mut transaction = Transaction {
            state: &mut state,
            options,
            clock,
        };
        let mut make = |plural: &str, namespace: &str, object| {
            let made = resources::by_name(plural)
                .map(|r| transaction.create(r, namespace, object, Scope::All, &how));
            if let Some(Err(error)) = made {
                tracing::error!(%error, plural, "The first objects of the cluster could not be made.");
            }
        };
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            make("namespaces", "", json!({"metadata": {"name": name}}));
        }
        make(
            "services",
            "default",
            json!({
                "metadata": {
                    "name": "kubernetes",
                    "labels": {"component": "apiserver", "provider": "kubernetes"},
                },
                "spec": {"ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
            }),
        );
        give_first_address(&mut state, options);
        state
    }

    /// A UID from the seed.
    pub(crate) fn uid(&mut self) -> String {
        let bytes: [u8; 16] = std::array::from_fn(|_| self.rng.u8(..));
        uuid::Builder::from_random_bytes(bytes)
            .into_uuid()
            .to_string()
    }

    /// Makes a token for a user.
    pub(crate) fn mint(&mut self, user: User) -> String {
        let token = format!("sa-{}", self.uid());
        while self.minted.len() >= MAX_MINTED {
            self.minted.pop_first();
        }
        self.minted.insert(token.clone(), user);
        token
    }

    /// The user of a token, from the table of the options or made since.
    pub(crate) fn user<'a>(&'a self, options: &'a Options, token: &str) -> Option<&'a User> {
        options.tokens.get(token).or_else(|| self.minted.get(token))
    }
}

/// `default/kubernetes` holds the first address of the first range.
fn give_first_address(state: &mut State, options: &Options) {
    let first = options
        .service_cidrs
        .first()
        .and_then(|net| net.hosts().next())
        .map(|ip| ip.to_string());
    let service = state
        .store
        .get(resources::SERVICES, "default", "kubernetes");
    if let (Some(ip), Some(mut service)) = (first, service) {
        object::set(&mut service, &["spec", "clusterIP"], ip.as_str());
        object::set(&mut service, &["spec", "clusterIPs"], json!([ip]));
        state
            .store
            .put(resources::SERVICES, service, Instant::now());
    }
}
