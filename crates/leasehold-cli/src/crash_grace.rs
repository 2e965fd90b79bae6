//! The option `--crash-grace`, which is a setting of the store's URL.

use leasehold::Error;

use crate::commands::{LockOptions, Store, duration};

impl Store {
    /// Returns the store, with its settings replaced by those of the options.
    ///
    /// # Errors
    /// Invalid if the store does not have such a setting.
    pub(crate) fn with(&self, options: &LockOptions) -> leasehold::Result<Self> {
        match &options.crash_grace {
            Some(grace) => self.with_crash_grace(grace),
            None => Ok(self.clone()),
        }
    }

    /// Replaces the setting `crash-grace` of the URL.
    ///
    /// # Errors
    /// Invalid unless the URL names a Redis store.
    fn with_crash_grace(&self, grace: &str) -> leasehold::Result<Self> {
        const SETTING: &str = "crash-grace=";
        let (base, settings) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let mut settings: Vec<_> = settings.split('&').filter(|one| !one.is_empty()).collect();

        let has_dialect = settings.iter().any(|one| one.starts_with("dialect="));
        if !base.starts_with("redis") || has_dialect {
            return Err(Error::invalid(
                "--crash-grace is an option of the Redis store, without a dialect",
            )
            .help("use --lease, or `?session=30s` in the URL of ZooKeeper"));
        }

        let setting = format!("{SETTING}{grace}");
        settings.retain(|one| !one.starts_with(SETTING));
        settings.push(&setting);
        let url = format!("{base}?{}", settings.join("&"));
        Ok(Self { url })
    }
}

/// Parses the value of the option, and returns it as the URL has it.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    match text {
        "off" => Ok(text.to_owned()),
        _ => duration(text).map(|grace| format!("{}ms", grace.as_millis())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crash_grace_replaces_the_setting_of_a_redis_url() {
        let with = |url: &str, grace: &str| {
            let store = Store {
                url: url.to_owned(),
            };
            let grace = parse(grace).expect("a good value");
            store.with_crash_grace(&grace).map(|store| store.url)
        };

        let cases = [
            ("redis://a", "1.5", "redis://a?crash-grace=1500ms"),
            (
                "redis://a?crash-grace=9s",
                "off",
                "redis://a?crash-grace=off",
            ),
            (
                "rediss://a?db=1&crash-grace=9s",
                "1500ms",
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
            let refused = with(url, "1s").expect_err(url);
            assert!(refused.is_invalid(), "{refused}");
        }
    }
}
