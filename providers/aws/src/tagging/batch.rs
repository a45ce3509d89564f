//! Joining the calls of several workers (specification: aws §3.3).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_core::cloud::{Class, CloudError, CloudResult};
use futures::{StreamExt, future::BoxFuture, stream};

use crate::{
    api::tagging::TaggingApi,
    instances::{Answers, Ask, Batcher, InstanceId, copy, no_answer},
    tags::Tags,
};

/// Instances in one call, and what ends the wait for more: the Go manager's number.
const MAX_IDS: usize = 50;
/// Calls for single instances in flight at once, after one for many was refused.
const SINGLES: usize = 8;

/// What is done with the tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Create,
    Delete,
}

/// The calls about one set of tags.
pub struct TagCalls {
    api: Arc<dyn TaggingApi>,
    tags: Tags,
    batches: Option<Batches>,
}

struct Batches {
    create: Batcher<InstanceId, ()>,
    delete: Batcher<InstanceId, ()>,
}

impl TagCalls {
    /// With `batching` the batchers run on the current runtime.
    pub fn new(api: Arc<dyn TaggingApi>, tags: Tags, batching: bool) -> Self {
        let batches = batching.then(|| Batches {
            create: batcher(&api, &tags, Call::Create),
            delete: batcher(&api, &tags, Call::Delete),
        });
        Self { api, tags, batches }
    }

    /// Adds the tags.
    ///
    /// # Errors
    /// EC2 refused or gave no answer.
    pub async fn create(&self, id: &InstanceId) -> CloudResult<()> {
        match &self.batches {
            Some(batches) => joined(&batches.create, id).await,
            None => {
                call(
                    &*self.api,
                    Call::Create,
                    std::slice::from_ref(id),
                    &self.tags,
                )
                .await
            }
        }
    }

    /// Removes the tags.
    ///
    /// # Errors
    /// EC2 refused or gave no answer.
    pub async fn delete(&self, id: &InstanceId) -> CloudResult<()> {
        match &self.batches {
            Some(batches) => joined(&batches.delete, id).await,
            None => {
                call(
                    &*self.api,
                    Call::Delete,
                    std::slice::from_ref(id),
                    &self.tags,
                )
                .await
            }
        }
    }
}

async fn joined(batcher: &Batcher<InstanceId, ()>, id: &InstanceId) -> CloudResult<()> {
    match batcher.get(BTreeSet::from([id.clone()])).await.remove(id) {
        Some(answer) => answer.map_err(|error| copy(&error)),
        None => Err(no_answer()),
    }
}

fn batcher(api: &Arc<dyn TaggingApi>, tags: &Tags, kind: Call) -> Batcher<InstanceId, ()> {
    let (api, tags) = (Arc::clone(api), tags.clone());
    let ask: Ask<InstanceId, ()> = Arc::new(move |ids| {
        let (api, tags) = (Arc::clone(&api), tags.clone());
        Box::pin(async move {
            let ids: Vec<InstanceId> = ids.into_iter().collect();
            let mut answers = BTreeMap::new();
            for slice in ids.chunks(MAX_IDS) {
                answers.extend(call_for_all(&*api, kind, slice, &tags).await);
            }
            answers
        })
    });
    Batcher::new(MAX_IDS, ask)
}

/// One call for all; if EC2 refuses it, one for each: one instance that is gone must not keep the
/// others from their tags. A call that failed for a reason that all share is not repeated.
async fn call_for_all(
    api: &dyn TaggingApi,
    kind: Call,
    ids: &[InstanceId],
    tags: &Tags,
) -> Answers<InstanceId, ()> {
    let error = match call(api, kind, ids, tags).await {
        Ok(()) => return ids.iter().map(|id| (id.clone(), Ok(()))).collect(),
        Err(error) => error,
    };
    if ids.len() == 1 || !is_about_one(&error) {
        let error = Arc::new(error);
        return ids
            .iter()
            .map(|id| (id.clone(), Err(Arc::clone(&error))))
            .collect();
    }
    stream::iter(ids.to_vec())
        .map(|id| async move {
            let answer = call(api, kind, std::slice::from_ref(&id), tags).await;
            (id, answer.map_err(Arc::new))
        })
        .buffered(SINGLES)
        .collect()
        .await
}

/// Whether single calls may fare better: EC2 answered, and not that it wants fewer calls or does not
/// permit this one.
fn is_about_one(error: &CloudError) -> bool {
    let shared = matches!(error.class(), Class::Throttled { .. } | Class::Denied);
    error.code().is_some() && !shared
}

fn call<'a>(
    api: &'a dyn TaggingApi,
    kind: Call,
    ids: &'a [InstanceId],
    tags: &'a Tags,
) -> BoxFuture<'a, CloudResult<()>> {
    match kind {
        Call::Create => api.create_tags(ids, tags),
        Call::Delete => api.delete_tags(ids, tags),
    }
}
