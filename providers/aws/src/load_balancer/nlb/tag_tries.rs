//! The tags of a security group that was found by name and that AWS does not show to every call
//! yet (REQ-AWS-TAG-20). The Go manager waits in place; here the pass ends and says when it wants
//! to be run again, so that no worker is blocked.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ccm_core::cloud::CloudResult;

/// Tries until the error is an ordinary one, as by the Go manager.
const MAX_TRIES: u32 = 9;

/// The wait after the first try; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Groups counted at once: more than one can be made at a time.
const MAX_GROUPS: usize = 1_000;

/// How often each group was tried.
#[derive(Debug, Default)]
pub struct TagTries(Mutex<BTreeMap<String, u32>>);

impl TagTries {
    /// What an answer about the group means: that it does not exist is worth another try soon, but
    /// not for ever. Every other answer stays as it is and ends the count.
    ///
    /// # Errors
    /// The answer's own, with the wait for the next try.
    pub fn judge(&self, group: &str, answer: CloudResult<()>) -> CloudResult<()> {
        let mut tries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = tries.remove(group).unwrap_or_default();
        let error = match answer {
            Err(error) if error.is_not_found() => error,
            answer => return answer,
        };
        let now = before + 1;
        if now >= MAX_TRIES {
            return Err(error);
        }
        if tries.len() >= MAX_GROUPS {
            tries.pop_first();
        }
        tries.insert(group.to_owned(), now);
        Err(error.retry_in(FIRST_WAIT * 2_u32.saturating_pow(before)))
    }
}

#[cfg(test)]
mod tests {
    use ccm_core::cloud::{Class, CloudError};

    use super::*;

    fn waits(tries: &TagTries, class: Class, count: usize) -> Vec<Option<u64>> {
        (0..count)
            .map(|_| {
                let error = tries.judge("sg-1", Err(CloudError::new(class, "no")));
                let after = error.unwrap_err().retry_after();
                after.map(|after| after.as_secs())
            })
            .collect()
    }

    /// REQ-AWS-TAG-20
    #[test]
    fn nine_tries_are_spread_and_the_count_begins_anew_after_them() {
        let spread: Vec<_> = (0..8).map(|n| Some(1 << n)).chain([None]).collect();
        let tries = TagTries::default();
        assert_eq!(waits(&tries, Class::NotFound, 9), spread);
        assert_eq!(waits(&tries, Class::NotFound, 3), spread[..3]);
        tries.judge("sg-1", Ok(())).unwrap();
        assert_eq!(waits(&tries, Class::NotFound, 2), spread[..2]);
        assert_eq!(waits(&tries, Class::Denied, 2), [None, None]);
        assert_eq!(waits(&tries, Class::NotFound, 1), spread[..1]);
        for n in 0..2_000 {
            let error = CloudError::new(Class::NotFound, "no");
            let _ = tries.judge(&format!("sg-{n}"), Err(error));
        }
        assert_eq!(tries.0.lock().unwrap().len(), MAX_GROUPS);
    }
}
