//! The settings of URLs, and their values.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{UrlForm, decoded};
use crate::{Error, Result};

/// A setting. Each [`UrlForm`] lists groups of them.
#[derive(Debug)]
pub struct Setting {
    name: &'static str,
    /// The value is a path of the machine, which may contain `@`.
    is_path: bool,
    /// The scheme of the URL must be one with TLS.
    needs_tls: bool,
}

/// The settings that belong together.
pub(crate) type Group = &'static [Setting];

impl Setting {
    pub const PASSWORD: Group = &[Self::path("password-file")];
    pub const TLS: Group = &[
        Self::path("ca").with_tls(),
        Self::path("cert").with_tls(),
        Self::path("key").with_tls(),
    ];

    #[must_use]
    pub const fn text(name: &'static str) -> Self {
        Self {
            name,
            is_path: false,
            needs_tls: false,
        }
    }

    #[must_use]
    pub const fn path(name: &'static str) -> Self {
        Self {
            is_path: true,
            ..Self::text(name)
        }
    }

    #[must_use]
    pub const fn with_tls(self) -> Self {
        Self {
            needs_tls: true,
            ..self
        }
    }
}

impl Setting {
    /// The setting of every URL that `leasehold::open` reads itself, because no store needs it.
    pub const REPLY_TIMEOUT: &str = "reply-timeout";

    /// Parses a whole number; `name` is its setting, or a part of the URL.
    pub fn whole_number(name: &str, text: &str) -> Result<u32> {
        text.parse()
            .map_err(|_| Error::invalid(format!("{name} takes a whole number")))
    }

    /// Parses `500ms`, `10s` or `2m`, and a plain number as seconds, as the command's options do.
    ///
    /// Returns zero for a text that is not a duration, so that a check of its range fails.
    #[must_use]
    pub fn duration(text: &str) -> Duration {
        let end = text.find(|c: char| !c.is_ascii_digit());
        let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
        let count: u64 = digits.parse().unwrap_or(0);

        let millis = match unit {
            "ms" => 1,
            "s" | "" => 1_000,
            "m" => 60_000,
            _ => 0,
        };
        Duration::from_millis(count.saturating_mul(millis))
    }

    /// Checks the range of a reply timeout.
    pub fn reply_timeout(duration: Duration) -> Result<Duration> {
        /// A shorter one would take each delay of the network for a store that is down.
        const MIN: Duration = Duration::from_millis(10);
        /// After this time without a reply, an acquire without a time limit fails too.
        const MAX: Duration = Duration::from_secs(10);
        Self::within(
            MIN..=MAX,
            duration,
            "the reply timeout must be from 10ms to 10s",
            "write reply-timeout=2s",
        )
    }

    /// Checks the range of a duration.
    pub fn within(
        range: RangeInclusive<Duration>,
        duration: Duration,
        message: &str,
        help: &str,
    ) -> Result<Duration> {
        if range.contains(&duration) {
            return Ok(duration);
        }
        Err(Error::invalid(message).help(help))
    }
}

#[cold]
fn unknown(name: &str, store: &str, groups: &[Group]) -> Error {
    if name == Setting::REPLY_TIMEOUT {
        let message = format!("{name}= is a setting of `leasehold::open`, and not of a builder");
        return Error::invalid(message).help("call `Locks::reply_timeout`");
    }

    let mut known: Vec<&str> = names(groups).collect();
    known.push(Setting::REPLY_TIMEOUT);
    Error::invalid(format!("{name:?} is not a setting of a {store} URL"))
        .help(format!("the settings are: {}", known.join(", ")))
}

/// Returns the setting with a name.
fn named(groups: &[Group], name: &str) -> Option<&'static Setting> {
    let mut settings = groups.iter().copied().flatten();
    settings.find(|setting| setting.name == name)
}

fn names(groups: &[Group]) -> impl Iterator<Item = &'static str> {
    let settings = groups.iter().copied().flatten();
    settings.map(|setting| setting.name)
}

/// Returns whether the value of a setting is a path.
pub(super) fn is_path(groups: &[Group], name: &str) -> bool {
    named(groups, name).is_some_and(|setting| setting.is_path)
}

/// The settings of a URL in the order in which the URL states them.
#[derive(Clone)]
pub struct Settings(Vec<(&'static Setting, String)>);

impl Settings {
    /// Parses `name=value&name=value`; `groups` are the settings that `store` has.
    pub fn parse(text: &str, store: &str, groups: &[Group]) -> Result<Self> {
        let mut settings = Vec::new();
        for setting in text.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let Some(known) = named(groups, name) else {
                return Err(unknown(name, store, groups));
            };
            settings.push((known, decoded(value)?));
        }
        Ok(Self(settings))
    }

    /// Returns the value of a setting; the last one if the URL states it several times.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut latest_first = self.0.iter().rev();
        let (_, value) = latest_first.find(|(setting, _)| setting.name == name)?;
        Some(value)
    }

    /// Returns the value of a setting that is a whole number.
    pub fn number(&self, name: &str) -> Result<Option<u32>> {
        let text = self.get(name);
        text.map(|text| Setting::whole_number(name, text))
            .transpose()
    }

    /// Returns whether a setting is `on` or `off`.
    pub fn switch(&self, name: &str) -> Result<Option<bool>> {
        match self.get(name) {
            None => Ok(None),
            Some("on") => Ok(Some(true)),
            Some("off") => Ok(Some(false)),
            Some(_) => Err(Error::invalid(format!("{name}= must be on or off"))),
        }
    }

    /// Returns the duration of a setting, as [`Setting::duration`] parses it.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        self.get(name).map(Setting::duration)
    }

    /// Returns the name of a setting that needs TLS.
    pub(crate) fn first_with_tls(&self) -> Option<&'static str> {
        let (setting, _) = self.0.iter().find(|(setting, _)| setting.needs_tls)?;
        Some(setting.name)
    }
}

impl UrlForm {
    /// Checks that the tables in a documentation name exactly the settings of forms.
    pub fn assert_documented(forms: &[&Self], documentation: &str) {
        use std::collections::BTreeSet;

        let rows = documentation
            .lines()
            .filter_map(|line| line.trim_start_matches(['/', ' ']).strip_prefix("| `"));
        let cells = rows.filter_map(|row| row.split(" |").next());
        let documented: BTreeSet<&str> = cells
            .flat_map(|cell| cell.split("`, `"))
            .filter_map(|setting| setting.split(['=', '`']).next())
            .collect();
        let known: BTreeSet<&str> = forms.iter().flat_map(|form| names(form.settings)).collect();
        assert_eq!(documented, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_without_unit_is_in_seconds() {
        assert_eq!(Setting::duration("500ms"), Duration::from_millis(500));
        assert_eq!(Setting::duration("2m"), Duration::from_secs(120));
        assert_eq!(Setting::duration("5"), Duration::from_secs(5));
        for text in ["", "soon", "5 s", "1.5", "-5"] {
            assert_eq!(Setting::duration(text), Duration::ZERO, "{text}");
        }
    }
}
