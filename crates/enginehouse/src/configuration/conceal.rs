//! Masking of passwords in URLs: in the printed configuration, in errors and in logs.

/// The replacement of a password.
const MASK: &str = "******";

/// A URL with a masked password. Ambiguous parts are masked.
pub fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // A file has no login, and its name may contain any character.
    if scheme == "sqlite" {
        return url.to_owned();
    }
    // The last @, because a password may contain an unescaped /, ? or @.
    let shown = match rest.rsplit_once('@') {
        Some((login, host)) => match login.split_once(':') {
            Some((user, _)) => format!("{user}:{MASK}@{}", without_password_parameters(host)),
            None => without_password_parameters(rest),
        },
        None => without_password_parameters(rest),
    };
    format!("{scheme}://{shown}")
}

/// The part after a login, with masked values of parameters such as `password=`.
fn without_password_parameters(text: &str) -> String {
    let is_end = |c: char| matches!(c, '?' | '&');
    let mut shown = String::with_capacity(text.len());
    for piece in text.split_inclusive(is_end) {
        let end = piece.trim_end_matches(is_end);
        match end.split_once('=') {
            Some((key, _)) if key.to_ascii_lowercase().contains("pass") => {
                shown.extend([key, "=", MASK, &piece[end.len()..]]);
            }
            _ => shown.push_str(piece),
        }
    }
    shown
}

/// A message with the passwords of all URLs masked, which are between quotes or blanks.
pub fn without_passwords(message: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '`' | '\'');
    let mut shown = String::with_capacity(message.len());
    for word in message.split_inclusive(is_end) {
        let end = word.len() - word.chars().next_back().filter(|c| is_end(*c)).map_or(0, char::len_utf8);
        shown += &without_password(&word[..end]);
        shown += &word[end..];
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_never_shown() {
        for (url, shown) in [
            ("postgres://u:p@h:1/db", "postgres://u:******@h:1/db"),
            ("postgres://u:p@x@h/db", "postgres://u:******@h/db"),
            ("postgres://u:p/w@h/db", "postgres://u:******@h/db"),
            ("postgres://u:p?w@h/db", "postgres://u:******@h/db"),
            ("postgres://u:p?a=b&c@h/db?password=q&a=b", "postgres://u:******@h/db?password=******&a=b"),
            ("postgres://h/db?user=u@x&password=p", "postgres://h/db?user=u@x&password=******"),
            ("postgres://u@h/db", "postgres://u@h/db"),
            ("postgres://h/db?user=u&password=p&a=b", "postgres://h/db?user=u&password=******&a=b"),
            ("sqlite:///tmp/a:b@c?mode=rwc", "sqlite:///tmp/a:b@c?mode=rwc"),
            ("no url", "no url"),
        ] {
            assert_eq!(without_password(url), shown);
        }
        let message = "invalid type: string \"postgres://u:p@h/db\", expected a map";
        assert_eq!(without_passwords(message), "invalid type: string \"postgres://u:******@h/db\", expected a map");
    }
}
