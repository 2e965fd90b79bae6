//! Faults of ZooKeeper's sessions.

use anyhow::Result;

use super::at_once;
use crate::Random;
use crate::storm::{Storm, Struck};

/// Ends the session of somebody, as its owner could.
pub(super) fn session_closed(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let number = usize::try_from(random.below(storm.ground.count() as u64))?;
    let server = storm.ground.servers()?.at(number);
    let sessions = server.sessions();
    if sessions.is_empty() {
        return Ok(None);
    }
    let session = sessions[usize::try_from(random.below(sessions.len() as u64))?];
    let closed = server.close_session(session)?;
    Ok(closed.then(|| at_once(format!("session {session:#x}"))))
}
