//! The words that the glossary refuses: `docs/glossary.md` lists them, and no crate outside of [`NOT_YET`] uses one.
//!
//! `GLOSSARY=planner cargo test --workspace --test glossary` checks one crate, `GLOSSARY=all` every crate, also those of the
//! list. Each finding is printed as `path:line: word: where it was found`.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use tests::page::{self, code_words};
use tests::repository::{self, read};
use tests::rust::{self, Token, TokenKind, words_of_name};

const PAGE: &str = "docs/glossary.md";
const HEADING: &str = "Words that a test refuses";

/// Crates that still use refused words. The list may only shrink.
const NOT_YET: &[&str] = &[];

/// Identifiers that may contain a refused word, each with its reason. At most 20.
const EXCEPTIONS: [(&str, &str); 0] = [];
const MAX_EXCEPTIONS: usize = 20;

/// Where a word is refused.
#[derive(Debug, Clone, Copy, Default)]
struct Rule {
    /// As a part of an identifier or of a file's name.
    names: bool,
    /// As a word of a comment, a log line or a message.
    texts: bool,
    /// As the whole name of a type or a file.
    types: bool,
}

fn rules() -> BTreeMap<String, Rule> {
    let mut rules = BTreeMap::new();
    for row in page::table(&read(PAGE).unwrap(), HEADING).unwrap() {
        let mut rule = Rule::default();
        for part in row[1].split(", ") {
            match part {
                "names" => rule.names = true,
                "texts" => rule.texts = true,
                "types" => rule.types = true,
                _ => panic!("{PAGE}: a word is refused in names, texts or types, not in {part}"),
            }
        }
        rules.insert(code_words(&row[0])[0].to_owned(), rule);
    }
    rules
}

fn crate_of(path: &str) -> Option<&str> {
    match path.strip_prefix("crates/") {
        Some(below) => below.split('/').next(),
        None => path.starts_with("tests/").then_some("tests"),
    }
}

fn excepted(name: &str) -> bool {
    EXCEPTIONS.iter().any(|(exception, _)| *exception == name)
}

/// All refused words of a file, each as a line for people.
fn findings(path: &str, text: &str, rules: &BTreeMap<String, Rule>) -> Vec<String> {
    let mut found = Vec::new();
    let stem = path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
    for word in words_of_name(stem) {
        let refused = rules.get(&word).is_some_and(|rule| rule.names || (rule.types && word == stem));
        if refused && !excepted(stem) {
            found.push(format!("{path}: {word}: the name of the file"));
        }
    }
    let tokens = rust::tokens(text);
    for (at, token) in tokens.iter().enumerate() {
        let defines_type =
            at > 0 && ["struct", "enum", "trait", "type", "union"].contains(&tokens[at - 1].text.as_str());
        let mut words: BTreeSet<String> = match token.kind {
            TokenKind::Identifier if excepted(&token.text) => BTreeSet::new(),
            TokenKind::Identifier => words_of_name(&token.text)
                .into_iter()
                .filter(|word| {
                    let is_whole = defines_type && token.text.eq_ignore_ascii_case(word);
                    rules.get(word).is_some_and(|rule| rule.names || (rule.types && is_whole))
                })
                .collect(),
            // A literal without white space is a name on the wire, a path or a key.
            TokenKind::Literal if !token.text.contains(char::is_whitespace) => BTreeSet::new(),
            TokenKind::Comment | TokenKind::Literal => {
                words_of_text(&token.text).filter(|word| rules.get(word).is_some_and(|rule| rule.texts)).collect()
            }
            TokenKind::Punctuation => BTreeSet::new(),
        };
        while let Some(word) = words.pop_first() {
            found.push(format!("{path}:{}: {word}: {}", token.line, shown(token)));
        }
    }
    found
}

/// The words of a text, in lower case. What has an underscore is an identifier, and is judged where it is defined.
fn words_of_text(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_lowercase)
}

fn shown(token: &Token) -> String {
    token.text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(100).collect()
}

#[test]
fn no_crate_uses_a_refused_word() {
    let rules = rules();
    let asked = std::env::var("GLOSSARY").unwrap_or_default();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in repository::files().unwrap().into_iter().filter(|file| file.has_extension("rs") && !file.is_generated())
    {
        let Some(name) = crate_of(&file.path) else { continue };
        let lines = findings(&file.path, &file.text().unwrap().unwrap(), &rules);
        found.entry(name.to_owned()).or_default().extend(lines);
    }
    for (name, lines) in &found {
        println!("{name}: {} refused words", lines.len());
    }
    let clean: Vec<&str> = NOT_YET.iter().filter(|name| found[**name].is_empty()).copied().collect();
    found.retain(|name, lines| {
        let is_checked =
            if asked.is_empty() { !NOT_YET.contains(&name.as_str()) } else { asked == "all" || asked == *name };
        is_checked && !lines.is_empty()
    });
    let lines: Vec<String> = found.into_values().flatten().collect();
    assert!(lines.is_empty(), "{PAGE} refuses these words:\n{}", lines.join("\n"));
    assert!(clean.is_empty() || !asked.is_empty(), "take these crates from the list NOT_YET: {clean:?}");
}

#[test]
fn exceptions_are_few_and_each_has_its_reason() {
    assert!(EXCEPTIONS.len() <= MAX_EXCEPTIONS, "{} exceptions", EXCEPTIONS.len());
    assert!(EXCEPTIONS.iter().all(|(name, reason)| !name.is_empty() && reason.len() > 10));
}

#[test]
fn refused_words_are_found_in_names_texts_and_types() {
    let rule = |names, texts, types| Rule { names, texts, types };
    let rules =
        BTreeMap::from([("old".to_owned(), rule(true, true, false)), ("site".to_owned(), rule(false, false, true))]);
    let of = |source: &str| findings("a/b.rs", source, &rules).len();
    assert_eq!(of("fn an_old_name(OldType: OLD) {}"), 3);
    assert_eq!(of("// An old one.\nlet a = \"an old one\";"), 2);
    assert_eq!(of("let site = \"old\"; // olds: an_old_name"), 0);
    assert_eq!(of("struct Site; struct SiteMap;"), 1);
    assert_eq!(findings("a/old_one.rs", "", &rules).len(), 1);
    assert_eq!(findings("a/site.rs", "", &rules).len(), 1);
    assert_eq!(findings("a/site_map.rs", "", &rules).len(), 0);
}
