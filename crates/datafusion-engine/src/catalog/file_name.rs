//! Encoding of names of schemas and tables as file names.
//!
//! Invariant: an encoded name contains only `a-z 0-9 _ %`, so no name refers to another folder or a hidden file, and the
//! encoding is unique even on a file system that ignores case.

use std::fmt::Write;

use model::error::{ErrorKind, UserError};

/// The longest encoded name, in bytes: file systems allow 255, including the file's extension.
pub const ENCODED_BYTES_MAX: usize = 240;

/// The file name of a name, with bytes other than `a-z 0-9 _` as `%XX`.
pub fn encode(object: &str, name: &str) -> Result<String, UserError> {
    if name.is_empty() {
        return Err(UserError::new(ErrorKind::InvalidName, format!("{object} name is empty")));
    }
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'_' => encoded.push(char::from(byte)),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    if encoded.len() > ENCODED_BYTES_MAX {
        let start: String = name.chars().take(20).collect();
        return Err(UserError::new(ErrorKind::InvalidName, format!("{object} name \"{start}…\" is too long"))
            .detail(format!("Its encoded form has {} bytes; the limit is {ENCODED_BYTES_MAX}.", encoded.len()))
            .with_sqlstate("42622"));
    }
    Ok(encoded)
}

/// The name of a file name that [`encode`] returned; `None` for any other file name.
pub fn decode(encoded: &str) -> Option<String> {
    let bytes = encoded.as_bytes();
    let mut name = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        match bytes[index] {
            b'%' => {
                name.push(u8::from_str_radix(encoded.get(index + 1..index + 3)?, 16).ok()?);
                index += 3;
            }
            byte @ (b'a'..=b'z' | b'0'..=b'9' | b'_') => {
                name.push(byte);
                index += 1;
            }
            _ => return None,
        }
    }
    let name = String::from_utf8(name).ok()?;
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn no_name_is_a_path_and_every_name_comes_back() {
        for name in ["rides", "Rides", "..", "../../etc/passwd", ".hidden", "a b", "ß漢字", "%2e", "a\0b", "a\nb", "-"]
        {
            let encoded = encode("table", name).unwrap();
            assert!(!encoded.contains(['/', '.', '\\', '\0']), "{encoded}");
            assert_eq!(decode(&encoded).as_deref(), Some(name));
        }
        assert_ne!(encode("table", "Rides").unwrap().to_lowercase(), encode("table", "rides").unwrap());
        assert_eq!(decode("README.md"), None);
        assert_eq!(decode("%zz"), None);
        assert_eq!(decode(""), None);
        assert_eq!(encode("table", "").unwrap_err().sqlstate(), "42602");
        assert_eq!(encode("table", &"漢".repeat(40)).unwrap_err().sqlstate(), "42622");
    }
}
