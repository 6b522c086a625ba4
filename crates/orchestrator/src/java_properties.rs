//! Writer of Java properties files. Spark receives its properties in such a file because every user of the machine can
//! read a command line.

use std::collections::BTreeMap;

/// The properties below a comment of one line.
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
    fn keys_and_values_are_escaped_for_java() {
        let properties = [("a.b", "c d"), ("#x", " y"), ("k=1:2", "a\\b\nc=d"), ("s p", "")];
        let properties = properties.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        let text = text("written", &properties);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines, ["# written", "\\#x=\\ y", "a.b=c d", "k\\=1\\:2=a\\\\b\\nc=d", "s\\ p="]);
    }
}
