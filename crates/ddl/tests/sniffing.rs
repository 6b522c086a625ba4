//! Telling our statements from those of engines: a corpus of both, texts of a megabyte, and no allocation.
//!
//! `tests/data/foreign` holds one statement per file, every byte of which belongs to an engine; `tests/data/ours` holds
//! those of ours that look strange.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use ddl::{near_miss, parse, pins_session, session_statement, sniff};

const MEGABYTE: usize = 1 << 20;

fn corpus(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), String::from_utf8(fs::read(path).unwrap()).unwrap())).collect()
}

/// Statements of about a megabyte, which are not kept as files.
fn megabytes() -> Vec<String> {
    let list: String = (0..).map(|n| format!("'it\\'s {n}',\n")).take(MEGABYTE / 16).collect();
    vec![
        format!("SELECT * FROM t WHERE a IN ({list}'')"),
        format!("/* {} */ SELECT 1", "it's ".repeat(MEGABYTE / 5)),
        format!("{}SELECT 1", "-- don't\r\n".repeat(MEGABYTE / 10)),
        format!("{}SELECT 1", "/*".repeat(MEGABYTE / 2)),
        " ".repeat(MEGABYTE),
        "é".repeat(MEGABYTE / 2),
        "(".repeat(MEGABYTE),
        format!("SET x={}", "don't;".repeat(MEGABYTE / 6)),
        format!("DESC ENGINE `{}` x", "``".repeat(MEGABYTE / 2)),
        format!("USE {}", "a.".repeat(MEGABYTE / 2)),
    ]
}

#[test]
fn no_statement_of_spark_or_hive_is_ours() {
    let corpus = corpus("foreign");
    assert!(corpus.len() >= 60, "{}", corpus.len());
    for (path, text) in corpus {
        assert_eq!(sniff(&text), None, "{}", path.display());
        assert!(parse(&text).is_err(), "{}", path.display());
    }
    for text in megabytes() {
        assert_eq!(sniff(&text), None);
    }
}

#[test]
fn the_corpus_holds_what_it_promises() {
    let corpus = corpus("foreign");
    let any = |what: &str, test: fn(&str) -> bool| assert!(corpus.iter().any(|(_, text)| test(text)), "{what}");
    any("CRLF", |text| text.contains("\r\n"));
    any("a lone carriage return", |text| text.contains('\r') && !text.contains('\n'));
    any("non-ASCII", |text| !text.is_ascii());
    any("a byte order mark", |text| text.starts_with('\u{feff}'));
    any("backticks", |text| text.contains('`'));
    any("comments", |text| text.contains("--") && text.contains('\n'));
    let dialect = sqlparser::dialect::GenericDialect {};
    let rejected = |text: &str| sqlparser::tokenizer::Tokenizer::new(&dialect, text).tokenize().is_err();
    let rejected = corpus.iter().filter(|(_, text)| rejected(text)).count();
    assert!(rejected >= 15, "only {rejected} statements make a tokeniser fail");
}

#[test]
fn strange_statements_of_ours_are_ours() {
    for (path, text) in corpus("ours") {
        assert!(sniff(&text).is_some(), "{}", path.display());
        let parsed = parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(parse(&parsed.to_string()), Ok(parsed));
        assert_eq!(near_miss(&text), None);
        assert!(!pins_session(&text));
    }
}

#[test]
fn telling_whose_a_statement_is_allocates_nothing() {
    let texts: Vec<String> = ["foreign", "ours"]
        .into_iter()
        .flat_map(corpus)
        .map(|(_, text)| text)
        .chain(megabytes())
        .chain([format!("CREATE TENANT t_1 COMMENT '{}'", "x".repeat(MEGABYTE))])
        .collect();
    let mut answers = 0_usize;
    let allocated = allocation_counter::measure(|| {
        for text in &texts {
            answers += usize::from(sniff(text).is_some());
            answers += usize::from(pins_session(text));
            answers += usize::from(session_statement(text).is_some());
        }
    });
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
    assert!(answers > 0);
    let seen = allocation_counter::measure(|| drop(std::hint::black_box(vec![0_u8; 64])));
    assert!(seen.count_total > 0, "the counter counts");
}

#[test]
fn a_statement_of_ours_that_is_too_long_is_refused_before_it_is_tokenised() {
    let text = format!("CREATE TENANT t_1 COMMENT '{}'", "x".repeat(ddl::MAX_STATEMENT_BYTES));
    let error = parse(&text).unwrap_err();
    assert_eq!(error.user_error().sqlstate(), "54000");
    let fits = format!("CREATE TENANT t_1 COMMENT '{}'", "x".repeat(ddl::MAX_STATEMENT_BYTES - 100));
    assert!(parse(&fits).is_ok());
}

#[test]
fn lists_and_properties_are_limited() {
    let list = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("'u{n}'")).collect();
        parse(&format!("ALTER TENANT t_1 USER_LIST ({})", names.join(",")))
    };
    let properties = |count: usize| {
        let items: Vec<String> = (0..count).map(|n| format!("'k{n}'='v'")).collect();
        parse(&format!("ALTER RESOURCE UNIT uc_1 PROPERTIES ({})", items.join(",")))
    };
    assert!(list(model::catalog::MAX_LIST).is_ok());
    assert_eq!(list(model::catalog::MAX_LIST + 1).unwrap_err().user_error().sqlstate(), "54000");
    assert!(properties(model::catalog::MAX_PROPERTIES).is_ok());
    assert_eq!(properties(model::catalog::MAX_PROPERTIES + 1).unwrap_err().user_error().sqlstate(), "54000");
}
