//! Taking locks through the async face.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use leasehold::{Lock, Locks, Owner};
use tokio::runtime::Builder;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::timeout;

use super::hold::{end, hold, passes};
use super::nested::{Again, Got, Wish};
use super::tell::Teller;
use super::{RETRY, begin, refused, steps, tell_in_the_end, tell_when_warm, waits_for_store};
use crate::{Face, Opens, Orders, Start, Trouble, Work};

pub(super) fn run(orders: &Orders) -> Result<()> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(all(Arc::new(orders.clone())))
}

async fn all(orders: Arc<Orders>) -> Result<()> {
    let locks = loop {
        match steps::open(&orders).await {
            Err(error) if waits_for_store(&orders, &error) => tokio::time::sleep(RETRY).await,
            opened => break opened?,
        }
    };
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
    // What was given up is on its way out, and a process that ends takes that way from it.
    leasehold::drain().await;
    tell_in_the_end(&orders)
}

async fn cycles(orders: Arc<Orders>, locks: Locks, hand: u32) -> Result<()> {
    let (mut cycle, mut done, owner) = (0, 0, Owner::new());
    while orders.goes_on(done) {
        let name = orders.name(hand, cycle);
        let teller = Teller { orders: &orders, hand, name };
        if matches!(orders.start, Start::Told) {
            block_in_place(|| begin(&orders))?;
        }
        teller.asked()?;
        let Some(guard) = acquire(&orders, teller, &wish(&orders, &locks, &owner, hand, name)).await? else {
            (cycle, done) = (cycle + 1, done + u64::from(orders.trouble == Trouble::Ends));
            continue;
        };
        match orders.work {
            Work::Nothing => hold(&orders, teller, &guard)?,
            _ => block_in_place(|| hold(&orders, teller, &guard))?,
        }
        end(&orders, teller, guard.release(teller).await?)?;
        tell_when_warm(&orders, hand, cycle)?;
        (cycle, done) = (cycle + 1, done + 1);
    }
    Ok(())
}

/// An impatient one drops the future, which must leave as little behind as a refusal.
async fn acquire(orders: &Orders, teller: Teller<'_>, wish: &Wish) -> Result<Option<Got>> {
    let granted = match orders.patience {
        Some(micros) => timeout(Duration::from_micros(micros), wish.acquire()).await.ok().transpose(),
        None => wish.acquire().await.map(Some),
    };
    match granted {
        Ok(None) => teller.gave_up().map(|()| None),
        Err(error) if passes(orders, &error) => block_in_place(|| refused(teller)).map(|()| None),
        granted => Ok(granted?),
    }
}

fn wish(orders: &Orders, locks: &Locks, owner: &Owner, hand: u32, name: u16) -> Wish {
    if orders.nests == 0 {
        return Wish::Once(lock(orders, locks, hand, name));
    }
    let lock = locks.reentrant(&orders.names[usize::from(name)]).terms(|lock| terms(orders, lock, hand));
    Wish::Again(Again { lock, owner: owner.clone(), most: orders.nests })
}

fn lock(orders: &Orders, locks: &Locks, hand: u32, name: u16) -> Lock {
    let (face, name) = (orders.face_of(name), &orders.names[usize::from(name)]);
    let lock = match face {
        Face::Mutex => locks.mutex(name),
        Face::Reader => locks.rwlock(name).shared(),
        Face::Writer => locks.rwlock(name).exclusive(),
        Face::Slots { take, of } => locks.semaphore(name, of).take(take),
    };
    terms(orders, lock, hand)
}

/// The claim's label is its hand, so that others can tell who is seen in line.
fn terms(orders: &Orders, lock: Lock, hand: u32) -> Lock {
    let lock = match orders.lease {
        Some(millis) => lock.lease(Duration::from_millis(millis)),
        None => lock,
    };
    lock.label(&hand.to_string())
}
