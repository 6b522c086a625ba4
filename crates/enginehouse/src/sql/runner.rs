//! Runs statements: results are printed to standard output, everything else to standard error.
//!
//! Results are printed as they arrive: CSV and JSON row by row, tables in parts, so that a result of any size fits. Ctrl-C
//! cancels the running statement, also while its result is printed, and ends a script.

use std::io::{IsTerminal as _, Write as _};
use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hs2::session::StatementProgress;
use hs2::{ClientError, Column, Statement, Value};
use indicatif::{ProgressBar, ProgressStyle};
use model::error::{ErrorKind, UserError};
use tokio::time::timeout;

use super::connection::Connection;
use super::interrupt::{self, Interrupts};
use super::print::{self, Format};
use super::script::ScriptStatement;
use crate::output::{print_error, printable};

/// The rows of one fetch, and of one part of a table.
const PART_ROWS: i64 = 1_000;
/// The pause between two polls: doubled from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(100);
/// The prefix of warnings in the log of a statement.
const WARNING: &str = "warning: ";
/// The delay of the spinner.
const SPINNER_AFTER: Duration = Duration::from_millis(400);
/// The time that a fetch has after Ctrl-C before its connection is dropped.
const FETCH_AFTER_INTERRUPT: Duration = Duration::from_secs(1);
/// The characters of a statement that an error quotes.
const QUOTED_CHARS: usize = 80;

/// Runs all statements; stops at the first error, with exit status 1, or at Ctrl-C.
pub async fn run_all(
    connection: &mut Connection,
    statements: &[ScriptStatement],
    format: Format,
) -> anyhow::Result<ExitCode> {
    for statement in statements {
        if let Err(error) = run_captured(connection, &statement.text, format).await? {
            print_error(&shown(&error));
            if statements.len() > 1 {
                print_error(&format!("  in line {}: {}", statement.line, quoted(&statement.text)));
            }
            let interrupted = connection.interrupts.is_interrupted();
            return Ok(if interrupted { ExitCode::from(interrupt::EXIT_STATUS) } else { ExitCode::FAILURE });
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The beginning of a statement, on one line.
fn quoted(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// An error as text for users.
pub fn shown(error: &UserError) -> String {
    let text = printable(&error.clone().without_stack_trace().text());
    let (message, rest) = text.split_once('\n').map_or((text.as_str(), String::new()), |(message, rest)| {
        (message, rest.lines().flat_map(|line| ["\n  ", line]).collect::<String>())
    });
    format!("error {}: {message}{rest}", error.sqlstate())
}

/// The beginning of a result, for the tour.
#[derive(Debug, Default)]
pub struct Captured {
    columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
}

impl Captured {
    /// Whether there was a result set.
    pub fn is_result(&self) -> bool {
        !self.columns.is_empty()
    }

    /// The engine that the result names: the current one, or the only one.
    pub fn current_engine(&self) -> Option<String> {
        let at = |name: &str| self.columns.iter().position(|column| column.name == name);
        let engine = at("engine")?;
        let named = |row: &Vec<Value>| row.get(engine)?.as_text().filter(|name| !name.is_empty()).map(str::to_owned);
        match at("current") {
            Some(current) => {
                self.rows.iter().filter(|row| row.get(current) == Some(&Value::Bool(true))).find_map(named)
            }
            None if self.rows.len() == 1 => self.rows.iter().find_map(named),
            None => None,
        }
    }
}

/// The rows of a result that are kept.
const CAPTURED_ROWS: usize = 1_000;

/// Runs one statement, prints its result and returns its beginning. The inner error is the server's; the outer one is a
/// failure to print.
pub async fn run_captured(
    connection: &mut Connection,
    text: &str,
    format: Format,
) -> anyhow::Result<Result<Captured, UserError>> {
    let Connection { session, interrupts, .. } = connection;
    let mut statement = tokio::select! {
        biased;
        () = interrupts.next() => return Ok(Err(cancelled())),
        begun = session.execute(text) => match begun {
            Ok(statement) => statement,
            Err(error) => return Ok(Err(error.user_error())),
        },
    };
    if let Err(error) = wait(&mut statement, interrupts).await {
        let error = error.user_error();
        let _ = statement.close().await;
        return Ok(Err(error));
    }
    let printed = if statement.has_result_set() {
        result(&mut statement, format, interrupts).await?
    } else {
        Ok(Captured::default())
    };
    let closed = statement.close().await.map_err(|error| error.user_error());
    Ok(printed.and_then(|captured| closed.map(|()| captured)))
}

/// Whether the result of a query has rows; prints nothing.
pub async fn has_rows(connection: &mut Connection, text: &str) -> Result<bool, UserError> {
    let Connection { session, interrupts, .. } = connection;
    let mut statement = session.execute(text).await.map_err(|error| error.user_error())?;
    wait(&mut statement, interrupts).await.map_err(|error| error.user_error())?;
    let rows = fetch(&mut statement, interrupts).await?;
    statement.close().await.map_err(|error| error.user_error())?;
    Ok(!rows.is_empty())
}

fn cancelled() -> UserError {
    UserError::new(ErrorKind::Canceled, "the statement was cancelled")
}

/// Waits for the end, showing the operation's log. Ctrl-C cancels.
async fn wait(statement: &mut Statement<'_>, interrupts: &Interrupts) -> Result<(), ClientError> {
    let mut spinner: Option<ProgressBar> = None;
    let ended = watch(statement, interrupts, &mut spinner).await;
    if let Some(bar) = spinner {
        bar.finish_and_clear();
    }
    ended
}

async fn watch(
    statement: &mut Statement<'_>,
    interrupts: &Interrupts,
    spinner: &mut Option<ProgressBar>,
) -> Result<(), ClientError> {
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut is_cancelled = false;
    loop {
        let progress = statement.poll().await;
        if began.elapsed() > SPINNER_AFTER || spinner.is_some() {
            let bar = spinner.get_or_insert_with(new_spinner);
            bar.tick();
            // A server without operation logs is no reason to fail.
            for line in statement.logs().await.unwrap_or_default() {
                bar.suspend(|| print_error(&printable(&format!("  {line}"))));
            }
        }
        match progress? {
            // It finished before it was cancelled; the user expects no result.
            StatementProgress::Finished if is_cancelled => return Err(ClientError::Refused(cancelled())),
            StatementProgress::Finished => {
                warn(statement, spinner.as_ref()).await;
                return Ok(());
            }
            StatementProgress::Running => {}
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = interrupts.next(), if !is_cancelled => {
                is_cancelled = true;
                statement.cancel().await?;
            }
        }
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Prints the rest of the log: everything if it was followed, otherwise warnings only.
async fn warn(statement: &mut Statement<'_>, followed: Option<&ProgressBar>) {
    for line in statement.logs().await.unwrap_or_default() {
        match followed {
            Some(bar) => bar.suspend(|| print_error(&printable(&format!("  {line}")))),
            None if line.starts_with(WARNING) => print_error(&printable(&line)),
            None => {}
        }
    }
}

fn new_spinner() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{spinner} {elapsed}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style)
}

/// The next rows. Ctrl-C cancels: a fetch that does not end soon after it is given up with its connection.
async fn fetch(statement: &mut Statement<'_>, interrupts: &Interrupts) -> Result<Vec<Vec<Value>>, UserError> {
    let given_up = {
        let mut fetching = pin!(statement.fetch(PART_ROWS));
        tokio::select! {
            biased;
            () = interrupts.next() => timeout(FETCH_AFTER_INTERRUPT, fetching).await.is_err(),
            rows = &mut fetching => return rows.map_err(|error| error.user_error()),
        }
    };
    if !given_up {
        let _ = statement.cancel().await;
    }
    Err(cancelled())
}

async fn result(
    statement: &mut Statement<'_>,
    format: Format,
    interrupts: &Interrupts,
) -> anyhow::Result<Result<Captured, UserError>> {
    let columns: Vec<Column> = match statement.columns().await {
        Ok(columns) => columns,
        Err(error) => return Ok(Err(error.user_error())),
    };
    let mut out = std::io::stdout().lock();
    let on_terminal = out.is_terminal();
    let line = |line: String| if on_terminal { printable(&line) } else { line };
    if format == Format::Csv {
        writeln!(out, "{}", line(print::csv_line(columns.iter().map(|column| column.name.as_str()))))?;
    }
    let keys = print::json_keys(&columns);
    let (mut parts, mut count) = (0_usize, 0_usize);
    let mut captured = Captured { columns: columns.clone(), rows: Vec::new() };
    loop {
        let rows = match fetch(statement, interrupts).await {
            Ok(rows) => rows,
            Err(error) => return Ok(Err(error)),
        };
        let is_end = rows.is_empty();
        match format {
            Format::Table if !is_end || parts == 0 => writeln!(out, "{}", print::table(&columns, &rows))?,
            Format::Table => {}
            Format::Csv => {
                for row in &rows {
                    writeln!(out, "{}", line(print::csv_row(row)))?;
                }
            }
            Format::Json => {
                for row in &rows {
                    writeln!(out, "{}", line(print::json_row(&keys, row)))?;
                }
            }
        }
        if is_end {
            break;
        }
        count += rows.len();
        parts += 1;
        let room = CAPTURED_ROWS.saturating_sub(captured.rows.len());
        captured.rows.extend(rows.into_iter().take(room));
    }
    if format == Format::Table && parts > 1 {
        writeln!(out, "{count} rows in {parts} parts")?;
    }
    out.flush()?;
    Ok(Ok(captured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_shown_without_stack_trace_and_control_characters() {
        let text =
            "[UNRESOLVED_ROUTINE] cannot resolve `cont`\u{1b}[2J; line 1 pos 7\n\tat org.apache.A.b(A.scala:1)\n\tat x";
        let error = UserError::from_text(ErrorKind::Internal, text).with_sqlstate("42883");
        assert_eq!(shown(&error), "error 42883: [UNRESOLVED_ROUTINE] cannot resolve `cont` [2J; line 1 pos 7");
    }
}
