//! One error class at the seam. Retry policy, events and metrics switch on nothing else.

use std::{error::Error, fmt, time::Duration};

/// The longest wait that is taken from a provider or a cloud: a wrong header must not park an
/// object for days.
const LONGEST_RETRY_WAIT: Duration = Duration::from_secs(60 * 60);

/// What a failed cloud call means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The object that was asked for or named does not exist.
    NotFound,
    /// Someone else changed the object, or an object of that name exists with other properties.
    Conflict,
    /// The cloud asks for fewer calls; `after` is the wait it named.
    Throttled {
        /// The wait the cloud asked for, when it named one.
        after: Option<Duration>,
    },
    /// A limit of the account is reached.
    Quota,
    /// The credentials do not allow the call.
    Denied,
    /// The user's own input is wrong: an event, and no success before the object changes.
    Invalid,
    /// Everything else: worth another try.
    Transient,
}

impl Class {
    /// The class as a metric label and log field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Throttled { .. } => "throttled",
            Self::Quota => "quota",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
            Self::Transient => "transient",
        }
    }
}

/// The result of everything that crosses the seam.
pub type CloudResult<T> = Result<T, CloudError>;

/// A failed cloud operation. `Display` is the text a user reads in an event: it carries the
/// cloud's own code and message.
#[derive(Debug)]
pub struct CloudError {
    class: Class,
    code: Option<String>,
    message: String,
    retry_after: Option<Duration>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl CloudError {
    /// An error of the given class with the text for the user.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self {
            class,
            code: None,
            message: message.into(),
            retry_after: None,
            source: None,
        }
    }

    /// The user's own input is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Class::Invalid, message)
    }

    /// Something that is worth another try.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(Class::Transient, message)
    }

    /// Adds the cloud's own error code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Asks for the next try after exactly this time, without counting it as a failure in the
    /// exponential back-off (the framework's `RetryError`).
    #[must_use]
    pub fn retry_in(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Puts `prefix: ` before the message and keeps class, code, wait and cause.
    #[must_use]
    pub fn context(mut self, prefix: impl fmt::Display) -> Self {
        self.message = format!("{prefix}: {}", self.message);
        self
    }

    /// Replaces the message by what `f` makes of it and keeps class, code, wait and cause.
    #[must_use]
    pub fn map_message(mut self, f: impl FnOnce(&str) -> String) -> Self {
        self.message = f(&self.message);
        self
    }

    /// What it means for the caller.
    pub const fn class(&self) -> Class {
        self.class
    }

    /// The cloud's own error code, when it gave one.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// The exact wait before the next try, asked for by the provider or by the cloud, but never
    /// longer than an hour.
    pub fn retry_after(&self) -> Option<Duration> {
        let named = match (self.retry_after, self.class) {
            (Some(after), _) => Some(after),
            (None, Class::Throttled { after }) => after,
            (None, _) => None,
        };
        named.map(|after| after.min(LONGEST_RETRY_WAIT))
    }

    /// Whether the object that was asked for does not exist.
    pub const fn is_not_found(&self) -> bool {
        matches!(self.class, Class::NotFound)
    }
}

impl fmt::Display for CloudError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for CloudError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|s| s as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_keeps_class_code_and_wait() {
        let error = CloudError::new(Class::Quota, "TooManyLoadBalancers: limit is 50")
            .with_code("TooManyLoadBalancers")
            .retry_in(Duration::from_secs(42))
            .context("failed to ensure load balancer");
        assert_eq!(error.class(), Class::Quota);
        assert_eq!(error.code(), Some("TooManyLoadBalancers"));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(42)));
        assert_eq!(
            error.to_string(),
            "failed to ensure load balancer: TooManyLoadBalancers: limit is 50"
        );
    }

    #[test]
    fn the_wait_named_by_a_throttling_cloud_is_the_retry_wait() {
        let after = Some(Duration::from_secs(7));
        assert_eq!(
            CloudError::new(Class::Throttled { after }, "slow down").retry_after(),
            after
        );
        assert_eq!(CloudError::transient("reset").retry_after(), None);
    }

    #[test]
    fn a_wait_of_more_than_an_hour_is_cut_to_an_hour() {
        let hour = Some(Duration::from_secs(3600));
        let throttled = Class::Throttled {
            after: Some(Duration::MAX),
        };
        assert_eq!(CloudError::new(throttled, "slow").retry_after(), hour);
        let asked = CloudError::transient("later").retry_in(Duration::from_secs(3601));
        assert_eq!(asked.retry_after(), hour);
    }
}
