//! A token in a file that others replace: the pod's service account, or `tokenFile` of a
//! kubeconfig.

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use tokio::time::Instant;

use super::token::{Token, TokenSource, bearer};

/// The file is read again after this time: the Go library's minute less its ten seconds' leeway.
const READ_EVERY: Duration = Duration::from_secs(50);

/// Reads a file. The last token is used on while the file cannot be read: some set-ups remove it.
pub(super) struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }
}

#[async_trait]
impl TokenSource for TokenFile {
    fn owner(&self) -> String {
        format!("the token file {}", self.path.display())
    }

    async fn fetch(&self) -> Result<Token, String> {
        let text = tokio::fs::read_to_string(&self.path)
            .await
            .map_err(|error| format!("it cannot be read: {error}"))?;
        if text.trim().is_empty() {
            return Err("it is empty".to_owned());
        }
        Ok(Token {
            header: bearer(&text)?,
            renew_at: Instant::now() + READ_EVERY,
            valid_until: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::token::Tokens, *};

    /// REQ-APP-18
    #[tokio::test]
    async fn a_replaced_token_file_is_read_again_within_a_minute() {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("ccm-token-file-test-{}", std::process::id()));
        std::fs::write(&path, "one\n").unwrap();
        let tokens = Tokens::new(TokenFile::new(path.clone()));
        assert_eq!(tokens.header().await.unwrap(), "Bearer one");
        std::fs::write(&path, "two\n").unwrap();
        assert_eq!(tokens.header().await.unwrap(), "Bearer one");
        tokio::time::pause();
        tokio::time::advance(READ_EVERY).await;
        tokio::time::resume();
        assert_eq!(tokens.header().await.unwrap(), "Bearer two");
        // A refusal does not wait for the minute.
        std::fs::write(&path, "three").unwrap();
        let used = tokens.header().await.unwrap();
        assert!(tokens.refused(&used).await);
        assert_eq!(tokens.header().await.unwrap(), "Bearer three");
        // A file that is gone or empty leaves the last token in use.
        for text in [Some(""), None] {
            match text {
                Some(text) => std::fs::write(&path, text).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            tokio::time::pause();
            tokio::time::advance(2 * READ_EVERY).await;
            tokio::time::resume();
            assert_eq!(tokens.header().await.unwrap(), "Bearer three");
        }
    }
}
