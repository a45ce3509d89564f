//! Complete lists, page by page: what is not kept of a page is gone before the next one comes.

use std::sync::Arc;

use kube::{Api, Client, Resource, api::ListParams};

use crate::kube::{Cached, Wire, error_chain};

/// Objects a page.
const PAGE_SIZE: u32 = 500;

/// Begins of one list: a token that is too old makes the API server ask for a new one.
const TRIES: usize = 3;

/// Why a list is not complete.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not list {kind}s: {problem}{hint}")]
pub struct ListError {
    kind: String,
    problem: String,
    hint: &'static str,
}

/// All objects of a kind that `keep` says are worth keeping, by key.
pub(crate) async fn list<K: Cached>(
    client: &Client,
    keep: impl Fn(&K) -> bool,
) -> Result<Vec<Arc<K>>, ListError>
where
    Wire<K>: Resource<DynamicType = ()>,
{
    let api: Api<Wire<K>> = Api::all(client.clone());
    let mut tries = 0;
    'list: loop {
        tries += 1;
        let mut kept: Vec<Arc<K>> = Vec::new();
        let mut params = ListParams::default().limit(PAGE_SIZE);
        loop {
            let page = match api.list(&params).await {
                Ok(page) => page,
                Err(kube::Error::Api(status)) if status.code == 410 && tries < TRIES => {
                    continue 'list;
                }
                Err(error) => return Err(failed::<K>(&error)),
            };
            let next = page.metadata.continue_.filter(|token| !token.is_empty());
            let objects = page.items.into_iter().map(|wire| wire.object);
            kept.extend(objects.filter(|object| keep(object)).map(Arc::new));
            let Some(token) = next else {
                kept.sort_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
                return Ok(kept);
            };
            params = ListParams::default()
                .limit(PAGE_SIZE)
                .continue_token(&token);
        }
    }
}

fn failed<K: Cached>(error: &kube::Error) -> ListError {
    let (problem, denied) = match error {
        kube::Error::Api(status) => (status.message.clone(), status.is_forbidden()),
        other => (error_chain(other), false),
    };
    ListError {
        kind: K::Api::kind(&()).into_owned(),
        problem,
        hint: if denied {
            "; grant the identity of --kubeconfig what the manager has"
        } else {
            ""
        },
    }
}
