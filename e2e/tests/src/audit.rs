//! The manager's requests one by one, as the API server's audit log shows them.

use anyhow::Result;
use ccm_envtest::is_write;
use serde_json::Value;

use crate::shared::Api;

/// One request of the manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asked: `system:serviceaccount:kube-system:…`.
    pub user: String,
    /// `patch`, `delete`, `list` and so on.
    pub verb: String,
    /// API group, empty for core.
    pub group: String,
    /// Plural, empty for a path that is no resource, with its subresource: `nodes/status`.
    pub resource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty.
    pub name: String,
    /// HTTP status of the answer.
    pub code: u64,
}

impl Request {
    /// Whether it changes something other than an event or a Lease.
    pub fn is_write(&self) -> bool {
        is_write(&self.verb, &self.resource)
    }
}

/// A place in the audit log.
#[derive(Clone, Copy, Debug)]
pub struct AuditMark(usize);

impl Api {
    /// The present end of the audit log.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn audit_mark(&self) -> Result<AuditMark> {
        Ok(AuditMark(self.audit_log().await?.len()))
    }

    /// The manager's requests after `mark`, in the order of their answers.
    ///
    /// # Errors
    /// The audit log cannot be read.
    pub async fn requests_since(&self, mark: AuditMark) -> Result<Vec<Request>> {
        let log = self.audit_log().await?;
        let lines = log.get(mark.0..).unwrap_or_default().lines();
        // The last line may be half written.
        Ok(lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .map(|event: Value| request(&event))
            .collect())
    }

    async fn audit_log(&self) -> Result<String> {
        let path = self.server().await.dir().join("audit.log");
        Ok(std::fs::read_to_string(path)?)
    }
}

fn request(event: &Value) -> Request {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
    let of = |pointer: &str| text(pointer).unwrap_or_default().to_owned();
    let resource = of("/objectRef/resource");
    Request {
        user: of("/user/username"),
        verb: of("/verb"),
        group: of("/objectRef/apiGroup"),
        resource: match text("/objectRef/subresource") {
            Some(sub) => format!("{resource}/{sub}"),
            None => resource,
        },
        namespace: of("/objectRef/namespace"),
        name: of("/objectRef/name"),
        code: event
            .pointer("/responseStatus/code")
            .and_then(Value::as_u64)
            .unwrap_or_default(),
    }
}
