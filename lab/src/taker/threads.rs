//! Taking locks through the blocking face.

use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use leasehold::blocking::{self, Guard, Lock, Locks};

use super::hold::{end, hold, passes};
use super::tell::Teller;
use super::{RETRY, begin, refused, tell_in_the_end, tell_when_warm, waits_for_store};
use crate::{Face, Opens, Orders, Trouble};

pub(super) fn run(orders: &Orders) -> Result<()> {
    let locks = loop {
        match blocking::open(&orders.store).map_err(anyhow::Error::from) {
            Err(error) if waits_for_store(orders, &error) => thread::sleep(RETRY),
            opened => break opened?,
        }
    };
    let hand = |hand| {
        let own = match orders.opens {
            Opens::Shared => locks.clone(),
            Opens::Each => blocking::open(&orders.store)?,
        };
        cycles(orders, &own, hand)
    };
    thread::scope(|scope| {
        let hands = orders.first_hand..orders.first_hand + orders.hands;
        let threads: Vec<_> = hands.map(|number| scope.spawn(move || hand(number))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a hand panicked"))?)
    })?;
    // What was given up is on its way out, and a process that ends takes that way from it.
    blocking::drain(Duration::MAX);
    tell_in_the_end(orders)
}

fn cycles(orders: &Orders, locks: &Locks, hand: u32) -> Result<()> {
    let (mut cycle, mut done) = (0, 0);
    while orders.goes_on(done) {
        let name = orders.name(hand, cycle);
        let teller = Teller { orders, hand, name };
        begin(orders)?;
        teller.asked()?;
        let Some(guard) = acquire(orders, teller, &lock(orders, locks, hand, name))? else {
            (cycle, done) = (cycle + 1, done + u64::from(orders.trouble == Trouble::Ends));
            continue;
        };
        hold(orders, teller, &guard)?;
        end(orders, teller, guard.release())?;
        tell_when_warm(orders, hand, cycle)?;
        (cycle, done) = (cycle + 1, done + 1);
    }
    Ok(())
}

fn acquire(orders: &Orders, teller: Teller<'_>, lock: &Lock) -> Result<Option<Guard>> {
    let granted = match orders.patience {
        Some(micros) => lock.try_acquire_for(Duration::from_micros(micros)),
        None => lock.acquire().map(Some),
    };
    match granted {
        Ok(None) => teller.gave_up().map(|()| None),
        // So little patience may end before the store has said anything.
        Err(error) if orders.patience.is_some() && error.is_unavailable() => refused(teller).map(|()| None),
        Err(error) if passes(orders, &error) => refused(teller).map(|()| None),
        granted => Ok(granted?),
    }
}

/// The claim's label is its hand, so that others can tell who is seen in line.
fn lock(orders: &Orders, locks: &Locks, hand: u32, name: u16) -> Lock {
    let (face, name) = (orders.face_of(name), &orders.names[usize::from(name)]);
    let lock = match face {
        Face::Mutex => locks.mutex(name),
        Face::Reader => locks.rwlock(name).shared(),
        Face::Writer => locks.rwlock(name).exclusive(),
        Face::Slots { take, of } => locks.semaphore(name, of).take(take),
    };
    let lock = orders.lease.map_or_else(|| lock.clone(), |millis| lock.clone().lease(Duration::from_millis(millis)));
    lock.label(&hand.to_string())
}
