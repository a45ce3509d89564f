//! Lists that come in pages.

use std::future::Future;

use ccm_core::cloud::{CloudError, CloudResult};

use super::ApiCalls;

/// More pages than any account fills: a cloud that goes on answering with a token never ends.
const MAX_PAGES: usize = 1000;

/// Reads to the last page. `read` gets the token that the page before ended with, and answers with
/// what the page has and its own token; an empty one is none.
///
/// # Errors
/// The first page that fails: of a list that is not whole nothing is told. [`MAX_PAGES`] pages.
pub(super) async fn every_page<T, F>(
    operation: &str,
    read: impl Fn(Option<String>) -> F,
) -> CloudResult<Vec<T>>
where
    F: Future<Output = CloudResult<(Vec<T>, Option<String>)>>,
{
    let mut found = Vec::new();
    let mut token = None;
    for _ in 0..MAX_PAGES {
        let (some, next) = read(token).await?;
        found.extend(some);
        token = next.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(found);
        }
    }
    Err(CloudError::transient(format!(
        "{operation} did not come to an end after {MAX_PAGES} pages"
    )))
}

impl ApiCalls {
    /// [`every_page`] with one observation for the whole.
    ///
    /// # Errors
    /// See there.
    pub(super) async fn all_pages<T: Send, F>(
        &self,
        operation: &'static str,
        read: impl Fn(Option<String>) -> F + Send,
    ) -> CloudResult<Vec<T>>
    where
        F: Future<Output = CloudResult<(Vec<T>, Option<String>)>> + Send,
    {
        self.paged(operation, every_page(operation, read)).await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn pages_are_read_until_one_has_no_token() {
        let asked = RefCell::new(Vec::new());
        let read = |token: Option<String>| {
            asked.borrow_mut().push(token.clone());
            let next = match token.as_deref() {
                None => "a",
                Some("a") => "b",
                Some(_) => "",
            };
            async move { Ok((vec![token], Some(next.to_owned()))) }
        };
        let want = [None, Some("a".to_owned()), Some("b".to_owned())];
        assert_eq!(every_page("List", read).await.unwrap(), want);
        assert_eq!(*asked.borrow(), want);
    }

    #[tokio::test]
    async fn a_list_without_an_end_is_given_up() {
        let read = |_| async { Ok((vec![()], Some("again".to_owned()))) };
        let error = every_page("List", read).await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("List did not come to an end after 1000 pages"),
            "{text}"
        );
    }
}
