//! Plays the statements of `tests/data/*.txt`, one file per statement family.
//!
//! A case is the statement, a line `----`, and what is expected, which a blank line ends (so a case holds no blank
//! line): `= text` is the canonical print; an error is drawn as the line of the statement that it is in, a caret below
//! the place, and SQLSTATE, message, detail and hint; `pass` is what is not ours. Lines that begin with `#` between
//! cases are remarks. With `UPDATE_DATA=1` the expectations are written instead of compared.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use ddl::{ParseError, near_miss, parse, sniff};

#[test]
fn every_statement_of_the_data_files_is_parsed_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    assert!(files.len() >= 9, "one file per statement family: {files:?}");
    let update = std::env::var_os("UPDATE_DATA").is_some();
    let mut wrong = String::new();
    let mut cases = 0;
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let mut written = String::new();
        for block in text.split("\n\n").map(str::trim_end).filter(|block| !block.is_empty()) {
            let block = block.trim_start_matches('\n');
            let body: String = block.split_inclusive('\n').take_while(|line| line.starts_with('#')).collect();
            let case = &block[body.len()..];
            written.push_str(&body);
            if case.is_empty() {
                written.push('\n');
                continue;
            }
            cases += 1;
            let (statement, expected) = case.split_once("\n----").unwrap_or((case, ""));
            let actual = outcome(statement);
            if actual != expected.trim_start_matches('\n') {
                writeln!(wrong, "{}: {statement}\n---- expected\n{expected}\n---- but\n{actual}\n", path.display())
                    .unwrap();
            }
            write!(written, "{statement}\n----\n{actual}\n\n").unwrap();
        }
        if update {
            fs::write(&path, written.trim_end().to_owned() + "\n").unwrap();
        }
    }
    assert!(cases >= 150, "{cases} cases");
    assert!(update || wrong.is_empty(), "{wrong}");
}

#[test]
fn a_null_character_is_refused_at_any_position() {
    for statement in [
        "ALTER RESOURCE UNIT uc_1 COMMENT 'a\0b'",
        "ALTER RESOURCE UNIT uc_1 PROPERTIES ('k\0'='v')",
        "CREATE TENANT \"t\0\"",
        "SHOW ENGINES /* \0 */",
        "STOP ENGINE rp_1 'a\0'",
    ] {
        let error = parse(statement).unwrap_err();
        assert_eq!(error.position.offset, statement.find('\0').unwrap(), "{statement:?}");
        assert_eq!(error.user_error().sqlstate(), "22023", "{statement:?}");
        assert!(error.user_error().message.contains("null character"), "{statement:?}: {error}");
    }
}

#[test]
fn a_control_character_is_refused_in_quotes() {
    for c in ['\n', '\r', '\t', '\x07', '\x1b', '\x7f', '\u{9b}'] {
        for (before, quoted) in [
            ("ALTER RESOURCE UNIT uc_1 COMMENT ", format!("'a{c}b'")),
            ("ALTER RESOURCE UNIT uc_1 PROPERTIES ('k'=", format!("'{c}')")),
            ("CREATE TENANT ", format!("\"t{c}\"")),
            ("STOP ENGINE rp_1 ", format!("'a{c}'")),
        ] {
            let error = parse(&format!("{before}{quoted}")).unwrap_err();
            assert_eq!(error.position.offset, before.len(), "{quoted:?}");
            let error = error.user_error();
            assert_eq!(error.sqlstate(), "22023", "{quoted:?}");
            assert!(error.text().contains(&format!("such as U+{:04X}.", u32::from(c))), "{quoted:?}: {}", error.text());
        }
    }
    // Between words a line may end.
    parse("ALTER RESOURCE UNIT uc_1\r\n\tCOMMENT 'a' -- \x1b").unwrap();
}

fn outcome(statement: &str) -> String {
    if sniff(statement).is_none() {
        return match near_miss(statement) {
            Some(hint) => format!("pass\nHint: {hint}"),
            None => "pass".to_owned(),
        };
    }
    match parse(statement) {
        Ok(parsed) => {
            let printed = parsed.to_string();
            assert_eq!(parse(&printed), Ok(parsed), "{printed} is read back as something else");
            format!("= {printed}")
        }
        Err(error) => drawn(statement, &error),
    }
}

fn drawn(statement: &str, error: &ParseError) -> String {
    let position = error.position;
    let line = statement.split('\n').nth(position.line - 1).unwrap();
    let before: usize = statement.split('\n').take(position.line - 1).map(|line| line.len() + 1).sum();
    assert_eq!(
        line.char_indices().nth(position.column - 1).map_or(line.len(), |(at, _)| at) + before,
        position.offset,
        "line and column agree with the offset"
    );
    let user = error.user_error();
    format!("{line}\n{}^\n{} {}", " ".repeat(position.column - 1), user.sqlstate(), user.text())
}
