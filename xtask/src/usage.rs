//! Names in the arguments of a task.

use anyhow::{Result, bail};

/// Fails with the list of valid names unless each given name is one of them.
pub(crate) fn check_names(kind: &str, given: &[String], valid: &[&str]) -> Result<()> {
    match given.iter().find(|name| !valid.contains(&name.as_str())) {
        Some(name) => bail!(
            "unknown {kind} `{name}`; valid are:\n  {}",
            valid.join("\n  ")
        ),
        None => Ok(()),
    }
}

/// Keeps the items whose names begin with one of the prefixes, or all if there is no prefix.
///
/// # Errors
/// Lists the names if none begins with one of the prefixes.
pub(crate) fn with_prefixes<T>(
    kind: &str,
    items: Vec<T>,
    prefixes: &[String],
    name: impl Fn(&T) -> &str,
) -> Result<Vec<T>> {
    for prefix in prefixes {
        if !items.iter().any(|item| name(item).starts_with(prefix)) {
            let valid: Vec<&str> = items.iter().map(&name).collect();
            check_names(kind, std::slice::from_ref(prefix), &valid)?;
        }
    }

    let is_chosen = |item: &T| {
        let begins = |prefix: &String| name(item).starts_with(prefix);
        prefixes.is_empty() || prefixes.iter().any(begins)
    };
    Ok(items.into_iter().filter(is_chosen).collect())
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
        check_names("store", &["file".into()], &valid).expect("the name is valid");
    }

    #[test]
    fn prefix_chooses_its_items_and_unknown_one_is_rejected() -> Result<()> {
        let choose = |prefixes: &[&str]| {
            let prefixes: Vec<String> = prefixes.iter().map(|&prefix| prefix.to_owned()).collect();
            let items = vec!["cells a", "cells b", "soak a"];
            with_prefixes("part", items, &prefixes, |item| item)
        };

        assert_eq!(choose(&[])?, ["cells a", "cells b", "soak a"]);
        assert_eq!(choose(&["soak", "cells b"])?, ["cells b", "soak a"]);
        let error = choose(&["cells", "sock"]).expect_err("none begins so");
        assert!(error.to_string().ends_with("\n  soak a"), "{error}");
        Ok(())
    }
}
