//! The figures as a page for people.

use std::fmt::Write as _;
use std::thread::available_parallelism;

use super::verdict::{COLUMNS, Verdict, cells, replaced, time};
use super::{AMPLE_MILLIS, CROWD, LEASE_MILLIS, LONG_MILLIS, NEVER_MILLIS, Row};
use crate::conditions::cases::CROWD_MILLIS;

/// `docs/four-conditions.md`.
#[must_use]
pub fn page(rows: &[Row], server: &str) -> String {
    let mut page = String::from(HEAD);
    let cores = available_parallelism().map_or(1, usize::from);
    let _ = writeln!(
        page,
        "![each lock beside each condition](four-conditions.svg)\n\n\
         `cargo xtask four-conditions` measured these figures on {cores} cores, {server}, with \
         all\n\
         processes and servers on one machine. It writes this page and its picture again.\n"
    );
    summary(&mut page, rows);
    page.push_str(CASES);
    settings(&mut page);
    details(&mut page, rows);
    page.push_str(READING);
    page
}

fn summary(page: &mut String, rows: &[Row]) {
    let _ = writeln!(
        page,
        "| lock | {} |\n|---|{}",
        COLUMNS.join(" | "),
        "---|".repeat(COLUMNS.len())
    );
    for row in rows {
        let cells = cells(row).map(|cell| {
            if cell.verdict == Verdict::Broken {
                format!("**{}**", cell.text)
            } else {
                cell.text
            }
        });
        let _ = writeln!(page, "| {} | {} |", title(row), cells.join(" | "));
    }
}

fn title(row: &Row) -> String {
    if row.contender.is_leasehold() {
        format!("**{}**", row.contender.title())
    } else {
        row.contender.title().to_owned()
    }
}

fn settings(page: &mut String) {
    let _ = writeln!(
        page,
        "Leases, watchdogs and sessions are {}. They are {} where servers are replaced, and {} \
         where a\nlease must not end before the case is over (for `leasehold redlock:` as before, \
         and sessions of\nZooKeeper are never longer than 10 s). `leasehold redis:` has \
         `crash-grace=1s`, `leasehold\nredlock:` has `longest-lease={}s`, and `dialect=plain` has \
         `tokens=on`. Clients that poll do so\nevery 50 ms, Redlock after a random pause below \
         100 ms. A case waits at most {} for a client,\nand in the crowd of {CROWD} at most {}.\n",
        time(LEASE_MILLIS),
        time(LONG_MILLIS),
        time(AMPLE_MILLIS),
        LONG_MILLIS / 1_000,
        time(NEVER_MILLIS),
        time(CROWD_MILLIS),
    );
}

fn details(page: &mut String, rows: &[Row]) {
    page.push_str(DETAILS);
    for row in rows {
        let or = |millis: Option<u64>, otherwise: &str| millis.map_or(otherwise.to_owned(), time);
        let failover = row.failover.map_or("no server".to_owned(), |failover| {
            let next = or(failover.next_millis, "none");
            let both = or(failover.both_millis, "never");
            let more = if failover.without_end {
                " and more"
            } else {
                ""
            };
            format!(
                "{}: next holder after: {next}, both reported a hold: {both}{more}",
                replaced(row)
            )
        });
        let paused = match (row.paused.next_held, row.paused.both_claimed) {
            (false, _) => "no other process was granted it",
            (true, true) => "still reported that it held",
            (true, false) => "reported the loss",
        };
        let down = row.down.map_or("no server".to_owned(), |down| {
            format!(
                "{}, holder: {}",
                time(down.majority_millis),
                or(down.notified_millis, "not notified")
            )
        });
        let crowd = row.crowd;
        let all = format!(
            "{} of {CROWD} in {}, {} overlaps",
            crowd.held,
            time(crowd.took_millis),
            crowd.overlaps
        );
        let _ = writeln!(
            page,
            "| {} | {paused} | {failover} | {down} | {all} |",
            title(row)
        );
    }
    page.push('\n');
}

const HEAD: &str = "\
# The four conditions, measured

A lock between machines should keep four conditions:

- *exclusion*: never two holders at once;
- *no deadlock*: a crash frees the lock;
- *only the owner unlocks*;
- *fault tolerance*: the lock serves while most of its servers do.

Articles and libraries build such a lock in different ways. Here each of these baselines is
written as its article or library has it. All of them, and the stores of leasehold, go through
the same faults.

";

const CASES: &str = "
The cases, with real processes and servers:

- **Holder killed**: SIGKILL while it holds, and another process waits. Where acquiring takes
  several requests, it is also killed between them.
- **Holder paused**: it has read a value, is paused for longer than its lease, and writes when it
  continues, while the next holder has written. *Lost updates* counts writes that were
  overwritten by a process that had not read them: on a plain counter, and on a fenced register.
  The register is *sealed* by the first read under a new token. It rejects lower tokens, and the
  same token of another holder, as `leasehold::fence` does for files, Redis and PostgreSQL.
- **Released by others**: by a process that was refused the lock and releases it all the same,
  and by the process that was paused.
- **Contended for** by a hundred processes, while the first holds for a second and then releases.
  Requests are counted at the servers.
- **Servers replaced** during a hold: a Redis server by its replica that had not received the
  grant; one of five masters by an empty one, where the holder had reached only three; the leader
  of three ZooKeeper servers is killed while another one lags.
- **Servers killed**: two of five or one of three, and then one more; or the only one.

*Exclusion* is judged by what two holders report at one instant, without a request to a server. A
lock that does not notify its user of a loss reports that it holds.

";

const DETAILS: &str = "\
| lock | a paused holder, when it continued | servers replaced | too few servers: time until \
the next client gets an error | contended |
|---|---|---|---|---|
";

const READING: &str = "\
Notes on the tables:

- The memory store is missing, because all of it ends with its process.
- A paused process keeps its position on the file store, because the kernel does not count it as
  dead. No other process is granted the lock meanwhile, so no update is lost.
- A lease cannot keep a paused holder from writing late. The last two columns show the difference
  that a resource with tokens makes. Redisson, the five steps of Redlock and the ZooKeeper recipe
  have no token.
- A lock on one Redis server does not survive the loss of that server's data. The holder of
  leasehold is notified; the holder of a baseline is not.
";
