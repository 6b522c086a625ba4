//! Asking engine agents for their load, over connections that are kept.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_api::{SERVICE_MASTER, engine_status};
use hs2::{Auth, Client, ClientOptions};
use model::credential::{ClusterSecret, Purpose};
use model::engine_name::EngineName;
use parking_lot::Mutex;
use planner::EngineLoad;

use super::Failure;

/// How many connections are kept at most.
const MAX_KEPT: usize = 2_000;

/// The connections.
pub(super) struct Statuses {
    secret: ClusterSecret,
    deadline: Duration,
    kept: Mutex<BTreeMap<EngineName, (String, Client)>>,
}

impl Statuses {
    pub(super) fn new(secret: ClusterSecret, deadline: Duration) -> Self {
        Self { secret, deadline, kept: Mutex::default() }
    }

    /// Asks one engine agent. A connection that failed once is not used again.
    pub(super) async fn ask(&self, engine: &EngineName, address: &str) -> Result<EngineLoad, Failure> {
        let away = |error: String| Failure::Unavailable(format!("engine agent {engine}: {error}"));
        let kept = self.take(engine).filter(|(at, client)| at == address && !client.is_broken());
        let mut client = match kept {
            Some((_, client)) => client,
            None => self.connect(engine, address).await.map_err(|error| away(error.to_string()))?,
        };
        let answer = engine_status(&mut client, self.deadline).await.map_err(|error| away(error.to_string()))?;
        self.keep(engine, address, client);
        Ok(EngineLoad { sessions: answer.sessions, running: answer.running })
    }

    async fn connect(&self, engine: &EngineName, address: &str) -> Result<Client, hs2::ClientError> {
        let key = self.secret.derive(&Purpose::Engine(engine));
        let mut options = ClientOptions::new(address, Auth::service(SERVICE_MASTER, key, ""));
        options.connect_deadline = self.deadline;
        options.call_deadline = self.deadline;
        Client::connect(&options).await
    }

    fn take(&self, engine: &EngineName) -> Option<(String, Client)> {
        self.kept.lock().remove(engine)
    }

    fn keep(&self, engine: &EngineName, address: &str, client: Client) {
        let mut kept = self.kept.lock();
        if kept.len() < MAX_KEPT {
            kept.insert(engine.clone(), (address.to_owned(), client));
        }
    }

    /// Closes the connections to engines that are no longer asked.
    pub(super) fn only(&self, engines: impl Fn(&EngineName) -> bool) {
        self.kept.lock().retain(|engine, _| engines(engine));
    }
}
