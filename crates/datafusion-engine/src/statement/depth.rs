//! Refuses statements whose plan would be too deep, before anything walks it.
//!
//! The parser limits what nests in parentheses, but `1 + 1 + 1 + …` is a tree as deep as it is long, and whoever walks such
//! a tree (planner, optimizer, the code that frees it) uses stack for each level. A stack that overflows ends the process,
//! and with it everybody's session. So the depth is bounded from the tokens alone, without a tree: operators that follow
//! one another in one list item add up, a comma or a new clause begins anew, parentheses add what surrounds them.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use model::error::{ErrorKind, UserError};

use crate::dialect::SqlDialect;

/// The most operators above one another. The executing threads' stack is sized for it.
pub const DEPTH_MAX: usize = 2_000;
/// An operator or parenthesis takes a byte at least: a shorter text can't be too deep.
const SHORT_BYTES: usize = DEPTH_MAX;

/// Refuses a statement that is too deep. A text that has no tokens is left to the parser.
pub fn check(statement: &str, dialect: SqlDialect) -> Result<(), UserError> {
    if statement.len() <= SHORT_BYTES {
        return Ok(());
    }
    let Ok(tokens) = dialect.tokens(statement) else { return Ok(()) };
    let mut levels = vec![0_usize];
    let mut depth = 0_usize;
    for token in &tokens {
        match &token.token {
            Token::Whitespace(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::Period
            | Token::EOF => {}
            Token::LParen | Token::LBracket | Token::LBrace => {
                levels.push(1);
                depth += 1;
            }
            Token::RParen | Token::RBracket | Token::RBrace => depth -= levels.pop().unwrap_or_default(),
            Token::Comma | Token::SemiColon => depth -= levels.last_mut().map(std::mem::take).unwrap_or_default(),
            Token::Word(word) if starts_clause(word.keyword) => {
                depth -= levels.last_mut().map(std::mem::take).unwrap_or_default();
            }
            Token::Word(word) if !is_operator(word.keyword) => {}
            _ => {
                if let Some(level) = levels.last_mut() {
                    *level += 1;
                    depth += 1;
                }
            }
        }
        if levels.is_empty() {
            levels.push(0);
        }
        if depth > DEPTH_MAX {
            return Err(UserError::new(ErrorKind::ProgramLimit, "the statement is nested too deeply")
                .detail(format!("more than {DEPTH_MAX} operators stand above one another"))
                .hint("Write a list (IN, VALUES), or put the values into a table.")
                .with_sqlstate("54001"));
        }
    }
    Ok(())
}

/// Clauses whose expressions stand beside those of the clause before. (SELECT does not: UNION chains add up.)
const fn starts_clause(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::VALUES | Keyword::WHERE | Keyword::HAVING | Keyword::ORDER | Keyword::GROUP | Keyword::LIMIT
    )
}

const fn is_operator(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::AND
            | Keyword::OR
            | Keyword::NOT
            | Keyword::XOR
            | Keyword::IS
            | Keyword::LIKE
            | Keyword::ILIKE
            | Keyword::IN
            | Keyword::BETWEEN
            | Keyword::CASE
            | Keyword::WHEN
            | Keyword::COLLATE
            | Keyword::AT
            | Keyword::UNION
            | Keyword::INTERSECT
            | Keyword::EXCEPT
            | Keyword::JOIN
            | Keyword::DIV
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn chains_are_counted_and_lists_are_not() {
        let many = DEPTH_MAX + 1;
        for deep in [
            format!("SELECT {}", vec!["1"; many + 1].join("+")),
            format!("SELECT 1 WHERE {}", vec!["a = b"; many].join(" AND ")),
            vec!["SELECT 1"; many + 1].join(" UNION ALL "),
            format!("SELECT * FROM {}", vec!["t"; many + 1].join(" JOIN ")),
            format!("SELECT {}1", "NOT ".repeat(many)),
            format!("SELECT 1{}", "::int".repeat(many)),
            format!("SELECT {}1", "(".repeat(many)),
            format!("SELECT {}", format!("({}", vec!["1"; many / 2].join("+")).repeat(3)),
        ] {
            assert_eq!(check(&deep, SqlDialect::Own).unwrap_err().sqlstate(), "54001", "{}", &deep[..40]);
        }
        for flat in [
            format!("SELECT {}", vec!["a + 1 AS b"; 10 * many].join(", ")),
            format!("INSERT INTO t VALUES {}", vec!["(-1, 'x', NOT true)"; 10 * many].join(", ")),
            format!("SELECT 1 WHERE a IN ({})", vec!["-1"; 10 * many].join(",")),
            format!("SELECT '{}'", "+".repeat(10 * many)),
            format!("SELECT 1 -- {}", "+".repeat(10 * many)),
            format!("SELECT 'open {}", "+".repeat(10 * many)),
            ")".repeat(10 * many),
        ] {
            check(&flat, SqlDialect::Own).unwrap_or_else(|error| panic!("{error}: {}", &flat[..40]));
        }
    }
}
