//! A splitter of scripts into statements at `;`, except in quotes, backticks and comments.
//!
//! A backslash escapes in a string of an engine's SQL, unless the string is raw (`r'…'`). In the control language it does
//! not. Block comments nest in both.
//!
//! Comments between statements are not sent to the server. Those right before a statement are kept with it, as remarks of the
//! tour.

/// One statement of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptStatement {
    /// The comment lines before it, without `--`.
    pub remarks: Vec<String>,
    /// Its text, without the `;`.
    pub text: String,
    /// The line of the script on which it begins, from 1.
    pub line: usize,
}

/// The state of the splitter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LexerState {
    Plain,
    Quoted { quote: char, escapes: bool },
    LineComment,
    BlockComment { depth: usize },
}

/// The statements of a script and what is left behind the last `;`.
pub fn split(script: &str) -> (Vec<ScriptStatement>, String) {
    let mut statements = Vec::new();
    let (mut start, mut line) = (0, 1);
    let mut state = LexerState::Plain;
    let mut chars = script.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        match state {
            LexerState::Plain => match (c, next) {
                ('\'' | '"' | '`', _) => {
                    let piece = &script[start..at];
                    let escapes = c != '`' && !is_raw(piece) && ddl::sniff(&script[start..]).is_none();
                    state = LexerState::Quoted { quote: c, escapes };
                }
                ('-', Some('-')) => state = LexerState::LineComment,
                ('/', Some('*')) => {
                    chars.next();
                    state = LexerState::BlockComment { depth: 1 };
                }
                (';', _) => {
                    line += push(&mut statements, &script[start..at], line);
                    start = at + 1;
                }
                _ => {}
            },
            LexerState::Quoted { escapes: true, .. } if c == '\\' => {
                chars.next();
            }
            LexerState::Quoted { quote, .. } if c == quote => state = LexerState::Plain,
            LexerState::LineComment if c == '\n' => state = LexerState::Plain,
            LexerState::BlockComment { depth } if c == '*' && next == Some('/') => {
                chars.next();
                state = if depth == 1 { LexerState::Plain } else { LexerState::BlockComment { depth: depth - 1 } };
            }
            LexerState::BlockComment { depth } if c == '/' && next == Some('*') => {
                chars.next();
                state = LexerState::BlockComment { depth: depth + 1 };
            }
            _ => {}
        }
    }
    (statements, script[start..].to_owned())
}

/// Whether the text ends with the `r` of a raw string, and not with a word that ends so.
fn is_raw(before: &str) -> bool {
    before.strip_suffix(['r', 'R']).is_some_and(|rest| !rest.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// All statements of a script, the last one without `;` included.
pub fn statements(script: &str) -> Vec<ScriptStatement> {
    let (mut statements, rest) = split(script);
    let lines_before = script[..script.len() - rest.len()].matches('\n').count();
    push(&mut statements, &rest, lines_before + 1);
    statements
}

/// Adds the statement of a piece that begins on this line, if there is one; returns how many lines the piece ends.
fn push(statements: &mut Vec<ScriptStatement>, piece: &str, first_line: usize) -> usize {
    let mut remarks = Vec::new();
    let mut rest = piece.trim_start();
    while let Some(comment) = rest.strip_prefix("--") {
        let (line, after) = comment.split_once('\n').unwrap_or((comment, ""));
        remarks.push(line.trim().to_owned());
        rest = after.trim_start();
    }
    let text = rest.trim_end();
    if !text.is_empty() {
        let line = first_line + piece[..piece.len() - rest.len()].matches('\n').count();
        statements.push(ScriptStatement { remarks, text: text.to_owned(), line });
    }
    piece.matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(script: &str) -> Vec<String> {
        statements(script).into_iter().map(|statement| statement.text).collect()
    }

    #[test]
    fn statements_end_at_semicolons_that_stand_by_themselves() {
        assert_eq!(texts("a; b ;\n\nc"), ["a", "b", "c"]);
        assert_eq!(texts("select ';' ; select \";\"; select `;`;"), ["select ';'", "select \";\"", "select `;`"]);
        assert_eq!(texts(r"select 'it\';s'; b"), [r"select 'it\';s'", "b"]);
        assert_eq!(texts(r"select r'a\'; b"), [r"select r'a\'", "b"]);
        assert_eq!(texts(r"select abr'a\'; b'"), [r"select abr'a\'; b'"]);
        assert_eq!(
            texts(r"CREATE TENANT t COMMENT 'C:\'; SHOW TENANTS;"),
            [r"CREATE TENANT t COMMENT 'C:\'", "SHOW TENANTS"]
        );
        assert_eq!(texts("select /* /* ; */ ; */ 1; b"), ["select /* /* ; */ ; */ 1", "b"]);
        assert_eq!(texts("select 1 -- no; end\n+ 2; b"), ["select 1 -- no; end\n+ 2", "b"]);
        assert_eq!(texts("select /* ; */ 1; b"), ["select /* ; */ 1", "b"]);
        assert_eq!(texts(" ;; -- only a remark"), Vec::<String>::new());
    }

    #[test]
    fn remarks_belong_to_the_statement_after_them() {
        let all = statements("-- one\n-- two\nselect 1;\nselect 2;");
        assert_eq!(all[0].remarks, ["one", "two"]);
        assert!(all[1].remarks.is_empty());
    }

    #[test]
    fn a_statement_knows_the_line_on_which_it_begins() {
        let all = statements("a;\n\nb\n,c; d;-- x\n/* y */e\n;f");
        assert_eq!(all.iter().map(|statement| statement.line).collect::<Vec<_>>(), [1, 3, 4, 5, 6]);
    }
}
