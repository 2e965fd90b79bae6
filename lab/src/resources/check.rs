//! The violations that a journal can show.

use std::collections::{HashMap, HashSet};

use super::{Op, OpKind};

/// Finds a violation of fencing: the accepted operations must form one block per token, and tokens
/// must rise. Returns the first operation that was accepted after one with a higher token, or with
/// the token of another holder, and the operation before it.
///
/// Shows S5.
#[must_use]
pub fn regress(ops: &[Op]) -> Option<(Op, Op)> {
    let wrong = |two: &&[Op]| {
        two[1].token < two[0].token
            || (two[1].token == two[0].token && two[1].worker != two[0].worker)
    };
    ops.windows(2).find(wrong).map(|two| (two[0], two[1]))
}

/// The number of entries that were appended twice.
#[must_use]
pub fn duplicates(ops: &[Op]) -> usize {
    let mut seen = HashSet::new();
    let appended = ops
        .iter()
        .filter(|op| matches!(op.kind, OpKind::Appended(_)));
    appended
        .filter(|op| !seen.insert((op.worker, op.did_number())))
        .count()
}

/// The number of writes that were lost: another holder read the number before such a write and
/// wrote its own after it.
#[must_use]
pub fn lost_updates(ops: &[Op]) -> usize {
    let mut read_at: HashMap<u32, usize> = HashMap::new();
    let mut lost = HashSet::new();
    for (at, op) in ops.iter().enumerate() {
        match op.kind {
            OpKind::Read(_) => drop(read_at.insert(op.worker, at)),
            OpKind::Wrote(_) => {
                let since = read_at.get(&op.worker).copied().unwrap_or(at);
                let between = ops.iter().enumerate().take(at).skip(since);
                let others = between.filter(|(_, other)| {
                    other.worker != op.worker && matches!(other.kind, OpKind::Wrote(_))
                });
                lost.extend(others.map(|(at, _)| at));
            }
            OpKind::Appended(_) => {}
        }
    }

    lost.len()
}

impl Op {
    fn did_number(&self) -> u64 {
        match self.kind {
            OpKind::Read(number) | OpKind::Wrote(number) | OpKind::Appended(number) => number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FencingRule, accepts};
    use super::*;

    fn ops(lines: &[&str]) -> Vec<Op> {
        lines.iter().map(|line| line.parse().unwrap()).collect()
    }

    #[test]
    fn sealed_resource_rejects_equal_token_of_another_holder() {
        let sealed = ops(&["1 7 read 0"]);
        let [same, other, larger] =
            ["1 7 wrote 1", "2 7 wrote 1", "2 8 wrote 1"].map(|line| line.parse().unwrap());
        assert!(accepts(FencingRule::Sealed, &sealed, same));
        assert!(!accepts(FencingRule::Sealed, &sealed, other));
        assert!(
            accepts(FencingRule::Checked, &sealed, other),
            "a token alone does not distinguish two holders"
        );
        assert!(accepts(FencingRule::Sealed, &sealed, larger));
    }

    /// Tries all orders in which two holders can read and write once each, with each rule. Tokens
    /// that are checked only at writes lose updates; a seal loses none.
    #[test]
    fn sealed_resource_loses_no_read_modify_write() {
        let lost = |rule| {
            orders(rule)
                .iter()
                .map(|ops| lost_updates(ops))
                .sum::<usize>()
        };
        assert_eq!(
            (
                lost(FencingRule::Unfenced),
                lost(FencingRule::Checked),
                lost(FencingRule::Sealed)
            ),
            (4, 2, 0)
        );

        assert!(
            orders(FencingRule::Sealed)
                .iter()
                .all(|ops| regress(ops).is_none())
        );
    }

    /// The accepted operations in each of the six orders of R1 W1 R2 W2. A holder whose read was
    /// rejected does not write.
    fn orders(rule: FencingRule) -> Vec<Vec<Op>> {
        let order = |bits: u32| -> Vec<Op> {
            let mut done = [0, 0];
            let mut number: [Option<u64>; 2] = [None, None];
            let mut ops: Vec<Op> = Vec::new();
            for step in 0..4 {
                let holder = usize::from(bits & (1 << step) != 0);
                let worker = u32::try_from(holder).unwrap();
                let token = 7 + holder as u64;
                let kind = match (done[holder], number[holder]) {
                    (0, _) => OpKind::Read(super::super::number(&ops)),
                    (_, Some(number)) => OpKind::Wrote(number + 1),
                    (_, None) => continue,
                };
                done[holder] += 1;
                let op = Op {
                    worker,
                    token,
                    kind,
                };
                if accepts(rule, &ops, op) {
                    if let OpKind::Read(found) = kind {
                        number[holder] = Some(found);
                    }
                    ops.push(op);
                }
            }
            ops
        };

        (0..16_u32)
            .filter(|bits| bits.count_ones() == 2)
            .map(order)
            .collect()
    }
}
