//! The first word of a statement, which is read before the statement is parsed.

/// Whether a statement returns rows, decided by its first word, because HiveServer2 reports it before the statement is
/// parsed. INSERT and COPY return no rows, as in Hive: the operation has their count.
pub fn has_result_set(statement: &str) -> bool {
    !matches!(
        first_word(statement).as_str(),
        "create" | "drop" | "alter" | "use" | "reset" | "prepare" | "deallocate" | "insert" | "copy" | ""
    )
}

/// The first word in lower case, after white space, comments and opening parentheses.
pub fn first_word(statement: &str) -> String {
    let rest = after_blanks(statement);
    let is_part = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.');
    rest.chars().take_while(is_part).take(32).collect::<String>().to_ascii_lowercase()
}

/// The rest after white space, comments, opening parentheses and empty statements.
pub fn after_blanks(statement: &str) -> &str {
    let mut rest = statement;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '(' || c == ';' || c == '\u{feff}');
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = after_comment(comment);
        } else {
            return rest;
        }
    }
}

/// The rest after a block comment; `rest` begins after its `/*`. Comments nest; an unclosed one extends to the end.
fn after_comment(mut rest: &str) -> &str {
    let mut depth = 1;
    while depth > 0 {
        let Some(at) = rest.find(['/', '*']) else { return "" };
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("/*") {
            (depth, rest) = (depth + 1, after);
        } else if let Some(after) = rest.strip_prefix("*/") {
            (depth, rest) = (depth - 1, after);
        } else {
            rest = &rest[1..];
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_definitions_and_writes_have_no_result_set() {
        for statement in ["SELECT 1", "/* x */ (SELECT 1)", "show tables", "SET x=1", "EXPLAIN SELECT 1"] {
            assert!(has_result_set(statement), "{statement}");
        }
        for statement in [
            "CREATE VIEW v AS SELECT 1",
            "-- c\ndrop table t",
            "USE x",
            "RESET",
            "INSERT INTO t VALUES (1)",
            "COPY t TO '/x'",
            "",
        ] {
            assert!(!has_result_set(statement), "{statement}");
        }
    }

    #[test]
    fn comments_nest_and_a_word_ends_where_it_ends() {
        assert_eq!(first_word("/* /* */ set x=1 */ SELECT 1"), "select");
        assert_eq!(first_word("/*/ */ set"), "set");
        assert_eq!(first_word("/* open SELECT"), "");
        assert_eq!(first_word("SET_X y"), "set_x");
        assert_eq!(first_word("set.x"), "set.x");
        assert_eq!(first_word("-- c\n(SELECT 1)"), "select");
    }
}
