//! The skipping of consecutive strings: most of every result, and so most of the time of a scan.
//!
//! Where a string begins is known from the length of the one before, so that a processor waits for each length in turn. In a run of
//! strings of one length, as columns of dates, codes and names often have, it need not: lengths are compared with the one that is
//! expected, and while they are equal, no position depends on what was read.
//!
//! Invariant: the position is that which a string after the other leads to, whatever the bytes are.

/// The length before a string.
pub(super) const LENGTH_BYTES: usize = 4;

/// After so many strings in a row of one length, the next ones are expected to have it. Of fewer, lengths that vary would often make
/// the expectation wrong, which costs a processor more than the wait does.
const EXPECTED_AFTER: u32 = 4;

/// What was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Skipped {
    /// The offset after the last string whose length is there: beyond the bytes, if its content is not there.
    pub(super) at: usize,
    /// How many strings are left.
    pub(super) left: u64,
    /// Why, if any are.
    pub(super) stopped: Option<Stopped>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The length of the next one is not there as a whole.
    Truncated,
    NegativeLength,
}

/// Skips `left` strings from this offset on.
pub(super) fn skip(bytes: &[u8], mut at: usize, mut left: u64) -> Skipped {
    let mut last = usize::MAX;
    let mut equal = 0;
    while left > 0 {
        let Some(head) = bytes.get(at..).and_then(<[u8]>::first_chunk::<LENGTH_BYTES>) else {
            return Skipped { at, left, stopped: Some(Stopped::Truncated) };
        };
        let Ok(length) = usize::try_from(i32::from_be_bytes(*head)) else {
            return Skipped { at, left, stopped: Some(Stopped::NegativeLength) };
        };
        // The offset is within the bytes, whose number and this one are both far below the largest number.
        at += LENGTH_BYTES + length;
        left -= 1;
        equal = if length == last { equal + 1 } else { 0 };
        last = length;
        if equal == EXPECTED_AFTER {
            let run = run_of(bytes.get(at..).unwrap_or_default(), *head, LENGTH_BYTES + length, left);
            at += run * (LENGTH_BYTES + length);
            left -= run as u64;
            equal = 0;
        }
    }
    Skipped { at, left, stopped: None }
}

/// How many strings of this length the bytes begin with, at most `most`. The content of the last one may be incomplete.
fn run_of(bytes: &[u8], head: [u8; LENGTH_BYTES], string_bytes: usize, most: u64) -> usize {
    let expected = u32::from_ne_bytes(head);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let (mut run, mut at) = (0, 0);
    // Four at a time, of which the heads are all there.
    let heads_bytes = 3 * string_bytes + LENGTH_BYTES;
    while most - run >= 4
        && let Some(four) = bytes.get(at..).and_then(|rest| rest.get(..heads_bytes))
    {
        let differs = |nth: usize| {
            let at = nth * string_bytes;
            four[at..at + LENGTH_BYTES].try_into().map_or(u32::MAX, |other| expected ^ u32::from_ne_bytes(other))
        };
        if differs(0) | differs(1) | differs(2) | differs(3) != 0 {
            break;
        }
        run += 4;
        at += 4 * string_bytes;
    }
    while run < most && bytes.get(at..).and_then(<[u8]>::first_chunk) == Some(&head) {
        run += 1;
        at += string_bytes;
    }
    run
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// One string after the other, without expectations.
    fn one_by_one(bytes: &[u8], mut at: usize, mut left: u64) -> Skipped {
        while left > 0 {
            let Some(head) = bytes.get(at..).filter(|rest| rest.len() >= LENGTH_BYTES) else {
                return Skipped { at, left, stopped: Some(Stopped::Truncated) };
            };
            let length = i32::from_be_bytes(head[..LENGTH_BYTES].try_into().unwrap());
            if length < 0 {
                return Skipped { at, left, stopped: Some(Stopped::NegativeLength) };
            }
            at += LENGTH_BYTES + length as usize;
            left -= 1;
        }
        Skipped { at, left, stopped: None }
    }

    #[test]
    fn runs_of_strings_end_where_single_steps_do() {
        let seed = 20_261_201;
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        for _ in 0..2_000 {
            let mut bytes = vec![0xff; random.random_range(0..3)];
            let from = bytes.len();
            let mut strings = 0;
            for _ in 0..random.random_range(0..8) {
                let length: usize = random.random_range(0..40);
                for _ in 0..random.random_range(1..30) {
                    bytes.extend_from_slice(&(length as u32).to_be_bytes());
                    bytes.extend(std::iter::repeat_n(0, length));
                    strings += 1;
                }
            }
            // Fewer strings than there are, as many, and more, in all the bytes, in some of them, and with one that is no length.
            let count = random.random_range(0..strings + 4);
            let cut = random.random_range(from..=bytes.len());
            assert_eq!(skip(&bytes, from, count), one_by_one(&bytes, from, count));
            assert_eq!(skip(&bytes[..cut], from, count), one_by_one(&bytes[..cut], from, count));
            assert_eq!(skip(&bytes, cut, count), one_by_one(&bytes, cut, count));
            if cut < bytes.len() {
                bytes[cut] = random.random();
                assert_eq!(skip(&bytes, from, count), one_by_one(&bytes, from, count));
            }
        }
    }

    #[test]
    fn an_offset_beyond_the_bytes_is_kept() {
        assert_eq!(skip(&[0; 8], 9, 1), Skipped { at: 9, left: 1, stopped: Some(Stopped::Truncated) });
        assert_eq!(skip(&[0; 8], 9, 0), Skipped { at: 9, left: 0, stopped: None });
        let long = [0x7f, 0xff, 0xff, 0xff];
        assert_eq!(skip(&long, 0, 1), Skipped { at: 4 + 0x7fff_ffff, left: 0, stopped: None });
    }
}
