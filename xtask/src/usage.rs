//! Mistakes in the arguments of a task.

use std::fmt;

use anyhow::Result;

/// A wrong argument. xtask prints it and exits with code 64.
#[derive(Debug)]
pub(crate) struct UsageError(String);

impl UsageError {
    /// An unknown name of a `kind` of thing, with the list of valid names.
    pub(crate) fn unknown(kind: &str, given: &str, valid: &[&str]) -> Self {
        let list = valid.join("\n  ");

        Self(format!("unknown {kind} `{given}`; valid are:\n  {list}"))
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Fails with the list of valid names unless each given name is one of them.
pub(crate) fn check_names(kind: &str, given: &[String], valid: &[&str]) -> Result<()> {
    match given.iter().find(|name| !valid.contains(&name.as_str())) {
        Some(name) => Err(UsageError::unknown(kind, name, valid).into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_name_is_rejected_with_valid_names() {
        let valid = ["redis", "file"];
        let error = check_names("store", &["redis".into(), "reddis".into()], &valid)
            .expect_err("one name is wrong");

        assert_eq!(
            error.to_string(),
            "unknown store `reddis`; valid are:\n  redis\n  file"
        );
        assert!(error.is::<UsageError>());
        check_names("store", &["file".into()], &valid).expect("the name is valid");
    }
}
