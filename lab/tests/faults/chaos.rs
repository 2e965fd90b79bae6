//! Eight takers, of which one is killed at a random moment every fiftieth of a second or so and replaced.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::{Api, Event, Face, Orders, Random, Site, Work, check};

use crate::TAKER;

const TAKERS: usize = 8;
const LENGTH: Duration = Duration::from_secs(10);
/// Between two kills, at most.
const PAUSE_MAX_MICROS: u64 = 100_000;
/// Fewer holds would mean that the line stood still.
const HOLDS_MIN: usize = 1_000;

#[test]
fn chaos_among_mutexes() -> Result<()> {
    chaos("chaos_among_mutexes", &[Face::Mutex])
}

#[test]
fn chaos_among_readers_and_writers() -> Result<()> {
    chaos("chaos_among_readers_and_writers", &[Face::Reader, Face::Writer, Face::Reader])
}

#[test]
fn chaos_among_slots() -> Result<()> {
    chaos("chaos_among_slots", &[Face::Slots { take: 1, of: 3 }, Face::Slots { take: 2, of: 3 }])
}

/// Half of them do not wait for long, so that claims come and go in the middle of the line too.
#[test]
fn chaos_among_the_impatient() -> Result<()> {
    let impatient = |number: usize| (number % 4 < 2).then_some(300);
    chaos_with("chaos_among_the_impatient", |number| Orders {
        patience: impatient(number),
        ..orders(Face::Mutex, number)
    })
}

fn chaos(test: &str, faces: &[Face]) -> Result<()> {
    chaos_with(test, |number| orders(faces[number % faces.len()], number))
}

fn chaos_with(test: &str, orders: impl Fn(usize) -> Orders) -> Result<()> {
    let mut random = Random::announced(test);
    let site = Site::new(TAKER)?;
    let start = |number: usize| site.start_quiet(orders(number));
    let mut takers = (0..TAKERS).map(start).collect::<Result<Vec<_>>>()?;
    let (mut dead, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < LENGTH {
        // The pace of the faults; nothing is waited for.
        sleep(Duration::from_micros(random.below(PAUSE_MAX_MICROS)));
        let victim = usize::try_from(random.below(TAKERS as u64))?;
        takers[victim].kill_now()?;
        dead.push(std::mem::replace(&mut takers[victim], start(victim)?));
    }
    let kills = dead.len();
    takers.iter_mut().try_for_each(|taker| taker.kill_now().map(drop))?;
    dead.extend(takers);
    let mut events: Vec<Event> = Vec::new();
    for process in dead {
        events.extend(process.end()?);
    }
    let holds = check::all(&events)?;
    println!("{} holds, {kills} kills", holds.len());
    ensure!(holds.len() >= HOLDS_MIN, "only {} holds", holds.len());
    check_usable(&site, orders(0).face)?;
    site.check_clean(&["a".to_owned(), "b".to_owned()])
}

fn orders(face: Face, number: usize) -> Orders {
    let api = if number.is_multiple_of(2) { Api::Async } else { Api::Blocking };
    let names = vec!["a".to_owned(), "b".to_owned()];
    Orders { names, face, api, cycles: u64::MAX, work: Work::Micros(200), ..Orders::default() }
}

/// After all that, a newcomer is granted.
fn check_usable(site: &Site, face: Face) -> Result<()> {
    for name in ["a", "b"] {
        let orders = Orders { names: vec![name.to_owned()], face, ..Orders::default() };
        site.start(orders)?.finish()?;
    }
    Ok(())
}
