//! The lines of a users file: `user:hash:group,group`.
//!
//! Empty lines and lines that begin with `#` have no user. An edit keeps them and the order of the lines.

use std::collections::BTreeMap;
use std::fmt;

use model::user_name::{MAX_GROUPS, is_group_name, is_user_name};

use crate::password::{HashError, PasswordHash};

/// A user of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub hash: PasswordHash,
    pub groups: Vec<String>,
}

/// Why a line is not one of a users file. It contains no part of a password hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct LineError {
    /// Counts from 1.
    pub line: usize,
    pub reason: LineErrorReason,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineErrorReason {
    #[error("expected user:hash:group,group")]
    Fields,
    #[error("invalid user name")]
    UserName,
    #[error("invalid group name")]
    GroupName,
    #[error("the user has more than {MAX_GROUPS} groups")]
    TooManyGroups,
    #[error("the user is already on line {0}")]
    Duplicate(usize),
    #[error(transparent)]
    Hash(#[from] HashError),
}

/// The users of a file, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users {
    lines: Vec<Line>,
    by_name: BTreeMap<String, (usize, User)>,
}

/// A line, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Comment(String),
    User(String),
}

impl Users {
    /// Parses the text of a users file. An error for the first line with a bad form, name, group or hash, and for a user's
    /// second line.
    pub fn parse(text: &str) -> Result<Self, LineError> {
        let mut users = Self::default();
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            // Also of a last line without an end.
            let line = line.trim_end_matches('\r');
            if line.trim().is_empty() || line.starts_with('#') {
                users.lines.push(Line::Comment(line.to_owned()));
                continue;
            }
            let (name, user) = parse_line(line).map_err(|reason| LineError { line: number, reason })?;
            users.lines.push(Line::User(name.clone()));
            if let Some((first, _)) = users.by_name.insert(name, (number, user)) {
                return Err(LineError { line: number, reason: LineErrorReason::Duplicate(first) });
            }
        }
        Ok(users)
    }

    /// Whether a line can have a user of that name.
    pub fn is_valid_name(name: &str) -> bool {
        is_user_name(name) && name.trim() == name && !name.contains(':') && !name.starts_with('#')
    }

    pub fn get(&self, name: &str) -> Option<&User> {
        self.by_name.get(name).map(|(_, user)| user)
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Adds a user, or replaces the hash and, if `groups` are given, the groups. All names are valid.
    pub fn set(&mut self, name: &str, hash: PasswordHash, groups: Option<Vec<String>>) {
        if let Some((_, user)) = self.by_name.get_mut(name) {
            user.hash = hash;
            if let Some(groups) = groups {
                user.groups = groups;
            }
        } else {
            self.lines.push(Line::User(name.to_owned()));
            let user = User { hash, groups: groups.unwrap_or_default() };
            self.by_name.insert(name.to_owned(), (self.lines.len(), user));
        }
    }

    /// Removes a user; returns whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.lines.retain(|line| !matches!(line, Line::User(listed) if listed == name));
        self.by_name.remove(name).is_some()
    }
}

fn parse_line(line: &str) -> Result<(String, User), LineErrorReason> {
    let mut fields = line.split(':');
    let (Some(name), Some(hash), groups, None) = (fields.next(), fields.next(), fields.next(), fields.next()) else {
        return Err(LineErrorReason::Fields);
    };
    if !Users::is_valid_name(name) {
        return Err(LineErrorReason::UserName);
    }
    let hash = PasswordHash::parse(hash)?;
    let groups = groups.unwrap_or_default();
    let groups: Vec<String> =
        if groups.is_empty() { Vec::new() } else { groups.split(',').map(str::to_owned).collect() };
    if !groups.iter().all(|group| is_group_name(group)) {
        return Err(LineErrorReason::GroupName);
    }
    if groups.len() > MAX_GROUPS {
        return Err(LineErrorReason::TooManyGroups);
    }
    Ok((name.to_owned(), User { hash, groups }))
}

/// The text of the file.
impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            match line {
                Line::Comment(text) => writeln!(f, "{text}")?,
                Line::User(name) => {
                    let Some(user) = self.get(name) else { continue };
                    writeln!(f, "{name}:{}:{}", user.hash, user.groups.join(","))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// With the least memory, so that it is computed in no time.
    const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    #[test]
    fn carriage_returns_end_lines_and_belong_to_no_group() {
        let users = Users::parse(&format!("ann:{HASH}:etl\r\n\r\nbob:{HASH}:etl\r")).unwrap();
        assert_eq!(users.get("bob").unwrap().groups, ["etl"]);
        assert_eq!(Users::parse(&users.to_string()).unwrap(), users);
    }

    #[test]
    fn a_file_with_comments_is_edited_line_by_line() {
        let text = format!("# team\nann:{HASH}:analysts,etl\n\nbob:{HASH}:\n");
        let mut users = Users::parse(&text).unwrap();
        assert_eq!(users.to_string(), text);
        assert_eq!(users.get("ann").unwrap().groups, ["analysts", "etl"]);
        assert!(users.get("eve").is_none() && users.len() == 2);

        let hash = PasswordHash::parse(&HASH.replace("t=1", "t=2")).unwrap();
        users.set("ann", hash.clone(), None);
        users.set("carl", hash, Some(vec!["etl".to_owned()]));
        assert!(users.remove("bob") && !users.remove("bob"));
        let hash = HASH.replace("t=1", "t=2");
        assert_eq!(users.to_string(), format!("# team\nann:{hash}:analysts,etl\n\ncarl:{hash}:etl\n"));
    }

    #[test]
    fn a_bad_line_is_named_by_its_number_without_its_hash() {
        for (line, reason) in [
            ("ann".to_owned(), "expected user:hash:group,group"),
            (format!("ann:{HASH}:a:b"), "expected user:hash:group,group"),
            (format!("@ann:{HASH}:"), "invalid user name"),
            (format!("ann:{HASH}:a,,b"), "invalid group name"),
            (format!("bob:{HASH}:"), "the user is already on line 1"),
            (format!("ann:{}:", HASH.replace("t=1", "t=17")), "asks for 17 passes"),
            ("ann:hunter2:".to_owned(), "is not a PHC string"),
        ] {
            let error = Users::parse(&format!("bob:{HASH}\n{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with("line 2: ") && error.contains(reason), "{line}: {error}");
            assert!(!error.contains("hunter2") && !error.contains("AAAA"), "{error}");
        }
    }
}
