//! Quotes names and strings so that they parse back unchanged.

/// Keywords; a name that is one of them is printed in quotes.
const KEYWORDS: [&str; 70] = [
    "all",
    "alter",
    "alterations",
    "comment",
    "create",
    "default",
    "desc",
    "describe",
    "drop",
    "engine",
    "engines",
    "exists",
    "explain",
    "for",
    "force",
    "if",
    "image",
    "in",
    "like",
    "limit",
    "master",
    "namespace",
    "not",
    "null",
    "place",
    "pool",
    "pools",
    "properties",
    "reset",
    "resource",
    "restart",
    "set",
    "show",
    "start",
    "stop",
    "tenant",
    "tenants",
    "unit",
    "units",
    "wait",
    "within",
    "admin_list",
    "cpu_overcommit",
    "default_unit",
    "node_list",
    "node_selector",
    "queue_prefix",
    "unit_list",
    "user_list",
    "resource_pool_list",
    "borrow_limit",
    "capacity",
    "charge",
    "cpu",
    "creator",
    "guarantee",
    "lend_limit",
    "memory",
    "nodes",
    "none",
    "priority",
    "protected",
    "quota",
    "quotas",
    "reclaim",
    "registered",
    "resource_kind",
    "unlimited",
    "user",
    "weight",
];

/// A name for a statement: bare where that is safe, otherwise in double quotes.
pub fn quoted_name(name: &str) -> String {
    let bytes = name.as_bytes();
    let bare = bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_')
        && !KEYWORDS.contains(&name);
    if bare { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A string literal: in single quotes, which are doubled inside.
pub fn quoted_string(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_only_where_they_must_be() {
        for (name, printed) in
            [("t_1", "t_1"), ("t-1", "\"t-1\""), ("a.b", "\"a.b\""), ("pool", "\"pool\""), ("a\"b", "\"a\"\"b\"")]
        {
            assert_eq!(quoted_name(name), printed);
        }
    }

    #[test]
    fn quotes_inside_a_string_are_doubled_and_nothing_else_changes() {
        assert_eq!(quoted_string("it's \\ \n"), "'it''s \\ \n'");
    }
}
