//! The interactive session: a prompt with history; a statement ends with `;`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use model::secret::SecretKeys;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::connection::{Connection, Login};
use super::print::Format;
use super::{runner, script};
use crate::output::{print_error, print_line, with_causes};

const PROMPT: &str = "enginehouse> ";
const CONTINUED: &str = "        ...> ";
/// Statements that the history keeps.
const HISTORY_ENTRIES: usize = 1_000;

/// The parameters of an interactive session.
pub struct ReplParameters<'a> {
    /// For a reconnect.
    pub login: &'a Login<'a>,
    pub format: Format,
}

/// Reads statements until the end of input, `exit` or `quit`.
pub async fn run_interactively(
    connection: &mut Connection,
    parameters: &ReplParameters<'_>,
) -> anyhow::Result<ExitCode> {
    print_line(&format!(
        "connected to {} as {}; end statements with ; and leave with exit",
        connection.address, parameters.login.user
    ));
    let configuration = rustyline::Config::builder().max_history_size(HISTORY_ENTRIES)?.build();
    let mut editor = DefaultEditor::with_config(configuration).context("cannot open the terminal")?;
    let history = history_file();
    if let Some(path) = &history {
        // A missing history is no error.
        let _ = editor.load_history(path);
    }
    let mut pending = String::new();
    loop {
        let line = tokio::task::block_in_place(|| editor.readline(if pending.is_empty() { PROMPT } else { CONTINUED }));
        let line = match line {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                pending.clear();
                continue;
            }
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error).context("cannot read from the terminal"),
        };
        if pending.is_empty() && matches!(line.trim().trim_end_matches(';'), "exit" | "quit" | "!quit") {
            break;
        }
        pending.push_str(&line);
        pending.push('\n');
        let (statements, rest) = script::split(&pending);
        for statement in &statements {
            if let Some(entry) = history_entry(&statement.text) {
                let _ = editor.add_history_entry(format!("{entry};"));
            }
            if !run(connection, &statement.text, parameters).await? {
                break;
            }
        }
        pending = if rest.trim().is_empty() { String::new() } else { rest };
    }
    if let Some(path) = &history {
        let _ = editor.save_history(path);
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs one statement; returns `false` if it failed, so that the rest of the line is skipped.
async fn run(connection: &mut Connection, text: &str, parameters: &ReplParameters<'_>) -> anyhow::Result<bool> {
    connection.interrupts.clear();
    let outcome = runner::run_captured(connection, text, parameters.format).await?;
    if connection.is_broken() {
        match connection.reopen(parameters.login).await {
            Ok(()) => print_error("the connection was lost; reconnected with a new session"),
            Err(error) => {
                let reason = with_causes(&error);
                print_error(&format!("the connection was lost; the next statement reconnects: {reason}"));
            }
        }
    }
    match outcome {
        Ok(captured) if captured.is_result() => Ok(true),
        Ok(_) => {
            print_error("ok");
            Ok(true)
        }
        Err(error) => {
            print_error(&runner::shown(&error));
            Ok(false)
        }
    }
}

/// A statement for the history, with masked secret properties; `None` if it may contain a secret that cannot be masked.
fn history_entry(text: &str) -> Option<String> {
    let keys = SecretKeys::default();
    match ddl::parse(text) {
        Ok(statement) => {
            let masked = ddl::masked_text(&statement, &keys);
            // Unchanged if there is nothing to mask.
            Some(if masked == statement.to_string() { text.to_owned() } else { masked })
        }
        Err(_) if gives_secret(text, &keys) => None,
        Err(_) => Some(text.to_owned()),
    }
}

/// Whether a secret key is given a value: `password=…`, `'password' = '…'`, `'password' '…'`.
fn gives_secret(text: &str, keys: &SecretKeys) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | ':');
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        let word = &rest[start..];
        let end = word.find(|c| !is_part(c)).unwrap_or(word.len());
        let behind = word[end..].trim_start_matches(['\'', '"', '`']).trim_start();
        if keys.is_secret(&word[..end]) && behind.starts_with(['=', '\'', '"']) {
            return true;
        }
        rest = &word[end..];
    }
    false
}

/// `ENGINEHOUSE_HISTORY`, or a file in the home directory.
fn history_file() -> Option<PathBuf> {
    std::env::var_os("ENGINEHOUSE_HISTORY")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".enginehouse_history")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_keeps_no_secret_value() {
        let unit = "CREATE RESOURCE UNIT u PROPERTIES ('my.password'='hunter2', 'a'='b')";
        let kept = history_entry(unit).unwrap_or_default();
        assert!(kept.contains("'a'='b'") && !kept.contains("hunter2"), "{kept}");
        for text in [
            "SET fs.s3a.secret.key=hunter2",
            "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 's3://b' OPTIONS ('aws.secret_access_key' 'hunter2')",
            "CREATE RESOURCE UNIT u PROPERTIES ('my.password'='hunter2'",
        ] {
            assert_eq!(history_entry(text), None, "{text}");
        }
        for text in ["SELECT password FROM users", "show  engines", "SET a.b=c"] {
            assert_eq!(history_entry(text).as_deref(), Some(text));
        }
    }
}
