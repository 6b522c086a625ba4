//! Hints for statements that almost begin like a control statement.
//!
//! Such statements pass to the engine unchanged. If there is no engine to reject them, the proxy adds the hint to its
//! error.

use std::cmp::Reverse;

use crate::distance::near;
use crate::scan::Scanner;
use crate::sniff::sniff;

/// Every head, word by word.
const HEADS: [&[&str]; 52] = [
    &["SHOW", "ENGINES"],
    &["SHOW", "TENANTS"],
    &["SHOW", "QUOTAS"],
    &["SHOW", "RESERVATIONS"],
    &["SHOW", "DEMAND"],
    &["SHOW", "ENGINE", "HISTORY"],
    &["SHOW", "ALTERATIONS"],
    &["SHOW", "AUDIT"],
    &["SHOW", "MASTER"],
    &["SHOW", "RESOURCE", "POOLS"],
    &["SHOW", "RESOURCE", "UNITS"],
    &["SHOW", "RESOURCE", "QUOTAS"],
    &["SHOW", "RESOURCE", "POOL"],
    &["SHOW", "RESOURCE", "UNIT"],
    &["SHOW", "CREATE", "TENANT"],
    &["SHOW", "CREATE", "RESOURCE", "POOL"],
    &["SHOW", "CREATE", "RESOURCE", "UNIT"],
    &["SHOW", "CREATE", "RESOURCE", "QUOTA"],
    &["START", "ENGINE"],
    &["RESTART", "ENGINE"],
    &["STOP", "ENGINE"],
    &["CANCEL", "RESERVATION"],
    &["EXPLAIN", "START", "ENGINE"],
    &["EXPLAIN", "RESTART", "ENGINE"],
    &["DESCRIBE", "TENANT"],
    &["DESCRIBE", "RESOURCE", "POOL"],
    &["DESCRIBE", "RESOURCE", "UNIT"],
    &["DESCRIBE", "RESOURCE", "QUOTA"],
    &["CREATE", "TENANT"],
    &["CREATE", "RESOURCE", "POOL"],
    &["CREATE", "RESOURCE", "UNIT"],
    &["CREATE", "RESOURCE", "QUOTA"],
    &["ALTER", "TENANT"],
    &["ALTER", "RESOURCE", "POOL"],
    &["ALTER", "RESOURCE", "UNIT"],
    &["ALTER", "RESOURCE", "QUOTA"],
    &["DROP", "TENANT"],
    &["DROP", "RESOURCE", "POOL"],
    &["DROP", "RESOURCE", "UNIT"],
    &["DROP", "RESOURCE", "QUOTA"],
    &["EXPLAIN", "CREATE", "TENANT"],
    &["EXPLAIN", "CREATE", "RESOURCE", "POOL"],
    &["EXPLAIN", "CREATE", "RESOURCE", "UNIT"],
    &["EXPLAIN", "CREATE", "RESOURCE", "QUOTA"],
    &["EXPLAIN", "ALTER", "TENANT"],
    &["EXPLAIN", "ALTER", "RESOURCE", "POOL"],
    &["EXPLAIN", "ALTER", "RESOURCE", "UNIT"],
    &["EXPLAIN", "ALTER", "RESOURCE", "QUOTA"],
    &["EXPLAIN", "DROP", "TENANT"],
    &["EXPLAIN", "DROP", "RESOURCE", "POOL"],
    &["EXPLAIN", "DROP", "RESOURCE", "UNIT"],
    &["EXPLAIN", "DROP", "RESOURCE", "QUOTA"],
];

/// What DESCRIBE names in single quotes, with the hint.
const QUOTED: [(&str, &str); 2] = [
    ("ENGINE", "Did you mean DESCRIBE ENGINE rp_1 'engine-name'? The engine's name is written in single quotes."),
    ("RESERVATION", "Did you mean DESCRIBE RESERVATION 'id'? The id is written in single quotes."),
];

/// The most words of a head.
const MAX_WORDS: usize = 4;
/// The most typos in all words of a head.
const MAX_SLIPS: usize = 2;

/// A hint such as `Did you mean SHOW ENGINES?` for a statement that almost begins like a control statement; `None`
/// for all others and for control statements. Reads the first words only.
pub fn near_miss(text: &str) -> Option<String> {
    if sniff(text).is_some() {
        return None;
    }
    let mut scanner = Scanner::new(text);
    let mut words = Vec::with_capacity(MAX_WORDS);
    while words.len() < MAX_WORDS {
        match scanner.word() {
            Some(word) if words.is_empty() && word.eq_ignore_ascii_case("DESC") => words.push("DESCRIBE"),
            Some(word) => words.push(word),
            None => break,
        }
    }
    if let [verb, noun, ..] = words[..]
        && verb.eq_ignore_ascii_case("DESCRIBE")
        && let Some((_, hint)) = QUOTED.iter().find(|(meant, _)| near(noun, meant).is_some())
    {
        return Some((*hint).to_owned());
    }
    let candidates = HEADS.iter().filter_map(|head| Some((slips(&words, head)?, *head)));
    // Of two the longer one is meant: more of its words were written.
    let (_, head) = candidates.min_by_key(|(slips_made, head)| (*slips_made, Reverse(head.len())))?;
    Some(format!("Did you mean {}?", head.join(" ")))
}

/// The number of typos between the first words and the head; a forgotten RESOURCE is one typo.
fn slips(words: &[&str], head: &[&str]) -> Option<usize> {
    let forgotten = || {
        let rest: Vec<&str> = head.iter().copied().filter(|word| *word != "RESOURCE").collect();
        if rest.len() == head.len() { None } else { Some(1 + plain_slips(words, &rest)?) }
    };
    plain_slips(words, head).or_else(forgotten).filter(|slips_made| (1..=MAX_SLIPS).contains(slips_made))
}

fn plain_slips(words: &[&str], head: &[&str]) -> Option<usize> {
    if words.len() < head.len() {
        return None;
    }
    words.iter().zip(head).map(|(word, meant)| near(word, meant)).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn what_was_almost_ours_gets_a_hint() {
        for (text, meant) in [
            ("SHOW ENGINS t_1", "SHOW ENGINES"),
            ("SHWO ENGINES t_1", "SHOW ENGINES"),
            ("show engine t_1", "SHOW ENGINES"),
            ("-- x\nSTOP ENGINES rp_1 'x'", "STOP ENGINE"),
            ("CREATE TENENT t_1", "CREATE TENANT"),
            ("create pool rp_1", "CREATE RESOURCE POOL"),
            ("ALTER RESOUCE UNIT uc_1", "ALTER RESOURCE UNIT"),
            ("SHOW CREATE POOL rp_1", "SHOW CREATE RESOURCE POOL"),
            ("EXPLAIN DROP UNIT x", "EXPLAIN DROP RESOURCE UNIT"),
            ("CREATE QUOTA q_1", "CREATE RESOURCE QUOTA"),
            ("ALTER RESOURCE QUOTE q_1", "ALTER RESOURCE QUOTA"),
            ("SHOW QUOTA", "SHOW QUOTAS"),
            ("SHOW ALTERATION", "SHOW ALTERATIONS"),
            ("SHOW AUDITS", "SHOW AUDIT"),
            ("SHOW RESERVATION", "SHOW RESERVATIONS"),
            ("SHOW DEMANDS TENANT t_1", "SHOW DEMAND"),
            ("SHOW ENGINE HISTRY t_1", "SHOW ENGINE HISTORY"),
            ("CANCEL RESERVATIONS 'x'", "CANCEL RESERVATION"),
            ("EXPLAIN STRAT ENGINE t_1 rp_1 uc_1", "EXPLAIN START ENGINE"),
            ("DESC TENANTS t_1", "DESCRIBE TENANT"),
        ] {
            assert_eq!(near_miss(text).unwrap_or_default(), format!("Did you mean {meant}?"), "{text}");
        }
        assert!(near_miss("DESC ENGINE x").unwrap().contains("in single quotes"));
        assert!(near_miss("DESC RESERVATION x").unwrap().contains("'id'? The id is written in single quotes"));
    }

    #[test]
    fn what_is_ours_or_far_from_it_gets_none() {
        for text in [
            "SHOW ENGINES t_1",
            "SHOW TABLES",
            "SHOW CREATE TABLE t",
            "CREATE TABLE t (a INT)",
            "DROP VIEW v",
            "SHOW RESOURCE PLAN p",
            "START TRANSACTION",
            "SET x=1",
            "SELECT 1",
            "'",
            "",
        ] {
            assert_eq!(near_miss(text), None, "{text}");
        }
    }
}
