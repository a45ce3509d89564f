//! The handle of a simulated server.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tokio::{
    net::TcpListener,
    time::{Duration, Instant},
};

use crate::{
    errors::ApiError,
    faults::{ExpiredStyle, Fault, Outage, Target},
    inner::Inner,
    log::{Mark, Requests},
    meta::Writer,
    object::{self, text},
    options::Options,
    patch::{self, Format},
    resources::{self, Resource},
    serve::{self, SimService},
    write::{How, Preconditions, Scope, Transaction},
};

/// A simulated API server. Clones are handles of the same server.
#[derive(Clone, Debug)]
pub struct KubeSim {
    inner: Arc<Inner>,
}

impl KubeSim {
    /// A cluster with the namespaces and the Service that every cluster has.
    /// Must be called inside a tokio runtime whose time drives the server.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            inner: Arc::new(Inner::new(options)),
        }
    }

    /// The server as a tower service, for `kube::Client::new(sim.service(), "default")`.
    #[must_use]
    pub fn service(&self) -> SimService {
        SimService::new(Arc::clone(&self.inner))
    }

    /// Serves HTTP/1.1 on `listener` until `shutdown` is ready. Open watches are then cut.
    pub fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = ()> + Send {
        serve::serve(self.service(), listener, shutdown)
    }

    /// The server's wall clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// The version of the last write.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        self.inner.lock().store.version()
    }

    /// All requests since the start.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.since(&Mark::default())
    }

    /// Remembers this moment of the request log.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.inner.log().mark()
    }

    /// The requests since a mark.
    #[must_use]
    pub fn since(&self, mark: &Mark) -> Requests {
        self.inner.log().since(mark)
    }

    /// Requests since a mark that changed something or tried to; see [`Requests::writes`].
    #[must_use]
    pub fn count_writes_since(&self, mark: &Mark) -> u64 {
        self.since(mark).writes()
    }

    /// What can be made to go wrong.
    #[must_use]
    pub fn faults(&self) -> Faults<'_> {
        Faults { inner: &self.inner }
    }

    /// An object; `namespace` is empty for cluster scope. `resource` is a plural (`nodes`), with
    /// its group where that matters (`leases.coordination.k8s.io`). Events have the core form.
    #[must_use]
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = resources::by_name(resource)?;
        let state = self.inner.lock();
        state.store.get(resource.storage, namespace, name)
    }

    /// All objects of a kind in all namespaces, ordered by namespace and name.
    #[must_use]
    pub fn list(&self, resource: &str) -> Vec<Value> {
        let Some(resource) = resources::by_name(resource) else {
            return Vec::new();
        };
        let objects: Vec<_> = {
            let state = self.inner.lock();
            let objects = state.store.iter(resource.storage, "");
            objects.map(|(_, object)| Arc::clone(object)).collect()
        };
        objects.iter().map(|object| object.value()).collect()
    }

    /// Shows all objects of a kind, one after the other, as they were at the beginning: for more
    /// of them than should be in memory in the form of [`list`](Self::list).
    pub fn for_each(&self, resource: &str, mut look: impl FnMut(Value)) {
        let Some(resource) = resources::by_name(resource) else {
            return;
        };
        let objects: Vec<_> = {
            let state = self.inner.lock();
            let objects = state.store.iter(resource.storage, "");
            objects.map(|(_, object)| Arc::clone(object)).collect()
        };
        for object in objects {
            look(object.value());
        }
    }

    /// The version up to which the clients of all open watches of a kind have taken everything;
    /// `None` when nobody watches it. For tests that write faster than a client reads.
    #[must_use]
    pub fn taken_by_watches(&self, resource: &str) -> Option<u64> {
        self.inner.taken(resources::by_name(resource)?.plural)
    }

    /// How many objects of a kind there are.
    #[must_use]
    pub fn count(&self, resource: &str) -> usize {
        resources::by_name(resource).map_or(0, |r| self.inner.lock().store.len(r.storage))
    }

    /// Creates the object or replaces it, status included. The kind is taken from the object.
    /// Defaults, allocation and validation are those of a request. A resourceVersion that
    /// the object carries must be the current one.
    ///
    /// # Errors
    /// Those of a request; 400 when `apiVersion` and `kind` are not served.
    pub fn apply_direct(&self, mut object: Value) -> Result<Value, ApiError> {
        let (api_version, kind) = (text(&object, "/apiVersion"), text(&object, "/kind"));
        let resource = resources::by_kind(api_version, kind)
            .filter(|r| !r.create_only)
            .ok_or_else(|| {
                ApiError::bad_request(format!(
                    "apiVersion \"{api_version}\" and kind \"{kind}\" are not served: \
                     set them to those of a served kind"
                ))
            })?;
        let name = object::name(&object).to_owned();
        let mut namespace = object::namespace(&object).to_owned();
        if resource.namespaced && namespace.is_empty() {
            "default".clone_into(&mut namespace);
            object::set(&mut object, &["metadata", "namespace"], "default");
        }
        self.write(|transaction, how| {
            let there = transaction
                .state
                .store
                .stored(resource.storage, &namespace, &name);
            if there.is_none() {
                return transaction.create(resource, &namespace, object, Scope::All, how);
            }
            let key = (namespace.as_str(), name.as_str());
            let (changed, _) =
                transaction.update(resource, key, Scope::All, how, |_| Ok(object))?;
            Ok(changed)
        })
    }

    /// Applies a JSON merge patch to the whole object, status included.
    ///
    /// # Errors
    /// Those of a request.
    pub fn patch_merge(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, ApiError> {
        let resource = named(resource)?;
        self.write(|transaction, how| {
            let (changed, _) =
                transaction.update(resource, (namespace, name), Scope::All, how, |current| {
                    let current = current.ok_or_else(|| ApiError::not_found(resource, name))?;
                    patch::apply(Format::Merge, resource, current, patch)
                })?;
            Ok(changed)
        })
    }

    /// Deletes an object as a request would: finalizers hold it. Returns the object, which then
    /// carries a deletionTimestamp, or its last state.
    ///
    /// # Errors
    /// Those of a request, 404 among them.
    pub fn delete_direct(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, ApiError> {
        let resource = named(resource)?;
        self.write(|transaction, _| {
            let when = Preconditions::default();
            let deleted = transaction.delete(resource, namespace, name, &when, false)?;
            Ok(deleted.object)
        })
    }

    fn write<T>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>, &How) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let how = How {
            writer: Writer {
                manager: "kubesim-direct".to_owned(),
                subresource: None,
            },
            dry_run: false,
        };
        let result = {
            let mut state = self.inner.lock();
            let mut transaction = Transaction {
                state: &mut state,
                options: &self.inner.options,
                clock: &self.inner.clock,
            };
            work(&mut transaction, &how)
        };
        self.inner.wake();
        result
    }
}

fn named(resource: &str) -> Result<&'static Resource, ApiError> {
    resources::by_name(resource).ok_or_else(ApiError::no_such_path)
}

/// What can be made to go wrong; made by [`KubeSim::faults`].
#[derive(Clone, Copy, Debug)]
pub struct Faults<'a> {
    inner: &'a Inner,
}

impl Faults<'_> {
    /// Strikes the next `times` requests that match. Rules are tried in the order they were
    /// added; a request uses up one strike of the first that matches.
    pub fn fail_next(&self, times: u64, target: Target, fault: Fault) {
        self.inner.faults().add(times, target, fault);
    }

    /// Strikes that have not hit anything yet.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.inner.faults().pending()
    }

    /// Breaks the connection of all watches.
    pub fn cut_watches(&self) {
        self.inner.cut(true);
    }

    /// Ends all watches well, as a server does after their time.
    pub fn end_watches(&self) {
        self.inner.cut(false);
    }

    /// The server is away until a moment. Open watches break.
    pub fn unavailable_until(&self, until: Instant, outage: Outage) {
        self.inner.faults().set_outage(Some(until), Some(outage));
        self.inner.cut(true);
    }

    /// The server is away until [`Self::available`]. Open watches break.
    pub fn unavailable(&self, outage: Outage) {
        self.inner.faults().set_outage(None, Some(outage));
        self.inner.cut(true);
    }

    /// The server is back.
    pub fn available(&self) {
        self.inner.faults().set_outage(None, None);
    }

    /// Forgets all history: watches, lists and continue tokens from older versions get 410, and
    /// so do open watches that are behind.
    pub fn compact(&self) {
        self.inner.lock().store.compact();
        self.inner.wake();
    }

    /// How a watch from a forgotten version is refused.
    pub fn expired_style(&self, style: ExpiredStyle) {
        self.inner.faults().expired_style = style;
    }

    /// Delivers changes to watches this much later, for one plural or (`None`) for all kinds.
    /// Lists with `resourceVersion=0` are then as far behind. Zero ends it.
    pub fn delay_watches(&self, resource: Option<&str>, delay: Duration) {
        self.inner.faults().set_delay(resource, delay);
        self.inner.wake();
    }

    /// Takes all rules, outages and delays away.
    pub fn clear(&self) {
        self.inner.faults().clear();
        self.inner.wake();
    }
}
