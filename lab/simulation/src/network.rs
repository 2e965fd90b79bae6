//! Messages between clients and the server: late, lost, repeated and reordered.

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::ClaimId;
use leasehold::{CrashRelease, Error, Result};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::event::What;
use crate::plan::Network;
use crate::process::Outage;
use crate::server::Push;
use crate::world::{State, World};

/// A request, as the timeline names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    pub(crate) client: usize,
    pub(crate) what: &'static str,
    pub(crate) id: ClaimId,
    /// Whether the store prevents that the request is executed after its future has ended.
    pub(crate) expires: bool,
}

/// The fate of one request.
#[derive(Clone, Copy, Debug)]
struct Fate {
    there: Duration,
    back: Duration,
    request_lost: bool,
    reply_lost: bool,
    repeated_after: Option<Duration>,
}

/// Sends a request and waits for its reply, for a bounded time.
pub(crate) async fn request<T, E>(world: &Arc<World>, label: Label, execute: E) -> Result<T>
where
    T: Send + 'static,
    E: FnMut(&World) -> T + Send + 'static,
{
    let (fate, epoch) = world.send(label)?;
    let (reply, replied) = oneshot::channel();
    tokio::spawn(deliver(
        Arc::clone(world),
        label,
        fate,
        epoch,
        execute,
        reply,
    ));

    let reply = timeout(world.profile.request_timeout, replied).await;
    match reply {
        Ok(Ok(reply)) => {
            world.record(label.client, What::Received(label.what, label.id));
            Ok(reply)
        }
        Ok(Err(_closed)) => Err(Error::unavailable("the connection broke")),
        Err(_elapsed) => Err(Error::unavailable("the store sent no reply")),
    }
}

/// Carries a request to the server and its reply back.
async fn deliver<T, E>(
    world: Arc<World>,
    label: Label,
    fate: Fate,
    epoch: u64,
    mut execute: E,
    reply: oneshot::Sender<T>,
) where
    T: Send + 'static,
    E: FnMut(&World) -> T + Send + 'static,
{
    sleep(fate.there).await;
    let is_late = label.expires && reply.is_closed();
    if fate.request_lost || is_late || !world.is_connected(label.client, epoch) {
        return lose(&world, label, reply).await;
    }
    let executed = execute(&world);

    if let Some(pause) = fate.repeated_after {
        sleep(pause).await;
        if world.may_repeat(label, reply.is_closed()) {
            execute(&world);
        }
    }

    sleep(
        fate.back
            .saturating_sub(fate.repeated_after.unwrap_or_default()),
    )
    .await;
    if fate.reply_lost || !world.is_connected(label.client, epoch) {
        return lose(&world, label, reply).await;
    }
    // The client may have dropped the request.
    let _ = reply.send(executed);
}

/// Loses a message. On a connection that broke visibly, the client receives an error.
async fn lose<T>(world: &World, label: Label, reply: oneshot::Sender<T>) {
    world.record(label.client, What::MessageLost(label.what, label.id));
    if world.is_silent(label.client) {
        sleep(world.profile.request_timeout).await;
    }
    drop(reply);
}

impl World {
    /// Draws what happens to a request; fails if the connection is visibly away.
    fn send(&self, label: Label) -> Result<(Fate, u64)> {
        self.record(label.client, What::Sent(label.what, label.id));
        let mut state = self.state();
        let network = self.network_of(&state);

        let client = &mut state.clients[label.client];
        client.requests += 1;
        let epoch = client.link.epoch;
        if client.link.outage == Some(Outage::Refused) {
            return Err(Error::unavailable("the connection was refused"));
        }

        let rng = &mut state.network_rng;
        let there = network.slowest.mul_f64(rng.f64());
        let back = network.slowest.mul_f64(rng.f64());
        let is_repeated = rng.u16(..1_000) < network.repeated;
        let fate = Fate {
            there,
            back,
            request_lost: rng.u16(..1_000) < network.lost,
            reply_lost: rng.u16(..1_000) < network.lost,
            repeated_after: is_repeated.then(|| back.mul_f64(rng.f64())),
        };
        Ok((fate, epoch))
    }

    /// Sends notifications, each of which may be late or lost.
    pub(crate) fn push(&self, pushes: Vec<Push>) {
        for push in pushes {
            let mut state = self.state();
            let network = self.network_of(&state);
            let epoch = state.clients[push.client].link.epoch;
            let time = network.slowest.mul_f64(state.network_rng.f64());
            let is_lost = state.network_rng.u16(..1_000) < network.lost;
            drop(state);

            if !is_lost {
                let me = self.shared();
                tokio::spawn(async move {
                    sleep(time).await;
                    me.deliver_push(push, epoch);
                });
            }
        }
    }

    fn deliver_push(&self, push: Push, epoch: u64) {
        if !self.is_connected(push.client, epoch) {
            return;
        }
        self.record(push.client, What::Pushed(push.id, push.standing));
        let mut state = self.state();
        state.clients[push.client].inbox.put(push);
    }

    /// Returns whether the store may execute a request again.
    ///
    /// It does not enter a claim whose future has ended, or which it has granted and ended since.
    fn may_repeat(&self, label: Label, has_ended: bool) -> bool {
        let now = self.time();
        let state = self.state();
        let is_there = state
            .backend
            .entry(label.id)
            .is_some_and(|entry| entry.expires_at > now);
        !label.expires || (is_there && !has_ended)
    }

    /// Returns how messages travel. After the plan, the network has healed.
    pub(crate) fn network_of(&self, state: &State) -> Network {
        if !state.workers_have_ended && !self.servers_have_healed() {
            return self.profile.network;
        }
        Network {
            slowest: Duration::from_millis(1),
            lost: 0,
            repeated: 0,
        }
    }

    /// A store that notices a crash at once receives no message of a dead process.
    pub(crate) fn is_connected(&self, client: usize, epoch: u64) -> bool {
        let state = self.state();
        let client = &state.clients[client];
        let link = &client.link;
        let is_gone = client.is_dead && self.profile.crash == CrashRelease::Immediate;
        link.outage.is_none() && link.epoch == epoch && !is_gone
    }

    /// Waits until the connection of a client is not away without a sign.
    pub(crate) async fn silence_ends(&self, client: usize) {
        loop {
            let arrived = Arc::clone(&self.state().clients[client].inbox.arrived);
            let changed = arrived.notified();
            if self.state().clients[client].link.outage != Some(Outage::Silent) {
                return;
            }
            changed.await;
        }
    }

    fn is_silent(&self, client: usize) -> bool {
        self.state().clients[client].link.outage != Some(Outage::Refused)
    }
}
