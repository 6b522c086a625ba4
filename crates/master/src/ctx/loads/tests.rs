//! The poller with silent engines, and the client with an agent that retires.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::SocketAddr;

use agent_api::{ClusterTls, ENGINE_STATUS, EngineStatus, RETIRE, answer_engine_status, answer_retire, retire_request};
use async_trait::async_trait;
use hs2::{Authenticator, Connection, Credentials, Handler, Limits, Principal, Server, ServiceProof};
use keys::{KeyGeneration, Root, SecretKey};
use model::error::{ErrorKind, UserError};
use tokio_util::sync::CancellationToken;

use super::*;

#[tokio::test]
async fn silent_engines_do_not_delay_the_load_of_others() {
    let engine = |number: usize| EngineName::new(format!("e-{number:03}")).unwrap();
    let answering = engine(999);
    let address = at("127.0.0.1:1");
    let mut targets: BTreeMap<EngineName, EngineEndpoint> = (0..60).map(|at| (engine(at), address.clone())).collect();
    targets.insert(answering.clone(), address);
    // The silent ones are awaited until the end of the test.
    let settings = Settings { status_deadline: Duration::from_secs(5), ..Settings::default() };
    let answers = answering.clone();
    let ask = move |engine: EngineName, _: EngineEndpoint| {
        let answers = engine == answers;
        async move {
            if !answers {
                std::future::pending::<()>().await;
            }
            Ok(EngineLoad { sessions: 3, running: 1 })
        }
    };
    let poller = LoadPoller::start(&settings, Loads::default(), ask);
    poller.set_targets(targets);
    timeout(Duration::from_secs(4), poller.changed()).await.unwrap();
    assert_eq!(poller.loads().keys().collect::<Vec<_>>(), [&answering]);
}

/// An engine agent without an engine.
struct FakeAgent {
    /// What it reports; `None` as an agent that does not know the call to retire.
    idle: Option<Duration>,
    retires: Mutex<Vec<RetireRequest>>,
}

#[async_trait]
impl Authenticator for FakeAgent {
    async fn authenticate(&self, _peer: SocketAddr, _: &Credentials) -> Result<Principal, UserError> {
        Err(UserError::new(ErrorKind::InvalidAuthorization, "no passwords"))
    }

    fn accepts_services(&self) -> bool {
        true
    }

    async fn authenticate_service(&self, _peer: SocketAddr, proof: &ServiceProof) -> Result<Principal, UserError> {
        Ok(Principal::service(&proof.role, proof.user.clone()))
    }
}

#[async_trait]
impl Handler for FakeAgent {
    async fn connection(self: Arc<Self>, mut connection: Connection, _stop: CancellationToken) {
        while let Ok(Some(message)) = connection.next().await {
            let call = message.call();
            let reply = match message.name() {
                ENGINE_STATUS => answer_engine_status(
                    &call,
                    &EngineStatus {
                        engine: "e-1".to_owned(),
                        uid: "uid-1".to_owned(),
                        sessions: 0,
                        running: 0,
                        draining: false,
                        idle: self.idle,
                        retiring: false,
                        stateful: Some(0),
                        seats: None,
                        served: self.idle.map(|idle| idle.as_secs()),
                    },
                ),
                RETIRE => {
                    let request = retire_request(&call).unwrap();
                    let agrees = self.idle.is_some_and(|idle| idle >= request.idle);
                    self.retires.lock().push(request);
                    answer_retire(&call, agrees)
                }
                other => panic!("{other}"),
            };
            connection.send(&reply).await.unwrap();
        }
    }
}

async fn agent(idle: Option<Duration>) -> (Arc<FakeAgent>, EngineEndpoint) {
    let agent = Arc::new(FakeAgent { idle, retires: Mutex::default() });
    let server = Server::bind("127.0.0.1:0", Limits::default()).await.unwrap();
    let address = at(&server.local_addr().unwrap().to_string());
    tokio::spawn(server.serve_connections(Arc::clone(&agent), CancellationToken::new()));
    (agent, address)
}

fn client() -> StatusClient {
    let (root, first) = (Root::new("eh", SecretKey::new([1; 32])), KeyGeneration::FIRST);
    let keys = root.all_roles(first, &[first], coordination::digest).unwrap();
    StatusClient::new(Caller::new(keys.master, ClusterTls::Optional), Duration::from_secs(10))
}

fn at(address: &str) -> EngineEndpoint {
    EngineEndpoint { uid: "uid-1".to_owned(), address: address.to_owned(), keys: vec![KeyGeneration::FIRST], tls: None }
}

#[tokio::test]
async fn the_idle_time_of_the_last_poll_is_what_an_agent_is_asked_with() {
    let (agent, address) = agent(Some(Duration::from_secs(7))).await;
    let (client, engine) = (client(), EngineName::new("e-1").unwrap());
    assert_eq!(client.idle(&engine), None, "it was not polled");
    assert_eq!(client.ask(&engine, &address).await, Ok(EngineLoad { sessions: 0, running: 0 }));
    let idle = client.idle(&engine).unwrap();
    let request = RetireRequest { uid: "uid-1".to_owned(), idle };
    assert_eq!(client.retire(&engine, &address, &request).await, Ok(true));
    let since = RetireRequest { idle: Duration::from_secs(8), ..request.clone() };
    assert_eq!(client.retire(&engine, &address, &since).await, Ok(false));
    assert_eq!(*agent.retires.lock(), [request, since]);
    // An agent that does not answer any more has ended, or will: what it had served is recorded with its end.
    assert!(client.ask(&engine, &at("127.0.0.1:1")).await.is_err());
    assert_eq!((client.idle(&engine), client.served(&engine)), (None, Some((engine.clone(), 7))));
    client.retain(|_| false);
    assert_eq!(client.served(&engine), None, "it is gone");
}

#[tokio::test]
async fn an_agent_that_reports_no_idle_time_has_none() {
    let (_agent, address) = agent(None).await;
    let (client, engine) = (client(), EngineName::new("e-1").unwrap());
    client.ask(&engine, &address).await.unwrap();
    assert_eq!(client.idle(&engine), None);
    assert!(client.ask(&engine, &at("127.0.0.1:1")).await.is_err());
}
