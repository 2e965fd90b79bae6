//! The settings of URLs, and their values.

use std::ops::RangeInclusive;
use std::time::Duration;

use percent_encoding::utf8_percent_encode;

use super::{SHOWN, UrlForm, decoded};
use crate::{Error, Result};

/// A setting, with the type of its values. Each [`UrlForm`] lists groups of them.
#[derive(Clone, Debug)]
pub struct Setting {
    pub name: &'static str,
    values: Values,
    /// The scheme of the URL must be one with TLS.
    needs_tls: bool,
    /// It belongs to the format of the locks, so that another dialect has its own.
    is_of_format: bool,
    /// `off` is a value too.
    may_be_off: bool,
    /// An example of a value, and what the setting means, for the documentation.
    row: Option<(&'static str, &'static str)>,
}

/// The values that a setting takes.
#[derive(Clone, Debug)]
enum Values {
    /// A text that the store checks.
    Text,
    /// A path of the machine, which may contain `@`.
    File,
    /// A whole number.
    Number,
    /// One of these.
    Word(&'static [&'static str]),
    Duration {
        range: RangeInclusive<Duration>,
        default: Duration,
    },
}

/// The settings that belong together.
pub(crate) type Group = &'static [Setting];

impl Setting {
    pub const PASSWORD: Group = &[Self::file("password-file").documented(
        "/path",
        "a file with the password, read again for every connection",
    )];
    pub const TLS: Group = &[
        Self::file("ca").with_tls().documented(
            "/path",
            "the authority to trust instead of the system's, in PEM; only with TLS",
        ),
        Self::file("cert").with_tls(),
        Self::file("key").with_tls(),
    ];
    /// The setting of every URL that `leasehold::open` reads itself, because no store needs it.
    ///
    /// A shorter timeout would take each delay of the network for a store that is down. After the
    /// longest one, an acquire without a time limit fails too.
    pub const REPLY_TIMEOUT: Self = Self::duration(
        "reply-timeout",
        Duration::from_millis(10)..=Duration::from_secs(10),
        Duration::from_secs(2),
    );

    /// How long a store keeps the record of a job that runs once after its last use.
    ///
    /// A shorter time would forget a job before the next try.
    pub const RECORDS: Self = Self::duration(
        "records",
        Duration::from_secs(60)..=Duration::from_secs(3650 * DAY),
        Duration::from_secs(40 * DAY),
    )
    .documented(
        "40d",
        "how long the record of a job that runs [once](leasehold_core::Once) is kept",
    );

    #[must_use]
    pub const fn text(name: &'static str) -> Self {
        Self::new(name, Values::Text)
    }

    #[must_use]
    pub const fn file(name: &'static str) -> Self {
        Self::new(name, Values::File)
    }

    #[must_use]
    pub const fn number(name: &'static str) -> Self {
        Self::new(name, Values::Number)
    }

    #[must_use]
    pub const fn word(name: &'static str, words: &'static [&'static str]) -> Self {
        Self::new(name, Values::Word(words))
    }

    #[must_use]
    pub const fn switch(name: &'static str) -> Self {
        Self::word(name, &["on", "off"])
    }

    #[must_use]
    pub const fn duration(
        name: &'static str,
        range: RangeInclusive<Duration>,
        default: Duration,
    ) -> Self {
        Self::new(name, Values::Duration { range, default })
    }

    #[must_use]
    pub const fn with_tls(mut self) -> Self {
        self.needs_tls = true;
        self
    }

    #[must_use]
    pub const fn of_format(mut self) -> Self {
        self.is_of_format = true;
        self
    }

    #[must_use]
    pub const fn or_off(mut self) -> Self {
        self.may_be_off = true;
        self
    }

    /// Sets the row of the documentation.
    #[must_use]
    pub const fn documented(mut self, example: &'static str, meaning: &'static str) -> Self {
        self.row = Some((example, meaning));
        self
    }

    fn row(&self) -> Option<String> {
        let (example, meaning) = self.row?;
        Some(format!("| `{}={example}` | {meaning} |", self.name))
    }

    const fn new(name: &'static str, values: Values) -> Self {
        Self {
            name,
            values,
            needs_tls: false,
            is_of_format: false,
            may_be_off: false,
            row: None,
        }
    }

    pub(crate) fn default_duration(&self) -> Duration {
        match &self.values {
            Values::Duration { default, .. } => *default,
            _ => Duration::ZERO,
        }
    }

    /// Parses a whole number; `name` is its setting, or a part of the URL.
    pub fn whole_number(name: &str, text: &str) -> Result<u32> {
        text.parse()
            .map_err(|_| Error::invalid(format!("{name} takes a whole number")))
    }

    /// Checks the range of a duration.
    pub fn check_duration(&self, duration: Duration) -> Result<Duration> {
        match &self.values {
            Values::Duration { range, .. } if !range.contains(&duration) => {
                Err(self.invalid_duration())
            }
            _ => Ok(duration),
        }
    }

    /// Parses a duration, and checks its range.
    pub fn parse_duration(&self, text: &str) -> Result<Duration> {
        let duration = parse_duration(text).ok_or_else(|| self.invalid_duration())?;
        self.check_duration(duration)
    }

    /// Returns a value that means the same in every working directory.
    ///
    /// A file is read again later, when the program may have changed its working directory, and a
    /// folder identifies the store of a socket.
    fn absolute(&self, value: String) -> String {
        if value.is_empty() || !matches!(self.values, Values::File) {
            return value;
        }
        let absolute = std::path::absolute(&value).ok();
        let absolute = absolute.and_then(|path| path.into_os_string().into_string().ok());
        absolute.unwrap_or(value)
    }

    /// Checks a value of a URL.
    pub(crate) fn check(&self, text: &str) -> Result<()> {
        if self.may_be_off && text == "off" {
            return Ok(());
        }
        match &self.values {
            Values::Text | Values::File => Ok(()),
            Values::Number => Self::whole_number(self.name, text).map(drop),
            Values::Word(words) if words.contains(&text) => Ok(()),
            Values::Word(words) => Err(Error::invalid(format!(
                "{}= must be {}",
                self.name,
                words.join(" or ")
            ))),
            Values::Duration { .. } => self.parse_duration(text).map(drop),
        }
    }

    #[cold]
    fn invalid_duration(&self) -> Error {
        let name = self.name;
        let Values::Duration { range, default } = &self.values else {
            return Error::invalid(format!("{name}= takes no duration"));
        };

        let min = shown_duration(*range.start());
        let max = shown_duration(*range.end());
        let subject = name.replace('-', " ");
        let off = if self.may_be_off {
            format!(", or {name}=off")
        } else {
            String::new()
        };
        Error::invalid(format!("the {subject} must be from {min} to {max}"))
            .help(format!("write {name}={}{off}", shown_duration(*default)))
    }
}

/// The seconds of a day.
const DAY: u64 = 24 * 60 * 60;

/// Parses `500ms`, `10s`, `2m`, `1h` or `40d`, and a plain number as seconds, as the command's options do.
fn parse_duration(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let count: u64 = digits.parse().ok()?;

    let millis = match unit {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 1_000 * DAY,
        _ => return None,
    };
    Some(Duration::from_millis(count.saturating_mul(millis)))
}

/// Formats a duration as [`parse_duration`] parses it, but long ones in hours.
fn shown_duration(duration: Duration) -> String {
    const HOUR: u64 = 60 * 60;

    let seconds = duration.as_secs();
    if duration.subsec_millis() != 0 {
        format!("{}ms", duration.as_millis())
    } else if seconds == HOUR {
        "1 hour".to_owned()
    } else if seconds > DAY && seconds.is_multiple_of(DAY) {
        format!("{}d", seconds / DAY)
    } else if seconds > HOUR {
        format!("{} hours", seconds / HOUR)
    } else {
        format!("{seconds}s")
    }
}

#[cold]
fn unknown(name: &str, form: &UrlForm) -> Error {
    if name == Setting::REPLY_TIMEOUT.name {
        let message = format!("{name}= is a setting of `leasehold::open`, and not of a builder");
        return Error::invalid(message).help("call `Locks::reply_timeout`");
    }

    let mut known: Vec<&str> = form.all_settings().map(|setting| setting.name).collect();
    known.push(Setting::REPLY_TIMEOUT.name);
    let store = form.store;
    Error::invalid(format!("{name:?} is not a setting of a {store} URL"))
        .help(format!("the settings are: {}", known.join(", ")))
}

impl UrlForm {
    fn all_settings(&self) -> impl Iterator<Item = &'static Setting> {
        self.settings.iter().copied().flatten()
    }

    /// Returns the setting with a name.
    fn setting(&self, name: &str) -> Option<&'static Setting> {
        self.all_settings().find(|setting| setting.name == name)
    }

    /// Returns whether the value of a setting is a path.
    pub(super) fn is_path(&self, name: &str) -> bool {
        let setting = self.setting(name);
        setting.is_some_and(|setting| matches!(setting.values, Values::File))
    }

    /// Returns one `name=value` of a URL, in which a path is absolute.
    pub(crate) fn with_absolute_path(&self, stated: &str) -> String {
        let absolute = stated.split_once('=').and_then(|(name, value)| {
            let setting = self.setting(name).filter(|_| self.is_path(name))?;
            let absolute = setting.absolute(decoded(value).ok()?);
            Some(format!("{name}={}", utf8_percent_encode(&absolute, SHOWN)))
        });
        absolute.unwrap_or_else(|| stated.to_owned())
    }

    /// Whether a URL can name this dialect, or none.
    pub(crate) fn has_dialect(&self, name: Option<&str>) -> bool {
        let Some(name) = name else {
            return self.dialect.is_none();
        };
        let is_own = self.dialect.is_none_or(|own| own == name);
        let setting = self.setting("dialect");
        is_own && setting.is_some_and(|setting| setting.check(name).is_ok())
    }

    /// Whether a URL keeps a setting if its format is replaced by that of this form.
    pub(crate) fn keeps_in_dialect(&self, name: &str) -> bool {
        self.setting(name)
            .is_some_and(|setting| !setting.is_of_format)
    }

    /// Checks the tables in a documentation: they name exactly the settings of the forms, with values
    /// that are valid, and the defaults of durations. The row of one setting is the one it prints.
    pub fn assert_documented(forms: &[&Self], documentation: &str) {
        use std::collections::BTreeSet;

        let known = || forms.iter().flat_map(|form| form.all_settings());
        let lines = documentation.lines();
        let lines = lines.map(|line| line.trim_start_matches(['/', ' ']));
        let mut documented = BTreeSet::new();
        for row in lines.filter(|line| line.starts_with("| `")) {
            let cells = row[3..].split("` |").next().unwrap_or_default();
            for cell in cells.split("`, `") {
                let (name, value) = cell.split_once('=').unwrap_or((cell, ""));
                documented.insert(name);

                let setting = known().find(|setting| setting.name == name);
                let Some(setting) = setting.filter(|_| !value.is_empty()) else {
                    continue;
                };
                setting.check(value).expect("the documented value is valid");
                if let Values::Duration { default, .. } = &setting.values {
                    assert_eq!(parse_duration(value), Some(*default), "{cell}");
                }
                if let Some(printed) = setting.row().filter(|_| cell == cells) {
                    assert_eq!(row, printed);
                }
            }
        }
        assert_eq!(documented, known().map(|setting| setting.name).collect());
    }
}

/// The settings of a URL in the order in which the URL states them. Each has a value of its type.
#[derive(Clone)]
pub struct Settings(Vec<(&'static Setting, String)>);

impl Settings {
    /// Parses `name=value&name=value`.
    pub fn parse(text: &str, form: &UrlForm) -> Result<Self> {
        let mut settings = Vec::new();
        for setting in text.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let known = form.setting(name).ok_or_else(|| unknown(name, form))?;
            let value = known.absolute(decoded(value)?);
            known.check(&value)?;
            if settings
                .iter()
                .any(|(other, _): &(&Setting, _)| other.name == name)
            {
                return Err(
                    Error::invalid(format!("the URL has {name}= twice")).help("write it once")
                );
            }
            settings.push((known, value));
        }
        Ok(Self(settings))
    }

    /// Returns the value of a setting.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(setting, _)| setting.name == name)?;
        Some(value)
    }

    /// Returns the value of a setting that is a whole number.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.get(name)?.parse().ok()
    }

    /// Returns whether a setting is `on` or `off`.
    pub fn switch(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value == "on")
    }

    /// Returns the duration of a setting, or its default; `None` if it is `off`.
    pub fn duration_unless_off(&self, setting: &Setting) -> Option<Duration> {
        match self.get(setting.name) {
            Some(value) => parse_duration(value),
            None => Some(setting.default_duration()),
        }
    }

    /// Returns the duration of a setting, or its default.
    pub fn duration(&self, setting: &Setting) -> Duration {
        let stated = self.duration_unless_off(setting);
        stated.unwrap_or_else(|| setting.default_duration())
    }

    /// Returns the name of a setting that needs TLS.
    pub(crate) fn first_with_tls(&self) -> Option<&'static str> {
        let (setting, _) = self.0.iter().find(|(setting, _)| setting.needs_tls)?;
        Some(setting.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_without_unit_is_in_seconds() {
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Some(Duration::from_secs(120)));
        assert_eq!(parse_duration("1h"), Some(Duration::from_secs(3600)));
        assert_eq!(parse_duration("40d"), Some(Duration::from_secs(40 * DAY)));
        assert_eq!(parse_duration("5"), Some(Duration::from_secs(5)));
        for text in ["", "soon", "5 s", "1.5", "-5"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn relative_path_counts_from_the_working_directory() {
        let folder = std::env::current_dir().unwrap();
        let absolute = |text: &str| Setting::file("ca").absolute(text.to_owned());
        assert_eq!(absolute("ca.pem"), folder.join("ca.pem").to_str().unwrap());
        assert_eq!(absolute("/etc/ca.pem"), "/etc/ca.pem");
        assert_eq!(absolute(""), "");
        assert_eq!(Setting::text("mode").absolute("x".to_owned()), "x");
    }

    #[test]
    fn value_of_another_type_is_refused_with_help() {
        let seconds = |from, to| Duration::from_secs(from)..=Duration::from_secs(to);
        let ten = Duration::from_secs(10);
        for (setting, value, message) in [
            (Setting::number("db"), "x", "db takes a whole number"),
            (
                Setting::switch("tokens"),
                "yes",
                "tokens= must be on or off",
            ),
            (
                Setting::duration("session", seconds(1, 3600), ten),
                "0s",
                "the session must be from 1s to 1 hour; write session=10s",
            ),
            (
                Setting::duration("crash-grace", seconds(1, 7200), ten).or_off(),
                "soon",
                "the crash grace must be from 1s to 2 hours; write crash-grace=10s, or \
                 crash-grace=off",
            ),
        ] {
            let error = setting.check(value).expect_err(value);
            assert!(
                error.is_invalid() && error.to_string().contains(message),
                "{error}"
            );
        }
    }
}
