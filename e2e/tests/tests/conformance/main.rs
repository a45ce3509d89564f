//! One suite of requests that runs against kubesim and against the real kube-apiserver: both must
//! answer alike. The real server is right; what kubesim does otherwise on purpose is listed in
//! `differences.rs` with its reason.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed expectation ends the test"
)]

mod collections;
mod compare;
mod differences;
mod events;
mod mask;
mod nodes;
mod objects;
mod patches;
mod reading;
mod services;
mod status;
mod validation;
mod watches;
mod world;

/// Declares a test for each case: it runs the case against both servers and compares the answers.
macro_rules! conforms {
    ($($(#[$meta:meta])* $test:ident = $module:ident::$case:ident;)+) => {$(
        $(#[$meta])*
        #[tokio::test]
        async fn $test() {
            let name = concat!(stringify!($module), "-", stringify!($case));
            compare::both(name, |world| Box::pin($module::$case(world))).await;
        }
    )+};
}

conforms! {
    /// Defaults, taints added by admission, providerID and podCIDR set once, invalid taints.
    a_node_is_created_changed_and_validated = nodes::main;
    /// Writes through the status subresource: labels change, the spec does not.
    the_status_of_a_node_is_written_apart_from_its_spec = nodes::status;
    /// JSON, merge and strategic patches of taints as the manager and kubectl send them.
    taints_are_replaced_and_tested_in_patches = nodes::taints;
    /// Addresses and conditions merge by type, or are replaced with a directive.
    addresses_and_conditions_merge_by_type = patches::by_type;
    /// `$setElementOrder` and `$deleteFromPrimitiveList` on finalizers, ports by number.
    finalizers_and_ports_follow_strategic_directives = patches::directives;
    /// What a merge patch removes, replaces and keeps.
    merge_patches_remove_replace_and_keep = patches::merge;
    /// Operations of a JSON patch, and how they fail.
    json_patches_apply_as_a_whole_or_not_at_all = patches::json;
    /// Content types, syntax errors, and bodies of the wrong shape.
    bad_patches_are_refused = patches::refused;
    /// Versions and UIDs inside bodies protect against lost updates and wrong objects.
    versions_and_uids_in_bodies_are_checked = objects::conflicts;
    /// A write that changes nothing keeps the version.
    a_write_without_a_change_keeps_the_version = objects::no_change;
    /// Deletion with finalizers, on both ways out.
    finalizers_hold_a_deleted_object = objects::finalizers;
    /// UID and version preconditions of a deletion.
    preconditions_protect_a_deletion = objects::preconditions;
    /// Names made by the server and writes that leave nothing.
    names_are_generated_and_dry_runs_leave_nothing = objects::generated_and_dry;
    /// Names, labels, annotations and finalizers that are not allowed.
    bad_metadata_is_refused = objects::bad_metadata;
    /// Missing objects, unknown paths and wrong methods.
    missing_things_are_told_apart = objects::missing;
    /// Namespaces: creation, protection, content in an absent one.
    namespaces_hold_objects = objects::namespaces;
    /// Leases as a leader elector uses them.
    a_lease_is_taken_and_renewed_under_its_version = objects::leases;
    /// The manager's other kinds in one round: config maps, secrets, service accounts, endpoints.
    stored_kinds_are_created_and_read_back = objects::others;
    /// Labels, fields and their errors.
    selectors_pick_objects = collections::selectors;
    /// Pages, their tokens and their errors.
    lists_come_in_pages = collections::pages;
    /// A collection is deleted by selector.
    a_collection_is_deleted_by_selector = collections::deletion;
    /// Defaults of every type of Service.
    services_get_the_defaults_of_their_type = services::defaults;
    /// What a change of type drops, keeps and allocates.
    a_change_of_type_drops_and_allocates = services::types;
    /// Cluster IPs and node ports that are given, kept, changed and taken.
    addresses_and_ports_are_allocated_and_kept = services::allocation;
    /// Both families, headless or not.
    families_follow_their_policy = services::families;
    /// The load balancer class is set once and only on its type.
    the_class_of_a_load_balancer_is_immutable = services::class;
    /// Invalid Services name the field that is wrong.
    invalid_services_name_the_field = validation::specs;
    /// Invalid ports name the field that is wrong.
    invalid_ports_name_the_field = validation::ports;
    /// Values of the wrong type are refused before validation.
    values_of_the_wrong_type_are_refused = validation::types;
    /// The load balancer status: ipMode, what a status write may change, when it is cleared.
    the_status_of_a_service_is_written_and_cleared = status::load_balancer;
    /// Invalid load balancer status.
    an_invalid_status_is_refused = status::invalid;
    /// Conditions of a Service.
    conditions_of_a_service_merge_by_type = status::conditions;
    /// Events of the core group as the manager's recorder writes them.
    core_events_are_created_and_counted_up = events::core;
    /// Events of the newer group, and one seen through the other.
    newer_events_are_the_same_objects = events::newer_group;
    /// Events that are not valid.
    bad_events_are_refused = events::invalid;
    /// What `kubectl get` asks for.
    tables_show_what_kubectl_prints = reading::tables;
    /// Objects reduced to their metadata.
    metadata_can_be_read_alone = reading::partial;
    /// Groups, kinds, verbs and short names.
    discovery_shows_the_kinds = reading::discovery;
    /// Events after a version, with a selector that objects enter and leave.
    a_watch_shows_changes_after_a_version = watches::changes;
    /// A watch that begins with the objects and marks where they end.
    a_watch_can_begin_with_the_objects = watches::initial;
    /// Bookmarks, and the end after the time that was asked for.
    bookmarks_come_before_the_end = watches::bookmarks;
    /// Parameters that do not go together.
    bad_watch_parameters_are_refused = watches::parameters;
}
