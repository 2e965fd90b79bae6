//! Faults: they wait for a grant, so that they meet a hold.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::event::What;
use crate::plan::{Fault, FaultKind, Target};
use crate::process::{Outage, PollFault};
use crate::server::Cause;
use crate::world::World;

/// Waits for the grants of a fault, and injects it.
pub(crate) async fn inject(world: Arc<World>, fault: Fault) {
    if !world.wait_for_grants(fault.after_grants).await {
        return;
    }
    sleep(fault.delay).await;

    let targets = world.targets(fault.target);
    if targets.is_empty() {
        return;
    }
    world.count_fault();
    for client in &targets {
        world.record(*client, What::Fault(format!("{:?}", fault.kind)));
    }

    match fault.kind {
        FaultKind::Pause(time) => world.pause(&targets, time).await,
        FaultKind::PauseAtPoll(polls, time) => world.arm(&targets, polls, Some(time)),
        FaultKind::Kill => {
            for client in &targets {
                world.kill(*client);
            }
        }
        FaultKind::KillAtPoll(polls) => world.arm(&targets, polls, None),
        FaultKind::Refused(time) => world.disconnect(&targets, Outage::Refused, time).await,
        FaultKind::Silent(time) => world.disconnect(&targets, Outage::Silent, time).await,
        FaultKind::Failover(time) => world.fail_over(time).await,
        FaultKind::Evict => world.evict(targets[0]),
    }
}

impl World {
    /// Injects the fault that waits for a poll of this client, if it is due.
    pub(crate) fn strike_at_poll(&self, client: usize) {
        let mut state = self.state();
        let Some(fault) = &mut state.clients[client].poll_fault else {
            return;
        };
        if fault.polls_left > 0 {
            fault.polls_left -= 1;
            return;
        }
        let pause = fault.pause;
        state.clients[client].poll_fault = None;
        drop(state);

        match pause {
            None => self.kill(client),
            Some(time) => {
                let me = self.shared();
                self.stop(client);
                tokio::spawn(async move {
                    sleep(time).await;
                    me.resume(client);
                });
            }
        }
    }

    /// Ends the faults that still wait for a poll: their clients were idle until the end of the
    /// plan, and the locks are acquired without faults after it.
    pub(crate) fn disarm(&self) {
        for client in &mut self.state().clients {
            client.poll_fault = None;
        }
    }

    /// Kills a process: its tasks end without another step.
    pub(crate) fn kill(&self, client: usize) {
        let now = self.time();
        self.record(client, What::Fault("killed".to_owned()));
        let mut state = self.state();
        state.clients[client].is_dead = true;
        state.clients[client].acquiring.clear();
        for hold in state.holds.iter_mut().filter(|hold| hold.client == client) {
            hold.is_closed = true;
        }
        drop(state);

        self.wake_all(client);
        if self.profile.crash == leasehold::CrashRelease::Immediate {
            self.free(client, now);
        }
    }

    /// Ends every task of every client.
    pub(crate) fn end(&self) {
        let clients = self.state().clients.len();
        for client in 0..clients {
            self.state().clients[client].is_dead = true;
            self.wake_all(client);
        }
    }

    /// Waits for this number of grants; returns `false` if the clients end before.
    async fn wait_for_grants(&self, grants: u32) -> bool {
        loop {
            let granted = self.granted.notified();
            if self.has_granted(grants) || self.state().workers_have_ended {
                return self.has_granted(grants);
            }
            granted.await;
        }
    }

    /// Waits until the clients have done everything that the plan contains.
    pub(crate) async fn workers_have_ended(&self) {
        loop {
            let changed = self.granted.notified();
            if self.state().workers_have_ended {
                return;
            }
            changed.await;
        }
    }

    fn has_granted(&self, grants: u32) -> bool {
        self.state().counts.grants >= grants
    }

    fn targets(&self, target: Target) -> Vec<usize> {
        let state = self.state();
        let is_alive = |client: &usize| !state.clients[*client].is_dead;
        match target {
            Target::Everyone => (0..state.clients.len()).filter(is_alive).collect(),
            Target::Holder => {
                let holds = state.holds.iter().rev();
                let open = holds.filter(|hold| !hold.is_closed).map(|hold| hold.client);
                open.filter(is_alive).take(1).collect()
            }
            Target::Waiter => {
                let waiting = state.waiting_clients();
                waiting.into_iter().filter(is_alive).take(1).collect()
            }
        }
    }

    fn count_fault(&self) {
        let mut state = self.state();
        let meets_hold = state.holds.iter().any(|hold| !hold.is_closed);
        state.counts.faults_with_hold += u32::from(meets_hold);
    }

    async fn pause(&self, clients: &[usize], time: Duration) {
        for client in clients {
            self.stop(*client);
        }
        sleep(time).await;
        for client in clients {
            self.resume(*client);
        }
    }

    fn stop(&self, client: usize) {
        let now = self.time();
        let mut state = self.state();
        let client = &mut state.clients[client];
        client.is_paused = true;
        client.begin_outage(now);
    }

    fn resume(&self, client: usize) {
        let now = self.time();
        self.record(client, What::FaultEnds("pause"));
        let mut state = self.state();
        let resumed = &mut state.clients[client];
        resumed.is_paused = false;
        resumed.resumed_at = now;
        resumed.end_outage(now);
        drop(state);
        self.wake_all(client);
    }

    fn arm(&self, clients: &[usize], polls_left: u32, pause: Option<Duration>) {
        let mut state = self.state();
        for client in clients {
            state.clients[*client].poll_fault = Some(PollFault { polls_left, pause });
        }
    }

    async fn disconnect(&self, clients: &[usize], outage: Outage, time: Duration) {
        let now = self.time();
        for client in clients {
            let mut state = self.state();
            let client = &mut state.clients[*client];
            client.link.epoch += 1;
            client.link.outage = Some(outage);
            client.begin_outage(now);
        }

        self.watch_outage(clients, time).await;
        let now = self.time();
        for client in clients {
            self.record(*client, What::FaultEnds("outage"));
            let mut state = self.state();
            state.clients[*client].link.outage = None;
            state.clients[*client].end_outage(now);
            let arrived = Arc::clone(&state.clients[*client].inbox.arrived);
            drop(state);
            arrived.notify_waiters();
        }
    }

    /// Waits for the end of an outage. During a long one, every acquire fails after a time.
    async fn watch_outage(&self, clients: &[usize], time: Duration) {
        sleep(time.min(OUTAGE_LONG)).await;
        if time < OUTAGE_LONG {
            return;
        }
        for client in clients {
            self.check_acquires_have_failed(*client, OUTAGE_LONG);
        }
        sleep(time.saturating_sub(OUTAGE_LONG)).await;
    }

    async fn fail_over(&self, time: Duration) {
        let clients: Vec<usize> = (0..self.state().clients.len()).collect();
        self.disconnect(&clients, Outage::Refused, time).await;
        let now = self.time();
        self.state().backend.contract_mut().restart_leases(now);
    }

    /// Removes the first claim of a client, held or waiting.
    fn evict(&self, client: usize) {
        let now = self.time();
        let mut state = self.state();
        let Some((name, id, _)) = state.backend.entries_of(client).first().copied() else {
            return;
        };
        if let Some(hold) = state.open_hold(id) {
            hold.is_evicted = true;
        }
        let pushes = state
            .backend
            .contract_mut()
            .evict(now, name, id, Cause::Evicted);
        drop(state);
        self.push(pushes);
    }

    /// Frees everything that a crashed process has.
    fn free(&self, client: usize, now: u64) {
        let entries = self.state().backend.entries_of(client);
        for (name, id, _) in entries {
            let mut state = self.state();
            let server = state.backend.contract_mut();
            let pushes = server.evict(now, name, id, Cause::Crashed);
            drop(state);
            self.push(pushes);
        }
    }
}

impl crate::process::Client {
    /// Notes that the client cannot reach the store, paused or disconnected.
    fn begin_outage(&mut self, now: u64) {
        let has_ended = self.link.last_outage.is_none_or(|(_, end)| end < u64::MAX);
        if has_ended {
            self.link.last_outage = Some((now, u64::MAX));
        }
    }

    fn end_outage(&mut self, now: u64) {
        if self.is_paused || self.link.outage.is_some() {
            return;
        }
        if let Some((_, end)) = &mut self.link.last_outage {
            *end = now;
        }
    }
}

/// After this time without a store, no acquire waits any longer: 10 s until the store counts as
/// unavailable, up to 10 s until the first renewal is due, and up to 20 s for requests without a
/// reply.
const OUTAGE_LONG: Duration = Duration::from_secs(50);
