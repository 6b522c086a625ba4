//! Validation of node paths, and their parents.

use crate::proto::codes::ErrorCode;

pub(crate) const ROOT: &str = "/";
/// The nodes that every tree has and no client can delete.
pub(crate) const BUILT_IN: [&str; 4] = [ROOT, "/zookeeper", "/zookeeper/config", "/zookeeper/quota"];

/// Parent and last name of a path. The parent of `/a` is the root; a path without a slash has none.
pub(crate) fn split(path: &str) -> Option<(&str, &str)> {
    let (parent, name) = path.rsplit_once('/')?;
    Some((if parent.is_empty() { ROOT } else { parent }, name))
}

/// All ancestors of a path, the nearest first, the root last, the path itself not included.
pub(crate) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| if *path == ROOT { None } else { split(path).map(|(parent, _)| parent) })
        .skip(1)
}

/// Checks that a node may have this path: absolute, without empty or relative parts, without control characters and
/// without those that a UTF-16 server cannot distinguish from half a character.
pub(crate) fn validate(path: &str) -> Result<(), ErrorCode> {
    let valid = path == ROOT
        || path.strip_prefix('/').is_some_and(|rest| {
            rest.split('/').all(|name| !matches!(name, "" | "." | "..")) && !path.chars().any(is_forbidden)
        });
    if valid { Ok(()) } else { Err(ErrorCode::BadArguments) }
}

fn is_forbidden(character: char) -> bool {
    matches!(character,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    #[test]
    fn paths_are_absolute_and_have_no_odd_parts() {
        let table: &[(&str, bool)] = &[
            ("/", true),
            ("/a", true),
            ("/a/b-1.x_ä", true),
            ("/a/...", true),
            ("", false),
            ("a", false),
            ("/a/", false),
            ("//a", false),
            ("/a//b", false),
            ("/a/./b", false),
            ("/..", false),
            ("/a\0", false),
            ("/a\n", false),
            ("/\u{85}", false),
            ("/\u{f000}", false),
            ("/\u{1f600}", false),
        ];
        for (path, valid) in table {
            assert_eq!(validate(path).is_ok(), *valid, "{path:?}");
        }
    }

    #[test]
    fn ancestors_end_at_the_root() {
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(ancestors("/a").collect::<Vec<_>>(), ["/"]);
        assert_eq!(ancestors("/").count(), 0);
        assert_eq!(ancestors("odd").count(), 0);
    }
}
