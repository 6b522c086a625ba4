//! Talking: a prompt with history; a statement ends with `;`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::connection::Connection;
use super::print::Format;
use super::{runner, script};

const PROMPT: &str = "enginehouse> ";
const CONTINUED: &str = "        ...> ";
/// Statements that the history keeps.
const HISTORY_ENTRIES: usize = 1_000;

/// Reads statements until the end of input, `exit` or `quit`.
pub async fn talk(connection: &mut Connection, format: Format) -> anyhow::Result<ExitCode> {
    println!("connected to {}. A statement ends with ; and exit leaves.", connection.address);
    let configuration = rustyline::Config::builder().max_history_size(HISTORY_ENTRIES)?.build();
    let mut editor = DefaultEditor::with_config(configuration).context("no terminal to read from")?;
    let history = history_file();
    if let Some(path) = &history {
        // No history yet is no error.
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
            Err(error) => return Err(error).context("the terminal can't be read"),
        };
        if pending.is_empty() && matches!(line.trim().trim_end_matches(';'), "exit" | "quit" | "!quit") {
            break;
        }
        pending.push_str(&line);
        pending.push('\n');
        let (statements, rest) = script::split(&pending);
        for statement in &statements {
            let _ = editor.add_history_entry(format!("{};", statement.text));
            if let Err(error) = runner::run(connection, &statement.text, format).await? {
                eprintln!("{}", runner::shown(&error));
            }
        }
        pending = if rest.trim().is_empty() { String::new() } else { rest };
    }
    if let Some(path) = &history {
        let _ = editor.save_history(path);
    }
    Ok(ExitCode::SUCCESS)
}

/// `ENGINEHOUSE_HISTORY`, or a file in the home directory.
fn history_file() -> Option<PathBuf> {
    std::env::var_os("ENGINEHOUSE_HISTORY")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".enginehouse_history")))
}
