//! The Lease of a leader election, read and written as the Go library's lock does it
//! (specification: controllers §7.2).

use std::{fmt, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
};
use serde_json::Value;

use super::{EventObject, informer::error_chain};

/// What a Lease says about its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// `holderIdentity`; empty: nobody.
    pub holder: String,
    /// `leaseDurationSeconds`; `None`: missing or not positive.
    pub duration_seconds: Option<i32>,
    /// `acquireTime`: when this holder took it, by the holder's clock.
    pub acquired: Option<Timestamp>,
    /// `renewTime`: the last renewal, by the holder's clock.
    pub renewed: Option<Timestamp>,
    /// `leaseTransitions`; 0: missing or negative.
    pub transitions: i32,
}

impl LeaseRecord {
    fn spec(&self) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: self.duration_seconds,
            acquire_time: self.acquired.map(MicroTime),
            renew_time: self.renewed.map(MicroTime),
            lease_transitions: Some(self.transitions),
            ..LeaseSpec::default()
        }
    }
}

/// A Lease as the API server has it.
#[derive(Clone, Debug)]
pub struct StoredLease {
    /// What it says.
    pub record: LeaseRecord,
    /// What in it cannot be right, for the log; empty if all is well.
    pub oddities: Vec<String>,
    metadata: ObjectMeta,
    spec: Value,
}

impl StoredLease {
    /// Reads every field for itself, so that one that is broken does not hide the others.
    fn read(metadata: ObjectMeta, spec: Value) -> Self {
        let mut reader = Reader {
            spec: &spec,
            oddities: Vec::new(),
        };
        let record = LeaseRecord {
            holder: reader.text("holderIdentity").unwrap_or_default(),
            duration_seconds: reader.number("leaseDurationSeconds", 1),
            acquired: reader.time("acquireTime"),
            renewed: reader.time("renewTime"),
            transitions: reader.number("leaseTransitions", 0).unwrap_or(0),
        };
        let mut oddities = reader.oddities;
        if !record.holder.is_empty() && record.duration_seconds.is_none() {
            oddities.push("it has a holder and no valid leaseDurationSeconds".to_owned());
        }
        Self {
            record,
            oddities,
            metadata,
            spec,
        }
    }

    fn written(lease: Lease) -> Self {
        let spec = serde_json::to_value(&lease.spec).unwrap_or_default();
        Self::read(lease.metadata, spec)
    }

    /// Whether both say the same; labels and versions do not count.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl From<&StoredLease> for EventObject {
    fn from(lease: &StoredLease) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self {
            api_version: "coordination.k8s.io/v1",
            kind: "Lease",
            namespace: text(&lease.metadata.namespace),
            name: text(&lease.metadata.name),
            uid: text(&lease.metadata.uid),
            resource_version: text(&lease.metadata.resource_version),
        }
    }
}

struct Reader<'a> {
    spec: &'a Value,
    oddities: Vec<String>,
}

impl Reader<'_> {
    /// The field, unless it is missing, null, or refused by `accept`.
    fn field<T>(&mut self, name: &str, accept: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let value = self.spec.get(name).filter(|value| !value.is_null())?;
        let accepted = accept(value);
        if accepted.is_none() {
            self.oddities.push(format!("{name} is {value}"));
        }
        accepted
    }

    fn text(&mut self, name: &str) -> Option<String> {
        self.field(name, |value| value.as_str().map(str::to_owned))
    }

    fn number(&mut self, name: &str, least: i32) -> Option<i32> {
        self.field(name, |value| {
            let number = i32::try_from(value.as_i64()?).ok()?;
            (number >= least).then_some(number)
        })
    }

    fn time(&mut self, name: &str) -> Option<Timestamp> {
        self.field(name, |value| value.as_str()?.parse().ok())
    }
}

/// The endpoint of one Lease.
#[derive(Clone)]
pub struct LeaseApi {
    // Read without its type: a field that is broken must not make the rest unreadable.
    reads: Api<DynamicObject>,
    writes: Api<Lease>,
    namespace: String,
    name: String,
    within: Duration,
}

impl fmt::Debug for LeaseApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseApi({self})")
    }
}

impl fmt::Display for LeaseApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl LeaseApi {
    /// The endpoint of this Lease. Every request ends `within` that time.
    pub fn new(client: Client, namespace: &str, name: &str, within: Duration) -> Self {
        let resource = ApiResource::erase::<Lease>(&());
        Self {
            reads: Api::namespaced_with(client.clone(), namespace, &resource),
            writes: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            within,
        }
    }

    /// The Lease now; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn read(&self) -> Result<Option<StoredLease>, LeaseError> {
        let mut object = match self.within("get", self.reads.get(&self.name)).await {
            Ok(object) => object,
            Err(error) if error.is_absent() => return Ok(None),
            Err(error) => return Err(error),
        };
        let spec = object.data.get_mut("spec").map(Value::take);
        let spec = spec.unwrap_or_default();
        Ok(Some(StoredLease::read(object.metadata, spec)))
    }

    /// Makes the Lease.
    ///
    /// # Errors
    /// It is there already ([`LeaseError::is_conflict`]), or it cannot be made.
    pub async fn create(&self, record: &LeaseRecord) -> Result<StoredLease, LeaseError> {
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            ..ObjectMeta::default()
        };
        let spec = Some(record.spec());
        let lease = Lease { metadata, spec };
        let params = PostParams::default();
        let made = self.within("create", self.writes.create(&params, &lease));
        made.await.map(StoredLease::written)
    }

    /// Writes another record into exactly this version of the Lease; its labels and annotations
    /// stay.
    ///
    /// # Errors
    /// It has changed meanwhile ([`LeaseError::is_conflict`]), or it cannot be written.
    pub async fn replace(
        &self,
        old: &StoredLease,
        record: &LeaseRecord,
    ) -> Result<StoredLease, LeaseError> {
        if old.metadata.resource_version.is_none() {
            // Without a version the write would overwrite anybody's.
            return Err(self.failed("update", Cause::NoVersion));
        }
        let lease = Lease {
            metadata: old.metadata.clone(),
            spec: Some(record.spec()),
        };
        let params = PostParams::default();
        let put = self.writes.replace(&self.name, &params, &lease);
        self.within("update", put).await.map(StoredLease::written)
    }

    async fn within<T>(
        &self,
        verb: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, LeaseError> {
        let cause = match tokio::time::timeout(self.within, request).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Cause::Refused {
                code: status.code,
                kind: status.details.map(|d| d.kind).unwrap_or_default(),
                message: status.message,
            },
            Ok(Err(kube::Error::SerdeError(error))) => Cause::Unreadable(error.to_string()),
            Ok(Err(error)) => Cause::NoAnswer(error_chain(&error)),
            Err(_) => Cause::NoAnswer(format!("no answer within {:?}", self.within)),
        };
        Err(self.failed(verb, cause))
    }

    fn failed(&self, verb: &'static str, cause: Cause) -> LeaseError {
        LeaseError {
            verb,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            cause,
        }
    }
}

/// A request about a Lease that failed. The text names what to do where something can be done.
#[derive(Clone, Debug)]
pub struct LeaseError {
    verb: &'static str,
    namespace: String,
    name: String,
    cause: Cause,
}

#[derive(Clone, Debug)]
enum Cause {
    Refused {
        code: u16,
        /// What the refusal is about: `leases`, `namespaces`.
        kind: String,
        message: String,
    },
    Unreadable(String),
    NoAnswer(String),
    NoVersion,
}

impl LeaseError {
    /// Whether somebody else was faster: another version is there, or a Lease at all.
    pub fn is_conflict(&self) -> bool {
        matches!(self.cause, Cause::Refused { code: 409, .. })
    }

    /// There is no such Lease, and nothing worse is wrong.
    fn is_absent(&self) -> bool {
        matches!(&self.cause, Cause::Refused { code: 404, kind, .. } if kind == "leases")
    }
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verb,
            namespace,
            name,
            cause,
        } = self;
        write!(
            f,
            "cannot {verb} leases.coordination.k8s.io {namespace}/{name}: "
        )?;
        match cause {
            Cause::Refused { code, message, .. } if *code == 403 => write!(
                f,
                "{message}; grant this identity the verbs get and update on the Lease {name:?} and \
                 create on leases of the API group coordination.k8s.io, by a Role in namespace \
                 {namespace:?}"
            ),
            Cause::Refused { code, message, .. } if *code == 401 => write!(
                f,
                "{message}; the API server does not accept our credentials: check the service \
                 account's token or the file of --kubeconfig"
            ),
            Cause::Refused {
                code,
                kind,
                message,
            } if *code == 404 && kind == "namespaces" => write!(
                f,
                "{message}; create the namespace or name another one with \
                 --leader-elect-resource-namespace"
            ),
            Cause::Refused { code, message, .. } => write!(f, "{message} ({code})"),
            Cause::Unreadable(problem) => write!(
                f,
                "the answer is no Lease: {problem}; if the Lease is broken, delete it: kubectl \
                 --namespace {namespace} delete lease {name}"
            ),
            Cause::NoAnswer(problem) => f.write_str(problem),
            Cause::NoVersion => f.write_str("the API server gave it no resourceVersion"),
        }
    }
}

impl std::error::Error for LeaseError {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(spec: Value) -> StoredLease {
        StoredLease::read(ObjectMeta::default(), spec)
    }

    #[test]
    fn a_record_of_the_go_library_is_read_and_written_unchanged() {
        let spec = json!({
            "holderIdentity": "a_1", "leaseDurationSeconds": 15, "leaseTransitions": 3,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:02.000001Z",
        });
        let lease = read(spec.clone());
        assert!(lease.oddities.is_empty());
        let written = serde_json::to_value(lease.record.spec()).unwrap();
        assert_eq!(written, spec);
    }

    #[test]
    fn a_released_lease_names_nobody_in_so_many_words() {
        let released = LeaseRecord {
            duration_seconds: Some(1),
            ..LeaseRecord::default()
        };
        let written = serde_json::to_value(released.spec()).unwrap();
        assert_eq!(written["holderIdentity"], "");
    }

    #[test]
    fn what_is_broken_is_named_and_hides_nothing_else() {
        let lease = read(json!({
            "holderIdentity": "a", "leaseDurationSeconds": -3, "leaseTransitions": 99_999_999_999_i64,
            "acquireTime": "yesterday", "renewTime": "2026-01-01T00:00:02.000000Z",
        }));
        assert_eq!(lease.record.holder, "a");
        assert_eq!(lease.record.duration_seconds, None);
        assert!(lease.record.acquired.is_none() && lease.record.renewed.is_some());
        let oddities = lease.oddities.join(", ");
        for part in [
            "leaseDurationSeconds is -3",
            "leaseTransitions is 99999999999",
            "acquireTime is \"yesterday\"",
        ] {
            assert!(oddities.contains(part), "{oddities}");
        }
        for nothing in [Value::Null, json!("x"), json!([]), json!({})] {
            assert_eq!(read(nothing).record, LeaseRecord::default());
        }
    }

    #[test]
    fn a_refusal_says_which_right_is_missing() {
        let error = |code, kind: &str| LeaseError {
            verb: "update",
            namespace: "kube-system".to_owned(),
            name: "ccm".to_owned(),
            cause: Cause::Refused {
                code,
                kind: kind.to_owned(),
                message: "no".to_owned(),
            },
        };
        let text = error(403, "leases").to_string();
        for part in [
            "update leases.coordination.k8s.io kube-system/ccm",
            "get and update",
            "create",
            "Role",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(error(401, "").to_string().contains("--kubeconfig"));
        let text = error(404, "namespaces").to_string();
        assert!(text.contains("--leader-elect-resource-namespace"), "{text}");
        assert!(error(404, "leases").is_absent() && !error(404, "namespaces").is_absent());
    }
}
