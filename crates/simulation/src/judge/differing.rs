//! The comparison of two lists of which mostly few elements differ: in one pass, without keys.

use std::ops::Range;

/// What is left of two lists without what both begin and end with.
pub(super) fn differing<A, B>(was: &[A], is: &[B], same: impl Fn(&A, &B) -> bool) -> (Range<usize>, Range<usize>) {
    let both = was.len().min(is.len());
    let from = (0..both).find(|at| !same(&was[*at], &is[*at])).unwrap_or(both);
    let left = both - from;
    let (was_end, is_end) = (was.len(), is.len());
    let equal = (1..=left).find(|back| !same(&was[was_end - back], &is[is_end - back])).map_or(left, |back| back - 1);
    (from..was_end - equal, from..is_end - equal)
}

#[cfg(test)]
mod tests {
    use super::differing;

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
}
