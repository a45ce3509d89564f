//! Creating, changing and deleting, as `k8s.io/apiserver/pkg/registry/generic` does it.

use std::sync::Arc;

use serde_json::Value;
use tokio::time::{Duration, Instant};

use crate::{
    clock::Clock,
    errors::{ApiError, FieldError},
    kinds,
    meta::{self, Writer},
    object::{self, is_deleting, list, normalize, set, text, unset},
    options::Options,
    resources::{self, EVENTS, NAMESPACES, RESOURCES, Resource, SERVICES},
    selector::Selector,
    service::{self, Taken},
    state::State,
    store::{Key, Stored},
};

/// Namespaces that admission protects.
const PROTECTED_NAMESPACES: &[&str] = &["default", "kube-system", "kube-public"];

/// How long events are kept: the default of `--event-ttl`.
const EVENT_LIFE: Duration = Duration::from_secs(3600);

/// Which part of an object a write may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The main resource: all but the status.
    Main,
    /// The status subresource: status and metadata.
    Status,
    /// The finalize subresource of namespaces: `spec.finalizers` alone.
    Finalize,
    /// Everything, for tests that arrange the store.
    All,
}

/// How a write is to be made.
#[derive(Clone, Debug)]
pub(crate) struct How {
    pub(crate) writer: Writer,
    pub(crate) dry_run: bool,
}

/// Conditions on a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
}

/// What became of a deletion.
#[derive(Clone, Debug)]
pub(crate) struct Deleted {
    pub(crate) object: Value,
    /// False while finalizers hold the object.
    pub(crate) gone: bool,
}

/// One transaction on the state.
pub(crate) struct Transaction<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) options: &'a Options,
    pub(crate) clock: &'a Clock,
}

impl Transaction<'_> {
    /// Creates an object given in the form of `resource`.
    pub(crate) fn create(
        &mut self,
        resource: &'static Resource,
        namespace: &str,
        mut object: Value,
        scope: Scope,
        how: &How,
    ) -> Result<Value, ApiError> {
        if !object.is_object() {
            return Err(ApiError::bad_request("the body must be a JSON object"));
        }
        let version = text(&object, "/metadata/resourceVersion");
        if !version.is_empty() && version != "0" {
            return Err(ApiError::unclassified(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        kinds::to_stored(resource, &mut object);
        self.place(resource, namespace, &mut object)?;
        normalize(&mut object);
        self.system_fields(resource, &mut object, scope);
        let name = object::name(&object).to_owned();
        let namespace = object::namespace(&object).to_owned();
        self.check_namespace(resource, &namespace, &name)?;
        let errors = self.complete(resource, &mut object, scope)?;
        fail_on(resource, &name, &errors)?;
        if let Some(there) = self.state.store.get(resource.storage, &namespace, &name) {
            return Err(if is_deleting(&there) {
                ApiError::exists_and_is_deleted(resource, &name)
            } else {
                ApiError::already_exists(resource, &name)
            });
        }
        normalize(&mut object);
        meta::record_manager(
            resource,
            &mut object,
            None,
            &how.writer,
            &self.clock.stamp(),
        );
        if how.dry_run {
            return Ok(object);
        }
        if resource.storage == EVENTS {
            self.expire_events();
        }
        let store = &mut self.state.store;
        Ok(store.put(resource.storage, object, Instant::now()))
    }

    /// Events live for an hour after their last write. The real server leaves that to etcd;
    /// here a new event sweeps the old ones out.
    fn expire_events(&mut self) {
        let now = Instant::now();
        let Some(limit) = now.checked_sub(EVENT_LIFE) else {
            return;
        };
        while let Some((namespace, name)) = self.state.store.older_than(EVENTS, limit) {
            self.state.store.remove(EVENTS, &namespace, &name, now);
        }
    }

    /// Defaults, allocation and validation of a new object.
    fn complete(
        &mut self,
        resource: &Resource,
        object: &mut Value,
        scope: Scope,
    ) -> Result<Vec<FieldError>, ApiError> {
        let keep = scope == Scope::All;
        let mut errors = meta::validate(resource, object);
        if resource.storage == SERVICES {
            let taken = self.taken(object::namespace(object), object::name(object));
            let rng = &mut self.state.rng;
            errors.extend(service::create(object, keep, &taken, self.options, rng)?);
            errors.extend(service::validate_status(object));
        } else {
            kinds::prepare_create(resource, object, keep, self.options);
            errors.extend(kinds::validate(resource, object, None));
        }
        Ok(errors)
    }

    /// Settles namespace and name.
    fn place(
        &mut self,
        resource: &Resource,
        namespace: &str,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        if resource.namespaced {
            let given = object::namespace(object);
            if !given.is_empty() && given != namespace {
                return Err(ApiError::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            set(object, &["metadata", "namespace"], namespace);
        } else {
            unset(object, &["metadata", "namespace"]);
        }
        let base = text(object, "/metadata/generateName");
        if object::name(object).is_empty() && !base.is_empty() {
            let base: String = base.chars().take(meta::MAX_GENERATE_BASE).collect();
            let name = format!("{base}{}", meta::name_suffix(&mut self.state.rng));
            set(object, &["metadata", "name"], name);
        }
        Ok(())
    }

    fn system_fields(&mut self, resource: &Resource, object: &mut Value, scope: Scope) {
        for field in [
            "resourceVersion",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "generation",
            "selfLink",
        ] {
            // A test may arrange an object that others have written to.
            if field != "managedFields" || scope != Scope::All {
                unset(object, &["metadata", field]);
            }
        }
        set(object, &["apiVersion"], stored_api_version(resource));
        set(object, &["kind"], resource.kind);
        set(object, &["metadata", "uid"], self.state.uid());
        set(
            object,
            &["metadata", "creationTimestamp"],
            self.clock.stamp(),
        );
    }

    fn check_namespace(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<(), ApiError> {
        if !resource.namespaced {
            return Ok(());
        }
        match self.state.store.get(NAMESPACES, "", namespace) {
            None => {
                let namespaces = resources::by_name(NAMESPACES).unwrap_or(resource);
                Err(ApiError::not_found(namespaces, namespace))
            }
            Some(object) if is_deleting(&object) => {
                Err(ApiError::namespace_terminating(resource, name, namespace))
            }
            Some(_) => Ok(()),
        }
    }

    fn taken(&self, namespace: &str, name: &str) -> Taken {
        let services = self.state.store.iter(SERVICES, "");
        Taken::collect(
            services.map(|(_, service)| service.parsed()),
            (namespace, name),
        )
    }

    /// Changes an object: `make` gets the current one in the form of `resource` (null when there
    /// is none and a PUT may create) and returns the wanted one. The flag tells a creation.
    pub(crate) fn update(
        &mut self,
        resource: &'static Resource,
        (namespace, name): (&str, &str),
        scope: Scope,
        how: &How,
        make: impl FnOnce(Option<&Value>) -> Result<Value, ApiError>,
    ) -> Result<(Value, bool), ApiError> {
        let Some(old) = self.state.store.get(resource.storage, namespace, name) else {
            return self.create_on_update(resource, (namespace, name), scope, how, make);
        };
        let mut served = old.clone();
        kinds::to_served(resource, &mut served);
        let mut fresh = make(Some(&served))?;
        if !fresh.is_object() {
            return Err(ApiError::bad_request("the body must be a JSON object"));
        }
        kinds::to_stored(resource, &mut fresh);
        check_version(resource, name, &mut fresh, &old)?;
        normalize(&mut fresh);
        set(&mut fresh, &["apiVersion"], stored_api_version(resource));
        set(&mut fresh, &["kind"], resource.kind);
        let mut errors = meta::before_update(&mut fresh, &old);
        errors.extend(self.prepare(resource, scope, &mut fresh, &old)?);
        errors.extend(meta::validate(resource, &fresh));
        fail_on(resource, name, &errors)?;
        normalize(&mut fresh);
        if fresh == old {
            return Ok((fresh, false));
        }
        let stamp = self.clock.stamp();
        meta::record_manager(resource, &mut fresh, Some(&old), &how.writer, &stamp);
        if how.dry_run {
            return Ok((fresh, false));
        }
        if is_deleting(&fresh) && !is_held(&fresh) {
            // As on the real server the watch shows the last stored state, not this write.
            self.remove(resource, namespace, name);
            return Ok((fresh, false));
        }
        let store = &mut self.state.store;
        Ok((store.put(resource.storage, fresh, Instant::now()), false))
    }

    fn create_on_update(
        &mut self,
        resource: &'static Resource,
        (namespace, name): (&str, &str),
        scope: Scope,
        how: &How,
        make: impl FnOnce(Option<&Value>) -> Result<Value, ApiError>,
    ) -> Result<(Value, bool), ApiError> {
        if scope != Scope::Main || !resource.create_on_update {
            return Err(ApiError::not_found(resource, name));
        }
        let mut object = make(None)?;
        if object.is_null() {
            return Err(ApiError::not_found(resource, name));
        }
        let uid = text(&object, "/metadata/uid");
        if !uid.is_empty() {
            return Err(ApiError::other_uid(resource, namespace, name, (uid, "")));
        }
        // The real server ignores a version here: a PUT after a deletion creates.
        unset(&mut object, &["metadata", "resourceVersion"]);
        set(&mut object, &["metadata", "name"], name);
        let created = self.create(resource, namespace, object, Scope::Main, how)?;
        Ok((created, true))
    }

    fn prepare(
        &mut self,
        resource: &Resource,
        scope: Scope,
        fresh: &mut Value,
        old: &Value,
    ) -> Result<Vec<FieldError>, ApiError> {
        if scope == Scope::Finalize {
            let wanted = list(fresh, "/spec/finalizers").to_vec();
            *fresh = old.clone();
            set(fresh, &["spec", "finalizers"], wanted);
            return Ok(Vec::new());
        }
        let mut errors = Vec::new();
        match (resource.storage, scope) {
            (SERVICES, Scope::Status) => {
                // Defaults come before the reset, as on the real server: a body that also
                // changes the type gets those of the new type.
                service::status_defaults(fresh);
                object::copy(fresh, old, &["spec"]);
                errors = service::validate_status(fresh);
            }
            (SERVICES, _) => {
                let taken = self.taken(object::namespace(old), object::name(old));
                let keep = scope == Scope::All;
                let rng = &mut self.state.rng;
                errors = service::update(fresh, old, keep, &taken, self.options, rng)?;
                errors.extend(service::validate_status(fresh));
            }
            (_, Scope::Status) => kinds::prepare_status(resource, fresh, old),
            (_, Scope::Main) => kinds::prepare_update(resource, fresh, old),
            (_, Scope::All | Scope::Finalize) => {}
        }
        errors.extend(kinds::validate(resource, fresh, Some(old)));
        Ok(errors)
    }

    /// Deletes an object, or marks it while finalizers hold it.
    pub(crate) fn delete(
        &mut self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        when: &Preconditions,
        dry_run: bool,
    ) -> Result<Deleted, ApiError> {
        let Some(old) = self.state.store.get(resource.storage, namespace, name) else {
            return Err(ApiError::not_found(resource, name));
        };
        check_preconditions(resource, name, when, &old)?;
        if resource.storage == NAMESPACES && PROTECTED_NAMESPACES.contains(&name) {
            let why = "this namespace may not be deleted";
            return Err(ApiError::forbidden(resource, name, why));
        }
        let held = is_held(&old);
        if dry_run || (held && is_deleting(&old)) {
            return Ok(Deleted {
                object: old,
                gone: !held,
            });
        }
        if !held {
            let last = self.remove(resource, namespace, name).unwrap_or(old);
            return Ok(Deleted {
                object: last,
                gone: true,
            });
        }
        let mut marked = old;
        set(
            &mut marked,
            &["metadata", "deletionTimestamp"],
            self.clock.stamp(),
        );
        set(&mut marked, &["metadata", "deletionGracePeriodSeconds"], 0);
        let generation = object::number(&marked, "/metadata/generation");
        if generation > 0 {
            set(&mut marked, &["metadata", "generation"], generation + 1);
        }
        if resource.storage == NAMESPACES {
            set(&mut marked, &["status", "phase"], "Terminating");
        }
        let stored = self
            .state
            .store
            .put(resource.storage, marked, Instant::now());
        if resource.storage == NAMESPACES {
            self.empty_namespace(name);
        }
        Ok(Deleted {
            object: stored,
            gone: false,
        })
    }

    /// Deletes what a selector matches and returns it.
    pub(crate) fn delete_collection(
        &mut self,
        resource: &'static Resource,
        namespace: &str,
        selector: &Selector,
        when: &Preconditions,
        dry_run: bool,
    ) -> Result<Vec<Arc<Stored>>, ApiError> {
        let found: Vec<(Key, Arc<Stored>)> = self
            .state
            .store
            .iter(resource.storage, namespace)
            .filter(|(_, object)| selector.is_empty() || selector.matches(&object.value()))
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        // The answer shows the objects as they were found.
        found
            .into_iter()
            .map(|((namespace, name), object)| {
                self.delete(resource, &namespace, &name, when, dry_run)?;
                Ok(object)
            })
            .collect()
    }

    fn remove(
        &mut self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
    ) -> Option<Value> {
        let last = self
            .state
            .store
            .remove(resource.storage, namespace, name, Instant::now());
        if !namespace.is_empty() {
            self.finish_namespace(namespace);
        }
        last
    }

    /// The part of the namespace controller: a terminating namespace loses its content.
    fn empty_namespace(&mut self, namespace: &str) {
        let mut content: Vec<(&'static Resource, String)> = Vec::new();
        for resource in RESOURCES.iter().filter(|r| r.namespaced && !r.create_only) {
            let names = self.state.store.iter(resource.storage, namespace);
            content.extend(names.map(|((_, name), _)| (resource, name.clone())));
        }
        for (resource, name) in content {
            // Events are listed under both of their groups; the second deletion finds nothing.
            let _gone = self.delete(resource, namespace, &name, &Preconditions::default(), false);
        }
        self.finish_namespace(namespace);
    }

    /// A terminating namespace without content gives up its own finalizer.
    fn finish_namespace(&mut self, namespace: &str) {
        let Some(object) = self.state.store.get(NAMESPACES, "", namespace) else {
            return;
        };
        if !is_deleting(&object) {
            return;
        }
        let empty = RESOURCES
            .iter()
            .filter(|r| r.namespaced && !r.create_only)
            .all(|r| self.state.store.iter(r.storage, namespace).next().is_none());
        if !empty {
            return;
        }
        let mut freed = object.clone();
        unset(&mut freed, &["spec", "finalizers"]);
        let now = Instant::now();
        if is_held(&freed) {
            if freed != object {
                self.state.store.put(NAMESPACES, freed, now);
            }
        } else {
            self.state.store.remove(NAMESPACES, "", namespace, now);
        }
    }
}

fn stored_api_version(resource: &Resource) -> String {
    if resource.storage == EVENTS {
        "v1".to_owned()
    } else {
        resource.api_version()
    }
}

/// Whether finalizers keep an object; namespaces have a second list of them.
fn is_held(object: &Value) -> bool {
    let own = list(object, "/metadata/finalizers");
    let of_namespace =
        text(object, "/kind") == "Namespace" && !list(object, "/spec/finalizers").is_empty();
    !own.is_empty() || of_namespace
}

fn fail_on(resource: &Resource, name: &str, errors: &[FieldError]) -> Result<(), ApiError> {
    // Both kinds of events are validated in their core form, and reported so.
    let reported = match resource.storage {
        EVENTS => resources::by_name(EVENTS).unwrap_or(resource),
        _ => resource,
    };
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(reported, name, errors))
    }
}

fn check_version(
    resource: &Resource,
    name: &str,
    fresh: &mut Value,
    old: &Value,
) -> Result<(), ApiError> {
    let current = text(old, "/metadata/resourceVersion");
    let given = text(fresh, "/metadata/resourceVersion");
    if !given.is_empty() && given.parse::<u64>().is_err() {
        return Err(ApiError::unclassified(format!(
            "resourceVersion: Invalid value: \"{given}\": strconv.ParseUint: parsing \"{given}\": invalid syntax"
        )));
    }
    if given.is_empty() || given == "0" {
        if !resource.unconditional_update {
            return Err(ApiError::version_required(resource, name));
        }
    } else if given != current {
        return Err(ApiError::modified(resource, name));
    }
    set(fresh, &["metadata", "resourceVersion"], current);
    Ok(())
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    when: &Preconditions,
    old: &Value,
) -> Result<(), ApiError> {
    let uid = text(old, "/metadata/uid");
    if let Some(want) = when.uid.as_deref().filter(|want| *want != uid) {
        let why = format!(
            "the UID in the precondition ({want}) does not match the UID in record ({uid}). \
             The object might have been deleted and then recreated"
        );
        return Err(ApiError::precondition(resource, name, &why));
    }
    let version = text(old, "/metadata/resourceVersion");
    if let Some(want) = when.version.as_deref().filter(|want| *want != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({want}) does not match the ResourceVersion \
             in record ({version}). The object might have been modified"
        );
        return Err(ApiError::precondition(resource, name, &why));
    }
    Ok(())
}
