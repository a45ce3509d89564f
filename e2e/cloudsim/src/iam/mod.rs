//! Identity policies as AWS IAM has them: who loads one finds out what a client may do with it.
//!
//! Without any policy every call is allowed. With one or more, a call is allowed if every permission it
//! needs is allowed by a statement and denied by none; otherwise it changes nothing, answers with the
//! error of its service and stands in the call log with the missing permission
//! ([`Call::denied`](crate::Call::denied)). Policies are those of the account: they count for every client.
//!
//! What AWS has and this module has not, such as `NotAction` or policy variables, is refused when a
//! policy is attached, never passed over.

mod condition;
mod decide;
mod document;
mod request;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::aws::query::Params;
use crate::aws::state::State;
use crate::control::CloudError;
use document::Policy;

/// AWS attaches at most so many managed policies to a role, unless asked for more.
const MAX_POLICIES: usize = 10;
/// AWS's largest managed policy in characters, white space not counted.
const MAX_DOCUMENT: usize = 6144;

/// The policies in force, by name.
#[derive(Debug, Default)]
pub struct Iam {
    attached: Mutex<BTreeMap<String, Attached>>,
}

#[derive(Debug)]
struct Attached {
    document: Value,
    policy: Policy,
}

/// A permission that a call needs and has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    /// Such as `ec2:CreateTags`.
    pub(crate) permission: String,
    /// What the client reads.
    pub(crate) error: CloudError,
}

impl Iam {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Attached>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches a policy, or replaces the one of that name. From the first one on, what no policy allows is denied.
    ///
    /// # Errors
    /// `MalformedPolicyDocument` for a document that AWS or this emulator does not understand,
    /// `LimitExceeded` for an eleventh policy or a document over 6,144 characters.
    pub fn attach(&self, name: &str, document: &str) -> Result<(), CloudError> {
        let size = document
            .chars()
            .filter(|char| !char.is_whitespace())
            .count();
        if size > MAX_DOCUMENT {
            let text = format!(
                "Policy {name} has {size} characters without white space: AWS takes {MAX_DOCUMENT}, split it"
            );
            return Err(CloudError::new("LimitExceeded", text));
        }
        let malformed = |error: serde_json::Error| {
            let text = format!("Policy {name}: {error}");
            CloudError::new("MalformedPolicyDocument", text)
        };
        let attached = Attached {
            document: serde_json::from_str(document).map_err(malformed)?,
            policy: Policy::parse(name, document)?,
        };
        let mut policies = self.lock();
        if policies.len() >= MAX_POLICIES && !policies.contains_key(name) {
            let text = format!("{MAX_POLICIES} policies are attached: detach one first");
            return Err(CloudError::new("LimitExceeded", text));
        }
        policies.insert(name.to_owned(), attached);
        Ok(())
    }

    /// Detaches a policy. After the last one everything is allowed again.
    pub fn detach(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Detaches all policies.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// The attached documents by name.
    pub fn documents(&self) -> BTreeMap<String, Value> {
        let policies = self.lock();
        let pair =
            |(name, attached): (&String, &Attached)| (name.clone(), attached.document.clone());
        policies.iter().map(pair).collect()
    }

    /// Whether the policies allow a call. `service` is the one of the signature, such as `elasticloadbalancing`.
    pub(crate) fn authorize(
        &self,
        state: &State,
        service: &str,
        action: &str,
        params: &Params,
    ) -> Result<(), Denial> {
        let attached = self.lock();
        if attached.is_empty() {
            return Ok(());
        }
        let policies: Vec<&Policy> = attached.values().map(|each| &each.policy).collect();
        for access in request::needed(state, service, action, params) {
            let verdict = decide::verdict(&policies, &access);
            if let Some(reason) = verdict.refusal(&access.action) {
                return Err(denial(state, service, access, &reason));
            }
        }
        Ok(())
    }
}

/// EC2 has an error of its own for what every other service calls `AccessDenied`.
fn denial(state: &State, service: &str, access: decide::Access, reason: &str) -> Denial {
    let who = format!(
        "arn:{}:iam::{}:user/cloudsim",
        state.partition(),
        state.account
    );
    let (action, resource) = (&access.action, &access.resource);
    let text = format!(
        "User: {who} is not authorized to perform: {action} on resource: {resource} because {reason}"
    );
    let error = if service == "ec2" {
        let text = format!("You are not authorized to perform this operation. {text}");
        CloudError::new("UnauthorizedOperation", text)
    } else {
        CloudError::new("AccessDenied", text)
    };
    Denial {
        permission: access.action,
        error: error.with_status(403),
    }
}
