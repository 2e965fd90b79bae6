//! Faults of the data of a PostgreSQL server, of its connections, and of the rights of its clients.

use anyhow::{Context, Result, ensure};
use lab_servers::Postgres;

use super::{ended_now, instant, millis, wait, whole};
use crate::backends::postgres::{GRANT, server};
use crate::backends::redis::USER;
use crate::fault_run::{Effect, FaultRun};
use crate::{Random, now, until};

/// Runs a statement that returns a number.
fn number(run: &FaultRun, statement: &str) -> Result<u64> {
    let lines = server(&run.testbed).run(statement);
    let number = lines.last().and_then(|line| line.parse().ok());
    number.with_context(|| format!("{statement}: {lines:?}"))
}

/// Closes about half of the connections: of some clients one, and of others both.
pub(super) fn connections_killed(
    run: &mut FaultRun,
    random: &mut Random,
) -> Result<Option<Effect>> {
    let half = random.below(2);
    let killed = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE application_name = 'leasehold' AND pid % 2 = {half}"
    );
    let count = number(run, &killed)?;
    Ok((count > 0).then(|| instant(format!("{count} connections"))))
}

/// Drops the schema with all tables and functions.
pub(super) fn flushall(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let count = number(run, "SELECT count(*) FROM leasehold_private.lock")?;
    let dropped = server(&run.testbed).run("DROP SCHEMA leasehold, leasehold_private CASCADE");
    // It may meet a client that has begun a step.
    let is_dropped = !dropped.iter().any(|line| line.contains("ERROR"));
    Ok((is_dropped && count > 0).then(|| instant(format!("{count} rows"))))
}

/// Deletes all rows of one lock.
pub(super) fn keys_deleted(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let name = run.draw_name(random);
    let deleted = format!(
        "WITH k AS (DELETE FROM leasehold_private.lock WHERE name = '{name}' RETURNING name), \
         c AS (DELETE FROM leasehold_private.claim WHERE name = '{name}' RETURNING name) \
         SELECT count(*) FROM (TABLE k UNION ALL TABLE c) deleted"
    );
    let count = number(run, &deleted)?;
    Ok((count > 0).then(|| instant(format!("{count} rows of {name}"))))
}

/// Restarts the server with an empty database.
pub(super) fn restarted_empty(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let empty = Postgres::empty_data();
    let since = now();
    run.testbed.servers_mut::<Vec<Postgres>>()?[0].restart_with(&empty);
    whole(run, ended_now(since, "server 0")).map(Some)
}

/// Restarts the server with an older backup.
pub(super) fn restarted_stale(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let backup = server(&run.testbed).backup();
    let saved = now();
    wait(millis(random, 50, 400));
    let forgotten = run.grants_since(saved)?;
    let since = now();
    run.testbed.servers_mut::<Vec<Postgres>>()?[0].restart_with(&backup);
    let effect = whole(
        run,
        ended_now(since, format!("{forgotten} grants forgotten")),
    )?;
    Ok((forgotten > 0).then_some(effect))
}

/// Lets all commits wait for a replica that does not exist.
pub(super) fn writes_refused(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let server = server(&run.testbed);
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    server.run("ALTER SYSTEM SET synchronous_standby_names = 'none'; SELECT pg_reload_conf()");
    // The checkpointer lets it take effect.
    until("a commit to wait", || {
        Ok((number(run, waiting)? > 0).then_some(()))
    })?;
    let since = now();
    wait(run.plan.length);
    let count = number(run, waiting)?;
    let effect = ended_now(since, format!("{count} commits wait in the end"));
    server.run("ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()");
    Ok((count > 0).then_some(effect))
}

/// Makes the server a replica of a primary that does not exist.
pub(super) fn read_only(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let time = run.plan.length;
    let before = refusals(run, READ_ONLY);
    let stopped = &mut run.testbed.servers_mut::<Vec<Postgres>>()?[0];
    stopped.stop();
    let since = now();
    stopped.restart_read_only(true);
    wait(time);
    let refused = refusals(run, READ_ONLY) - before;
    let effect = ended_now(since, format!("{refused} refused in {time:?}"));
    run.testbed.servers_mut::<Vec<Postgres>>()?[0].restart_read_only(false);
    whole(run, effect).map(|effect| (refused > 0).then_some(effect))
}

pub(super) fn rights_revoked(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let time = run.plan.length;
    let before = refusals(run, "permission denied");
    let revoke = format!("REVOKE EXECUTE ON ALL ROUTINES IN SCHEMA leasehold FROM {USER}");
    let revoked = server(&run.testbed).run(&revoke);
    ensure!(revoked.is_empty(), "{revoked:?}");
    let since = now();
    wait(time);
    let refused = refusals(run, "permission denied") - before;
    let effect = ended_now(since, format!("{refused} refused in {time:?}"));
    server(&run.testbed).run(GRANT);
    Ok((refused > 0).then_some(effect))
}

/// What a client is told when it connects to a replica.
const READ_ONLY: &str = "this server cannot be written";

/// How many requests the server has refused for this reason.
fn refusals(run: &FaultRun, reason: &str) -> usize {
    server(&run.testbed).log().matches(reason).count()
}
