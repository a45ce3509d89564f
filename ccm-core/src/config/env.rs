//! The process environment, passed in.

use std::collections::BTreeMap;

/// A copy of the environment variables. Values may be secrets: `Debug` shows the names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Env(BTreeMap<String, String>);

impl Env {
    /// The given variables.
    pub fn new(vars: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(vars.into_iter().collect())
    }

    /// The value of a variable; `None` when absent or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_values() {
        let env = Env::new([("AWS_SECRET_ACCESS_KEY".to_owned(), "hunter2".to_owned())]);
        let text = format!("{env:?}");
        assert!(text.contains("AWS_SECRET_ACCESS_KEY") && !text.contains("hunter2"));
        assert_eq!(env.get("AWS_SECRET_ACCESS_KEY"), Some("hunter2"));
    }
}
