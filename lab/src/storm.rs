//! Eight processes at work on a store, and somebody who is in their way.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::faults::{Fault, Needs};
use crate::ground::{Ground, Store};
use crate::onlooker::{Onlooker, Saw};
use crate::{
    Api, DEADLINE, Event, Face, Look, Orders, Process, Random, Trouble, What, Work, bystander, check, hostile, now,
    until,
};

pub(crate) const PROCESSES: usize = 8;
const NAMES: [&str; 3] = ["a", "b", "c"];
/// The last is for several at once, where the store has that; the others are mutexes.
const SHARED: usize = 2;
/// A fault that has no effect so often in a row is none.
const MISSES_MAX: usize = 20;
/// Which of them acquires again what it holds, and which have two hands.
const NESTS: usize = 2;
const PAIRS: [usize; 2] = [3, 4];
/// Between two faults, at least and at most.
const PAUSE_MILLIS: (u64, u64) = (100, 500);

/// For longer than a third of a lease: who has lost it meanwhile hears of it.
const LONG_HOLD_MICROS: u64 = 600_000;

/// What the crew is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crew {
    /// Most wait for ever.
    Patient,
    /// As patient, and one holds for so long that it hears of what it has lost.
    Steady,
    /// Nobody waits for ever.
    Impatient,
}

/// What came of one fault.
#[derive(Clone, Debug)]
pub struct Struck {
    /// From when on it was there in full.
    pub since: u64,
    /// Until when it was.
    pub until: u64,
    /// When all was as before: servers need a while to serve again.
    pub over: u64,
    /// What showed that it had an effect.
    pub seen: String,
}

/// A fault that was tried, and what came of it.
#[derive(Clone, Debug)]
pub struct Strike {
    /// When it began.
    pub at: u64,
    /// What came of it; `None` if it had no effect.
    pub struck: Option<Struck>,
    /// How long after its end the last of the names was granted again.
    pub recovery: Duration,
}

impl Strike {
    /// From when on until all names were granted again.
    #[must_use]
    pub fn trouble(&self) -> check::Span {
        let over = self.struck.as_ref().map_or(self.at, |struck| struck.over);
        (self.at, over.saturating_add(u64::try_from(self.recovery.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A store, a crew that works on it, and what has been told so far.
#[derive(Debug)]
pub struct Storm {
    /// What is treated badly.
    pub ground: Ground,
    /// Those who take locks.
    pub crew: Vec<Process>,
    /// On which terms.
    pub terms: Orders,
    /// All that was tried.
    pub strikes: Vec<Strike>,
    /// How long each hand waits at most, if not for ever.
    pub patience: HashMap<u32, Duration>,
    told: Vec<Event>,
    /// How many microseconds the one who holds for long does so.
    longest: u64,
    end: PathBuf,
    onlooker: Onlooker,
    /// The seed of all choices.
    pub seed: u64,
    begun: u64,
}

/// Everything that is known in the end.
#[derive(Debug)]
pub struct Passed {
    /// Where it happened.
    pub ground: Ground,
    /// What was told.
    pub told: Vec<Event>,
    /// What was tried.
    pub strikes: Vec<Strike>,
    /// How long each hand waited at most, if not for ever.
    pub patience: HashMap<u32, Duration>,
    /// Who was seen in line.
    pub looks: Vec<Look>,
    /// How often somebody tried in vain to renew and release what is not his.
    pub meddled: usize,
    /// How much was gone of what somebody else had beside the locks.
    pub gone: usize,
    /// From when to when.
    pub time: (u64, u64),
}

impl Storm {
    /// A crew at work.
    ///
    /// # Errors
    /// If it does not begin to work.
    pub fn begin(ground: Ground, seed: u64, trouble: Trouble, crew: Crew) -> Result<Self> {
        let end = ground.note();
        let terms = Orders {
            names: names(ground.needs, seed),
            trouble,
            cycles: u64::MAX,
            until: Some(end.display().to_string()),
            patience: (crew == Crew::Impatient).then_some(700_000),
            // Each connection to a server is a descriptor and a task, and there are two.
            spare: 2 + 2 * ground.count(),
            ..ground.terms()
        };
        let longest = if crew == Crew::Steady { LONG_HOLD_MICROS } else { 40_000 };
        bystander::plant(&ground)?;
        let onlooker = Onlooker::begin(ground.url(), terms.names.clone());
        let (crew, strikes, patience, told) = Default::default();
        let mut storm =
            Self { ground, crew, terms, longest, strikes, patience, told, end, onlooker, seed, begun: now() };
        storm.terms.faces = storm.faces(0);
        for number in 0..PROCESSES {
            let one = storm.one(number)?;
            storm.crew.push(one);
        }
        storm.all_at_work()?;
        Ok(storm)
    }

    /// Opening a store fails where the server cannot be reached; what is open endures it.
    fn all_at_work(&mut self) -> Result<()> {
        let crew = &mut self.crew;
        until("the crew to be at work", || {
            for one in crew.iter_mut() {
                ensure!(!one.has_ended()?, "hand {} has ended", one.hand());
                if !one.has_told()? {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
    }

    /// Both faces of the library; one that holds for long, one that holds for no time, one that acquires again what it holds, two
    /// with two hands on one handle, and two that soon give up.
    fn one(&mut self, number: usize) -> Result<Process> {
        let micros = match number {
            0 => self.longest,
            7 => 0,
            _ => 1_000,
        };
        let orders = Orders {
            api: if number.is_multiple_of(2) { Api::Async } else { Api::Blocking },
            work: if micros == 0 { Work::Nothing } else { Work::Watched(micros) },
            patience: self.terms.patience.or((number == 5 || number == 6).then_some(25_000)),
            environment: self.ground.environment(number),
            faces: self.faces(number),
            names: if number == NESTS { self.terms.names[..SHARED].to_vec() } else { self.terms.names.clone() },
            nests: if number == NESTS { 3 } else { 0 },
            hands: if PAIRS.contains(&number) { 2 } else { 1 },
            ..self.terms.clone()
        };
        let (patience, hands) = (orders.patience.map(Duration::from_micros), orders.hands);
        let one = self.ground.start_quiet(orders)?;
        let hands = one.hand()..one.hand() + hands;
        self.patience.extend(hands.filter_map(|hand| Some((hand, patience?))));
        Ok(one)
    }

    /// By the seed the last name is a reader-writer lock that one of four writes, or a semaphore with two slots, of which one of
    /// four takes both.
    fn faces(&self, number: usize) -> HashMap<String, Face> {
        if !self.ground.locks().promises().shares {
            return HashMap::new();
        }
        let is_whole = number % 4 == 1;
        let face = match (self.seed.is_multiple_of(2), is_whole) {
            (true, true) => Face::Writer,
            (true, false) => Face::Reader,
            (false, _) => Face::Slots { take: 1 + u32::from(is_whole), of: 2 },
        };
        HashMap::from([(self.terms.names[SHARED].clone(), face)])
    }

    /// Does `fault` again and again, each time when all names have been granted again since the last; until the time is over
    /// and it has had an effect often enough.
    ///
    /// # Errors
    /// If a name is not granted again within `bound`, or the fault has no effect.
    pub fn rage(&mut self, fault: &Fault, time: Duration, bound: Duration) -> Result<()> {
        let begun = Instant::now();
        let mut misses = 0;
        while begun.elapsed() < time || self.hits() < fault.least {
            // Each draws of its own, so that one that took another course changes none that follow.
            let mut random = Random::seeded(self.seed ^ (self.strikes.len() as u64 + 1) << 32);
            let (least, most) = PAUSE_MILLIS;
            // The pace of the faults; nothing is waited for.
            sleep(Duration::from_millis(least + random.below(most - least)));
            self.all_at_work()?;
            let at = now();
            let struck = (fault.strike)(self, &mut random)?;
            let recovery = self.recovery(struck.as_ref().map_or_else(now, |struck| struck.over), bound)?;
            misses = if struck.is_some() { 0 } else { misses + 1 };
            self.strikes.push(Strike { at, struck, recovery });
            ensure!(misses < MISSES_MAX, "{misses} times in a row the fault had no effect");
        }
        Ok(())
    }

    fn hits(&self) -> usize {
        self.strikes.iter().filter(|strike| strike.struck.is_some()).count()
    }

    /// How long after `since` the last of the names was granted.
    fn recovery(&mut self, since: u64, bound: Duration) -> Result<Duration> {
        let mut recovery = check::Recovery::of(self.terms.names.len(), since);
        for one in &mut self.crew {
            // What was told before this was asked concerns it too.
            one.all()?.iter().for_each(|event| recovery.hear(event));
        }
        loop {
            if let Some(took) = recovery.took() {
                return Ok(took);
            }
            let waited = Duration::from_nanos(now().saturating_sub(since));
            let missing = recovery.missing().map(|name| &*self.terms.names[name]).collect::<Vec<_>>();
            ensure!(waited < bound, "for {waited:.1?} after the fault {missing:?} was not granted");
            sleep(Duration::from_millis(2));
            for one in &mut self.crew {
                one.news()?.iter().for_each(|event| recovery.hear(event));
            }
        }
    }

    /// The store's lease.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.ground.store.lease()
    }

    /// Some of the servers: a minority of the masters or the ensemble, or the only one.
    #[must_use]
    pub fn some(&self, random: &mut Random) -> Vec<usize> {
        let (count, how_many) = match self.ground.store {
            Store::Redlock => (5, 2),
            Store::Ensemble => (3, 1),
            _ => (self.ground.count(), 1),
        };
        pick(random, count, how_many)
    }

    /// A majority of the servers.
    #[must_use]
    pub fn most(&self, random: &mut Random) -> Vec<usize> {
        let count = self.ground.count();
        pick(random, count, count / 2 + 1)
    }

    /// Stops one of the crew whose last word says that it holds, or waits; which. It stands still then.
    ///
    /// # Errors
    /// As the system says.
    pub fn catch(&mut self, random: &mut Random, wanted: fn(&What) -> bool) -> Result<Option<usize>> {
        for _ in 0..500 {
            let number = usize::try_from(random.below(PROCESSES as u64))?;
            self.crew[number].stop()?;
            let last = self.crew[number].last()?;
            if last.is_some_and(|event| wanted(&event.what)) {
                return Ok(Some(number));
            }
            self.crew[number].resume()?;
            sleep(Duration::from_micros(200 + random.below(1_000)));
        }
        Ok(None)
    }

    /// Kills one of the crew, and puts another in its place; when that was.
    ///
    /// # Errors
    /// If it was dead.
    pub fn replace(&mut self, number: usize) -> Result<u64> {
        let killed = self.crew[number].kill_now()?;
        let another = self.one(number)?;
        let dead = std::mem::replace(&mut self.crew[number], another);
        self.told.extend(dead.end()?);
        Ok(killed)
    }

    /// Takes in what somebody told who is none of the crew.
    pub fn hear_of(&mut self, told: Vec<Event>) {
        self.told.extend(told);
    }

    /// How often the crew has told something of this kind after `since`.
    ///
    /// # Errors
    /// If what they tell makes no sense.
    pub fn told_since(&mut self, since: u64, wanted: fn(&What) -> bool) -> Result<usize> {
        let mut count = 0;
        for one in &mut self.crew {
            count += one.all()?.iter().filter(|event| event.at > since && wanted(&event.what)).count();
        }
        Ok(count)
    }

    /// All that is known, after everybody has ended well and left nothing behind.
    ///
    /// # Errors
    /// If somebody has not, or anything is left.
    pub fn end(mut self) -> Result<Passed> {
        self.ground.is_whole()?;
        fs::write(&self.end, "")?;
        let end = now();
        for one in self.crew {
            let told = one.finish_within(DEADLINE).context("in the end")?;
            check::uses_but(&told, self.terms.spare)?;
            self.told.extend(told);
        }
        let Saw { looks, meddled } = self.onlooker.end()?;
        let gone = bystander::take(&self.ground)?;
        let last = Orders { cycles: 1, until: None, halt: None, patience: None, ..self.terms };
        self.ground.check_clean(&last).context("in the end")?;
        let Self { ground, told, strikes, patience, begun, .. } = self;
        Ok(Passed { ground, told, strikes, patience, looks, meddled, gone, time: (begun, end) })
    }
}

fn names(needs: Needs, seed: u64) -> Vec<String> {
    if needs == Needs::HostileNames { hostile::three(seed) } else { NAMES.map(str::to_owned).to_vec() }
}

/// So many different numbers below `count`.
fn pick(random: &mut Random, count: usize, how_many: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..count).collect();
    let draw = |_| left.swap_remove(usize::try_from(random.below(left.len() as u64)).expect("a few"));
    (0..how_many.min(count)).map(draw).collect()
}
