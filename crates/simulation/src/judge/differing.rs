//! The comparison of two lists of which mostly few elements differ: in one pass, without keys.

use std::ops::Range;

use model::shared::Shared;

/// What is left of two lists without what both begin and end with.
pub(super) fn differing<A, B>(was: &[A], is: &[B], same: impl Fn(&A, &B) -> bool) -> (Range<usize>, Range<usize>) {
    let both = was.len().min(is.len());
    let from = (0..both).find(|at| !same(&was[*at], &is[*at])).unwrap_or(both);
    let left = both - from;
    let (was_end, is_end) = (was.len(), is.len());
    let equal = (1..=left).find(|back| !same(&was[was_end - back], &is[is_end - back])).map_or(left, |back| back - 1);
    (from..was_end - equal, from..is_end - equal)
}

/// The same within these parts of the lists, of which the rest is equal.
pub(super) fn differing_within<A, B>(
    was: &[A],
    of_was: Range<usize>,
    is: &[B],
    of_is: Range<usize>,
    same: impl Fn(&A, &B) -> bool,
) -> (Range<usize>, Range<usize>) {
    let (was, is) = differing(&was[of_was.clone()], &is[of_is.clone()], same);
    (of_was.start + was.start..of_was.start + was.end, of_is.start + is.start..of_is.start + is.end)
}

/// What was touched since a list was read: what is left of both without the rows that both begin and end with. Reads it again.
pub(super) fn touched<T>(read: &mut Vec<Shared<T>>, now: &[Shared<T>]) -> (Range<usize>, Range<usize>) {
    let (was, is) = differing(read, now, Shared::is_same);
    read.splice(was.clone(), now[is.clone()].iter().cloned());
    (was, is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_differ_in_what_was_changed_inserted_or_removed() {
        let of = |was: &[u8], is: &[u8]| differing(was, is, |was, is| was == is);
        assert_eq!(of(&[1, 2, 3], &[1, 2, 3]), (3..3, 3..3));
        assert_eq!(of(&[1, 2, 3], &[1, 4, 3]), (1..2, 1..2));
        assert_eq!(of(&[1, 2, 3], &[1, 3]), (1..2, 1..1));
        assert_eq!(of(&[1, 3], &[1, 2, 3, 4]), (1..2, 1..4));
        assert_eq!(of(&[1, 1], &[1, 1, 1]), (2..2, 2..3));
        assert_eq!(of(&[], &[5]), (0..0, 0..1));
    }

    #[test]
    fn rows_that_were_not_touched_are_known_by_their_address() {
        let row = |content: u8| Shared::from(content);
        let mut read = vec![row(1), row(2), row(3)];
        let mut now = read.clone();
        assert_eq!(touched(&mut read, &now), (3..3, 3..3));
        *now[1] = 2;
        assert_eq!(touched(&mut read, &now), (1..2, 1..2), "written again with the same content");
        now.insert(1, row(4));
        assert_eq!(touched(&mut read, &now), (1..1, 1..2));
        assert_eq!(touched(&mut read, &now), (4..4, 4..4));
        let of = |was: &[u8], is: &[u8]| differing_within(was, 1..was.len(), is, 1..is.len(), |was, is| was == is);
        assert_eq!(of(&[9, 1, 2, 3], &[9, 1, 4, 3]), (2..3, 2..3));
        assert_eq!(of(&[9, 1], &[9, 1]), (2..2, 2..2));
    }
}
