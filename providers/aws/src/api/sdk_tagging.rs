//! [`TaggingApi`] over the SDK.

use async_trait::async_trait;
use aws_sdk_ec2::Client;
use ccm_core::cloud::CloudResult;

use super::{ApiCalls, sdk_network::tag_list, tagging::TaggingApi};
use crate::{instances::InstanceId, tags::Tags};

/// See [`TaggingApi`].
#[derive(Clone, Debug)]
pub struct SdkTagging {
    client: Client,
    calls: ApiCalls,
}

impl SdkTagging {
    /// Through this client.
    pub const fn new(client: Client, calls: ApiCalls) -> Self {
        Self { client, calls }
    }
}

#[async_trait]
impl TaggingApi for SdkTagging {
    async fn create_tags(&self, ids: &[InstanceId], tags: &Tags) -> CloudResult<()> {
        let send = self
            .client
            .create_tags()
            .set_resources(Some(resources(ids)))
            .set_tags(Some(tag_list(tags)))
            .send();
        self.calls.call("CreateTags", send).await.map(drop)
    }

    async fn delete_tags(&self, ids: &[InstanceId], tags: &Tags) -> CloudResult<()> {
        let send = self
            .client
            .delete_tags()
            .set_resources(Some(resources(ids)))
            .set_tags(Some(tag_list(tags)))
            .send();
        self.calls.call("DeleteTags", send).await.map(drop)
    }
}

fn resources(ids: &[InstanceId]) -> Vec<String> {
    ids.iter().map(|id| id.as_str().to_owned()).collect()
}
