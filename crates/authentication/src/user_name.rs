//! What a user or a group may be called.

/// The longest name of a user or a group, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// Whether a client may have that name. A name that begins with `@` would denote a group in a list of users.
pub fn is_user_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.starts_with('@') && !name.chars().any(char::is_control)
}

/// Whether a group may have that name, which is written without its `@`.
pub fn is_group_name(name: &str) -> bool {
    is_user_name(name) && name.trim() == name && !name.contains([',', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_control_characters_and_long_names_are_no_users() {
        for name in ["ann", "etl/host", "müller", "a b"] {
            assert!(is_user_name(name), "{name}");
        }
        for name in ["", "@admins", "ann\nroot", "a\0b", "x".repeat(256).as_str()] {
            assert!(!is_user_name(name), "{name}");
        }
        assert!(is_group_name("analysts") && !is_group_name("a,b") && !is_group_name(" a") && !is_group_name("@a"));
    }
}
