//! The rights of a user, tried one by one on a key of the examination.

use std::sync::Arc;

use super::{Kind, open, send};
use crate::client::{
    Address, Command, Opening, RequestError, Session, cause, command, connector, fresh_client,
};
use crate::redisson::Class;
use leasehold_core::internal::examination::{danger, warning};
use leasehold_core::{Finding, Result, Severity};

/// A right, and a request that needs it and changes nothing but the key of the examination.
struct Right {
    name: &'static str,
    /// `KEY` and `CHANNEL` stand for those of the examination.
    request: &'static [&'static str],
    /// The stores that need it.
    stores: &'static [Kind],
    severity: Severity,
    without: &'static str,
    tried: Tried,
}

/// When a right is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tried {
    Always,
    /// Its request creates the key of the examination, which expires by itself.
    ToCreateKey,
    /// Its request would create the key without an expiry.
    WithKey,
    WithReplicas,
}

/// Tries each right that a store needs.
pub(super) async fn examine(
    kind: Kind,
    mut session: Session,
    address: &Address,
) -> Result<Vec<Finding>> {
    let id = fresh_client();
    let key = format!("leasehold:redlock:{{doctor:{id}}}");
    let channel = format!("leasehold:inbox:doctor:{id}");
    let has_replicas = address.settings.replicas > 0;
    let needed: Vec<&Right> = RIGHTS
        .iter()
        .filter(|right| right.stores.contains(&kind))
        .filter(|right| has_replicas || right.tried != Tried::WithReplicas)
        .collect();

    let mut findings = Vec::new();
    let mut has_no_key = false;
    for right in &needed {
        if has_no_key && right.tried == Tried::WithKey {
            continue;
        }
        let request = right.request(&key, &channel);
        let Err(error) = send(&request, &mut session, address).await? else {
            continue;
        };
        if let Some(finding) = right.refusal(&error) {
            has_no_key |= right.tried == Tried::ToCreateKey;
            findings.push(finding.about(address));
        }
    }
    let of_format = COMMANDS.iter().filter(|(format, _)| *format == kind);
    for name in of_format.flat_map(|(_, commands)| commands.split(' ')) {
        let reply = send(&command(name), &mut session, address).await?;
        let missing = reply
            .err()
            .and_then(|error| missing_command(name, NO_LOCK, &error));
        findings.extend(missing.map(|finding| finding.about(address)));
    }

    if SUBSCRIBE.stores.contains(&kind)
        && let Some(finding) = try_subscription(address, &channel).await?
    {
        findings.push(finding.about(address));
    }
    let mut findings = dedup(findings);
    let lacking = findings.iter().filter(|finding| finding.code != "command");
    if let Some(severity) = lacking.map(|finding| finding.severity).min() {
        let mut in_one_line = all_rights(&needed).about(address);
        in_one_line.severity = severity;
        findings.push(in_one_line);
    }

    // A user name is not given where the server knows one user only.
    let user = address.user.as_deref().unwrap_or("default");
    for finding in &mut findings {
        finding.remedy = finding.remedy.replace('…', user);
    }
    Ok(findings)
}

/// Returns the finding whose remedy gives the user all rights at once, and takes none away.
fn all_rights(needed: &[&Right]) -> Finding {
    let names = needed.iter().map(|right| right.name);
    let rights: Vec<&str> = names.chain([SUBSCRIBE.name]).collect();
    let remedy = format!(
        "ACL SETUSER … ~leasehold:* &leasehold:* {}",
        rights.join(" ")
    );
    warning(
        "rights",
        "one line gives all rights that locks need",
        &remedy,
    )
}

async fn try_subscription(address: &Address, channel: &str) -> Result<Option<Finding>> {
    let connector = connector();
    let opening = Opening {
        connector: &connector,
        address,
        channel,
        epoch: 1,
    };
    let Err(error) = Session::open(opening, Arc::new(|_, _| {})).await else {
        return Ok(None);
    };
    // A server that accepts no connection at all shows nothing about this command.
    open(address).await?;
    Ok(cause(&error).and_then(|cause| SUBSCRIBE.refusal(cause)))
}

impl Right {
    fn request(&self, key: &str, channel: &str) -> Command {
        let mut words = self.request.iter().map(|word| match *word {
            "KEY" => key,
            "CHANNEL" => channel,
            word => word,
        });
        let mut request = command(words.next().expect("a request has a name"));
        for word in words {
            request.arg(word);
        }
        request
    }

    /// Returns the finding of an error. Other errors prove that the user has the right.
    fn refusal(&self, error: &RequestError) -> Option<Finding> {
        const DENIED: [&str; 3] = ["noperm", "no permissions", "can't run this command"];
        let command = self.name[1..].to_uppercase().replace('|', " ");
        if let Some(mut finding) = missing_command(&command, self.without, error) {
            finding.severity = self.severity;
            return Some(finding);
        }
        let error = error.to_string().to_lowercase();
        if !DENIED.iter().any(|text| error.contains(text)) {
            return None;
        }

        let is_access = error.contains("access");
        Some(if is_access && error.contains("channel") {
            danger(
                "right-to-channels",
                "the user may not use the channels of leasehold",
                "ACL SETUSER … &leasehold:*",
            )
        } else if is_access && error.contains("key") {
            danger(
                "right-to-keys",
                "the user may not use the keys of leasehold",
                "ACL SETUSER … ~leasehold:*",
            )
        } else {
            let message = format!("the user lacks the right {}: {}", self.name, self.without);
            let remedy = format!("ACL SETUSER … {}", self.name);
            let mut finding = danger("right", message, &remedy);
            finding.severity = self.severity;
            finding
        })
    }
}

/// Returns the finding of a command that the server does not have, or at which a proxy closes the
/// connection. Without arguments, a command that the server has is refused for that reason alone.
fn missing_command(command: &str, without: &str, error: &RequestError) -> Option<Finding> {
    if error.is_io_error() {
        let message = format!("a proxy or another service closes the connection at {command}");
        let remedy = "let it pass the command, or connect to the server without it";
        return Some(danger("command", format!("{message}: {without}"), remedy));
    }

    let detail = error.detail().unwrap_or_default();
    let what = detail.split(", with args").next().unwrap_or(detail);
    let message = format!("the server does not execute {command} ({what}): {without}");
    let remedy = "remove its rename-command from redis.conf, or use a server that has it";
    let is_missing = detail.to_lowercase().starts_with("unknown");
    is_missing.then(|| danger("command", message, remedy))
}

/// Keys and channels are refused for each command again.
fn dedup(findings: Vec<Finding>) -> Vec<Finding> {
    let mut kept: Vec<Finding> = Vec::new();
    for finding in findings {
        if !kept.contains(&finding) {
            kept.push(finding);
        }
    }
    kept
}

const BOTH: &[Kind] = &[Kind::Redis, Kind::Cluster, Kind::Redlock];
const SINGLE: &[Kind] = &[Kind::Redis];
const REDIS: &[Kind] = &[Kind::Redis, Kind::Cluster];
const REDLOCK: &[Kind] = &[Kind::Redlock];
const NO_LOCK: &str = "locks cannot be acquired or released";
const NO_SHA: &str = "0000000000000000000000000000000000000000";

const fn needed(
    name: &'static str,
    request: &'static [&'static str],
    stores: &'static [Kind],
) -> Right {
    Right {
        name,
        request,
        stores,
        severity: Severity::Danger,
        without: NO_LOCK,
        tried: Tried::Always,
    }
}

impl Right {
    /// Locks work without the right, but worse.
    const fn useful(self, without: &'static str) -> Self {
        Self {
            severity: Severity::Warning,
            without,
            ..self
        }
    }

    const fn tried(self, tried: Tried) -> Self {
        Self { tried, ..self }
    }
}

const SUBSCRIBE: Right = needed("+subscribe", &[], BOTH);
const NO_CRASH: &str = "crashed holders are noticed only when their lease ends";

/// The rights of the ACL lines in docs/stores; a test compares them. SET makes the key a string, so
/// that later requests for other types change nothing.
const RIGHTS: &[Right] = &[
    needed("+set", &["SET", "KEY", "x", "PX", "2000"], BOTH).tried(Tried::ToCreateKey),
    needed("+eval", &["EVAL", "return 1", "0"], BOTH),
    needed("+evalsha", &["EVALSHA", NO_SHA, "0"], BOTH),
    needed("+publish", &["PUBLISH", "CHANNEL", "x"], BOTH)
        .useful("waiters notice a grant only by polling"),
    needed("+pubsub|numsub", &["PUBSUB", "NUMSUB", "CHANNEL"], BOTH).useful(NO_CRASH),
    needed("+client|tracking", &["CLIENT", "TRACKING", "OFF"], SINGLE)
        .useful("observers poll four times a second"),
    needed("+info", &["INFO", "server"], REDIS).useful(NO_CRASH),
    needed("+info", &["INFO", "server"], REDLOCK),
    needed("+time", &["TIME"], BOTH),
    needed("+scan", &["SCAN", "0", "MATCH", "KEY", "COUNT", "1"], BOTH)
        .useful("leasehold ls fails"),
    needed("+wait", &["WAIT", "0", "1"], REDIS).tried(Tried::WithReplicas),
    needed("+type", &["TYPE", "KEY"], REDLOCK),
    needed("+get", &["GET", "KEY"], BOTH),
    needed("+getrange", &["GETRANGE", "KEY", "0", "0"], BOTH),
    needed("+setrange", &["SETRANGE", "KEY", "0", ""], BOTH),
    needed("+pttl", &["PTTL", "KEY"], BOTH),
    needed("+pexpire", &["PEXPIRE", "KEY", "2000"], BOTH),
    needed("+hget", &["HGET", "KEY", "f"], REDIS),
    needed("+hmget", &["HMGET", "KEY", "f"], REDIS),
    needed("+hset", &["HSET", "KEY", "f", "x"], REDIS).tried(Tried::WithKey),
    needed("+hdel", &["HDEL", "KEY", "f"], REDIS),
    needed("+hlen", &["HLEN", "KEY"], REDIS),
    needed("+zadd", &["ZADD", "KEY", "XX", "1", "m"], BOTH),
    needed("+zpopmin", &["ZPOPMIN", "KEY"], REDLOCK),
    needed("+zrem", &["ZREM", "KEY", "m"], BOTH),
    needed("+zcard", &["ZCARD", "KEY"], REDIS),
    needed("+zrange", &["ZRANGE", "KEY", "0", "0"], REDIS),
    needed("+zrangebyscore", &["ZRANGEBYSCORE", "KEY", "0", "0"], REDIS),
    needed("+zrank", &["ZRANK", "KEY", "m"], REDIS),
    needed("+del", &["DEL", "KEY"], REDIS),
];

/// The commands that the formats of other libraries need. They are sent without arguments: the
/// examination does not know a key that the user may use.
const COMMANDS: &[(Kind, &str)] = &[
    (
        Kind::Plain,
        "EVAL EVALSHA SET GET DEL PTTL PEXPIRE SCAN TYPE GETRANGE STRLEN",
    ),
    (Kind::Redisson(Class::Lock), RLOCK),
    (Kind::Redisson(Class::Fenced), RLOCK),
    (Kind::Redisson(Class::Fenced), "INCR"),
    (Kind::Redisson(Class::ReadWrite), RLOCK),
    (Kind::Redisson(Class::ReadWrite), "HDEL"),
    (
        Kind::Redisson(Class::Semaphore),
        "EVAL EVALSHA SET GET PTTL PEXPIRE PUBLISH SCAN TYPE EXISTS INCRBY DECRBY ZADD ZCARD ZCOUNT \
         ZRANGE ZRANGEBYSCORE ZREM ZSCORE",
    ),
];
const RLOCK: &str = "EVAL EVALSHA SET GET DEL PTTL PEXPIRE PUBLISH SCAN TYPE EXISTS HGET HSET HLEN \
                     HEXISTS HGETALL HKEYS";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The rights in the line of a page that begins with `start`.
    fn documented(page: &str, start: &str) -> Vec<String> {
        let line = page.lines().find(|line| line.starts_with(start));
        let words = line.expect("the page has the line").split(' ');
        let mut rights: Vec<String> = words
            .filter(|word| word.starts_with('+') && *word != "+subscribe")
            .map(str::to_owned)
            .collect();
        rights.sort();
        rights
    }

    /// The commands that the scripts in these files of a folder call.
    fn called(folder: &str, files: &str) -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src")
            .join(folder);
        let texts = files.split(' ').map(|file| {
            let path = folder.join(file).with_extension("lua");
            std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{}", path.display()))
        });
        let texts: String = texts.collect();
        let calls = texts.split("call('").skip(1);
        let commands = calls.map(|call| call.split('\'').next().expect("a first part"));
        commands.map(str::to_owned).collect()
    }

    #[test]
    fn commands_of_all_scripts_are_tried() {
        const REDISSON: &str = "redisson/lua";
        let queue = "queue list longest_lease enter/fast enter/slow leave/fast leave/slow renew/fast \
                     renew/slow inspect/fast inspect/slow";
        let rw = "rw_lock rw_unlock rw_renew rw_inspect rw_list";
        let permits = "semaphore_lock semaphore_unlock semaphore_renew semaphore_inspect \
                       semaphore_list";
        let voting = "vote leave inspect list";
        for (kind, folder, files) in [
            (Kind::Redis, "queue/lua", queue),
            (Kind::Cluster, "queue/lua", queue),
            (Kind::Redlock, "votes/redlock/lua", voting),
            (Kind::Redlock, "votes/lua", "incarnation"),
            (Kind::Plain, "votes/lua/single_key", voting),
            (
                Kind::Redisson(Class::Fenced),
                REDISSON,
                "lock unlock renew inspect list",
            ),
            (Kind::Redisson(Class::ReadWrite), REDISSON, rw),
            (Kind::Redisson(Class::Semaphore), REDISSON, permits),
        ] {
            let tried = tried(kind).join(" ").to_uppercase();
            let of_format = COMMANDS.iter().filter(|(format, _)| *format == kind);
            let of_format: Vec<&str> = of_format.map(|(_, commands)| *commands).collect();
            let tried = [tried, of_format.join(" ")].join(" ");
            for command in called(folder, files) {
                let mut words = tried.split([' ', '+', '|']);
                let is_tried = words.any(|word| word == command);
                let is_optional = kind != Kind::Redis && OPTIONAL.contains(&command.as_str());
                assert!(is_tried || is_optional, "{kind:?}: {command}");
            }
        }
    }

    /// Commands without which a format only polls, or does not show the waiters of an `RFairLock`.
    const OPTIONAL: [&str; 7] = [
        "LINDEX", "LRANGE", "PUBLISH", "TIME", "ZADD", "ZPOPMIN", "ZREM",
    ];

    fn tried(kind: Kind) -> Vec<String> {
        let of_kind = RIGHTS.iter().filter(|right| right.stores.contains(&kind));
        let mut names: Vec<String> = of_kind.map(|right| right.name.to_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn rights_are_those_of_the_documented_acl_lines() {
        let redis = include_str!("../../../../docs/stores/redis.md");
        assert_eq!(tried(Kind::Redis), documented(redis, "user locks on"));

        let redlock = include_str!("../../../../docs/stores/redlock.md");
        let line = "~leasehold:redlock:* ";
        assert_eq!(tried(Kind::Redlock), documented(redlock, line));
    }
}
