//! How long an injection lasts, and whose connections it disturbs.

use std::time::Duration;

use crate::Random;

/// The length and the target of one injection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How long the fault lasts.
    pub length: Duration,
    /// Whose connections a fault of the network disturbs.
    pub target: Target,
}

/// Whose connections a fault of the network disturbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Those of the long holder, to all servers.
    Holder,
    /// Those of all other workers, to the servers that may fail.
    Others,
    /// Those of all workers, to the servers that may fail.
    Everyone,
}

/// In leases: each length occurs once in three injections.
const LENGTHS: [f64; 3] = [0.5, 1.0, 2.0];
/// The targets for each length. In each row, a fault of a lease or longer disturbs the holder
/// alone, so that its hold is lost while others can be granted.
const TARGETS: [[Target; 3]; 3] = [
    [Target::Others, Target::Holder, Target::Everyone],
    [Target::Everyone, Target::Others, Target::Holder],
    [Target::Holder, Target::Everyone, Target::Holder],
];

impl Plan {
    /// The plan of an injection after a number of effects. The seed decides with which length a run
    /// begins, and which target each length has.
    #[must_use]
    pub fn of(seed: u64, effects: usize, lease: Duration) -> Self {
        let begin = usize::try_from(seed % 3).expect("a few");
        let row = usize::try_from(seed / 3 % 3).expect("a few");

        let column = (begin + effects) % LENGTHS.len();
        Self::at((row + effects / 3) % TARGETS.len(), column, lease)
    }

    /// A plan for one of several faults in a row.
    #[must_use]
    pub fn drawn(random: &mut Random, lease: Duration) -> Self {
        let mut below = |count: usize| {
            let drawn = random.below(count as u64);
            usize::try_from(drawn).expect("a few")
        };

        Self::at(below(TARGETS.len()), below(LENGTHS.len()), lease)
    }

    fn at(row: usize, column: usize, lease: Duration) -> Self {
        Self {
            length: lease.mul_f64(LENGTHS[column]),
            target: TARGETS[row][column],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(2);

    #[test]
    fn three_injections_have_every_length_and_cut_off_the_holder_for_a_lease() {
        for seed in 0..9 {
            let plans = [0, 1, 2].map(|effects| Plan::of(seed, effects, LEASE));
            let mut lengths = plans.map(|plan| plan.length);
            lengths.sort();
            assert_eq!(lengths, [LEASE / 2, LEASE, LEASE * 2]);

            let is_long = |plan: &Plan| plan.target == Target::Holder && plan.length >= LEASE;
            assert!(plans.iter().any(is_long), "seed {seed}: {plans:?}");
        }
    }

    #[test]
    fn seed_decides_the_plans() {
        let plans = |seed| [0, 1, 2].map(|effects| Plan::of(seed, effects, LEASE));

        assert_eq!(plans(4), plans(4));
        assert_ne!(plans(4), plans(5));
        assert_ne!(plans(0), plans(3));
    }
}
