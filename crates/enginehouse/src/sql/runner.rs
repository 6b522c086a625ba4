//! Runs statements and prints what comes back: results to standard output, everything else to standard error.
//!
//! Results are printed as they come: CSV and JSON row by row, tables of one part after another, so that no result
//! is too large. Ctrl-C cancels the statement that runs.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hs2::session::Progress;
use hs2::{ClientError, Column, Statement, Value};
use indicatif::{ProgressBar, ProgressStyle};
use model::error::UserError;

use super::connection::Connection;
use super::print::{self, Format};
use super::script::ScriptStatement;

/// Rows that one fetch asks for, and that one part of a table has at most.
const PART_ROWS: i64 = 1_000;
/// The pause between two polls: doubled from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(100);
/// How long a statement runs before the spinner shows.
const SPINNER_AFTER: Duration = Duration::from_millis(400);

/// Runs all statements; stops at the first error, with exit status 1.
pub async fn run_all(
    connection: &mut Connection,
    statements: &[ScriptStatement],
    format: Format,
) -> anyhow::Result<ExitCode> {
    for statement in statements {
        if let Err(error) = run(connection, &statement.text, format).await? {
            eprintln!("{}", shown(&error));
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An error as a person reads it.
pub fn shown(error: &UserError) -> String {
    let text = error.text();
    let (message, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let rest: String = rest.lines().flat_map(|line| ["\n  ", line]).collect();
    format!("error {}: {message}{rest}", error.sqlstate())
}

/// What a narrator remembers of a result.
#[derive(Debug, Default)]
pub struct Captured {
    columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
}

impl Captured {
    /// The engine that the result names: the current one, or the only one.
    pub fn current_engine(&self) -> Option<String> {
        let at = |name: &str| self.columns.iter().position(|column| column.name == name);
        let engine = at("engine")?;
        let named = |row: &Vec<Value>| row.get(engine)?.as_text().filter(|it| !it.is_empty()).map(str::to_owned);
        match at("current") {
            Some(current) => {
                self.rows.iter().filter(|row| row.get(current) == Some(&Value::Bool(true))).find_map(named)
            }
            None if self.rows.len() == 1 => self.rows.iter().find_map(named),
            None => None,
        }
    }
}

/// Rows of one result that are remembered.
const CAPTURED_ROWS: usize = 1_000;

/// Runs one statement and prints its result. The inner error is the server's; the outer one is that nothing can be
/// printed any more.
pub async fn run(connection: &mut Connection, text: &str, format: Format) -> anyhow::Result<Result<(), UserError>> {
    Ok(run_captured(connection, text, format).await?.map(|_| ()))
}

/// The same, and remembers the beginning of the result.
pub async fn run_captured(
    connection: &mut Connection,
    text: &str,
    format: Format,
) -> anyhow::Result<Result<Captured, UserError>> {
    let mut statement = match connection.session.execute(text).await {
        Ok(statement) => statement,
        Err(error) => return Ok(Err(error.user_error())),
    };
    if let Err(error) = wait(&mut statement).await {
        let error = error.user_error();
        let _ = statement.close().await;
        return Ok(Err(error));
    }
    let printed =
        if statement.has_result_set() { result(&mut statement, format).await? } else { Ok(Captured::default()) };
    let closed = statement.close().await.map_err(|error| error.user_error());
    Ok(printed.and_then(|captured| closed.map(|()| captured)))
}

/// Waits for the end, showing the operation's log. Ctrl-C cancels.
async fn wait(statement: &mut Statement<'_>) -> Result<(), ClientError> {
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut spinner: Option<ProgressBar> = None;
    loop {
        let progress = statement.poll().await;
        if began.elapsed() > SPINNER_AFTER || spinner.is_some() {
            let bar = spinner.get_or_insert_with(new_spinner);
            bar.tick();
            // A server without operation logs is no reason to fail.
            for line in statement.logs().await.unwrap_or_default() {
                bar.suspend(|| eprintln!("  {line}"));
            }
        }
        match progress {
            Ok(Progress::Finished) => break,
            Ok(Progress::Running) => {}
            Err(error) => {
                clear(spinner);
                return Err(error);
            }
        }
        let interrupted = tokio::select! {
            () = tokio::time::sleep(pause) => false,
            _ = tokio::signal::ctrl_c() => true,
        };
        if interrupted {
            statement.cancel().await?;
        }
        pause = (pause * 2).min(LAST_PAUSE);
    }
    clear(spinner);
    Ok(())
}

fn new_spinner() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{spinner} {elapsed}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style)
}

fn clear(spinner: Option<ProgressBar>) {
    if let Some(bar) = spinner {
        bar.finish_and_clear();
    }
}

async fn result(statement: &mut Statement<'_>, format: Format) -> anyhow::Result<Result<Captured, UserError>> {
    let columns: Vec<Column> = match statement.columns().await {
        Ok(columns) => columns,
        Err(error) => return Ok(Err(error.user_error())),
    };
    let mut out = std::io::stdout().lock();
    if format == Format::Csv {
        writeln!(out, "{}", print::csv_line(columns.iter().map(|column| column.name.as_str())))?;
    }
    let mut parts = 0_usize;
    let mut captured = Captured { columns: columns.clone(), rows: Vec::new() };
    loop {
        let rows: Vec<Vec<Value>> = match statement.fetch(PART_ROWS).await {
            Ok(rows) => rows,
            Err(error) => return Ok(Err(error.user_error())),
        };
        let is_end = rows.is_empty();
        match format {
            Format::Table if !is_end || parts == 0 => writeln!(out, "{}", print::table(&columns, &rows))?,
            Format::Table => {}
            Format::Csv => {
                for row in &rows {
                    writeln!(out, "{}", print::csv_row(row))?;
                }
            }
            Format::Json => {
                for row in &rows {
                    writeln!(out, "{}", print::json_row(&columns, row))?;
                }
            }
        }
        if is_end {
            break;
        }
        let room = CAPTURED_ROWS.saturating_sub(captured.rows.len());
        captured.rows.extend(rows.into_iter().take(room));
        parts += 1;
    }
    out.flush()?;
    Ok(Ok(captured))
}
