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
         Measured by `cargo xtask four-conditions` on {cores} cores, {server}, with processes, servers and figures all on one \
         machine. It measures again, and writes this page and its picture anew.\n"
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
        "Leases, watchdogs and sessions are {}; {} where servers are replaced; {} where a lease must not end before the case is over \
         (for `leasehold redlock:` as before, and ZooKeeper's sessions are never longer than 10 s). `leasehold redis:` has `crash-grace=1s`, `leasehold redlock:` `longest-lease={}s`, \
         `dialect=plain` has `tokens=on`. Whoever polls does so every 50 ms, Redlock after a random pause \
         below 100 ms. Nobody is waited for longer than {}, and in the crowd of {CROWD} nobody longer than {}.\n",
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
            let next = or(failover.next_millis, "nobody");
            let both = or(failover.both_millis, "never");
            let more = if failover.without_end {
                " and more"
            } else {
                ""
            };
            format!(
                "{}: next after {next}, both said they held: {both}{more}",
                replaced(row)
            )
        });
        let paused = match (row.paused.next_held, row.paused.both_claimed) {
            (false, _) => "nobody else was granted it",
            (true, true) => "still said that it held",
            (true, false) => "said that it was lost",
        };
        let down = row.down.map_or("no server".to_owned(), |down| {
            format!(
                "{}, holder: {}",
                time(down.majority_millis),
                or(down.notified_millis, "told nothing")
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

A lock between machines should keep four conditions: *exclusion* (never two holders at once), *no deadlock* (a crash frees it), *only
the owner unlocks*, and *fault tolerance* (it serves while most of its servers do). Articles show one way after another to build such a
lock. Here each is written as articles write it, beside the stores of leasehold, and all go through the same faults.

";

const CASES: &str = "
What is done to each, with real processes and servers:

- **Holder killed**: SIGKILL while it holds, another waits. Where acquiring takes several requests, also between them.
- **Holder stopped**: it has read, is stopped for longer than its lease, and writes when it goes on, while the next holds and has
  written. *Lost updates* counts writes that were written over by somebody who had not seen them: on a plain counter, and on a register
  that is *sealed* by the first read under a new token and refuses lower ones, and the same token of another holder (what `leasehold::fence` does for files, Redis and PostgreSQL).
- **Released by others**: by one that was refused the lock and releases all the same, and by the one that was stopped.
- **Contended for** by a hundred processes, while the first holds for a second and then lets go. Requests are what the servers read.
- **Servers replaced** while somebody holds: a Redis server by its replica that had not heard of it; one of five masters by an empty one,
  where the holder had reached no more than three; the leader of three ZooKeeper servers killed while another lags.
- **Servers killed**: two of five or one of three, and then one more; or the one there is.

*Exclusion* is judged by what two holders say of themselves at one instant, without a question to a server: a lock that tells its user
nothing says that it holds.

";

const DETAILS: &str = "\
| lock | a holder that was stopped, when it went on | servers replaced | too few servers: time until the next hears so | contended |
|---|---|---|---|---|
";

const READING: &str = "\
What the table does not say:

- The memory store is not in it, as all of it ends with its process.
- A stopped process keeps its place on the file store, as the kernel does not count it as dead: nobody is granted the lock meanwhile, so
  nothing is lost, and nobody gets in.
- No lock on leases keeps a stopped holder from writing late. The last two columns are the difference that a resource makes that goes
  by tokens. Redisson, Redlock's five steps and the recipe give their users no token.
- A lock on one Redis server does not outlive the loss of what that server knew. leasehold's holder hears of it; an article's does not.
";
