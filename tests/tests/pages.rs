//! The documentation does not go stale: what can be compared with the program or its sources is.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tests::page;
use tests::program;
use tests::repository::{self, read, root};

fn pages() -> Vec<(String, String)> {
    let files = repository::files().unwrap();
    let pages: Vec<(String, String)> = files
        .iter()
        .filter(|file| file.has_extension("md"))
        .map(|file| (file.path.clone(), file.text().unwrap().unwrap()))
        .collect();
    assert!(pages.len() > 10, "only {} pages were found", pages.len());
    pages
}

#[test]
fn every_link_leads_somewhere() {
    for (path, text) in pages() {
        let folder = Path::new(&path).parent().unwrap().to_path_buf();
        for link in page::links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (target, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let file = if target.is_empty() { root().join(&path) } else { root().join(&folder).join(target) };
            assert!(file.exists(), "{path} links to {link}, which is not there");
            if !anchor.is_empty() {
                let anchors = page::anchors(&std::fs::read_to_string(&file).unwrap());
                assert!(
                    anchors.iter().any(|known| known == anchor),
                    "{path} links to {link}: there is no such heading"
                );
            }
        }
    }
}

#[test]
fn every_page_of_the_documentation_can_be_reached_from_the_readme() {
    let pages: BTreeMap<String, String> =
        pages().into_iter().filter(|(path, _)| !path.starts_with("crates/")).collect();
    let mut reached = BTreeSet::new();
    let mut next = vec!["README.md".to_owned()];
    while let Some(path) = next.pop() {
        let Some(text) = pages.get(&path) else { continue };
        if !reached.insert(path.clone()) {
            continue;
        }
        let folder = Path::new(&path).parent().unwrap().to_path_buf();
        for link in page::links(text).into_iter().filter(|link| !link.contains("://")) {
            let target = link.split('#').next().unwrap_or_default();
            next.push(plain(&folder.join(target)));
        }
    }
    let lost: Vec<&String> = pages
        .keys()
        .filter(|path| path.starts_with("docs/") || !path.contains('/'))
        .filter(|path| !reached.contains(*path))
        .collect();
    assert!(lost.is_empty(), "no link leads to {lost:?}");
}

/// A path without `..`.
fn plain(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components().map(|component| component.as_os_str().to_string_lossy().into_owned()) {
        match part.as_str() {
            ".." => drop(parts.pop()),
            "." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// The page's tables: section and key in the first cell, default in the second.
#[test]
fn the_page_of_the_configuration_has_every_key_with_its_default() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.toml");
    std::fs::write(&empty, with_keys("", folder.path())).unwrap();
    let printed = program::printed(&["config", "check", "--config", &empty.to_string_lossy()]).unwrap();
    let defaults: toml::Table = printed.parse().unwrap();
    let mut known = BTreeMap::new();
    for (section, keys) in &defaults {
        for (key, value) in keys.as_table().unwrap() {
            known.insert(format!("{section}.{key}"), value.to_string().replace(' ', ""));
        }
    }
    // The one key that a check can't do without.
    known.insert("cluster.keys".to_owned(), "\"keys\"".to_owned());
    let mut documented = BTreeMap::new();
    for row in page::tables(&read("docs/configuration.md").unwrap()) {
        let key = page::code_words(&row[0]).first().copied().unwrap_or_default().to_owned();
        if key.contains('.') && !key.contains('*') {
            let default = page::code_words(&row[1]).first().copied().unwrap_or_default().replace(' ', "");
            assert!(documented.insert(key.clone(), default).is_none(), "{key} stands twice on the page");
        }
    }
    assert_eq!(documented, known, "the page (left) is not what the program says (right)");
}

/// The lines that `config check` prints for an empty file: key, old default, new default, and the line to write.
#[test]
fn the_page_of_upgrades_has_every_changed_default() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.toml");
    std::fs::write(&empty, with_keys("", folder.path())).unwrap();
    let printed = program::printed(&["config", "check", "--config", &empty.to_string_lossy()]).unwrap();
    let (_, notice) = printed.split_once("# changed defaults since 0.1.0; ").unwrap();
    let mut expected = Vec::new();
    let mut section = "";
    for line in notice.lines().skip(1).map(|line| line.trim_start_matches("#   ")) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
            continue;
        }
        let (line, (old, new)) = line
            .split_once("  # 0.1.0: ")
            .and_then(|(line, change)| Some((line.trim_end(), change.split_once("; now: ")?)))
            .unwrap();
        let (key, _) = line.split_once(" = ").unwrap();
        expected.push([format!("`{section}.{key}`"), old.to_owned(), format!("`{new}`"), format!("`{line}`")]);
    }
    let documented = page::table(&read("docs/upgrade.md").unwrap(), "Changed defaults").unwrap();
    assert_eq!(documented, expected, "the page (left) is not what the program says (right)");
}

/// The configuration with key files that are there, which `config check` reads.
fn with_keys(text: &str, folder: &Path) -> String {
    let (root, keys) = (folder.join("root.key"), folder.join("keys"));
    if !root.exists() {
        let (root, keys) = (root.to_string_lossy(), keys.to_string_lossy());
        program::printed(&["keys", "init", "--root", &root]).unwrap();
        program::printed(&["keys", "derive", "--root", &root, "--keys", &keys]).unwrap();
    }
    let key = format!("keys = {:?}\n", keys.display().to_string());
    let others = text.lines().filter(|line| !line.starts_with("keys = ")).map(|line| format!("{line}\n"));
    let text: String = others.collect();
    if text.contains("[cluster]\n") {
        return text.replacen("[cluster]\n", &format!("[cluster]\n{key}"), 1);
    }
    format!("{text}[cluster]\n{key}")
}

#[test]
fn the_configurations_on_the_pages_are_good() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for (path, text) in pages() {
        for block in page::blocks(&text, "toml") {
            seen += 1;
            let file = folder.path().join(format!("{seen}.toml"));
            std::fs::write(&file, with_keys(&block, folder.path())).unwrap();
            let checked = program::printed(&["config", "check", "--config", &file.to_string_lossy()]);
            assert!(checked.is_ok(), "{path}: {:#}\n{block}", checked.unwrap_err());
        }
    }
    assert!(seen > 0, "no page has a configuration");
}

#[test]
fn every_sqlstate_of_ours_is_on_the_page_of_the_control_language() {
    let source = read("crates/model/src/error.rs").unwrap();
    let (_, body) = source.split_once("pub const fn sqlstate(self)").unwrap();
    let (body, _) = body.split_once("\n    }\n").unwrap();
    let known: BTreeSet<String> = body
        .lines()
        .filter_map(|line| line.split_once("=> \""))
        .map(|(_, state)| state.trim_end_matches("\",").to_owned())
        .collect();
    assert!(known.len() > 20, "only {} states were found", known.len());
    let rows = page::table(&read("docs/control-language.md").unwrap(), "Errors").unwrap();
    let documented: BTreeSet<String> = rows.iter().map(|row| page::code_words(&row[0])[0].to_owned()).collect();
    assert_eq!(documented, known);
}

/// The commands that have commands of their own.
const WITH_VERBS: [&str; 2] = ["config", "keys"];

/// Commands in code blocks: of the program, written as `enginehouse …` or `cargo run -- …`.
#[test]
fn every_command_of_the_pages_is_one_that_the_program_knows() {
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut seen = 0;
    for (path, text) in pages().into_iter().filter(|(path, _)| path == "README.md" || path.starts_with("docs/")) {
        for line in page::code_lines(&text) {
            let line = line.trim().trim_start_matches("$ ");
            let Some(rest) = ["enginehouse ", "cargo run -- ", "target/debug/enginehouse "]
                .iter()
                .find_map(|prefix| line.strip_prefix(prefix))
            else {
                continue;
            };
            let mut words = rest.split_whitespace();
            let Some(command) = words.next() else { continue };
            if command.starts_with(|c: char| !c.is_ascii_lowercase() && c != '-') {
                continue;
            }
            seen += 1;
            if command.starts_with("--") {
                let help = helps.entry(String::new()).or_insert_with(|| program::printed(&["--help"]).unwrap());
                assert!(help.contains(command), "{path}: {line}: there is no {command}");
                continue;
            }
            let verb = words.next().filter(|_| WITH_VERBS.contains(&command));
            let asked: Vec<&str> = [command].into_iter().chain(verb).collect();
            let help = helps.entry(asked.join(" ")).or_insert_with(|| {
                program::printed(&[&asked[..], &["--help"]].concat())
                    .unwrap_or_else(|error| panic!("{path}: {line}: {error:#}"))
            });
            for flag in flags(rest) {
                assert!(help.contains(&flag), "{path}: {line}: `enginehouse {}` has no {flag}", asked.join(" "));
            }
        }
    }
    assert!(seen > 3, "only {seen} commands were found");
}

/// The flags of a command line, without what stands in quotes and after a comment.
fn flags(line: &str) -> Vec<String> {
    let outside: String = line.split(['\'', '"']).step_by(2).collect::<Vec<_>>().join(" ");
    let words = outside.split('#').next().unwrap_or_default().split_whitespace();
    words
        .map(|word| word.trim_matches(|c| matches!(c, '[' | ']')).to_owned())
        .filter(|word| word.starts_with('-') && word.len() > 1)
        .collect()
}

#[test]
fn the_readme_says_the_two_commands_and_that_they_are_there() {
    let readme = read("README.md").unwrap();
    let lines = page::code_lines(&readme);
    for command in ["cargo run -- standalone --tour", "tests/run"] {
        assert!(lines.iter().any(|line| line.trim() == command), "the README has no line {command}");
    }
    assert!(root().join("tests/run").is_file());
    let help = program::printed(&["standalone", "--help"]).unwrap();
    assert!(help.contains("--tour") && help.contains("--data-dir") && help.contains("--listen"));
}

#[test]
fn decisions_are_numbered_without_a_gap_and_have_their_four_parts() {
    let files = repository::files().unwrap();
    let records: Vec<(String, String)> = files
        .iter()
        .filter_map(|file| file.path.strip_prefix("docs/adr/").map(|name| (name.to_owned(), file)))
        .filter(|(name, _)| name.starts_with(|c: char| c.is_ascii_digit()))
        .map(|(name, file)| (name, file.text().unwrap().unwrap()))
        .collect();
    let index = read("docs/adr/README.md").unwrap();
    for (at, (name, text)) in records.iter().enumerate() {
        assert!(name.starts_with(&format!("{:04}-", at + 1)), "{name} is not number {}", at + 1);
        for part in ["## Context", "## Decision", "## Alternatives", "## Consequences"] {
            assert!(text.contains(part), "{name} has no {part}");
        }
        assert!(index.contains(name.as_str()), "{name} is not in the index");
    }
    assert!(records.len() >= 9, "there are only {} decisions", records.len());
}
