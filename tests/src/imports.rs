//! The import graph of a crate: which of its files uses items of which other ones, and the cycles of that graph.
//!
//! An import is a path that begins with `crate`, `super`, `self` or a child module, in a `use` or inline. It leads to the file
//! that defines the item: re-exports are followed, and are no imports themselves. Imports from a module above are left out, since
//! a module and its children are one unit, and so is code behind `#[cfg(test)]`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};

use crate::repository::File;
use crate::rust::{Token, TokenKind, tokens};

/// The files that each file imports. Files are named by their paths below `src`.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

type Path = Vec<String>;

/// The limit of re-exports that are followed for one path.
const MAX_REEXPORTS: usize = 8;

/// The import graph of the crate in a folder, such as `crates/model`.
pub fn graph(folder: &str, files: &[File]) -> Result<Graph> {
    let source = format!("{folder}/src/");
    let mut modules = BTreeMap::new();
    for file in files.iter().filter(|file| file.has_extension("rs") && !file.is_generated()) {
        let Some(name) = file.path.strip_prefix(&source) else { continue };
        let text = file.text()?.with_context(|| format!("{} is not UTF-8", file.path))?;
        let path = module_path(name);
        let module = Module::new(name, &path, &tokens(&text));
        modules.insert(path, module);
    }
    let tests: BTreeSet<Path> = modules.values().flat_map(|module| module.test_modules.iter().cloned()).collect();
    modules.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
    let imported = |module: &Module| {
        let paths = module.paths.iter().filter_map(|path| file_of(&modules, path, MAX_REEXPORTS));
        paths.filter(|file| !module.path.starts_with(&module_path(file))).collect()
    };
    Ok(modules.values().map(|module| (module.file.clone(), imported(module))).collect())
}

/// The strongly connected components with more than one file.
pub fn cycles(graph: &Graph) -> Vec<BTreeSet<String>> {
    let reachable: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|file| (file, reachable_from(graph, file))).collect();
    let mut cycles: Vec<BTreeSet<String>> = Vec::new();
    for (file, others) in &reachable {
        let component: BTreeSet<String> =
            others.iter().filter(|other| reachable[*other].contains(file)).map(|other| (*other).clone()).collect();
        if component.len() > 1 && !cycles.contains(&component) {
            cycles.push(component);
        }
    }
    cycles
}

fn reachable_from<'a>(graph: &'a Graph, file: &String) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&String> = graph[file].iter().collect();
    while let Some(other) = next.pop() {
        if found.insert(other) {
            next.extend(&graph[other]);
        }
    }
    found
}

struct Module {
    file: String,
    path: Path,
    /// Absolute paths of everything that it imports.
    paths: Vec<Path>,
    /// The names that its `use` declarations bring in, re-exports included; `None` for items of other crates.
    names: BTreeMap<String, Option<Path>>,
    test_modules: Vec<Path>,
}

fn module_path(name: &str) -> Path {
    let stem = name.trim_end_matches(".rs");
    let mut path: Path = stem.split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

/// The file that defines what a path names; `None` if it is an item of another crate.
fn file_of(modules: &BTreeMap<Path, Module>, path: &[String], depth: usize) -> Option<String> {
    let known = (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length]))?;
    let module = &modules[&path[..known]];
    let Some(renamed) = path.get(known).and_then(|name| module.names.get(name)) else {
        return Some(module.file.clone());
    };
    let mut target = renamed.clone()?;
    target.extend_from_slice(&path[known + 1..]);
    if depth == 0 { Some(module.file.clone()) } else { file_of(modules, &target, depth - 1) }
}

impl Module {
    fn new(file: &str, path: &[String], tokens: &[Token]) -> Self {
        let tokens: Vec<&str> = tokens.iter().filter(|token| token.kind != TokenKind::Comment).map(word_of).collect();
        let mut module = Self {
            file: file.to_owned(),
            path: path.to_vec(),
            paths: Vec::new(),
            names: BTreeMap::new(),
            test_modules: Vec::new(),
        };
        let children: BTreeSet<&str> =
            tokens.windows(3).filter(|words| words[0] == "mod" && words[2] == ";").map(|words| words[1]).collect();
        let mut at = 0;
        while at < tokens.len() {
            if tokens[at..].starts_with(&["#", "[", "cfg", "(", "test", ")", "]"]) {
                let item = at + 7;
                if let ["mod", name, ";", ..] = tokens[item..] {
                    module.test_modules.push(joined(path, &[name]));
                }
                at = end_of_item(&tokens, item);
            } else if tokens[at] == "use" {
                let is_reexport = at > 0 && (tokens[at - 1] == "pub" || tokens[at - 1] == ")");
                let mut leaves = Vec::new();
                at = use_tree(&tokens, at + 1, &[], &mut leaves);
                for (name, words) in leaves {
                    let target = absolute(path, &words, &children);
                    if let (Some(target), false) = (&target, is_reexport) {
                        module.paths.push(target.clone());
                    }
                    module.names.insert(name, target);
                }
            } else {
                let words = inline_path(&tokens, at);
                if words.len() > 1
                    && let Some(target) = absolute(path, &words, &children)
                {
                    module.paths.push(target);
                }
                at += (3 * words.len()).saturating_sub(2).max(1);
            }
        }
        module
    }
}

/// A literal counts as a word that is no name.
fn word_of(token: &Token) -> &str {
    if token.kind == TokenKind::Literal { "\"" } else { &token.text }
}

fn joined(path: &[String], words: &[&str]) -> Path {
    path.iter().cloned().chain(words.iter().map(|word| (*word).to_owned())).collect()
}

/// The path from the root of the crate; `None` for paths into other crates.
fn absolute(module: &[String], words: &[&str], children: &BTreeSet<&str>) -> Option<Path> {
    match words {
        ["crate", rest @ ..] => Some(joined(&[], rest)),
        ["self", rest @ ..] => Some(joined(module, rest)),
        ["super", ..] => {
            let ups = words.iter().take_while(|word| **word == "super").count();
            Some(joined(&module[..module.len().checked_sub(ups)?], &words[ups..]))
        }
        [first, ..] if children.contains(first) => Some(joined(module, words)),
        _ => None,
    }
}

/// `a::b::c` from here on, without its separators; empty if no path begins here.
fn inline_path<'a>(tokens: &[&'a str], at: usize) -> Vec<&'a str> {
    let is_name = |word: &str| word.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut words = Vec::new();
    let mut next = at;
    while let Some(word) = tokens.get(next).filter(|word| is_name(word)) {
        words.push(*word);
        if !tokens[next + 1..].starts_with(&[":", ":"]) {
            break;
        }
        next += 3;
    }
    words
}

/// Reads the use tree that begins here into its leaves, each with its name and path; returns where it ends.
fn use_tree<'a>(
    tokens: &[&'a str],
    mut at: usize,
    prefix: &[&'a str],
    leaves: &mut Vec<(String, Vec<&'a str>)>,
) -> usize {
    let mut path = prefix.to_vec();
    while let Some(word) = tokens.get(at) {
        match *word {
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|word| *word != "}") {
                    at = use_tree(tokens, at, &path, leaves);
                    at += usize::from(tokens.get(at) == Some(&","));
                }
                return at + 1;
            }
            ":" => at += 1,
            "*" => {
                leaves.push(("*".to_owned(), path));
                return at + 1;
            }
            ";" | "," | "}" => break,
            "as" => {
                let name = tokens.get(at + 1).copied().unwrap_or_default();
                leaves.push((name.to_owned(), path));
                return at + 2;
            }
            name => {
                path.push(name);
                at += 1;
            }
        }
    }
    if path.last() == Some(&"self") && path.len() > 1 {
        path.pop();
    }
    leaves.push((path.last().copied().unwrap_or_default().to_owned(), path));
    at
}

/// The end of the item that begins here: behind its `;` or its block.
fn end_of_item(tokens: &[&str], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(word) = tokens.get(at) {
        at += 1;
        match *word {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && *word == "}" {
                    return at;
                }
            }
            ";" if depth == 0 => return at,
            _ => {}
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str, source: &str) -> (Path, Module) {
        (module_path(name), Module::new(name, &module_path(name), &tokens(source)))
    }

    fn imports(of: &str, sources: &[(&str, &str)]) -> Vec<String> {
        let modules: BTreeMap<Path, Module> = sources.iter().map(|(name, source)| module(name, source)).collect();
        let paths = &modules[&module_path(of)].paths;
        paths.iter().filter_map(|path| file_of(&modules, path, MAX_REEXPORTS)).collect()
    }

    #[test]
    fn an_import_leads_to_the_file_that_defines_the_item() {
        let sources = [
            ("lib.rs", "mod a; mod b; pub use a::{One, deep::Two as Three}; use std::fmt;"),
            ("a.rs", "mod deep; pub struct One; fn f() { deep::g() }"),
            ("a/deep.rs", "use super::One; use super::super::fmt; struct Two;"),
            ("b.rs", "use crate::{One, Three, a::{self, deep::*}}; fn h() -> crate::b::X { let b = \"crate::a::y\"; }"),
        ];
        assert_eq!(imports("lib.rs", &sources), Vec::<String>::new());
        assert_eq!(imports("a.rs", &sources), ["a/deep.rs"]);
        assert_eq!(imports("a/deep.rs", &sources), ["a.rs"]);
        assert_eq!(imports("b.rs", &sources), ["a.rs", "a/deep.rs", "a.rs", "a/deep.rs", "b.rs"]);
    }

    #[test]
    fn test_code_imports_nothing() {
        let source = "#[cfg(test)] use crate::a::b; #[cfg(test)] mod tests { use crate::c::d; } #[cfg(test)] mod e; use crate::f;";
        let (_, module) = module("g.rs", source);
        assert_eq!(module.paths, [["f"]]);
        assert_eq!(module.test_modules, [["g", "e"]]);
    }

    #[test]
    fn a_cycle_is_a_strongly_connected_component() {
        let graph: Graph = [("a", vec!["b"]), ("b", vec!["c"]), ("c", vec!["b", "d"]), ("d", vec![])]
            .into_iter()
            .map(|(file, others)| (file.to_owned(), others.into_iter().map(str::to_owned).collect()))
            .collect();
        assert_eq!(cycles(&graph), [BTreeSet::from(["b".to_owned(), "c".to_owned()])]);
    }
}
