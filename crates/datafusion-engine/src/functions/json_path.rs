//! The paths of `get_json_object`: `$`, `.name`, `['name']`, `[index]` and `[*]`.

use serde_json::Value;

enum Step {
    Name(String),
    Index(usize),
    All,
}

/// The value at a path as text: strings without quotes, everything else as JSON. `None` if the text is not JSON, the path
/// is malformed, or the value is missing or null.
pub fn get(text: &str, path: &str) -> Option<String> {
    let steps = steps(path)?;
    let root: Value = serde_json::from_str(text).ok()?;
    let mut found = vec![root];
    let mut many = false;
    for step in steps {
        found = match step {
            Step::Name(name) => found.into_iter().filter_map(|mut value| Some(value.get_mut(&name)?.take())).collect(),
            Step::Index(index) => {
                found.into_iter().filter_map(|mut value| Some(value.get_mut(index)?.take())).collect()
            }
            Step::All => {
                many = true;
                found
                    .into_iter()
                    .flat_map(|value| match value {
                        Value::Array(items) => items,
                        _ => Vec::new(),
                    })
                    .collect()
            }
        };
    }
    match (many && found.len() != 1, found.as_slice()) {
        (_, []) | (false, [Value::Null]) => None,
        (false, [Value::String(text)]) => Some(text.clone()),
        (false, [value]) => Some(value.to_string()),
        _ => Some(Value::Array(found).to_string()),
    }
}

fn steps(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.trim().strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let name = &after[..end];
            if name.is_empty() {
                return None;
            }
            steps.push(if name == "*" { Step::All } else { Step::Name(name.to_owned()) });
            rest = &after[end..];
            continue;
        }
        let (inside, after) = rest.strip_prefix('[')?.split_once(']')?;
        let quoted = inside.strip_prefix('\'').and_then(|inside| inside.strip_suffix('\''));
        steps.push(match (inside, quoted) {
            ("*", _) => Step::All,
            (_, Some(name)) => Step::Name(name.to_owned()),
            (index, None) => Step::Index(index.parse().ok()?),
        });
        rest = after;
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn paths_lead_to_values() {
        let text = r#"{"a":{"b":[1,"x",null,{"c":2.5}]},"d e":true}"#;
        for (path, expected) in [
            ("$.a.b[0]", Some("1")),
            ("$.a.b[1]", Some("x")),
            ("$.a.b[2]", None),
            ("$.a.b[3].c", Some("2.5")),
            ("$['d e']", Some("true")),
            ("$.a.b[*].c", Some("2.5")),
            ("$.missing", None),
            ("a", None),
            ("$.a.", None),
        ] {
            assert_eq!(get(text, path).as_deref(), expected, "{path}");
        }
        assert_eq!(get("no json", "$"), None);
    }
}
