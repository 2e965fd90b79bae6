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
        "![each lock and each condition](four-conditions.svg)\n\n\
         `cargo xtask four-conditions` measured these figures on {cores} cores with {server}. All \
         processes\n\
         and servers ran on one machine. The command regenerates this page and its picture.\n"
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
        "Leases, watchdogs and sessions last {}, and {} where servers are replaced. They last {} \
         where a\nlease must not end during the case. `leasehold redlock:` and sessions of \
         ZooKeeper are exceptions:\nthere the lease stays as before, and a session lasts at most \
         10 s. `leasehold redis:` has\n`crash-grace=1s`, `leasehold redlock:` has \
         `longest-lease={}s`, and `dialect=plain` has\n`tokens=on`. Clients that poll do so every \
         50 ms. Those of Redlock poll after a random pause of less\nthan 100 ms. A case waits at \
         most {} for a client, and at most {} for {CROWD} contenders.\n",
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

A lock between machines should meet four conditions:

- *exclusion*: never two holders at once;
- *no deadlock*: a crash of the holder frees the lock;
- *only the owner unlocks*: no other client can release the lock;
- *fault tolerance*: the lock stays available while most of its servers are.

Articles and libraries build such a lock in different ways. For this comparison, each of these
baselines is written as in its article. `RLock` is Redisson itself, in Java programs. All of them,
and the stores of leasehold, go through the same faults.

";

const CASES: &str = "
The cases, with real processes and servers:

- **Holder killed**: the holder gets SIGKILL while another process waits. If acquiring takes several
  requests, a process is also killed between them.
- **Holder paused**: the holder has read a value, and is paused for longer than its lease. Meanwhile
  the next holder writes. Then the first holder continues, and writes too. *Lost updates* counts
  writes that were overwritten by a process that had not read them. They are counted on a plain
  counter and on a fenced register. The first read under a new token *seals* the register: from then
  on it rejects lower tokens, and the same token of another holder. `leasehold::fence` does the same
  for files, Redis and PostgreSQL.
- **Released by others**: a process that was refused the lock releases it all the same, and so does
  the process that was paused.
- **Contended for**: a hundred processes wait while the first one holds for a second and then
  releases. Requests are counted at the servers.
- **Servers replaced** during a hold: a Redis server by its replica that had not received the
  grant; one of five masters by an empty one, where the holder had the votes of only three. Of three
  ZooKeeper servers, the leader is killed while another one lags.
- **Servers killed**: two of five or one of three, and then one more; or the only one.

*Exclusion* compares what two holders report at the same instant, without a request to a server. A
lock that does not notify its user of a loss reports that it holds.

";

const DETAILS: &str = "\
| lock | a paused holder, when it continued | servers replaced | too few servers: time until \
the next client gets an error | contended |
|---|---|---|---|---|
";

const READING: &str = "\
Notes on the tables:

- The memory store is missing, because it ends with its process.
- A paused process keeps its position on the file store, because the kernel does not count it as
  dead. No other process is granted the lock meanwhile, so no update is lost.
- A lease cannot keep a paused holder from writing late. The two columns of lost updates show how a
  resource that checks tokens prevents the damage. Redisson, the five steps of Redlock and the
  ZooKeeper recipe have no token.
- *Next holder after: none* means that no other client was granted the lock during the case.
- A lock on one Redis server does not survive the loss of that server's data. The holder of
  leasehold is notified. The holder of a baseline is not.
";
