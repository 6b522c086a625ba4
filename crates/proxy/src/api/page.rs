//! Pages of a list: the limit, and the cursor that names the last row of the page before.
//!
//! A cursor is opaque to clients. It holds the resource and the key of the last row and no position, so rows that are added
//! or removed between two pages shift no other row into or out of a page.

use model::error::{ErrorKind, UserError};
use serde_json::json;

use super::hex;

/// The rows of a page without a limit, and the most rows of a page.
pub(super) const DEFAULT_LIMIT: usize = 100;
pub(super) const MAX_LIMIT: usize = 1_000;
/// The longest cursor, in bytes: twice those of the longest key.
const MAX_CURSOR_BYTES: usize = 4 << 10;

/// The values that identify a row of its list.
pub(super) type Key = Vec<String>;

/// The page that a request asks for.
#[derive(Debug)]
pub(super) struct Page {
    resource: &'static str,
    pub(super) limit: usize,
    /// The last row of the page before.
    pub(super) after: Option<Key>,
}

impl Page {
    pub(super) fn new(resource: &'static str, limit: Option<u32>, cursor: Option<&str>) -> Result<Self, UserError> {
        let limit = limit.map_or(DEFAULT_LIMIT, |limit| limit as usize);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(UserError::new(ErrorKind::InvalidValue, format!("limit: {limit} is out of range"))
                .detail(format!("It is a whole number from 1 to {MAX_LIMIT}.")));
        }
        let after = match cursor {
            Some(cursor) => Some(decode(resource, cursor).ok_or_else(invalid_cursor)?),
            None => None,
        };
        Ok(Self { resource, limit, after })
    }

    /// The cursor of the page after this row.
    pub(super) fn cursor(&self, key: &Key) -> String {
        hex::encode(json!([self.resource, key]).to_string().as_bytes())
    }
}

/// The error of a cursor that names no row.
pub(super) fn invalid_cursor() -> UserError {
    UserError::new(ErrorKind::InvalidValue, "invalid cursor")
        .detail("It is not from this list, or its row is no longer there.")
        .hint("Read the list from its beginning, without a cursor.")
}

fn decode(resource: &str, cursor: &str) -> Option<Key> {
    if cursor.len() > MAX_CURSOR_BYTES {
        return None;
    }
    let (of, key): (String, Key) = serde_json::from_slice(&hex::decode(cursor)?).ok()?;
    (of == resource).then_some(key)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_key_in_its_own_list_only() {
        let page = Page::new("tenants", None, None).unwrap();
        assert_eq!((page.limit, &page.after), (DEFAULT_LIMIT, &None));
        let cursor = page.cursor(&vec!["t_1".to_owned(), "\u{e4}\"".to_owned()]);
        let next = Page::new("tenants", Some(1_000), Some(&cursor)).unwrap();
        assert_eq!(next.after, Some(vec!["t_1".to_owned(), "\u{e4}\"".to_owned()]));
        let (short, long) = (&cursor[1..], cursor.repeat(200));
        for (resource, cursor) in
            [("pools", cursor.as_str()), ("tenants", ""), ("tenants", short), ("tenants", "+f"), ("tenants", &long)]
        {
            assert_eq!(Page::new(resource, None, Some(cursor)).unwrap_err().message, "invalid cursor");
        }
        for limit in [0, 1_001, u32::MAX] {
            assert_eq!(Page::new("tenants", Some(limit), None).unwrap_err().sqlstate(), "22023");
        }
    }
}
