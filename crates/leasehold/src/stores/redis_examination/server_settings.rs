//! Version, memory, persistence and clients of a server.

use super::Facts;
use crate::examination::Finding;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let findings = [
        version(facts),
        eviction(facts),
        persistence(facts),
        idle_timeout(facts),
        keepalive(facts),
        clients(facts),
    ];
    findings.into_iter().flatten().collect()
}

fn version(facts: &Facts) -> Option<Finding> {
    let version = facts.info("redis_version")?;
    let mut numbers = version
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version_number = (numbers.next()?, numbers.next().unwrap_or(0));
    (version_number < (6, 2)).then(|| {
        let message = format!("the server is Redis {version}, and leasehold needs 6.2");
        Finding::danger("version", message, "install Redis or Valkey, 6.2 or newer")
    })
}

/// All keys of locks expire, so every policy but `noeviction` may delete them.
fn eviction(facts: &Facts) -> Option<Finding> {
    let policy = facts.info("maxmemory_policy")?;
    if policy == "noeviction" {
        return None;
    }
    let remedy = "CONFIG SET maxmemory-policy noeviction, or a server of its own for locks";
    let is_limited = facts.number("maxmemory").is_some_and(|limit| limit > 0);
    Some(if is_limited {
        let message = format!("the server evicts keys when its memory is full ({policy})");
        Finding::danger("eviction", message, remedy)
    } else {
        let message = format!("the server would evict keys ({policy}) if maxmemory were set");
        Finding::warning("eviction", message, remedy)
    })
}

fn persistence(facts: &Facts) -> Option<Finding> {
    let has_log = facts.info("aof_enabled")? == "1";
    if !has_log {
        return Some(Finding::danger(
            "no-persistence",
            "the server keeps no log of its writes: a restart forgets holds, and grants them again",
            "set appendonly yes and appendfsync always, or use redlock:// or zookeeper://",
        ));
    }

    let synced = facts.setting("appendfsync")?;
    (synced != "always").then(|| {
        let message = format!(
            "the log of writes is synced {synced}: a crash of the machine forgets the last grants"
        );
        Finding::warning("late-sync", message, "set appendfsync always")
    })
}

/// The server closes connections that send nothing for this long.
fn idle_timeout(facts: &Facts) -> Option<Finding> {
    let timeout: u64 = facts.setting("timeout")?.parse().ok()?;
    (timeout > 0).then(|| {
        let message = format!("the server closes a connection that is idle for {timeout} s");
        let remedy = "CONFIG SET timeout 0; tcp-keepalive ends the connections of crashed clients";
        Finding::warning("timeout", message, remedy)
    })
}

fn keepalive(facts: &Facts) -> Option<Finding> {
    let keepalive: u64 = facts.setting("tcp-keepalive")?.parse().ok()?;
    let remedy = "CONFIG SET tcp-keepalive 60";
    match keepalive {
        0 => Some(Finding::warning(
            "keepalive",
            "the server keeps the connections of vanished machines forever",
            remedy,
        )),
        301.. => {
            let message = format!(
                "the server notices a vanished machine after {keepalive} s or later: until then \
                 its client counts as alive"
            );
            Some(Finding::warning("keepalive", message, remedy))
        }
        _ => None,
    }
}

fn clients(facts: &Facts) -> Option<Finding> {
    let clients = facts.number("connected_clients")?;
    let limit = facts.number("maxclients")?;
    let message = format!("{clients} of {limit} connections are in use");
    let remedy = "CONFIG SET maxclients to a larger number; leasehold uses two for each client";
    if clients + 2 > limit {
        Some(Finding::danger("maxclients", message, remedy))
    } else if clients * 5 > limit * 4 {
        Some(Finding::warning("maxclients", message, remedy))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examination::Severity;

    fn facts(info: &str, settings: &[(&str, &str)]) -> Facts {
        let settings = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Facts {
            info: Some(info.to_owned()),
            config: Some(settings.collect()),
        }
    }

    #[test]
    fn old_version_is_a_danger() {
        let found = |number| version(&facts(&format!("redis_version:{number}\r\n"), &[]));
        assert_eq!(found("6.2.0"), None);
        assert_eq!(found("7.0.15"), None);

        for old in ["6.0.16", "5.9"] {
            let found = found(old).expect("a finding");
            assert_eq!((found.code, found.severity), ("version", Severity::Danger));
        }
    }

    #[test]
    fn used_connections_are_a_warning_before_they_are_a_danger() {
        let severity = |used| {
            let facts = facts(
                &format!("connected_clients:{used}\r\n"),
                &[("maxclients", "100")],
            );
            clients(&facts).map(|finding| finding.severity)
        };
        assert_eq!(severity(80), None);
        assert_eq!(severity(81), Some(Severity::Warning));
        assert_eq!(severity(98), Some(Severity::Warning));
        assert_eq!(severity(99), Some(Severity::Danger));
    }
}
