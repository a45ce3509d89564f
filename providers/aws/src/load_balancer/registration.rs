//! Registers what AWS takes. It refuses a whole call because of one instance: that one is singled
//! out, by its name in AWS's text or by halving.

use std::collections::BTreeSet;

use ccm_core::cloud::{CloudError, CloudResult};

/// Register calls spent on one slice, of which AWS refuses some: enough to single out one in a
/// hundred several times over.
const MAX_CALLS: usize = 32;

/// AWS's code for "no more than there are".
const FULL: &str = "TooManyTargets";

/// What was not registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration<T> {
    /// Refused because of what they are.
    pub refused: BTreeSet<T>,
    /// Refused because it is full.
    pub beyond: BTreeSet<T>,
}

/// Registers `items` by `call`; `bad` is the code that says that some cannot be registered.
///
/// # Errors
/// Every other refusal, and too many bad ones.
pub async fn register<T, F, Fut>(
    items: Vec<T>,
    bad: &str,
    id: fn(&T) -> &str,
    call: F,
) -> CloudResult<Registration<T>>
where
    T: Ord + Clone,
    F: Fn(Vec<T>) -> Fut,
    Fut: Future<Output = CloudResult<()>>,
{
    let mut done = Registration {
        refused: BTreeSet::new(),
        beyond: BTreeSet::new(),
    };
    let mut slices = vec![items];
    for _ in 0..MAX_CALLS {
        let Some(mut slice) = slices.pop() else {
            return Ok(done);
        };
        let error = match call(slice.clone()).await {
            Ok(()) => continue,
            Err(error) => error,
        };
        match error.code() {
            Some(code) if code == bad => {
                let text = error.to_string();
                let (refused, good): (Vec<T>, Vec<T>) =
                    slice.into_iter().partition(|item| names(&text, id(item)));
                if !refused.is_empty() {
                    done.refused.extend(refused);
                    slices.extend(Some(good).filter(|good| !good.is_empty()));
                    continue;
                }
                slice = good;
                if slice.len() == 1 {
                    done.refused.extend(slice);
                    continue;
                }
            }
            Some(FULL) => {
                if slice.len() == 1 {
                    done.beyond.extend(slice);
                    // Nothing after it fits either.
                    done.beyond.extend(slices.drain(..).flatten());
                    continue;
                }
            }
            _ => return Err(error),
        }
        let rest = slice.split_off(slice.len().div_ceil(2));
        slices.push(rest);
        slices.push(slice);
    }
    Err(CloudError::transient(
        "too many targets were refused one by one",
    ))
}

/// Whether AWS's text names the instance; one id may be the beginning of another.
fn names(text: &str, id: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .any(|word| word == id)
}

#[cfg(test)]
mod tests {
    use ccm_core::cloud::Class;

    use super::*;

    #[test]
    fn an_id_that_begins_another_is_not_named_by_it() {
        let text = "The following targets are not in a running state: 'i-0abc', 'i-0def'";
        assert!(names(text, "i-0abc") && names(text, "i-0def"));
        assert!(!names(text, "i-0ab"));
    }

    #[tokio::test]
    async fn the_bad_ones_are_singled_out_also_when_they_are_not_named() {
        for named in [true, false] {
            let call = |slice: Vec<String>| async move {
                let bad = slice.iter().find(|id| matches!(id.as_str(), "i-3" | "i-7"));
                let Some(bad) = bad else {
                    return Ok(());
                };
                let text = if named { bad.as_str() } else { "some" };
                Err(CloudError::new(Class::Transient, text).with_code("InvalidInstance"))
            };
            let all = (0..9).map(|n| format!("i-{n}")).collect();
            let done = register(all, "InvalidInstance", String::as_str, call).await;
            let want = BTreeSet::from(["i-3".to_owned(), "i-7".to_owned()]);
            assert_eq!(done.unwrap().refused, want);
        }
    }
}
