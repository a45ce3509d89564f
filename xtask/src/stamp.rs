//! Stamps: a small file beside something we built says from what, so that a changed pin
//! rebuilds and an unchanged one does not.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

/// FNV-1a over the parts: no secret is protected here, a changed file has to show.
pub(crate) fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut hash = OFFSET;
    for part in parts {
        // The length keeps ("ab", "c") and ("a", "bc") apart.
        for byte in part.iter().chain(&part.len().to_le_bytes()) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }
    format!("{hash:016x}")
}

/// The fingerprint of these files, one after the other.
///
/// # Errors
/// One of them cannot be read.
pub(crate) fn of_files(files: &[&Path], more: &[u8]) -> Result<String> {
    let mut contents = vec![more.to_vec()];
    for file in files {
        contents.push(fs::read(file).with_context(|| format!("reading {}", file.display()))?);
    }
    Ok(fingerprint(contents.iter().map(Vec::as_slice)))
}

/// Whether the stamp says exactly this.
pub(crate) fn matches(stamp: &Path, want: &str) -> bool {
    fs::read_to_string(stamp).is_ok_and(|have| have.trim() == want)
}

/// Writes the stamp; to be done last.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(stamp: &Path, text: &str) -> Result<()> {
    fs::write(stamp, format!("{text}\n")).with_context(|| format!("writing {}", stamp.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_changes_with_any_part_and_with_their_borders() {
        let base = fingerprint([b"ab".as_slice(), b"c".as_slice()]);
        assert_eq!(base, fingerprint([b"ab".as_slice(), b"c".as_slice()]));
        assert_ne!(base, fingerprint([b"a".as_slice(), b"bc".as_slice()]));
        assert_ne!(base, fingerprint([b"ab".as_slice(), b"d".as_slice()]));
    }
}
