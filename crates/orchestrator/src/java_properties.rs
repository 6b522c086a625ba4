//! The text of a properties file, as Java reads it: how Spark is told what it may not see on a command line, where
//! everybody of the machine reads secrets.

use std::collections::BTreeMap;

/// The text, below a comment of one line.
pub fn text(comment: &str, properties: &BTreeMap<String, String>) -> String {
    let mut text = format!("# {comment}\n");
    for (key, value) in properties {
        text.push_str(&escaped(key, true));
        text.push('=');
        text.push_str(&escaped(value, false));
        text.push('\n');
    }
    text
}

fn escaped(part: &str, is_key: bool) -> String {
    let mut text = String::with_capacity(part.len());
    for (at, c) in part.chars().enumerate() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            ' ' if is_key || at == 0 => text.push_str("\\ "),
            '=' | ':' if is_key => text.extend(['\\', c]),
            '#' | '!' if is_key && at == 0 => text.extend(['\\', c]),
            _ => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_mean_to_java_what_they_mean_here() {
        let properties = [("a.b", "c d"), ("#x", " y"), ("k=1:2", "a\\b\nc=d"), ("s p", "")];
        let properties = properties.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        let text = text("made", &properties);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines, ["# made", "\\#x=\\ y", "a.b=c d", "k\\=1\\:2=a\\\\b\\nc=d", "s\\ p="]);
    }
}
