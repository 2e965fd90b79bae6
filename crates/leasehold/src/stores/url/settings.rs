//! The settings of a URL, and their values.

use std::time::Duration;

use super::decoded;
use crate::{Error, Result};

/// The settings of a URL in the order in which the URL states them.
#[derive(Clone)]
pub(in crate::stores) struct Settings(Vec<(&'static str, String)>);

impl Settings {
    /// Parses `name=value&name=value`; `known` are the names that `store` has.
    pub(in crate::stores) fn parse(
        text: &str,
        store: &str,
        known: &[&'static str],
    ) -> Result<Self> {
        let mut settings = Vec::new();
        for setting in text.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let Some(name) = known.iter().find(|known| **known == name) else {
                let message = format!("{name:?} is not a setting of a {store} URL");
                let known = known.join(", ");
                return Err(Error::invalid(message).help(format!("the settings are: {known}")));
            };
            settings.push((*name, decoded(value)?));
        }
        Ok(Self(settings))
    }

    /// Returns the value of a setting; the last one if the URL states it several times.
    pub(in crate::stores) fn get(&self, name: &str) -> Option<&str> {
        let stated = self.iter().filter(|(stated, _)| *stated == name);
        stated.last().map(|(_, value)| value)
    }

    pub(in crate::stores) fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

/// Parses `500ms`, `10s` or `2m`; returns zero for a text that is not a duration.
pub(in crate::stores) fn duration(text: &str) -> Duration {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let count: u64 = digits.parse().unwrap_or(0);

    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => 0,
    };
    Duration::from_millis(count.saturating_mul(millis))
}
