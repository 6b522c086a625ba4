//! `enginehouse sql`: runs statements, or an interactive session.

use std::io::{ErrorKind, IsTerminal as _, Read as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use hs2::ClientTls;

use crate::cli::SqlArguments;
use crate::sql::connection::{Connection, Login};
use crate::sql::interrupt::Interrupts;
use crate::sql::url::ServerUrl;
use crate::sql::{repl, runner, script};

/// The largest script that is read, in bytes.
const MAX_SCRIPT_BYTES: u64 = 64 << 20;
/// The longest file with a token that is read, in bytes: more than the longest token.
const MAX_TOKEN_BYTES: u64 = 64 << 10;
/// The default user.
const DEFAULT_USER: &str = "admin";

pub async fn run(arguments: SqlArguments) -> anyhow::Result<ExitCode> {
    let target = ServerUrl::parse(&arguments.url)?;
    let token = arguments.token_file.as_deref().map(read_token).transpose()?;
    let default_user = if token.is_some() { "" } else { DEFAULT_USER };
    let user = arguments.user.as_deref().or(target.user.as_deref()).unwrap_or(default_user);
    let password = arguments.password.as_deref().or(target.password.as_deref());
    let password = token.as_deref().or(password).unwrap_or_default();
    let scripted = !arguments.execute.is_empty() || arguments.file.is_some() || !std::io::stdin().is_terminal();
    // Read before connecting, so that an unreadable script opens no session.
    let statements = if scripted { statements(&arguments)? } else { Vec::new() };
    let login = Login { target: &target, tls: tls(&arguments, &target)?, user, password, is_token: token.is_some() };
    let mut connection = Connection::open(&login).await?;
    connection.interrupts = Interrupts::listen()?;
    let outcome = if scripted {
        runner::run_all(&mut connection, &statements, arguments.format).await
    } else {
        let parameters = repl::ReplParameters { login: &login, format: arguments.format };
        repl::run_interactively(&mut connection, &parameters).await
    };
    connection.close().await;
    match outcome {
        // The reader of the result has closed the pipe (`… | head`).
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::FAILURE),
        outcome => outcome,
    }
}

/// A token, which is one line.
fn read_token(path: &Path) -> anyhow::Result<String> {
    let failed = || format!("--token-file {}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).with_context(failed)?;
    file.take(MAX_TOKEN_BYTES).read_to_string(&mut text).with_context(failed)?;
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        bail!(
            "{} has no token\nHint: The file has one line, such as the access_token in the response of the issuer.",
            failed()
        );
    }
    Ok(token.to_owned())
}

/// The trusted certificates, if the server is to be reached with TLS: of a file, or of this machine.
fn tls(arguments: &SqlArguments, target: &ServerUrl) -> anyhow::Result<Option<ClientTls>> {
    match &arguments.ca {
        Some(file) => ClientTls::from_ca_file(file).map(Some).with_context(|| format!("--ca {}", file.display())),
        None if arguments.tls || target.tls => {
            ClientTls::from_machine().map(Some).context("the trusted certificates of this machine")
        }
        None => Ok(None),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn statements(arguments: &SqlArguments) -> anyhow::Result<Vec<script::ScriptStatement>> {
    let mut statements = Vec::new();
    for text in &arguments.execute {
        statements.extend(script::statements(text));
    }
    if arguments.execute.is_empty() || arguments.file.is_some() {
        let text = read_script(arguments.file.as_deref())?;
        statements.extend(script::statements(&text));
    }
    Ok(statements)
}

fn read_script(file: Option<&Path>) -> anyhow::Result<String> {
    let (text, shown) = match file {
        Some(path) if path.as_os_str() != "-" => {
            let shown = path.display().to_string();
            let file = std::fs::File::open(path).with_context(|| format!("cannot read {shown}"))?;
            (read_limited(file), shown)
        }
        _ => (read_limited(std::io::stdin()), "standard input".to_owned()),
    };
    let text = text.with_context(|| format!("cannot read {shown}"))?;
    if text.len() as u64 > MAX_SCRIPT_BYTES {
        // A part of a script is worse than nothing.
        bail!("{shown} has more than {MAX_SCRIPT_BYTES} bytes\nHint: Split the script.");
    }
    // Some editors write a byte order mark.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

fn read_limited(from: impl std::io::Read) -> std::io::Result<String> {
    let mut text = String::new();
    from.take(MAX_SCRIPT_BYTES + 1).read_to_string(&mut text)?;
    Ok(text)
}
