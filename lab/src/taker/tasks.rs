//! Taking locks through the async face.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use leasehold::{Guard, Lock, Locks};
use tokio::runtime::Builder;
use tokio::task::{JoinSet, spawn_blocking};

use super::tell::Teller;
use super::{begin, tell_descriptors, tell_when_warm, work};
use crate::{Face, Opens, Orders, Start, Work};

pub(super) fn run(orders: &Orders) -> Result<()> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(all(Arc::new(orders.clone())))
}

async fn all(orders: Arc<Orders>) -> Result<()> {
    let locks = leasehold::open(&orders.store).await?;
    let mut hands = JoinSet::new();
    for hand in orders.first_hand..orders.first_hand + orders.hands {
        let own = match orders.opens {
            Opens::Shared => locks.clone(),
            Opens::Each => leasehold::open(&orders.store).await?,
        };
        hands.spawn(cycles(Arc::clone(&orders), own, hand));
    }
    while let Some(done) = hands.join_next().await {
        done??;
    }
    tell_descriptors(&orders)
}

async fn cycles(orders: Arc<Orders>, locks: Locks, hand: u32) -> Result<()> {
    for cycle in 0..orders.cycles {
        let name = orders.name(hand, cycle);
        let teller = Teller { orders: &orders, hand, name };
        if matches!(orders.start, Start::Told) {
            apart(&orders, begin).await?;
        }
        teller.asked()?;
        let Some(guard) = acquire(&orders, &lock(&orders, &locks, hand, name)).await? else {
            teller.gave_up()?;
            continue;
        };
        teller.granted(guard.token())?;
        if !matches!(orders.work, Work::Nothing) {
            apart(&orders, work).await?;
        }
        teller.releasing()?;
        guard.release().await?;
        teller.released()?;
        tell_when_warm(&orders, hand, cycle)?;
    }
    Ok(())
}

/// An impatient one drops the future, which must leave as little behind as a refusal.
async fn acquire(orders: &Orders, lock: &Lock) -> Result<Option<Guard>> {
    let Some(micros) = orders.patience else { return Ok(Some(lock.acquire().await?)) };
    let patience = Duration::from_micros(micros);
    Ok(tokio::time::timeout(patience, lock.acquire()).await.ok().transpose()?)
}

/// What blocks, on a thread that may.
async fn apart(orders: &Arc<Orders>, work: fn(&Orders) -> Result<()>) -> Result<()> {
    let orders = Arc::clone(orders);
    spawn_blocking(move || work(&orders)).await?
}

/// The claim's label is its hand, so that others can tell who is seen in line.
fn lock(orders: &Orders, locks: &Locks, hand: u32, name: u16) -> Lock {
    let name = &orders.names[usize::from(name)];
    let lock = match orders.face {
        Face::Mutex => locks.mutex(name),
        Face::Reader => locks.rwlock(name).shared(),
        Face::Writer => locks.rwlock(name).exclusive(),
        Face::Slots { take, of } => locks.semaphore(name, of).take(take),
    };
    lock.label(&hand.to_string())
}
