//! Metadata agents over a database in a file, and the verbs of a master that the tests say by hand.

#![allow(dead_code, clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coordination::{Identity, Lock, alter_node};
use engine_agent::metadata::{MetadataAgent, Settings};
use hs2::session::Table;
use hs2::tcli::{TExecuteStatementReq, TOperationState};
use hs2::{Auth, Client, ClientError, ClientOptions, Session};
use metadata::Store;
use model::alteration::RequestId;
use model::change::Rules;
use model::credential::Purpose;
use model::engine_state::Phase;
use model::error::UserError;
use model::number::Epoch;
use model::observation::{CreatedEngine, EngineFacts, ObservedEngine, Publication};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::rig::{Ground, WAIT, eventually, within};

/// A database on the ground.
pub async fn store(ground: &Ground) -> Store {
    let mut settings = metadata::StoreSettings::sqlite(&ground.folder.path().join("metadata.db"));
    settings.lock_timeout = Duration::from_secs(1);
    Store::migrate(&settings).await.unwrap();
    Store::open(&settings, Rules::default(), ground.clock.clone()).await.unwrap()
}

pub fn settings(ground: &Ground) -> Settings {
    Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise: None,
        zookeeper: ground.coordination(Identity::Agent(ground.secret.clone())),
        secret: ground.secret.clone(),
        cluster: "test".to_owned(),
        admins: vec!["admin".to_owned()],
        rules: Rules::default(),
        plan_limits: planner::Limits::default(),
        alter_wait: Duration::from_secs(10),
        alter_grace: Duration::from_secs(30),
        drain_grace: Duration::from_mins(30),
        drain_grace_max: Duration::from_hours(24),
        start_deadline: Duration::from_mins(5),
        tick_interval: Duration::from_hours(1),
        limits: hs2::Limits::default(),
    }
}

/// An agent that has registered.
pub async fn agent(ground: &Ground, lock: &Lock, store: &Store, settings: Settings) -> MetadataAgent {
    let told = settings.advertise.clone();
    let agent = MetadataAgent::start(settings, store.clone(), ground.clock.clone()).await.unwrap();
    let address = told.unwrap_or_else(|| agent.addr().to_string());
    eventually("the agent's registration", async || {
        let agents = coordination::agents::list(lock.session()).await.unwrap();
        agents.iter().any(|it| it.address == address).then_some(())
    })
    .await;
    agent
}

/// A proxy's session for a user.
pub async fn session(ground: &Ground, agent: &MetadataAgent, user: &str) -> Session {
    let auth = Auth::service(agent_api::SERVICE_PROXY, ground.secret.derive(&Purpose::MetadataAgent), user);
    let client = Client::connect(&ClientOptions::new(agent.addr().to_string(), auth)).await.unwrap();
    Session::open(client, &[]).await.unwrap()
}

fn refused<T>(outcome: Result<T, ClientError>) -> Result<T, UserError> {
    outcome.map_err(|error| match error {
        ClientError::Refused(error) => error,
        other => panic!("the connection failed: {other}"),
    })
}

/// Says a statement and reads its whole answer.
pub async fn say(session: &mut Session, sql: &str) -> Result<Table, UserError> {
    refused(within(sql, session.run(sql, WAIT)).await)
}

pub async fn must(session: &mut Session, sql: &str) -> Table {
    say(session, sql).await.unwrap_or_else(|error| panic!("{sql}: {}", error.text()))
}

/// The same under a request's id, as a proxy says it.
pub async fn say_as(session: &mut Session, sql: &str, id: &str, deadline_ms: u64) -> Result<Table, UserError> {
    let overlay = BTreeMap::from([
        ("enginehouse.request.id".to_owned(), id.to_owned()),
        ("enginehouse.request.deadline_ms".to_owned(), deadline_ms.to_string()),
    ]);
    let request = TExecuteStatementReq {
        session_handle: session.handle().clone(),
        statement: sql.to_owned(),
        conf_overlay: Some(overlay),
        run_async: Some(true),
        query_timeout: None,
    };
    let answer = refused(session.client().execute_statement(&request).await)?;
    refused(session.statement(answer.operation_handle.unwrap()).collect(WAIT).await)
}

pub fn id(text: &str) -> RequestId {
    RequestId::new(text).unwrap()
}

/// The column of every row as text.
pub fn column(table: &Table, name: &str) -> Vec<String> {
    (0..table.rows.len()).map(|row| table.get(row, name).unwrap().to_string()).collect()
}

/// The value of a property.
pub fn property(table: &Table, name: &str) -> String {
    let row = (0..table.rows.len()).find(|row| table.get(*row, "property").unwrap().to_string() == name);
    table.get(row.unwrap_or_else(|| panic!("no property {name}: {table:?}")), "value").unwrap().to_string()
}

/// A master's verbs, said by hand.
#[derive(Clone)]
pub struct Hand {
    pub lock: Arc<Lock>,
    pub store: Store,
    pub epoch: Epoch,
}

impl Hand {
    pub async fn of(lock: Lock, store: Store) -> Self {
        let read = store.master().await.unwrap().epoch;
        let epoch = store.raise_epoch(read, &lock.holder()).await.unwrap().epoch;
        Self { lock: Arc::new(lock), store, epoch }
    }

    /// Finishes a decided alteration and takes its node away. True if there was one.
    pub async fn settle(&self) -> bool {
        let Some(node) = alter_node::read(self.lock.session()).await.unwrap() else { return false };
        let Some(child) = node.children.first() else { return false };
        let Some(record) = self.store.outcome(&child.id).await.unwrap() else { return false };
        if record.progress.is_some() {
            let generation = self.store.catalog().await.unwrap().generation;
            self.store.finish(self.epoch, &child.id, generation).await.unwrap();
        }
        alter_node::delete(&self.lock, &node).await.unwrap();
        true
    }

    /// Settles whatever comes, until the guard is dropped.
    pub fn keep_settling(&self) -> DropGuard {
        let (hand, stop) = (self.clone(), CancellationToken::new());
        let stopped = stop.clone();
        tokio::spawn(async move {
            while !stopped.is_cancelled() {
                if !hand.settle().await {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        });
        stop.drop_guard()
    }

    /// Records uids and ends of engines.
    pub async fn record(&self, facts: EngineFacts) {
        let recorded = self.store.record(self.epoch, &facts).await.unwrap();
        assert!(recorded.unknown.is_empty() && recorded.other_uid.is_empty(), "{recorded:?}");
    }

    /// Publishes rows for SHOW.
    pub async fn report(&self, publication: Publication) {
        self.store.publish(self.epoch, &publication).await.unwrap();
    }

    /// Records an engine as created and publishes its row.
    pub async fn seen(&self, engine: ObservedEngine) {
        let created = engine.uid.clone().map(|uid| CreatedEngine {
            name: engine.name.clone(),
            uid,
            config: "0123456789abcdef".to_owned(),
        });
        self.record(EngineFacts { created: created.into_iter().collect(), ..EngineFacts::default() }).await;
        self.report(Publication { engines: vec![engine], ..Publication::default() }).await;
    }
}

/// An engine that is registered.
pub fn ready(name: &str, address: &str) -> ObservedEngine {
    ObservedEngine {
        name: model::EngineName::new(name).unwrap(),
        uid: Some(format!("uid-of-{name}")),
        phase: Phase::Running,
        reason: None,
        node: Some("node-1".to_owned()),
        address: Some(address.to_owned()),
        registered: true,
        answered: true,
        draining: false,
        sessions: Some(2),
        running: Some(1),
        started_at_ms: Some(1_000),
        log_tail: None,
        labels: Arc::default(),
        details: Arc::new(
            [("process pid", "4711"), ("log file", "/engines/log"), ("directory", "/engines")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        ),
    }
}

/// What the state of an operation is called.
pub const FINISHED: TOperationState = TOperationState::FINISHED_STATE;
