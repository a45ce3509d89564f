//! The ports that a process listens on.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result};

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// The TCP ports that the process with this id listens on, of both families.
///
/// # Errors
/// It has ended.
pub fn listening_ports(process: u32) -> Result<BTreeSet<u16>> {
    let mut own = BTreeSet::new();
    for descriptor in fs::read_dir(format!("/proc/{process}/fd"))? {
        // One that is closed meanwhile listens no more.
        let Ok(target) = fs::read_link(descriptor?.path()) else {
            continue;
        };
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[");
        own.extend(inode.map(|inode| inode.trim_end_matches(']').to_owned()));
    }
    let mut ports = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let Ok(text) = fs::read_to_string(format!("/proc/{process}/net/{table}")) else {
            continue; // No such family here.
        };
        for line in text.lines().skip(1) {
            let mut fields = line.split_whitespace();
            let (Some(local), Some(state)) = (fields.nth(1), fields.nth(1)) else {
                continue;
            };
            let inode = fields.nth(5).unwrap_or_default();
            if state == LISTENING && own.contains(inode) {
                let (_, port) = local.rsplit_once(':').context("no port")?;
                ports.insert(u16::from_str_radix(port, 16)?);
            }
        }
    }
    Ok(ports)
}
