//! Eight processes at work on servers, and somebody who is in their way.

use std::ops::Deref;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::{Api, DEADLINE, Event, Orders, Process, Random, RedisSite, Site, Trouble, What, check, holds, until};

const PROCESSES: u64 = 8;
/// With fewer a storm shows nothing.
pub(super) const FAULTS_MIN: usize = 3;
/// How long one cycle may take on average: faults stop the work more than anything else.
const PATIENCE_EACH: Duration = Duration::from_millis(40);

/// Servers, and takers for their locks.
pub(super) trait Ground: Deref<Target = Site> {
    /// Whether nothing is left of takers that are gone, after one more hold of each name on the terms of `last`.
    fn check_clean(&self, last: &Orders) -> Result<()>;
}

impl Ground for RedisSite {
    fn check_clean(&self, last: &Orders) -> Result<()> {
        RedisSite::check_clean(self, last)
    }
}

/// Servers, a crew that works on them, and what has been told so far.
pub(super) struct Storm<G> {
    pub(super) site: G,
    pub(super) crew: Vec<Process>,
    pub(super) faults: usize,
    random: Random,
    orders: Orders,
    /// How often all are to be granted.
    cycles: u64,
    /// How often each of the crew is still to be granted.
    left: Vec<u64>,
    told: Vec<Event>,
    begun: Instant,
}

impl<G: Ground> Storm<G> {
    /// The crew is granted `cycles` times in all, with the terms of `orders`; if they name a store, it is that of the site by
    /// another way.
    pub(super) fn begin(test: &str, site: G, cycles: u64, orders: Orders) -> Result<Self> {
        let random = Random::announced(test);
        let orders = Orders { trouble: Trouble::Endured, ..orders };
        let left = vec![cycles / PROCESSES; PROCESSES.try_into()?];
        let (cycles, begun) = (left.iter().sum(), Instant::now());
        let mut storm =
            Self { site, crew: Vec::new(), faults: 0, random, orders, cycles, left, told: Vec::new(), begun };
        storm.crew = (0..storm.left.len()).map(|number| storm.one(number)).collect::<Result<_>>()?;
        // Opening a store fails where the server cannot be reached; what is open endures it.
        until("the crew to be at work", || Ok(storm.is_all_at_work()?.then_some(())))?;
        Ok(storm)
    }

    fn is_all_at_work(&self) -> Result<bool> {
        self.crew.iter().try_fold(true, |all, one| Ok(all && one.has_told()?))
    }

    fn one(&self, number: usize) -> Result<Process> {
        let api = if number.is_multiple_of(2) { Api::Async } else { Api::Blocking };
        self.site.start_quiet(Orders { api, cycles: self.left[number], ..self.orders.clone() })
    }

    /// Does `fault` at this pace until all work is done.
    pub(super) fn rage(&mut self, pace: Duration, mut fault: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let patience = self.patience()?;
        while self.is_at_work()? {
            // The pace of the faults; nothing is waited for. The first come soon, while there is work to be in the way of.
            let pace = if self.faults < FAULTS_MIN { pace.min(Duration::from_millis(50)) } else { pace };
            sleep(pace.mul_f64(0.5) + Duration::from_micros(self.below(pace.as_micros().try_into()?)));
            fault(self)?;
            self.faults += 1;
            ensure!(self.begun.elapsed() < patience, "the crew is never done");
        }
        ensure!(self.faults >= FAULTS_MIN, "the work was done before anything happened");
        Ok(())
    }

    fn is_at_work(&mut self) -> Result<bool> {
        for one in &mut self.crew {
            if !one.has_ended()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Kills whoever holds a name, and lets another do what was left for the one who was killed.
    pub(super) fn kill_holder(&mut self) -> Result<()> {
        for _ in 0..100 {
            let number = self.at_random()?;
            if self.crew[number].has_ended()? {
                continue;
            }
            self.crew[number].stop()?;
            if self.holds(number)? {
                return self.replace(number);
            }
            self.crew[number].resume()?;
        }
        Ok(())
    }

    /// Stops a process, if it is still at work, for so long.
    pub(super) fn stop_for(&mut self, number: usize, time: Duration) -> Result<()> {
        if self.crew[number].has_ended()? {
            return Ok(());
        }
        self.crew[number].stop()?;
        // How long the fault lasts.
        sleep(time);
        self.crew[number].resume()
    }

    /// Of a process that stands still.
    fn holds(&self, number: usize) -> Result<bool> {
        let label = self.crew[number].hand().to_string();
        for name in &self.orders.names {
            if self.site.look(name)?.holders().any(|holder| holder.note.label == label) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn replace(&mut self, number: usize) -> Result<()> {
        self.crew[number].kill_now()?;
        let dead = self.crew.remove(number).end()?;
        self.left[number] = self.left[number].saturating_sub(granted(&dead) as u64);
        self.told.extend(dead);
        self.crew.insert(number, self.one(number)?);
        Ok(())
    }

    pub(super) fn at_random(&mut self) -> Result<usize> {
        Ok(usize::try_from(self.below(self.crew.len() as u64))?)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    /// How long the crew may take for all.
    fn patience(&self) -> Result<Duration> {
        Ok(DEADLINE + PATIENCE_EACH * u32::try_from(self.cycles)?)
    }

    /// All that was told, after everybody has ended well and left nothing behind.
    pub(super) fn end(mut self) -> Result<Vec<Event>> {
        let patience = self.patience()?;
        for one in self.crew {
            let told = one.finish_within(patience)?;
            check::uses(&told)?;
            self.told.extend(told);
        }
        let (took, count) = (self.begun.elapsed(), granted(&self.told));
        println!("{count} acquisitions and {} faults in {took:.1?}", self.faults);
        ensure!(count as u64 == self.cycles, "{count} acquisitions, not {}", self.cycles);
        self.site.check_clean(&Orders { cycles: 1, ..self.orders })?;
        Ok(self.told)
    }
}

fn granted(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event.what, What::Granted { .. })).count()
}

/// Everything that the store promises while it keeps its data.
pub(super) fn check_all(events: &[Event]) -> Result<()> {
    println!("{} holds, and no overlap", check::all(events)?.len());
    Ok(())
}

/// What it promises even if the server forgets: tokens rise. Two may hold at once then; says how often they did.
pub(super) fn check_tokens(events: &[Event]) -> Result<usize> {
    let mut holds = holds(events)?;
    holds.sort_unstable_by_key(|hold| (hold.name, hold.granted));
    let mut overlaps = 0;
    for one_name in holds.chunk_by(|one, other| one.name == other.name) {
        check::tokens_over_loss(one_name).map_or(Ok(()), Err)?;
        overlaps += check::overlaps(one_name).count();
    }
    println!("{} holds, and {overlaps} overlaps", holds.len());
    Ok(overlaps)
}
