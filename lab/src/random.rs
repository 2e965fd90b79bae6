//! Random numbers that can be reproduced.

/// A small generator (splitmix64): the same seed gives the same numbers on every machine.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with the seed in `LAB_SEED`, or with a new one. It prints the seed and the
    /// command that repeats the test.
    #[must_use]
    pub fn announced(test: &str) -> Self {
        let seed = std::env::var("LAB_SEED").map_or_else(
            |_| crate::now(),
            |seed| seed.parse().expect("a whole number"),
        );
        println!(
            "seed {seed}; repeat with: LAB_SEED={seed} cargo test -p lab {test} -- --nocapture"
        );
        Self(seed)
    }

    /// A generator of this seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let first = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (first ^ (first >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }
}
