//! The engine's SQL dialect: DataFusion's generic dialect with the string literals and identifiers of Spark 3.5.
//!
//! HiveServer2's clients substitute parameters themselves and escape them with backslashes. So a backslash is an escape
//! character in a string ([`escapes`]), `"…"` is a string, and identifiers are quoted with backquotes. Where the grammar
//! expects an identifier, as after AS or FROM, it also accepts a string, so that `AS "total"` names a column. Everything
//! else follows the generic dialect.
//!
//! Invariant: all parts of the engine parse a text in the same dialect. This [`SqlDialect`] is part of the session's
//! settings, or of the stored definition that contains the text.

pub mod escapes;
pub mod names;
pub mod rewrite;

use std::any::TypeId;

use datafusion::config::{ConfigOptions, Dialect as Foreign};
use datafusion::error::DataFusionError;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, ObjectName};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, dialect_from_str};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Word};
use model::error::{ErrorKind, UserError};

/// The name under which a stored definition records [`SqlDialect::Own`].
pub const OWN: &str = "enginehouse";

/// Implements these methods as the generic dialect does.
macro_rules! as_generic {
    ($($question:ident,)*) => {
        $(fn $question(&self) -> bool {
            GenericDialect {}.$question()
        })*
    };
}

/// The engine's dialect, for the parser.
#[derive(Debug, Clone, Copy, Default)]
pub struct EngineDialect;

impl Dialect for EngineDialect {
    // In some places the parser checks for the generic dialect.
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '`'
    }

    fn identifier_quote_style(&self, _identifier: &str) -> Option<char> {
        Some('`')
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        GenericDialect {}.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        GenericDialect {}.is_identifier_part(ch)
    }

    fn supports_string_literal_backslash_escape(&self) -> bool {
        true
    }

    // The generic dialect accepts these functions only without parentheses.
    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let [first, open, close] = parser.peek_tokens_ref();
        let Token::Word(word @ Word { quote_style: None, keyword, .. }) = &first.token else { return None };
        let is_fact =
            matches!(keyword, Keyword::CURRENT_CATALOG | Keyword::CURRENT_USER | Keyword::SESSION_USER | Keyword::USER);
        if !is_fact || open.token != Token::LParen || close.token != Token::RParen {
            return None;
        }
        let name = ObjectName::from(vec![word.to_ident(first.span)]);
        parser.advance_token();
        Some(parser.parse_function(name))
    }

    // The generic dialect defines the precedence of DIV, but not the operator.
    fn parse_infix(&self, parser: &mut Parser, left: &Expr, precedence: u8) -> Option<Result<Expr, ParserError>> {
        parser.parse_keyword(Keyword::DIV).then(|| {
            let right = parser.parse_subexpr(precedence)?;
            let op = BinaryOperator::MyIntegerDivide;
            Ok(Expr::BinaryOp { left: Box::new(left.clone()), op, right: Box::new(right) })
        })
    }

    // `'a' 'b'` is one string, as in Spark.
    fn supports_string_literal_concatenation(&self) -> bool {
        true
    }

    // `/*! … */` is a comment, as in Spark.
    fn supports_multiline_comment_hints(&self) -> bool {
        false
    }

    as_generic! {
        supports_unicode_string_literal,
        supports_partition_by_after_order_by,
        supports_array_join_syntax,
        supports_group_by_expr,
        supports_group_by_with_modifier,
        supports_left_associative_joins_without_parens,
        supports_connect_by,
        supports_match_recognize,
        supports_pipe_operator,
        supports_start_transaction_modifier,
        supports_window_function_null_treatment_arg,
        supports_dictionary_syntax,
        supports_window_clause_named_window_reference,
        supports_parenthesized_set_variables,
        supports_select_wildcard_except,
        support_map_literal_syntax,
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_extract_comma_syntax,
        supports_create_view_comment_syntax,
        supports_parens_around_table_factor,
        supports_values_as_table_factor,
        supports_create_index_with_clause,
        supports_explain_with_utility_options,
        supports_limit_comma,
        supports_update_order_by,
        supports_from_first_select,
        supports_projection_trailing_commas,
        supports_asc_desc_in_column_definition,
        supports_try_convert,
        supports_bitwise_shift_operators,
        supports_comment_on,
        supports_load_extension,
        supports_named_fn_args_with_assignment_operator,
        supports_struct_literal,
        supports_empty_projections,
        supports_nested_comments,
        supports_user_host_grantee,
        supports_string_escape_constant,
        supports_array_typedef_with_brackets,
        supports_match_against,
        supports_set_names,
        supports_comma_separated_set_assignments,
        supports_filter_during_aggregation,
        supports_select_wildcard_exclude,
        supports_data_type_signed_suffix,
        supports_interval_options,
        supports_quote_delimited_string,
        supports_select_wildcard_replace,
        supports_select_wildcard_ilike,
        supports_select_wildcard_rename,
        supports_optimize_table,
        supports_install,
        supports_detach,
        supports_prewhere,
        supports_with_fill,
        supports_limit_by,
        supports_interpolate,
        supports_settings,
        supports_select_format,
        supports_comment_optimizer_hint,
        supports_constraint_keyword_without_name,
        supports_key_column_option,
        supports_comma_separated_trim,
        supports_cte_without_as,
        supports_select_item_multi_column_alias,
        supports_xml_expressions,
    }
}

/// The dialect of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlDialect {
    /// The engine's dialect.
    Own,
    /// A dialect of the parser, set in a session or recorded in a definition.
    Foreign(Foreign),
}

impl SqlDialect {
    /// The dialect of a session. The setting's default, `generic`, means the engine's dialect.
    pub fn from_options(options: &ConfigOptions) -> Self {
        match options.sql_parser.dialect {
            Foreign::Generic => Self::Own,
            foreign => Self::Foreign(foreign),
        }
    }

    /// The dialect of a stored definition. A definition without a recorded dialect is older than the engine's dialect and
    /// uses DataFusion's, which is in `options`.
    pub fn from_definition(recorded: Option<&str>, options: &ConfigOptions) -> Result<Self, UserError> {
        match recorded {
            None => Ok(Self::Foreign(options.sql_parser.dialect)),
            Some(OWN) => Ok(Self::Own),
            Some(other) => Err(UserError::new(ErrorKind::Io, "definition cannot be read")
                .detail(format!("Its SQL dialect \"{other}\" is unknown to this engine."))),
        }
    }

    /// The name that a definition records.
    pub fn recorded(self) -> Option<String> {
        (self == Self::Own).then(|| OWN.to_owned())
    }

    /// The tokens of a text, with unescaped strings. `"…"` is a double-quoted string in the engine's dialect.
    pub fn tokens(self, text: &str) -> Result<Vec<TokenWithSpan>, DataFusionError> {
        let tokens = match self {
            Self::Own => {
                let mut tokens = Vec::new();
                Tokenizer::new(&EngineDialect, text)
                    .with_unescape(false)
                    .tokenize_with_location_into_buf_with_mapper(&mut tokens, unescaped)
                    .map(|()| tokens)
            }
            Self::Foreign(_) => Tokenizer::new(self.parser_dialect()?.as_ref(), text).tokenize_with_location(),
        };
        tokens.map_err(|error| ParserError::from(error).into())
    }

    /// Parses a text that contains one statement.
    pub fn statement(self, text: &str, options: &ConfigOptions) -> Result<Statement, DataFusionError> {
        let mut tokens = self.tokens(text)?;
        if self == Self::Own {
            explain_mode(&mut tokens);
            // The planner supports no double-quoted strings, and the grammar accepts either kind as an identifier.
            for token in &mut tokens {
                if let Token::DoubleQuotedString(value) = &mut token.token {
                    token.token = Token::SingleQuotedString(std::mem::take(value));
                }
            }
        }
        let dialect = self.parser_dialect()?;
        let mut statements = DFParserBuilder::new(tokens)
            .with_dialect(dialect.as_ref())
            .with_recursion_limit(options.sql_parser.recursion_limit.get())
            .build()?
            .parse_statements()?;
        match (statements.pop_front(), statements.is_empty()) {
            (Some(mut statement), true) => {
                if let (Self::Own, Statement::CreateExternalTable(table)) = (self, &mut statement) {
                    names::keep_case(table);
                }
                Ok(statement)
            }
            (Some(_), false) => Err(external(
                UserError::new(ErrorKind::NotSupported, "several statements in one text are not supported")
                    .hint("Send the statements one by one."),
            )),
            (None, _) => {
                Err(external(UserError::new(ErrorKind::Syntax, "syntax error: the text contains no statement")))
            }
        }
    }

    fn parser_dialect(self) -> Result<Box<dyn Dialect>, DataFusionError> {
        match self {
            Self::Own => Ok(Box::new(EngineDialect)),
            Self::Foreign(foreign) => dialect_from_str(foreign)
                .ok_or_else(|| DataFusionError::Configuration(format!("unknown SQL dialect {foreign}"))),
        }
    }
}

/// Translates the modes of Spark's EXPLAIN: EXTENDED shows every stage of the plan, as VERBOSE does; FORMATTED and COST show
/// the last one.
fn explain_mode(tokens: &mut Vec<TokenWithSpan>) {
    let mut words = tokens.iter().enumerate().filter(|(_, token)| !matches!(token.token, Token::Whitespace(_)));
    let (Some((_, explain)), Some((at, mode))) = (words.next(), words.next()) else { return };
    let is = |token: &TokenWithSpan, word: &str| matches!(&token.token, Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word));
    if !is(explain, "EXPLAIN") {
        return;
    }
    if is(mode, "EXTENDED") {
        tokens[at].token = Token::make_keyword("VERBOSE");
    } else if is(mode, "FORMATTED") || is(mode, "COST") {
        tokens.remove(at);
    }
}

fn external(error: UserError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The token with its unescaped value.
fn unescaped(mut token: TokenWithSpan) -> TokenWithSpan {
    token.token = match token.token {
        Token::SingleQuotedString(raw) => Token::SingleQuotedString(escapes::unescape(&raw, '\'')),
        Token::DoubleQuotedString(raw) => Token::DoubleQuotedString(escapes::unescape(&raw, '"')),
        Token::NationalStringLiteral(raw) => Token::NationalStringLiteral(escapes::unescape(&raw, '\'')),
        Token::SingleQuotedRawStringLiteral(raw) => Token::SingleQuotedString(raw.replace("''", "'")),
        Token::DoubleQuotedRawStringLiteral(raw) => Token::DoubleQuotedString(raw.replace("\"\"", "\"")),
        Token::Word(mut word) => {
            if word.quote_style == Some('`') {
                word.value = word.value.replace("``", "`");
            }
            Token::Word(word)
        }
        other => other,
    };
    token
}
