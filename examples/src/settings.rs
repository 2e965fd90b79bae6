//! The settings of a program, from its environment.

use std::env;
use std::str::FromStr;

use anyhow::{Context, Result};

/// Reads a variable of the environment.
///
/// # Errors
/// If it is missing, or has another form.
pub fn setting<T: FromStr>(name: &str) -> Result<T> {
    let text = env::var(name).with_context(|| format!("{name} is not set"))?;
    let value = text.parse().ok();
    value.with_context(|| format!("{name} cannot be {text:?}"))
}
