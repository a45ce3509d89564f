//! Files whose change is noticed by their content. Mounted secrets change by a swapped link, so
//! names and times tell nothing.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tokio::{fs::File, io::AsyncReadExt as _};

/// Certificates, keys and bundles are much smaller.
const LARGEST_FILE: u64 = 1024 * 1024;

/// A file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unreadable {
    pub(super) path: PathBuf,
    pub(super) problem: String,
}

/// Some files that belong together.
pub(super) struct Watched {
    paths: Vec<PathBuf>,
    seen: Option<Result<[u8; 32], Unreadable>>,
}

impl Watched {
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        Self { paths, seen: None }
    }

    /// The first of them.
    pub(super) fn path(&self) -> PathBuf {
        self.paths.first().cloned().unwrap_or_default()
    }

    /// The contents if one of them is new, or the problem if that is new; at first always.
    pub(super) async fn changed(&mut self) -> Option<Result<Vec<Vec<u8>>, Unreadable>> {
        let contents = read_all(&self.paths).await;
        let now = contents.as_deref().map_err(Clone::clone).map(digest);
        if self.seen.as_ref() == Some(&now) {
            return None;
        }
        self.seen = Some(now);
        Some(contents)
    }
}

fn digest(contents: &[Vec<u8>]) -> [u8; 32] {
    let mut all = Sha256::new();
    for content in contents {
        // Of a digest each, so that no border can move.
        all.update(Sha256::digest(content));
    }
    all.finalize().into()
}

async fn read_all(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>, Unreadable> {
    let mut contents = Vec::with_capacity(paths.len());
    for path in paths {
        contents.push(read(path).await?);
    }
    Ok(contents)
}

/// Reads a file of bounded size.
pub(super) async fn read(path: &Path) -> Result<Vec<u8>, Unreadable> {
    let fail = |problem: String| Unreadable {
        path: path.to_owned(),
        problem,
    };
    let cannot = |error: std::io::Error| fail(format!("cannot be read: {error}"));
    let file = File::open(path).await.map_err(cannot)?;
    let mut content = Vec::new();
    let mut file = file.take(LARGEST_FILE + 1);
    file.read_to_end(&mut content).await.map_err(cannot)?;
    if content.len() as u64 > LARGEST_FILE {
        return Err(fail("is larger than 1 MiB".to_owned()));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_new_contents_and_new_problems_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&a, "1").unwrap();
        let mut files = Watched::new(vec![a.clone(), b.clone()]);
        let missing = files.changed().await.unwrap().unwrap_err();
        assert_eq!(missing.path, b);
        assert_eq!(files.changed().await, None);
        std::fs::write(&b, "2").unwrap();
        let contents = files.changed().await.unwrap().unwrap();
        assert_eq!(contents, [b"1".to_vec(), b"2".to_vec()]);
        std::fs::write(&a, "1").unwrap();
        assert_eq!(files.changed().await, None);
        std::fs::write(&a, "12").unwrap();
        std::fs::write(&b, "").unwrap();
        assert!(files.changed().await.unwrap().is_ok());
        std::fs::write(&b, vec![0; 1024 * 1024 + 1]).unwrap();
        let large = files.changed().await.unwrap().unwrap_err();
        assert_eq!(large.problem, "is larger than 1 MiB");
    }
}
