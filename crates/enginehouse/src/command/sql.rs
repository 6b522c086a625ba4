//! `enginehouse sql`: runs statements, or talks.

use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::cli::SqlArguments;
use crate::sql::connection::Connection;
use crate::sql::url::Target;
use crate::sql::{repl, runner, script};

/// The largest script that is read, in bytes.
const MAX_SCRIPT_BYTES: u64 = 64 << 20;

pub async fn run(arguments: SqlArguments) -> anyhow::Result<ExitCode> {
    let target = Target::parse(&arguments.url)?;
    let mut connection = Connection::open(&target, &arguments.user, &arguments.password).await?;
    let scripted = !arguments.execute.is_empty() || arguments.file.is_some() || !std::io::stdin().is_terminal();
    let outcome = if scripted {
        let mut statements = Vec::new();
        for text in &arguments.execute {
            statements.extend(script::statements(text));
        }
        if arguments.execute.is_empty() || arguments.file.is_some() {
            let text = read_script(arguments.file.as_deref())?;
            statements.extend(script::statements(&text));
        }
        runner::run_all(&mut connection, &statements, arguments.format).await
    } else {
        repl::talk(&mut connection, arguments.format).await
    };
    connection.close().await;
    outcome
}

fn read_script(file: Option<&std::path::Path>) -> anyhow::Result<String> {
    let mut text = String::new();
    match file {
        Some(path) if path.as_os_str() != "-" => {
            let file = std::fs::File::open(path).with_context(|| format!("can't read {}", path.display()))?;
            file.take(MAX_SCRIPT_BYTES)
                .read_to_string(&mut text)
                .with_context(|| format!("can't read {}", path.display()))?;
        }
        _ => {
            std::io::stdin().take(MAX_SCRIPT_BYTES).read_to_string(&mut text).context("can't read standard input")?;
        }
    }
    Ok(text)
}
