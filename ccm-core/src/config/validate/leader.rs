//! Leader election and leader migration (specification: controllers §7.2).

use std::path::Path;

use super::check::Check;
use crate::config::{LeaderElectionSettings, LowArgs, migration::Migration};

/// `None` where it is off; then its other flags are not looked at, as in the Go managers.
pub(super) fn election(args: &LowArgs, check: &mut Check<'_>) -> Option<LeaderElectionSettings> {
    if !args.leader_elect {
        return None;
    }
    let lock = &args.leader_elect_resource_lock;
    check.that(lock == "leases", || {
        format!("--leader-elect-resource-lock must be \"leases\", got {lock:?}")
    });
    for (flag, name) in [
        (
            "--leader-elect-resource-name",
            &args.leader_elect_resource_name,
        ),
        (
            "--leader-elect-resource-namespace",
            &args.leader_elect_resource_namespace,
        ),
    ] {
        check.that(!name.is_empty(), || {
            format!("{flag} must not be empty; leave it out for the default")
        });
    }
    let retry_period = check.period(
        "--leader-elect-retry-period",
        args.leader_elect_retry_period,
    );
    let (lease, deadline) = (
        args.leader_elect_lease_duration,
        args.leader_elect_renew_deadline,
    );
    check.together(
        &["leader-elect-lease-duration", "leader-elect-renew-deadline"],
        lease > deadline,
        || {
            format!(
                "--leader-elect-lease-duration ({lease}) must be longer than \
                 --leader-elect-renew-deadline ({deadline})"
            )
        },
    );
    let renew_deadline = deadline.to_std().unwrap_or_default();
    check.together(
        &["leader-elect-renew-deadline", "leader-elect-retry-period"],
        // In 128 bits no duration that a flag can hold overflows.
        renew_deadline.as_nanos() * 10 > retry_period.as_nanos() * 12,
        || {
            format!(
                "--leader-elect-renew-deadline ({deadline}) must be longer than 1.2 times \
                 --leader-elect-retry-period ({})",
                args.leader_elect_retry_period
            )
        },
    );
    Some(LeaderElectionSettings {
        namespace: args.leader_elect_resource_namespace.clone(),
        name: args.leader_elect_resource_name.clone(),
        lease_duration: lease.to_std().unwrap_or_default(),
        renew_deadline,
        retry_period,
    })
}

/// The file is read and must be right even where leader election is off, as in the Go managers.
pub(super) fn migration(args: &LowArgs, check: &mut Check<'_>) -> Option<Migration> {
    let file = &args.leader_migration_config;
    if !args.enable_leader_migration {
        check.warn(!file.is_empty(), || {
            format!(
                "--leader-migration-config={file} is not read without --enable-leader-migration"
            )
        });
        return None;
    }
    check.warn(!args.leader_elect, || {
        "--enable-leader-migration has no effect with --leader-elect=false".to_owned()
    });
    let read = if file.is_empty() {
        Ok(Migration::builtin())
    } else {
        Migration::read(Path::new(file))
    };
    match read {
        Ok(migration) => {
            let warnings = migration.warnings();
            check.warnings.extend(
                warnings
                    .iter()
                    .map(|text| format!("--leader-migration-config={file}: {text}")),
            );
            check.that(
                !args.leader_elect || !migration.has_name(&args.leader_elect_resource_name),
                || {
                    format!(
                        "--leader-migration-config={file}: leaderName must not be that of the \
                         first lock, {:?}",
                        args.leader_elect_resource_name
                    )
                },
            );
            Some(migration)
        }
        Err(problems) => {
            check.errors.extend(
                problems
                    .iter()
                    .map(|problem| format!("--leader-migration-config={file}: {problem}")),
            );
            None
        }
    }
}
