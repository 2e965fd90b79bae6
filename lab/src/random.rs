//! Random numbers that can be reproduced.

/// A small generator (splitmix64): the same seed gives the same numbers on every machine.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
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

    /// One of several values.
    ///
    /// # Panics
    /// Panics if there is none.
    pub fn chosen<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        let count = u64::try_from(values.len()).expect("they fit into memory");
        let number = self.below(count);
        &values[usize::try_from(number).expect("it is below their count")]
    }
}
