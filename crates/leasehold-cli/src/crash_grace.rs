//! The option `--crash-grace`, which is a setting of the store's URL.

use std::time::Duration;

use leasehold::Error;

use crate::commands::{LockOptions, Store, duration};

/// The value of `--crash-grace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashGrace {
    Off,
    Lasts(Duration),
}

impl Store {
    /// Returns the store, with its settings replaced by those of the options.
    ///
    /// # Errors
    /// Invalid if the store does not have such a setting.
    pub(crate) fn with(&self, options: &LockOptions) -> leasehold::Result<Self> {
        let mut store = self.clone();
        if let Some(grace) = options.crash_grace {
            store.set_crash_grace(grace)?;
        }
        Ok(store)
    }

    /// Replaces the setting `crash-grace` of the URL.
    ///
    /// # Errors
    /// Invalid unless the URL names a Redis store.
    fn set_crash_grace(&mut self, grace: CrashGrace) -> leasehold::Result<()> {
        const SETTING: &str = "crash-grace=";
        let (base, settings) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let mut settings: Vec<_> = settings.split('&').filter(|one| !one.is_empty()).collect();

        let is_redis = base.starts_with("redis") && !settings.iter().any(is_dialect);
        if !is_redis {
            return Err(Error::invalid(
                "--crash-grace is an option of the Redis store, without a dialect",
            )
            .help("use --lease, or `?session=30s` in the URL of ZooKeeper"));
        }

        let setting = match grace {
            CrashGrace::Off => format!("{SETTING}off"),
            CrashGrace::Lasts(grace) => format!("{SETTING}{}ms", grace.as_millis()),
        };
        settings.retain(|one| !one.starts_with(SETTING));
        settings.push(&setting);
        self.url = format!("{base}?{}", settings.join("&"));
        Ok(())
    }
}

fn is_dialect(setting: &&str) -> bool {
    setting.starts_with("dialect=")
}

/// Parses the value of the option.
pub(crate) fn parse(text: &str) -> Result<CrashGrace, String> {
    match text {
        "off" => Ok(CrashGrace::Off),
        _ => duration(text).map(CrashGrace::Lasts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crash_grace_replaces_the_setting_of_a_redis_url() {
        let with = |url: &str, grace| {
            let url = url.to_owned();
            let mut store = Store { url };
            store.set_crash_grace(grace).map(|()| store.url)
        };
        let short = CrashGrace::Lasts(Duration::from_millis(1_500));

        let cases = [
            ("redis://a", short, "redis://a?crash-grace=1500ms"),
            (
                "redis://a?crash-grace=9s",
                CrashGrace::Off,
                "redis://a?crash-grace=off",
            ),
            (
                "rediss://a?db=1&crash-grace=9s",
                short,
                "rediss://a?db=1&crash-grace=1500ms",
            ),
        ];
        for (url, grace, expected) in cases {
            assert_eq!(with(url, grace).as_deref().ok(), Some(expected), "{url}");
        }

        for url in [
            "file:/a",
            "redis://a?dialect=plain",
            "redlock://a,b,c",
            "zookeeper://a",
        ] {
            let refused = with(url, short).expect_err(url);
            assert!(refused.is_invalid(), "{refused}");
        }
    }
}
