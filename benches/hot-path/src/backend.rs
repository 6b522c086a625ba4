//! The backend: a HiveServer2 server at memory speed, in a process of its own.
//!
//! It serves the binary transport with any user name and password. Results are prepared when a statement is executed, so a
//! fetch writes a frame that is in memory. Sessions belong to their connection, as in every server of the binary transport.

mod sessions;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use hs2::{Authenticator, Connection, Credentials, Handler, Limits, Principal, Server};
use model::error::UserError;
use rustix::process::getppid;
use tokio_util::sync::CancellationToken;

use crate::announcement::Announcement;
use sessions::{Sessions, Shared};

/// The most connections, authenticated or not: all come from one machine.
const MAX_CONNECTIONS: usize = 20_000;
/// The user of a client whose transport has no login before OpenSession.
const ANONYMOUS: &str = "anonymous";

/// The arguments of the backend.
#[derive(Debug, Clone, clap::Args)]
pub struct BackendArguments {
    /// The address to listen at.
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: SocketAddr,
    /// The file to write once it listens: its process, the parent of that, and its address.
    #[arg(long, value_name = "FILE")]
    pub announce: PathBuf,
}

/// Serves until the process is ended.
pub fn run(arguments: &BackendArguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let cannot_listen = || format!("cannot listen at {}", arguments.listen);
        let server = Server::bind(arguments.listen, limits()).await.with_context(cannot_listen)?;
        let agent = getppid().context("the backend has no parent")?.as_raw_pid().cast_unsigned();
        let address = server.local_addr()?;
        Announcement { backend: std::process::id(), agent, address }.write(&arguments.announce)?;
        server.serve_connections(Arc::new(Backend::default()), CancellationToken::new()).await;
        Ok(())
    })
}

fn limits() -> Limits {
    Limits {
        connections: MAX_CONNECTIONS,
        unauthenticated_connections: MAX_CONNECTIONS,
        unauthenticated_per_address: MAX_CONNECTIONS,
        ..Limits::default()
    }
}

/// The handler of its connections.
#[derive(Default)]
struct Backend {
    operations: Arc<Shared>,
}

#[async_trait]
impl Authenticator for Backend {
    async fn authenticate(&self, _peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        Ok(Principal::user(credentials.user.as_str()))
    }
}

#[async_trait]
impl Handler for Backend {
    async fn connection(self: Arc<Self>, mut connection: Connection, _stop: CancellationToken) {
        let mut sessions = Sessions::new(Arc::clone(&self.operations));
        while let Ok(Some(message)) = connection.next().await {
            if connection.principal().is_none() {
                connection.set_principal(Principal::user(ANONYMOUS));
            }
            if connection.send(&sessions.reply(&message)).await.is_err() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use hs2::session::StatementProgress;
    use hs2::tcli::{TGetInfoReq, TGetInfoType, TGetInfoValue};
    use hs2::{Auth, Client, ClientOptions, Session, Value};
    use model::error::ErrorKind;

    use super::*;
    use crate::frame;

    const WITHIN: Duration = Duration::from_secs(10);

    async fn session(auth: Auth) -> Session {
        let server = Server::bind("127.0.0.1:0", limits()).await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        tokio::spawn(server.serve_connections(Arc::new(Backend::default()), CancellationToken::new()));
        let client = Client::connect(&ClientOptions::new(address, auth)).await.unwrap();
        Session::open(client, &[]).await.unwrap()
    }

    #[tokio::test]
    async fn a_client_reads_the_frames_that_it_asked_for() {
        for auth in [Auth::user("alice", "any"), Auth::None] {
            let mut session = session(auth).await;
            let table = session.run("SELECT hot_path_frames(1000, 3)", WITHIN).await.unwrap();
            let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
            assert_eq!(names, ["id", "price", "product", "region"]);
            let one = session.run("SELECT hot_path_frames(1000, 1)", WITHIN).await.unwrap();
            assert_eq!(table.rows.len(), 3 * one.rows.len());
            assert_eq!(table.rows[0][..3], [Value::I64(0), Value::F64(0.0), Value::from("product 0")]);
            session.close().await.unwrap();
        }
    }

    #[tokio::test]
    async fn other_statements_have_one_row_or_no_result() {
        let mut session = session(Auth::user("alice", "")).await;
        assert_eq!(session.run("SELECT 1", WITHIN).await.unwrap().rows.len(), 1);
        assert!(session.run("USE `default`", WITHIN).await.unwrap().columns.is_empty());
        session.run_in_one_call("SELECT 1").await.unwrap();
        for refused in
            ["SELECT hot_path_frames(10, 1)", "SELECT hot_path_frames(1000)", "SELECT hot_path_frames(-1, 1)"]
        {
            assert!(session.run(refused, WITHIN).await.unwrap_err().is_answer(), "{refused}");
        }
        assert!(session.run(&format!("SELECT hot_path_frames({}, 1)", frame::MAX_BYTES + 1), WITHIN).await.is_err());
        let request = TGetInfoReq { session_handle: session.handle().clone(), info_type: TGetInfoType::CLI_DBMS_NAME };
        let answer = session.client().get_info(&request).await.unwrap();
        assert_eq!(answer.info_value, TGetInfoValue::StringValue("hot-path".to_owned()));
    }

    #[tokio::test]
    async fn a_statement_that_waits_runs_until_it_is_cancelled() {
        let mut session = session(Auth::user("alice", "")).await;
        let mut statement = session.execute("SELECT hot_path_wait()").await.unwrap();
        assert_eq!(statement.poll().await.unwrap(), StatementProgress::Running);
        assert!(statement.fetch(1).await.unwrap_err().is_answer());
        statement.cancel().await.unwrap();
        assert_eq!(statement.poll().await.unwrap_err().user_error().kind, ErrorKind::Canceled);
        statement.close().await.unwrap();
        assert_eq!(session.run("SELECT 1", WITHIN).await.unwrap().rows.len(), 1);
    }

    #[tokio::test]
    async fn a_closed_operation_is_unknown_and_its_session_usable() {
        let mut session = session(Auth::user("alice", "")).await;
        let statement = session.execute("SELECT 1").await.unwrap();
        let handle = statement.handle().clone();
        statement.close().await.unwrap();
        let refused = session.statement(handle).poll().await.unwrap_err();
        assert!(refused.is_answer(), "{refused}");
        assert_eq!(session.run("SELECT 1", WITHIN).await.unwrap().rows.len(), 1);
    }
}
