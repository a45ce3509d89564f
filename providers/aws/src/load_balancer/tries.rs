//! Security groups that AWS says exist and does not show to every call yet (REQ-AWS-TAG-20,
//! REQ-AWS-SG-8). The Go manager waits in place; here the pass ends and says when it wants to be
//! run again, so that no worker is blocked.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ccm_core::cloud::{CloudError, CloudResult};

/// The wait after the first try.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Groups counted at once: more than one can be made at a time.
const MAX_GROUPS: usize = 1_000;

/// How often each group was tried.
#[derive(Debug)]
pub struct Tries {
    counts: Mutex<BTreeMap<String, u32>>,
    max: u32,
    doubles: bool,
}

impl Tries {
    /// For tagging a group: nine tries, each wait twice as long as the one before, as by the Go
    /// manager.
    pub fn of_tagging() -> Self {
        Self::new(9, true)
    }

    /// For finding a group: thirty tries, one a second, as by the Go manager.
    pub fn of_finding() -> Self {
        Self::new(30, false)
    }

    fn new(max: u32, doubles: bool) -> Self {
        Self {
            counts: Mutex::default(),
            max,
            doubles,
        }
    }

    /// What an answer about the group means: that it does not exist is worth another try soon, but
    /// not for ever. Every other answer stays as it is and ends the count.
    ///
    /// # Errors
    /// The answer's own, with the wait for the next try.
    pub fn judge(&self, group: &str, answer: CloudResult<()>) -> CloudResult<()> {
        match answer {
            Err(error) if error.is_not_found() => Err(self.again(group, error)),
            answer => {
                self.end(group);
                answer
            }
        }
    }

    /// The error with the wait for the next try; as it is when there were enough.
    pub fn again(&self, group: &str, error: CloudError) -> CloudError {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let before = counts.remove(group).unwrap_or_default();
        let now = before + 1;
        if now >= self.max {
            return error;
        }
        if counts.len() >= MAX_GROUPS {
            counts.pop_first();
        }
        counts.insert(group.to_owned(), now);
        let factor = if self.doubles {
            2_u32.saturating_pow(before)
        } else {
            1
        };
        error.retry_in(FIRST_WAIT * factor)
    }

    /// The count of the group begins anew.
    pub fn end(&self, group: &str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.remove(group);
    }
}

#[cfg(test)]
mod tests {
    use ccm_core::cloud::Class;

    use super::*;

    fn waits(tries: &Tries, class: Class, count: usize) -> Vec<Option<u64>> {
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
        let tries = Tries::of_tagging();
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
        assert_eq!(tries.counts.lock().unwrap().len(), MAX_GROUPS);
    }

    /// REQ-AWS-SG-8
    #[test]
    fn a_group_is_looked_for_thirty_times_a_second_apart() {
        let tries = Tries::of_finding();
        let mut want = vec![Some(1); 29];
        want.push(None);
        assert_eq!(waits(&tries, Class::NotFound, 30), want);
    }
}
