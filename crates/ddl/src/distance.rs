//! Edit distance between words, for hints.

/// The longest word that is compared, in bytes.
const MAX_WORD_BYTES: usize = 32;

/// The number of letters inserted, deleted, replaced, or swapped with their neighbour, ignoring case; `None` for
/// words that are too long or not ASCII.
fn distance(left: &str, right: &str) -> Option<usize> {
    if left.len() > MAX_WORD_BYTES || right.len() > MAX_WORD_BYTES || !left.is_ascii() || !right.is_ascii() {
        return None;
    }
    let (left, right) = (left.to_ascii_uppercase().into_bytes(), right.to_ascii_uppercase().into_bytes());
    let mut rows = vec![vec![0; right.len() + 1]; left.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=right.len()).collect();
    for i in 1..=left.len() {
        for j in 1..=right.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(left[i - 1] != right[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    Some(rows[left.len()][right.len()])
}

/// The most typos in a word of this length: none up to two letters, one up to four, then two.
const fn slips(bytes: usize) -> usize {
    match bytes {
        0..=2 => 0,
        3..=4 => 1,
        _ => 2,
    }
}

/// The number of typos between two words, if they are few enough.
pub(crate) fn near(written: &str, meant: &str) -> Option<usize> {
    distance(written, meant).filter(|slips_made| *slips_made <= slips(meant.len()))
}

/// The nearest of the candidates; the first one of several equally near ones.
pub(crate) fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .filter_map(|candidate| Some((near(written, candidate)?, candidate)))
        .min_by_key(|(slips_made, _)| *slips_made)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slip_is_an_insertion_a_deletion_a_replacement_or_a_swap() {
        for (left, right, expected) in
            [("FRO", "FOR", 1), ("ENGINS", "ENGINES", 1), ("unite", "UNIT", 1), ("POLL", "POOL", 1), ("", "AB", 2)]
        {
            assert_eq!(distance(left, right), Some(expected), "{left} {right}");
        }
        assert_eq!(distance("é", "E"), None);
    }

    #[test]
    fn short_words_must_be_nearer_than_long_ones() {
        assert_eq!(nearest("FRO", ["TENANT", "FOR"]), Some("FOR"));
        assert_eq!(nearest("PLAN", ["POOL", "UNIT"]), None);
        assert_eq!(nearest("MIN_ENGINE", ["MAX_ENGINES", "MIN_ENGINES"]), Some("MIN_ENGINES"));
    }
}
