//! Texts: cut to a limit, such as that of a column, or as the detail of an error.

/// The first `max` bytes of a text at most, cut at a character boundary.
pub fn cut(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The last `max` bytes of a text at most, cut at a character boundary.
pub fn tail(text: &str, max: usize) -> &str {
    let mut start = text.len().saturating_sub(max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// A reason, which is a clause, as the detail of an error, which is a sentence: with a capital and a full stop.
pub fn as_detail(reason: &str) -> String {
    let mut chars = reason.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}

/// A sentence as a clause: in lower case and without its full stop.
pub fn as_fragment(detail: &str) -> String {
    let detail = detail.strip_suffix('.').unwrap_or(detail);
    let mut chars = detail.chars();
    let first = chars.next().map(|first| first.to_lowercase().to_string()).unwrap_or_default();
    first + chars.as_str()
}
