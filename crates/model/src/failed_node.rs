//! The text that names the failed node of an engine without a registration: a part of the engine's reason in SHOW ENGINES, which
//! programs that read the rows recognize.

const BEFORE: &str = "node \"";
const UNREADY: &str = "\" has not been ready for ";
const ABSENT: &str = "\" has been gone for ";

/// `node "n-3" has not been ready for 12 s`, or that it has been gone for so long.
pub fn shown(node: &str, is_absent: bool, lasted: &str) -> String {
    format!("{BEFORE}{node}{}{lasted}", if is_absent { ABSENT } else { UNREADY })
}

/// The node, and that text, in the reason of an engine.
pub fn of_reason(reason: &str) -> Option<(&str, &str)> {
    let text = reason.split("; ").find(|part| part.starts_with(BEFORE))?;
    let after = text.strip_prefix(BEFORE)?;
    let node = [UNREADY, ABSENT].into_iter().find_map(|state| after.split_once(state))?.0;
    // What follows the time belongs to the reason of the engine.
    Some((node, text.split_once(", attempt ").map_or(text, |(text, _)| text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_of_a_reason_is_recognized() {
        for (is_absent, expected) in
            [(false, "node \"n-3\" has not been ready for 12 s"), (true, "node \"n-3\" has been gone for 12 s")]
        {
            let text = shown("n-3", is_absent, "12 s");
            assert_eq!(text, expected);
            for reason in [
                text.clone(),
                format!("{text}; waits for replacement: is being created"),
                format!("{text}, attempt 3; failure 2: exit code 1"),
            ] {
                assert_eq!(of_reason(&reason), Some(("n-3", expected)), "{reason}");
            }
        }
        for other in ["", "waits to be scheduled", "node \"n-3\" is not ready", "pod x: node \"n-3\" has gone"] {
            assert_eq!(of_reason(other), None, "{other}");
        }
    }
}
