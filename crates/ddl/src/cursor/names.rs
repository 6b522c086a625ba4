//! Names at the cursor: bare, in double quotes, and as items of a list in single quotes.

use model::EngineName;
use model::error::UserError;
use model::name::{PoolName, QuotaName, TenantName, UnitName};

use super::{Cursor, shorten};
use crate::error::{ParseError, Position};
use crate::token::TokenKind;

impl Cursor<'_> {
    /// A name: bare ones are folded to lower case, quoted ones are kept.
    fn name(&mut self, what: &'static str) -> Result<(String, Position), ParseError> {
        let position = self.position();
        match &self.token().kind {
            TokenKind::QuotedName(name) => {
                let name = name.clone();
                self.advance();
                Ok((name, position))
            }
            TokenKind::Word | TokenKind::Number => Ok((self.bare_name()?, position)),
            TokenKind::Text(text) => {
                let hint =
                    format!("Write the name without single quotes: {}.", crate::quote::quoted_name(&shorten(text)));
                Err(self.missing(what).or_hint(hint))
            }
            _ => Err(self.missing(what)),
        }
    }

    /// A bare name. A name may contain `--`, but in a bare one a comment would begin there, so `DROP TENANT a--b`
    /// would drop `a`: that is refused.
    fn bare_name(&mut self) -> Result<String, ParseError> {
        let position = self.position();
        let (name, _) = self.bare_run();
        if self.text[position.offset + name.len()..].starts_with("--") {
            let message = format!("-- after the name \"{}\" is ambiguous", shorten(name));
            return Err(ParseError::syntax(position, message)
                .or_hint("Put double quotes around a name that contains --, or white space before a comment."));
        }
        Ok(self.take_bare_run().to_ascii_lowercase())
    }

    fn checked_name<T>(
        &mut self,
        what: &'static str,
        make: impl FnOnce(String) -> Result<T, UserError>,
    ) -> Result<T, ParseError> {
        let (name, position) = self.name(what)?;
        make(name).map_err(|error| ParseError::at(position, error))
    }

    pub(crate) fn tenant(&mut self) -> Result<TenantName, ParseError> {
        self.checked_name("the name of a tenant", TenantName::new)
    }

    pub(crate) fn pool(&mut self) -> Result<PoolName, ParseError> {
        self.checked_name("the name of a resource pool", PoolName::new)
    }

    pub(crate) fn unit(&mut self) -> Result<UnitName, ParseError> {
        self.checked_name("the name of a resource unit", UnitName::new)
    }

    pub(crate) fn quota(&mut self) -> Result<QuotaName, ParseError> {
        self.checked_name("the name of a resource quota", QuotaName::new)
    }

    /// The name of an engine, always in single quotes.
    pub(crate) fn engine(&mut self) -> Result<EngineName, ParseError> {
        let position = self.position();
        let name = self.string("the name of an engine in single quotes")?;
        EngineName::new(name).map_err(|error| ParseError::at(position, error))
    }

    /// An item of a list of names: a string or a name.
    pub(crate) fn list_name<T>(
        &mut self,
        what: &'static str,
        make: impl FnOnce(String) -> Result<T, UserError>,
    ) -> Result<T, ParseError> {
        if let TokenKind::Text(text) = &self.token().kind {
            let (text, position) = (text.clone(), self.position());
            self.advance();
            return make(text).map_err(|error| ParseError::at(position, error));
        }
        self.checked_name(what, make)
    }
}
