//! The EC2 calls about tags of instances (specification: aws §3.8, §8.1).

use async_trait::async_trait;
use ccm_core::cloud::CloudResult;

use crate::{instances::InstanceId, tags::Tags};

/// The EC2 calls about tags. Each is for all instances or for none: one that does not exist refuses
/// the whole call. Errors carry AWS's code.
#[async_trait]
pub trait TaggingApi: Send + Sync {
    /// Adds or overwrites tags.
    async fn create_tags(&self, ids: &[InstanceId], tags: &Tags) -> CloudResult<()>;
    /// Removes tags that have these values; one with another value stays.
    async fn delete_tags(&self, ids: &[InstanceId], tags: &Tags) -> CloudResult<()>;
}
