//! Faults of ZooKeeper's sessions.

use anyhow::Result;

use super::instant;
use crate::Random;
use crate::fault_run::{Effect, FaultRun};

/// Closes a client's session, as the client itself could.
pub(super) fn session_closed(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let number = usize::try_from(random.below(run.testbed.wires.len() as u64))?;
    let server = run.testbed.servers_of::<lab_servers::ZooKeeper>()[number];
    let sessions = server.sessions();
    if sessions.is_empty() {
        return Ok(None);
    }
    let session = sessions[usize::try_from(random.below(sessions.len() as u64))?];
    let closed = server.close_session(session)?;
    Ok(closed.then(|| instant(format!("session {session:#x}"))))
}
