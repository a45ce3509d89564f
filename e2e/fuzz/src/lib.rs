//! Fuzzing of every parser that takes text from outside.
//!
//! A body takes any bytes, gives them to a parser through its public entry, and asserts what holds
//! for every text: no panic, and a law where there is one. The bodies are used twice:
//!
//! - The tests of this crate run each over its seeds in `corpus/<target>/` and over a fixed number
//!   of mutations of them. That is part of the unit ring.
//! - `targets/` is a crate for [cargo-fuzz] outside the workspace, with one target a body. It
//!   needs a nightly compiler; run it from the root of the repository:
//!
//! ```text
//! cargo install cargo-fuzz
//! cp Cargo.lock e2e/fuzz/targets/    # the versions of the workspace
//! cargo +nightly fuzz list --fuzz-dir e2e/fuzz/targets
//! mkdir -p e2e/fuzz/targets/corpus/cloud_config
//! cargo +nightly fuzz run --fuzz-dir e2e/fuzz/targets cloud_config \
//!     e2e/fuzz/targets/corpus/cloud_config e2e/fuzz/corpus/cloud_config -- -max_total_time=600
//! ```
//!
//! What the fuzzer finds interesting goes into the first folder, which is not kept in the
//! repository; a text that broke something is put into `corpus/<target>/`, under a name that says
//! what it is, together with the fix.
//!
//! To add one: a body and a line in [`TARGETS`], at least one seed, a file in
//! `targets/fuzz_targets/` and its `[[bin]]`. A test compares them.
//!
//! [cargo-fuzz]: https://rust-fuzz.github.io/book/cargo-fuzz.html

mod aws;
mod core;
mod pod_ranges;
mod serving;

pub use aws::{
    fuzz_annotations, fuzz_cloud_config, fuzz_cloud_errors, fuzz_provider_ids, fuzz_tags,
};
pub use core::{
    fuzz_durations, fuzz_flags, fuzz_kubeconfig, fuzz_leader_migration, fuzz_names, fuzz_node_ips,
    fuzz_probe_queries, fuzz_route_cidrs, fuzz_source_ranges,
};
pub use pod_ranges::{fuzz_node_ipam, fuzz_pod_ranges};
pub use serving::{fuzz_bearer_tokens, fuzz_cluster_trusts, fuzz_request_headers};

/// One body under the name of its target and of its folder of seeds.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name, as `cargo fuzz run` takes it.
    pub name: &'static str,
    /// Panics when a law is broken, and only then.
    pub body: fn(&[u8]),
}

/// All targets, by name.
pub const TARGETS: &[Target] = &[
    target("annotations", fuzz_annotations),
    target("bearer_tokens", fuzz_bearer_tokens),
    target("cloud_config", fuzz_cloud_config),
    target("cloud_errors", fuzz_cloud_errors),
    target("cluster_trusts", fuzz_cluster_trusts),
    target("durations", fuzz_durations),
    target("flags", fuzz_flags),
    target("kubeconfig", fuzz_kubeconfig),
    target("leader_migration", fuzz_leader_migration),
    target("names", fuzz_names),
    target("node_ipam", fuzz_node_ipam),
    target("node_ips", fuzz_node_ips),
    target("pod_ranges", fuzz_pod_ranges),
    target("probe_queries", fuzz_probe_queries),
    target("provider_ids", fuzz_provider_ids),
    target("request_headers", fuzz_request_headers),
    target("route_cidrs", fuzz_route_cidrs),
    target("source_ranges", fuzz_source_ranges),
    target("tags", fuzz_tags),
];

const fn target(name: &'static str, body: fn(&[u8])) -> Target {
    Target { name, body }
}

/// Runs it to its end on virtual time: what waits, waits for nothing.
fn on_virtual_time(work: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    if let Ok(runtime) = builder.enable_time().start_paused(true).build() {
        runtime.block_on(work);
    }
}

/// The bytes as a text, which is what all our parsers take: what is no UTF-8 is refused by the
/// decoders of flags, files and JSON before.
fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}
