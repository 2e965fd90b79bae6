//! What the hands did that wanted one lock.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::client::Client;
use crate::figures::count;
use crate::peers::nanos;
use crate::task::Task;

/// How a lock is fought for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contest {
    /// How many hands each process has.
    pub(crate) hands: usize,
    pub(crate) hold: Duration,
    pub(crate) think: Duration,
    pub(crate) lasts: Duration,
}

impl Contest {
    /// Has several processes fight for it. All that counts happens after the first tenth.
    pub(crate) fn run(self, clients: &mut [Client]) -> Result<Turns> {
        let begun = lab::now();
        let until = begun + nanos(self.lasts);
        let [hold_micros, think_micros] = [self.hold, self.think].map(|pause| nanos(pause) / 1_000);
        for client in clients.iter_mut() {
            client.begin(&Task::Contend { hands: self.hands, hold_micros, think_micros, until })?;
        }
        let answers = clients.iter_mut().map(Client::end).collect::<Result<Option<Vec<_>>>>()?;
        Turns::of(&answers.context("every peer knows contests")?, begun + nanos(self.lasts / 10), until)
    }
}

/// One turn of one hand: three moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Which process.
    pub(crate) client: usize,
    pub(crate) asked: u64,
    pub(crate) granted: u64,
    pub(crate) releasing: u64,
}

/// All turns of a contest, in the order of their grants.
#[derive(Debug)]
pub(crate) struct Turns {
    all: Vec<Turn>,
    /// The time in which all were there: from some time after the beginning until nobody asks any more.
    from: u64,
    until: u64,
}

impl Turns {
    /// Of the answers of several processes to one task.
    pub(crate) fn of(answers: &[Vec<u64>], from: u64, until: u64) -> Result<Self> {
        let mut turns = Vec::new();
        for (client, answer) in answers.iter().enumerate() {
            let turn = |times: &[u64]| Turn { client, asked: times[0], granted: times[1], releasing: times[2] };
            turns.extend(answer.chunks_exact(3).map(turn));
        }
        turns.sort_unstable_by_key(|turn| turn.granted);
        let overlap = turns.windows(2).find(|two| two[1].granted < two[0].releasing);
        ensure!(overlap.is_none(), "two held at once: {overlap:?}");
        Ok(Self { all: turns, from, until })
    }

    /// All acquisitions, also those at the beginning and the end.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Acquisitions in a millisecond.
    pub(crate) fn rate(&self) -> f64 {
        let inside = self.all.iter().filter(|turn| turn.granted >= self.from && turn.granted <= self.until).count();
        count(inside) / Duration::from_nanos(self.until - self.from).as_secs_f64() / 1e3
    }

    /// From a release that begins to the grant that follows in another process.
    pub(crate) fn hand_overs_across(&self) -> Vec<u64> {
        self.neighbours().filter(|(a, b)| a.client != b.client).map(idle).collect()
    }

    /// How long each waited.
    pub(crate) fn waits(&self) -> Vec<u64> {
        let inside = self.all.iter().filter(|turn| turn.asked >= self.from && turn.granted <= self.until);
        inside.map(|turn| turn.granted - turn.asked).collect()
    }

    /// How long nobody held, per hand-over.
    pub(crate) fn idle_times(&self) -> Vec<u64> {
        self.neighbours().map(idle).collect()
    }

    fn neighbours(&self) -> impl Iterator<Item = (&Turn, &Turn)> {
        let inside = |turn: &Turn| turn.releasing >= self.from && turn.releasing <= self.until;
        self.all.windows(2).map(|two| (&two[0], &two[1])).filter(move |(a, _)| inside(a))
    }
}

/// How long nobody held between two.
fn idle((before, after): (&Turn, &Turn)) -> u64 {
    after.granted - before.releasing
}
