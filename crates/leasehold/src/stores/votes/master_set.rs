//! Sets of masters.

/// A set of masters; each is known by its index in the URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::stores) struct MasterSet(u32);

impl MasterSet {
    /// The most masters that one URL may name.
    pub(in crate::stores) const MAX: usize = 15;

    /// Returns the set of the masters with an index below `count`.
    pub(super) fn all(count: usize) -> Self {
        assert!(
            count <= Self::MAX,
            "the URL is checked for its number of masters"
        );
        Self((1 << count) - 1)
    }

    pub(super) fn insert(&mut self, at: usize) {
        self.0 |= bit(at);
    }

    pub(super) fn remove(&mut self, at: usize) {
        self.0 &= !bit(at);
    }

    pub(super) fn contains(self, at: usize) -> bool {
        self.0 & bit(at) != 0
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<usize> for MasterSet {
    fn from_iter<I: IntoIterator<Item = usize>>(masters: I) -> Self {
        let mut set = Self::default();
        for at in masters {
            set.insert(at);
        }
        set
    }
}

fn bit(at: usize) -> u32 {
    assert!(at < MasterSet::MAX, "a master has an index below MAX");
    1 << at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn master_set_holds_fifteen_masters() {
        let mut set = MasterSet::all(MasterSet::MAX);
        assert_eq!(set.len(), 15);
        assert!(set.contains(0) && set.contains(14));

        set.remove(14);
        assert_eq!(set, (0..14).collect());
        assert!(!set.contains(14) && !set.is_empty());
    }

    #[test]
    #[should_panic(expected = "index below MAX")]
    fn master_set_rejects_a_sixteenth_master() {
        MasterSet::default().insert(15);
    }
}
