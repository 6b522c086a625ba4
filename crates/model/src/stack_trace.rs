//! Java stack traces in error texts: dozens of lines that a user does not need.

use std::borrow::Cow;

/// The beginning of a frame.
const FRAME: &str = "\n\tat ";
/// The line that replaces the frames that a cause shares with its effect.
const FRAMES_IN_COMMON: &str = "\n\t... ";
/// The beginning of a cause, after the frames of its effect.
const CAUSE: &str = "\nCaused by: ";
/// The most causes of one exception that are read.
const CAUSES_MAX: usize = 16;

pub fn has_frames(text: &[u8]) -> bool {
    text.windows(FRAME.len()).any(|window| window == FRAME.as_bytes())
}

/// The text without stack frames. Only causes with a new message are kept: Spark repeats the same message in most of
/// them.
pub fn without_frames(text: &str) -> Cow<'_, str> {
    let Some((head, rest)) = text.split_once(FRAME) else { return Cow::Borrowed(text) };
    let mut kept = head.trim_end().to_owned();
    for cause in rest.split(CAUSE).skip(1).take(CAUSES_MAX) {
        let end = [FRAME, FRAMES_IN_COMMON].iter().filter_map(|frame| cause.find(frame)).min();
        let cause = cause[..end.unwrap_or(cause.len())].trim_end();
        let message = cause.split_once(": ").map_or(cause, |(_class, message)| message);
        if !kept.contains(message) {
            kept.extend([CAUSE, cause]);
        }
    }
    Cow::Owned(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_out_and_causes_stay_once() {
        for (text, expected) in [
            ("no table t; line 1\n\tselect * from t\nat least", "no table t; line 1\n\tselect * from t\nat least"),
            ("no table t; line 1\n  ^\n\n\tat org.a.B.c(B.java:1)\n\tat d", "no table t; line 1\n  ^"),
            (
                "job aborted\n\tat a.b(C.java:1)\nCaused by: x.Y: boom: 1\n2\n\tat d.e(F.java:2)\n\t... 7 more\n\
                 Caused by: x.Z: job aborted\n\t... 9 more\nCaused by: java.lang.NullPointerException\n\tat g",
                "job aborted\nCaused by: x.Y: boom: 1\n2\nCaused by: java.lang.NullPointerException",
            ),
        ] {
            assert_eq!(without_frames(text), expected);
            assert_eq!(has_frames(text.as_bytes()), text != expected);
        }
    }

    #[test]
    fn an_endless_trace_is_read_up_to_a_limit() {
        let causes: Vec<String> = (0..10_000).map(|n| format!("{CAUSE}x: cause {n}.")).collect();
        let text = format!("top\n\tat a{}", causes.concat());
        assert_eq!(without_frames(&text).matches(CAUSE).count(), CAUSES_MAX);
    }
}
