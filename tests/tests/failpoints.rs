//! Every failpoint has one name, which is declared, listed, passed somewhere and described on the page.
//!
//! The page's table follows from the sources: `UPDATE_PAGES=1 cargo test -p tests --test failpoints` writes it.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use tests::page;
use tests::program;
use tests::repository::{self, File, read, root};

const PAGE: &str = "docs/failpoints.md";
const HEADING: &str = "All of them";

/// A declared failpoint.
#[derive(Debug, Clone)]
struct Point {
    constant: String,
    name: String,
    /// The sentence that describes it.
    says: String,
}

/// The files that declare failpoints, each with what it declares and what it lists.
struct Declared {
    file: File,
    points: Vec<Point>,
    listed: BTreeSet<String>,
}

fn declarations() -> Vec<Declared> {
    let files = repository::files().unwrap();
    let declaring = files.into_iter().filter(|file| {
        file.path.starts_with("crates/")
            && file.path.ends_with("/failpoints.rs")
            && !file.path.starts_with("crates/enginehouse/")
    });
    let declared: Vec<Declared> = declaring
        .map(|file| {
            let text = file.text().unwrap().unwrap();
            Declared { points: points(&text), listed: listed(&text), file }
        })
        .collect();
    assert!(declared.len() > 5, "only {} files declare failpoints", declared.len());
    declared
}

fn points(text: &str) -> Vec<Point> {
    let mut points = Vec::new();
    let mut says: Vec<&str> = Vec::new();
    for line in text.lines() {
        if let Some(doc) = line.strip_prefix("/// ") {
            says.push(doc);
            continue;
        }
        if let Some((constant, value)) = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(": &str = \""))
        {
            let name = value.trim_end_matches("\";").to_owned();
            points.push(Point { constant: constant.to_owned(), name, says: says.join(" ") });
        }
        says.clear();
    }
    points
}

fn listed(text: &str) -> BTreeSet<String> {
    let (_, list) = text.split_once("pub const ALL: &[&str] =").expect("a list of all");
    let (list, _) = list.split_once(';').unwrap();
    list.trim()
        .trim_start_matches("&[")
        .trim_end_matches(']')
        .split(',')
        .map(|constant| constant.trim().to_owned())
        .filter(|constant| !constant.is_empty())
        .collect()
}

fn all_points() -> BTreeMap<String, Point> {
    declarations().into_iter().flat_map(|declared| declared.points).map(|point| (point.name.clone(), point)).collect()
}

/// The folder that a file of failpoints speaks for.
fn scope(file: &File) -> String {
    file.path.trim_end_matches("failpoints.rs").to_owned()
}

#[test]
fn every_declared_failpoint_is_listed_once_under_a_name_of_its_own() {
    let mut names = BTreeSet::new();
    for declared in declarations() {
        let constants: BTreeSet<String> = declared.points.iter().map(|point| point.constant.clone()).collect();
        assert_eq!(constants, declared.listed, "{}", declared.file.path);
        for point in declared.points {
            let plain = |part: &str| {
                !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            };
            assert!(point.name.contains('.') && point.name.split('.').all(plain), "{} is no dotted name", point.name);
            assert!(!point.says.is_empty(), "{} says nothing", point.name);
            assert!(names.insert(point.name.clone()), "{} is declared twice", point.name);
        }
    }
}

#[test]
fn the_failpoints_that_the_code_passes_are_the_declared_ones() {
    let files: Vec<File> = repository::files()
        .unwrap()
        .into_iter()
        .filter(|file| file.path.contains("/src/") && file.has_extension("rs"))
        .collect();
    let declared = declarations();
    for declaration in &declared {
        let near = scope(&declaration.file);
        // A crate's folder may hold the folder of another declaration.
        let inner = |path: &str| {
            declared
                .iter()
                .map(|other| scope(&other.file))
                .any(|scope| scope.len() > near.len() && path.starts_with(&scope))
        };
        let texts: Vec<String> = files
            .iter()
            .filter(|file| file.path.starts_with(&near) && file.path != declaration.file.path && !inner(&file.path))
            .map(|file| file.text().unwrap().unwrap())
            .collect();
        let own = declaration.file.text().unwrap().unwrap();
        for point in &declaration.points {
            let uses = texts.iter().filter(|text| is_word_in(text, &point.constant)).count();
            // One that a function of the declaring file chooses stands there a third time.
            let chosen = own.matches(point.constant.as_str()).count() > 2;
            assert!(uses > 0 || chosen, "{}: {} is never passed", declaration.file.path, point.constant);
        }
        for text in &texts {
            for argument in passed(text) {
                let constant = argument.rsplit("::").next().unwrap_or_default();
                let is_constant = constant.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
                let known = declaration.points.iter().any(|point| point.constant == constant);
                assert!(!argument.contains('"'), "{near}: failpoint!({argument}) names no constant");
                assert!(!is_constant || known, "{near}: failpoint!({argument}) is not declared");
            }
        }
    }
}

fn is_word_in(text: &str, word: &str) -> bool {
    let outside = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word)
        .any(|(at, _)| outside(text[..at].chars().next_back()) && outside(text[at + word.len()..].chars().next()))
}

/// The arguments of `failpoint!(…)`.
fn passed(text: &str) -> Vec<&str> {
    let calls = text.match_indices("failpoint!(").map(|(at, call)| &text[at + call.len()..]);
    calls.filter_map(|rest| rest.lines().next()?.rsplit_once(");").map(|(argument, _)| argument)).collect()
}

#[test]
fn the_page_describes_every_failpoint_where_it_is() {
    let mut rows = Vec::new();
    for declared in declarations() {
        let near = scope(&declared.file);
        for point in declared.points {
            let place = near.trim_start_matches("crates/").trim_end_matches('/').replace("/src", "");
            rows.push(format!("| `{}` | {place} | {} |", point.name, point.says.replace('|', "\\|")));
        }
    }
    rows.sort();
    let page = read(PAGE).unwrap();
    let (before, rest) = page.split_once(&format!("## {HEADING}\n")).expect("the heading of the table");
    let after = rest.lines().skip_while(|line| !line.starts_with('|')).skip_while(|line| line.starts_with('|'));
    let head = "| name | where | what has happened when it is passed |\n| --- | --- | --- |";
    let mut fresh = format!("{before}## {HEADING}\n\n{head}\n{}\n", rows.join("\n"));
    for line in after {
        fresh.push_str(line);
        fresh.push('\n');
    }
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(root().join(PAGE), &fresh).unwrap();
        return;
    }
    assert!(page == fresh, "{PAGE} is out of date: UPDATE_PAGES=1 cargo test -p tests --test failpoints writes it");
    assert_eq!(page::table(&page, HEADING).unwrap().len(), rows.len());
}

#[test]
fn the_program_lists_every_failpoint() {
    let listed: BTreeSet<String> =
        program::printed(&["--list-failpoints"]).unwrap().lines().map(str::to_owned).collect();
    let declared: BTreeSet<String> = all_points().into_keys().collect();
    assert_eq!(listed, declared, "what the program lists (left) is not what the crates declare (right)");
}
