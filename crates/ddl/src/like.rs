//! `LIKE` patterns.

/// Whether the name matches the pattern: `%` stands for any text, `_` for one character, and a backslash escapes the
/// next character; case is ignored. `*` also stands for any text, as in Spark's SHOW, because no name contains one.
/// Takes at most (length of the pattern) x (length of the name) steps.
pub fn like_matches(pattern: &str, name: &str) -> bool {
    let pattern = compile(pattern);
    let name: Vec<char> = name.chars().flat_map(char::to_lowercase).collect();
    let (mut p, mut n) = (0, 0);
    // Where to resume when the last `%` must match one more character.
    let mut again: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(Piece::AnyText) => {
                again = Some((p + 1, n));
                p += 1;
            }
            Some(piece) if piece.takes(name[n]) => (p, n) = (p + 1, n + 1),
            _ => match again {
                Some((after, from)) => {
                    again = Some((after, from + 1));
                    (p, n) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|piece| *piece == Piece::AnyText)
}

#[derive(PartialEq, Eq)]
enum Piece {
    AnyText,
    AnyCharacter,
    Character(char),
}

impl Piece {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::AnyText => false,
            Self::AnyCharacter => true,
            Self::Character(own) => *own == c,
        }
    }
}

fn compile(pattern: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut characters = pattern.chars().flat_map(char::to_lowercase);
    while let Some(c) = characters.next() {
        pieces.push(match c {
            '%' | '*' => Piece::AnyText,
            '_' => Piece::AnyCharacter,
            '\\' => Piece::Character(characters.next().unwrap_or('\\')),
            c => Piece::Character(c),
        });
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_sql() {
        for (pattern, name, matches) in [
            ("t_1", "t_1", true),
            ("t_1", "tx1", true),
            ("t\\_1", "tx1", false),
            ("t\\_1", "t_1", true),
            ("%", "", true),
            ("", "", true),
            ("", "a", false),
            ("T%", "t_1", true),
            ("t*1", "t_1", true),
            ("%b%c", "abcbc", true),
            ("%b%c", "abcbd", false),
            ("a%b", "a", false),
            ("_", "", false),
            ("a\\", "a\\", true),
        ] {
            assert_eq!(like_matches(pattern, name), matches, "{pattern} {name}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_longer_than_its_length_times_the_name() {
        let pattern = "%a".repeat(200) + "b";
        assert!(!like_matches(&pattern, &"a".repeat(5_000)));
    }
}
