//! The parser of statements from HiveServer2's clients that DataFusion parses differently or not at all.
//!
//! It parses only these statements: SET, RESET, USE, SHOW (DATABASES, SCHEMAS, TABLES, VIEWS, COLUMNS, CREATE TABLE,
//! FUNCTIONS, CATALOGS), DESCRIBE, and CREATE and DROP of a schema. Every other text, including one that begins like
//! these and continues differently, is passed unchanged to DataFusion's parser.

use datafusion::sql::sqlparser::tokenizer::{Token, Word};
use model::error::{ErrorKind, UserError};

use super::head::{after_blanks, first_word};
use crate::dialect::SqlDialect;

/// A table's name as written, with unquoted parts in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    pub schema: Option<String>,
    pub name: String,
}

/// A parsed statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// SET alone: the settings. `verbose` also shows DataFusion's.
    SetShow {
        /// With `-v`.
        verbose: bool,
    },
    /// `SET key`: its value.
    SetGet(String),
    /// `SET key=value`.
    Set(String, String),
    /// RESET, of one key or all.
    Reset(Option<String>),
    Use(String),
    /// SHOW DATABASES.
    ShowSchemas(Option<String>),
    ShowTables {
        /// IN or FROM.
        schema: Option<String>,
        /// LIKE.
        pattern: Option<String>,
        /// SHOW VIEWS.
        only_views: bool,
    },
    ShowColumns(TableName),
    ShowCreate(TableName),
    ShowPartitions(TableName),
    ShowFunctions(Option<String>),
    ShowCatalogs,
    /// DESCRIBE of a table; `extended` also shows its statement.
    Describe {
        table: TableName,
        /// EXTENDED or FORMATTED.
        extended: bool,
    },
    DescribeColumn {
        table: TableName,
        column: String,
    },
    /// DESCRIBE QUERY: the columns of a query, with its text.
    DescribeQuery(String),
    DescribeSchema(String),
    CreateSchema {
        name: String,
        if_not_exists: bool,
    },
    DropSchema {
        name: String,
        if_exists: bool,
        cascade: bool,
    },
    /// Any other statement, for DataFusion.
    Sql,
}

impl Command {
    /// Parses a statement.
    pub fn read(statement: &str, dialect: SqlDialect) -> Result<Self, UserError> {
        let head = first_word(statement);
        if head == "set" {
            return Ok(set(statement));
        }
        if !matches!(head.as_str(), "reset" | "use" | "show" | "describe" | "desc" | "create" | "drop") {
            return Ok(Self::Sql);
        }
        // DataFusion's parser reports text that cannot be tokenized.
        let Ok(tokens) = dialect.tokens(statement) else { return Ok(Self::Sql) };
        let tokens = tokens.into_iter().map(|token| token.token);
        let mut tokens: Vec<_> = tokens.filter(|token| !matches!(token, Token::Whitespace(_))).collect();
        while tokens.last() == Some(&Token::SemiColon) {
            tokens.pop();
        }
        let mut reader = Reader { tokens, at: 1 };
        let command = match head.as_str() {
            "reset" => Some(reader.reset(statement)),
            "use" => return reader.use_schema(),
            "show" => reader.show(),
            "describe" | "desc" => match described_query(statement)? {
                Some(query) => return Ok(Self::DescribeQuery(query)),
                None => reader.describe(),
            },
            "create" => reader.create(),
            _ => reader.drop(),
        };
        Ok(command.filter(|_| reader.is_at_end()).unwrap_or(Self::Sql))
    }
}

/// The query of a DESCRIBE QUERY. A query without the word QUERY is refused, as in HiveServer2: clients use
/// `DESCRIBE text` to check whether the text is the name of a table.
fn described_query(statement: &str) -> Result<Option<String>, UserError> {
    let after = |text: &str, word: &str| text.get(word.len()..).unwrap_or_default().to_owned();
    let rest = after(after_blanks(statement), &first_word(statement));
    if first_word(&rest) == "query" {
        let query = after(after_blanks(&rest), "query");
        let head = first_word(&query);
        return Ok((!head.is_empty()).then_some(query));
    }
    let opens = rest.trim_start().starts_with('(');
    let head = first_word(&rest);
    let goes_on = !after(after_blanks(&rest), &head).trim_matches(|c: char| c.is_whitespace() || c == ';').is_empty();
    if opens || (goes_on && matches!(head.as_str(), "select" | "with" | "values" | "from")) {
        return Err(UserError::new(ErrorKind::Syntax, "syntax error: DESCRIBE requires the name of a table")
            .hint("To describe a query, use DESCRIBE QUERY."));
    }
    Ok(None)
}

/// SET takes the rest of the text literally: `SET x=don't` contains no unterminated string.
fn set(statement: &str) -> Command {
    let text = after_blanks(statement)[3..].trim();
    let text = text.strip_suffix(';').map_or(text, str::trim_end);
    match text {
        "" => return Command::SetShow { verbose: false },
        "-v" => return Command::SetShow { verbose: true },
        _ => {}
    }
    let words: Vec<_> = text.split_whitespace().collect();
    if let [time, zone, rest @ ..] = words.as_slice()
        && time.eq_ignore_ascii_case("time")
        && zone.eq_ignore_ascii_case("zone")
        && !rest.is_empty()
    {
        let zone = rest.join(" ");
        let zone = zone.trim_matches(['\'', '"']).to_owned();
        return Command::Set("datafusion.execution.time_zone".to_owned(), zone);
    }
    if let Some((key, value)) = text.split_once('=') {
        return Command::Set(key.trim().to_owned(), value.trim().to_owned());
    }
    match words.as_slice() {
        [key, to, rest @ ..] if to.eq_ignore_ascii_case("to") && !rest.is_empty() => {
            Command::Set((*key).to_owned(), rest.join(" "))
        }
        _ => Command::SetGet(text.to_owned()),
    }
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
}

impl Reader {
    fn is_at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    fn is(&mut self, keyword: &str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some(Token::Word(Word { value, quote_style: None, .. })) if value.eq_ignore_ascii_case(keyword));
        self.at += usize::from(found);
        found
    }

    fn is_one_of(&mut self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.is(keyword))
    }

    fn are(&mut self, keywords: &[&str]) -> bool {
        let start = self.at;
        let found = keywords.iter().all(|keyword| self.is(keyword));
        if !found {
            self.at = start;
        }
        found
    }

    fn name(&mut self) -> Option<String> {
        let name = match self.tokens.get(self.at)? {
            Token::Word(Word { value, quote_style: None, .. }) => value.to_lowercase(),
            Token::Word(Word { value, .. }) | Token::DoubleQuotedString(value) => value.clone(),
            _ => return None,
        };
        self.at += 1;
        Some(name)
    }

    fn string(&mut self) -> Option<String> {
        let text = match self.tokens.get(self.at)? {
            Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => text.clone(),
            Token::Word(Word { value, quote_style: Some('"'), .. }) => value.clone(),
            _ => return None,
        };
        self.at += 1;
        Some(text)
    }

    /// `schema` or `catalog.schema`; returns the last part.
    fn schema(&mut self) -> Option<String> {
        let mut name = self.name()?;
        while self.tokens.get(self.at) == Some(&Token::Period) {
            self.at += 1;
            name = self.name()?;
        }
        Some(name)
    }

    fn table(&mut self) -> Option<TableName> {
        let mut parts = vec![self.name()?];
        while self.tokens.get(self.at) == Some(&Token::Period) {
            self.at += 1;
            parts.push(self.name()?);
        }
        let name = parts.pop()?;
        Some(TableName { schema: parts.pop(), name })
    }

    fn pattern(&mut self) -> Option<String> {
        self.is("like");
        self.string()
    }

    fn reset(&mut self, statement: &str) -> Command {
        self.at = self.tokens.len();
        let key = after_blanks(statement)["reset".len()..].trim().trim_end_matches(';').trim();
        Command::Reset((!key.is_empty() && !key.eq_ignore_ascii_case("all")).then(|| key.to_owned()))
    }

    fn use_schema(&mut self) -> Result<Command, UserError> {
        if !self.are(&["database"]) {
            self.is_one_of(&["schema", "namespace"]);
        }
        match self.schema() {
            Some(schema) if self.is_at_end() => Ok(Command::Use(schema)),
            // `USE schema` names a schema called "schema".
            None if self.at == 2 && self.is_at_end() => {
                self.at = 1;
                self.name().map(Command::Use).ok_or_else(use_syntax_error)
            }
            _ => Err(use_syntax_error()),
        }
    }

    fn show(&mut self) -> Option<Command> {
        if self.is_one_of(&["databases", "schemas", "namespaces"]) {
            return Some(Command::ShowSchemas(self.pattern()));
        }
        if self.is("catalogs") {
            return Some(Command::ShowCatalogs);
        }
        if self.is("partitions") {
            return self.table().map(Command::ShowPartitions);
        }
        if self.are(&["user", "functions"]) || self.are(&["system", "functions"]) || self.are(&["all", "functions"]) {
            return Some(Command::ShowFunctions(self.pattern()));
        }
        if self.is("functions") {
            return Some(Command::ShowFunctions(self.pattern()));
        }
        if self.is("columns") {
            return self.show_columns();
        }
        if self.is("create") {
            self.is_one_of(&["table", "view"]);
            return self.table().map(Command::ShowCreate);
        }
        let only_views = self.is("views");
        if !only_views && !self.is("tables") {
            return None;
        }
        let schema = if self.is_one_of(&["in", "from"]) { Some(self.schema()?) } else { None };
        Some(Command::ShowTables { schema, pattern: self.pattern(), only_views })
    }

    fn show_columns(&mut self) -> Option<Command> {
        if !self.is_one_of(&["in", "from"]) {
            return None;
        }
        let mut table = self.table()?;
        if self.is_one_of(&["in", "from"]) {
            table.schema = Some(self.schema()?);
        }
        Some(Command::ShowColumns(table))
    }

    fn describe(&mut self) -> Option<Command> {
        if self.is_one_of(&["database", "schema", "namespace"]) {
            self.is("extended");
            return self.schema().map(Command::DescribeSchema);
        }
        let start = self.at;
        let has_table_keyword = self.is("table");
        let extended = self.is_one_of(&["extended", "formatted"]);
        let table = self.table();
        if table.is_none() && (has_table_keyword || extended) {
            // A table called "table", "extended" or "formatted".
            self.at = start;
            return self.table().map(|table| Command::Describe { table, extended: false });
        }
        let table = table?;
        if table.schema.is_none() && table.name == "function" && !self.is_at_end() {
            return None;
        }
        match self.name() {
            Some(column) => Some(Command::DescribeColumn { table, column }),
            None => Some(Command::Describe { table, extended }),
        }
    }

    fn create(&mut self) -> Option<Command> {
        if !self.is_one_of(&["database", "schema"]) {
            return None;
        }
        let if_not_exists = self.are(&["if", "not", "exists"]);
        let name = self.schema()?;
        if self.is("comment") {
            self.string()?;
        }
        Some(Command::CreateSchema { name, if_not_exists })
    }

    fn drop(&mut self) -> Option<Command> {
        if !self.is_one_of(&["database", "schema"]) {
            return None;
        }
        let if_exists = self.are(&["if", "exists"]);
        let name = self.schema()?;
        let cascade = self.is("cascade");
        if !cascade {
            self.is("restrict");
        }
        Some(Command::DropSchema { name, if_exists, cascade })
    }
}

fn use_syntax_error() -> UserError {
    UserError::new(ErrorKind::Syntax, "syntax error: USE requires the name of a schema")
        .hint("SHOW DATABASES lists the schemas.")
}

#[cfg(test)]
mod tests;
