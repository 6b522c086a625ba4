//! A limit on the depth of a statement's plan, checked before the plan is built.
//!
//! The parser limits nesting in parentheses, but the tree of `1 + 1 + 1 + …` is as deep as the chain is long, and each
//! traversal (by the planner, the optimizer, the destructor) uses stack for each level. A stack overflow ends the process,
//! and with it all sessions. So the depth is bounded by the tokens alone, without a tree: consecutive operators in one list
//! item add up, a comma or a new clause resets the count, parentheses add the depth around them.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use model::error::UserError;

use crate::dialect::SqlDialect;
use crate::error::statement_too_complex;

/// The most nested operators. The stack of the executor threads is sized for it.
pub const DEPTH_MAX: usize = 2_000;
/// An operator or parenthesis takes at least one byte, so a shorter text cannot be too deep.
const SHORT_BYTES: usize = DEPTH_MAX;

/// Refuses a statement that is too deep. The parser reports text that cannot be tokenized.
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
            return Err(statement_too_complex(&format!("It nests more than {DEPTH_MAX} operators."))
                .hint("Use a list (IN, VALUES), or put the values into a table."));
        }
    }
    Ok(())
}

/// Clauses whose expressions are independent of the previous clause. (SELECT is not one: UNION chains add up.)
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
