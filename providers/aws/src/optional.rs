//! Calls that work only with permissions that the Go manager does not need (specification: aws
//! §6.1, "Drop-in constraint"). An existing cluster may refuse them; what they are for is then done
//! as the Go manager does it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ccm_core::cloud::CloudResult;
use tokio::time::Instant;

use crate::error::is_not_permitted;

/// How long a call that the credentials do not allow is not tried again. The permissions that the
/// Go manager asks for do not include it.
pub const DENIED_FOR: Duration = Duration::from_hours(24);

/// A call that works only with permissions that the Go manager does not need.
#[derive(Debug, Default)]
pub struct Optional(Mutex<Option<Instant>>);

impl Optional {
    /// Whether it is worth a try.
    pub fn is_allowed(&self) -> bool {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_none_or(|until| until <= Instant::now())
    }

    /// `None` when the credentials do not allow the call; it is then left alone for a while.
    ///
    /// # Errors
    /// Every other failure.
    pub fn check<T>(&self, what: &str, answer: CloudResult<T>) -> CloudResult<Option<T>> {
        match answer {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_not_permitted(&error) => {
                tracing::warn!(call = what, %error, "optional call is not allowed");
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(Instant::now() + DENIED_FOR);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
