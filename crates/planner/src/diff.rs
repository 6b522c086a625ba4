//! The difference of two versions of a list.
//!
//! Lists of thousands of items are read again in every tick, nearly always unchanged, so the common case must be fast:
//! items are compared by position, and looked up by key only from the first inserted or removed item on. Lists need no
//! order.

use std::collections::HashMap;
use std::hash::Hash;

/// An item's old and new position, and whether it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Diff {
    Same(usize, usize),
    Changed(usize, usize),
    Gone(usize),
    New(usize),
}

/// Passes every item of both lists to `visit` once. Items with equal keys may be reported as gone and new although they only
/// changed; an item reported as the same is equal.
pub(crate) fn diff<'a, T: PartialEq, K: Eq + Hash>(
    old: &'a [T],
    new: &'a [T],
    key: impl Fn(&'a T) -> K,
    mut visit: impl FnMut(Diff),
) {
    let least = old.len().min(new.len());
    let mut at = 0;
    while at < least {
        if old[at] == new[at] {
            visit(Diff::Same(at, at));
        } else if key(&old[at]) == key(&new[at]) {
            visit(Diff::Changed(at, at));
        } else {
            break;
        }
        at += 1;
    }
    let (mut old_end, mut new_end) = (old.len(), new.len());
    while old_end > at && new_end > at && old[old_end - 1] == new[new_end - 1] {
        (old_end, new_end) = (old_end - 1, new_end - 1);
        visit(Diff::Same(old_end, new_end));
    }
    let mut positions = HashMap::new();
    for (was, item) in old.iter().enumerate().take(old_end).skip(at) {
        if let Some(before) = positions.insert(key(item), was) {
            visit(Diff::Gone(before));
        }
    }
    for (is, item) in new.iter().enumerate().take(new_end).skip(at) {
        visit(match positions.remove(&key(item)) {
            Some(was) if old[was] == *item => Diff::Same(was, is),
            Some(was) => Diff::Changed(was, is),
            None => Diff::New(is),
        });
    }
    for was in positions.into_values() {
        visit(Diff::Gone(was));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    type Keyed = (u8, u8);

    fn diffs(old: &[Keyed], new: &[Keyed]) -> Vec<Diff> {
        let mut diffs = Vec::new();
        diff(old, new, |item| item.0, |item| diffs.push(item));
        diffs
    }

    #[test]
    fn items_at_their_position_need_no_key() {
        assert_eq!(diffs(&[(1, 0), (2, 0)], &[(1, 0), (2, 1)]), [Diff::Same(0, 0), Diff::Changed(1, 1)]);
        assert_eq!(
            diffs(&[(1, 0), (3, 0)], &[(1, 0), (2, 0), (3, 0)]),
            [Diff::Same(0, 0), Diff::Same(1, 2), Diff::New(1)]
        );
        assert_eq!(diffs(&[(1, 0), (2, 0)], &[(2, 0), (1, 0)]), [Diff::Same(1, 0), Diff::Same(0, 1)]);
    }

    proptest! {
        #[test]
        fn every_item_is_visited_once_and_same_means_equal(
            old in proptest::collection::vec((0..6_u8, 0..3_u8), 0..12),
            new in proptest::collection::vec((0..6_u8, 0..3_u8), 0..12),
        ) {
            let (mut olds, mut news) = (vec![0; old.len()], vec![0; new.len()]);
            for item in diffs(&old, &new) {
                let (was, is) = match item {
                    Diff::Same(was, is) => {
                        prop_assert_eq!(old[was], new[is]);
                        (Some(was), Some(is))
                    }
                    Diff::Changed(was, is) => {
                        prop_assert!(old[was] != new[is] && old[was].0 == new[is].0);
                        (Some(was), Some(is))
                    }
                    Diff::Gone(was) => (Some(was), None),
                    Diff::New(is) => (None, Some(is)),
                };
                if let Some(was) = was {
                    olds[was] += 1;
                }
                if let Some(is) = is {
                    news[is] += 1;
                }
            }
            prop_assert!(olds.into_iter().chain(news).all(|visits| visits == 1));
        }
    }
}
