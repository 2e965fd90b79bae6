//! Connections to the model of Redis, and the faults of its servers.
//!
//! Connections are slow, and break before a request is executed, before its reply is sent, or
//! within the reply. Servers restart and fail over, and the slot of the lock moves.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lab_redis_model::Wire;
use tokio::io::{DuplexStream, duplex};
use tokio::time::{sleep, timeout};

use crate::event::What;
use crate::plan::BackendPlan;
use crate::process::Outage;
use crate::redis_servers::ServerFault;
use crate::server::nanos;
use crate::world::World;

impl World {
    /// Opens a connection of a client.
    pub(crate) fn connect_to(&self, host: &str, client: usize) -> io::Result<DuplexStream> {
        let now = self.time();
        let mut state = self.state();
        let link = &state.clients[client].link;
        let epoch = link.epoch;
        let is_refused = link.outage == Some(Outage::Refused);
        let servers = state.backend.redis_mut().filter(|_| !is_refused);
        let reached = servers.and_then(|servers| servers.reachable(host, now));
        drop(state);
        let server = reached.ok_or(io::ErrorKind::ConnectionRefused)?;

        let (ours, theirs) = duplex(64 * 1024);
        let wire = BreakingWire {
            world: self.shared(),
            client,
            epoch,
        };
        tokio::spawn(async move { server.serve(theirs, wire).await });
        Ok(ours)
    }

    /// Lets servers restart and fail over, one after another, until the clients have ended.
    pub(crate) async fn disturb_servers(&self, outage: Duration) {
        let mut rng = self.state().network_rng.fork();
        loop {
            let pause = self.profile.lease.mul_f64(1.0 + 5.0 * rng.f64());
            let ended = timeout(pause, self.workers_have_ended()).await;
            if ended.is_ok() || self.servers_have_healed() {
                return;
            }

            let fault = self.begin_server_fault(&mut rng);
            sleep(outage).await;
            self.end_server_fault(fault);
        }
    }

    /// Whether connections are fast, and break no more: a store opens then, however slow they were.
    pub(crate) fn servers_have_healed(&self) -> bool {
        let is_contract = matches!(self.profile.backend, BackendPlan::Contract);
        !is_contract && self.time() > nanos(FAULTS_MAX)
    }

    fn begin_server_fault(&self, rng: &mut Rng) -> ServerFault {
        let what = "a server stops, or the slot moves";
        self.record(0, What::Fault(what.to_owned()));
        let mut state = self.state();
        state.counts.server_faults += 1;
        let servers = state.backend.redis_mut().expect("a plan of Redis");
        servers.begin_fault(rng)
    }

    fn end_server_fault(&self, fault: ServerFault) {
        self.record(0, What::FaultEnds("fault of a server"));
        let mut state = self.state();
        let servers = state.backend.redis_mut().expect("a plan of Redis");
        servers.end_fault(fault);
    }

    /// Draws how long a message takes.
    fn delay(&self) -> Duration {
        let mut state = self.state();
        let slowest = self.network_of(&state).slowest;
        let share = state.network_rng.f64();
        slowest.mul_f64(share * share)
    }

    /// Draws whether a connection breaks now. An outage may begin then.
    fn breaks(&self) -> bool {
        let BackendPlan::Redis(plan) = &self.profile.backend else {
            return false;
        };
        let now = self.time();
        let mut state = self.state();
        let lost = self.network_of(&state).lost;
        if state.network_rng.u16(..1_000) >= lost {
            return false;
        }

        let begins_outage = state.network_rng.u8(..6) == 0;
        if let Some(servers) = state.backend.redis_mut().filter(|_| begins_outage) {
            servers.down_until = now + nanos(plan.outage);
        }
        let meets_hold = state.holds.iter().any(|hold| !hold.is_closed);
        state.counts.breaks_with_hold += u32::from(meets_hold);
        true
    }
}

/// After this time, no server fails and no connection breaks.
const FAULTS_MAX: Duration = Duration::from_secs(120);

/// The connection of a client to a server.
struct BreakingWire {
    world: Arc<World>,
    client: usize,
    /// The number of disconnections of the client before the connection.
    epoch: u64,
}

impl BreakingWire {
    /// Carries a message, unless the connection breaks.
    async fn carry(&self) -> io::Result<()> {
        sleep(self.world.delay()).await;
        self.world.silence_ends(self.client).await;

        let now = self.world.time();
        let is_down = match self.world.state().backend.redis_mut() {
            Some(servers) => servers.down_until > now,
            None => false,
        };
        let is_connected = self.world.is_connected(self.client, self.epoch);
        if is_down || !is_connected || self.world.breaks() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl Wire for BreakingWire {
    async fn before(&mut self) -> io::Result<()> {
        self.carry().await
    }

    async fn pass(&mut self, sent: &mut Vec<u8>) -> io::Result<()> {
        let carried = self.carry().await;
        if carried.is_err() {
            let kept = self.world.state().network_rng.usize(..=sent.len());
            sent.truncate(kept);
        }
        carried
    }
}
