//! Comparison of keys.

/// Compares two keys in constant time.
pub fn keys_match(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_keys_match() {
        assert!(keys_match("key", "key"));
        for other in ["kez", "ke", "keys", ""] {
            assert!(!keys_match("key", other), "{other}");
        }
    }
}
