//! What became of the items of a list since it was last read.
//!
//! Lists of thousands of items come again in every tick, nearly always with nothing new in them, so the comparison that finds
//! nothing is the one that has to be quick: items are compared place by place. Only from the first item on that came or went
//! are they looked up by their keys. No order is asked of a list.

use std::collections::HashMap;
use std::hash::Hash;

/// Where an item was, where it is, and whether it is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    Same(usize, usize),
    Changed(usize, usize),
    Gone(usize),
    New(usize),
}

/// Tells of each item of both lists. Items of one key may be told as gone and new though they only changed: what is said to
/// be the same is.
pub(crate) fn align<'a, T: PartialEq, K: Eq + Hash>(
    old: &'a [T],
    new: &'a [T],
    key: impl Fn(&'a T) -> K,
    mut tell: impl FnMut(Item),
) {
    let least = old.len().min(new.len());
    let mut at = 0;
    while at < least {
        if old[at] == new[at] {
            tell(Item::Same(at, at));
        } else if key(&old[at]) == key(&new[at]) {
            tell(Item::Changed(at, at));
        } else {
            break;
        }
        at += 1;
    }
    let (mut old_end, mut new_end) = (old.len(), new.len());
    while old_end > at && new_end > at && old[old_end - 1] == new[new_end - 1] {
        (old_end, new_end) = (old_end - 1, new_end - 1);
        tell(Item::Same(old_end, new_end));
    }
    let mut places = HashMap::new();
    for (was, item) in old.iter().enumerate().take(old_end).skip(at) {
        if let Some(before) = places.insert(key(item), was) {
            tell(Item::Gone(before));
        }
    }
    for (is, item) in new.iter().enumerate().take(new_end).skip(at) {
        tell(match places.remove(&key(item)) {
            Some(was) if old[was] == *item => Item::Same(was, is),
            Some(was) => Item::Changed(was, is),
            None => Item::New(is),
        });
    }
    for was in places.into_values() {
        tell(Item::Gone(was));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    type Keyed = (u8, u8);

    fn told(old: &[Keyed], new: &[Keyed]) -> Vec<Item> {
        let mut told = Vec::new();
        align(old, new, |it| it.0, |item| told.push(item));
        told
    }

    #[test]
    fn what_is_in_its_place_needs_no_key() {
        assert_eq!(told(&[(1, 0), (2, 0)], &[(1, 0), (2, 1)]), [Item::Same(0, 0), Item::Changed(1, 1)]);
        assert_eq!(
            told(&[(1, 0), (3, 0)], &[(1, 0), (2, 0), (3, 0)]),
            [Item::Same(0, 0), Item::Same(1, 2), Item::New(1)]
        );
        assert_eq!(told(&[(1, 0), (2, 0)], &[(2, 0), (1, 0)]), [Item::Same(1, 0), Item::Same(0, 1)]);
    }

    proptest! {
        #[test]
        fn every_item_is_told_once_and_none_is_called_the_same_that_is_not(
            old in proptest::collection::vec((0..6_u8, 0..3_u8), 0..12),
            new in proptest::collection::vec((0..6_u8, 0..3_u8), 0..12),
        ) {
            let (mut olds, mut news) = (vec![0; old.len()], vec![0; new.len()]);
            for item in told(&old, &new) {
                let (was, is) = match item {
                    Item::Same(was, is) => {
                        prop_assert_eq!(old[was], new[is]);
                        (Some(was), Some(is))
                    }
                    Item::Changed(was, is) => {
                        prop_assert!(old[was] != new[is] && old[was].0 == new[is].0);
                        (Some(was), Some(is))
                    }
                    Item::Gone(was) => (Some(was), None),
                    Item::New(is) => (None, Some(is)),
                };
                if let Some(was) = was {
                    olds[was] += 1;
                }
                if let Some(is) = is {
                    news[is] += 1;
                }
            }
            prop_assert!(olds.into_iter().chain(news).all(|it| it == 1));
        }
    }
}
