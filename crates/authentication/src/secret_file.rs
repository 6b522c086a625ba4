//! The mode of a file with secrets.

/// Whether users other than this process's can access a file of that mode and owner. A file of root's may be readable by
/// its group, as Kubernetes mounts secrets for a process that is not root.
pub fn is_open_to_others(mode: u32, owner: u32) -> bool {
    is_open_to_others_than(rustix::process::geteuid().as_raw(), mode, owner)
}

fn is_open_to_others_than(ourselves: u32, mode: u32, owner: u32) -> bool {
    let ours = if owner == 0 && ourselves != 0 { 0o740 } else { 0o700 };
    mode & 0o777 & !ours != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_file_is_private_or_roots_and_readable_by_the_group() {
        for (mode, owner, ourselves, open) in [
            (0o100_600, 1_000, 1_000, false),
            (0o100_400, 0, 0, false),
            (0o100_440, 0, 10_001, false),
            (0o100_640, 0, 10_001, false),
            (0o100_440, 10_001, 10_001, true),
            (0o100_440, 0, 0, true),
            (0o100_460, 0, 10_001, true),
            (0o100_444, 0, 10_001, true),
            (0o100_644, 1_000, 1_000, true),
        ] {
            assert_eq!(is_open_to_others_than(ourselves, mode, owner), open, "{mode:o} {owner} {ourselves}");
        }
    }
}
