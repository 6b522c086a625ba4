//! Failures: a database that does not respond, ZooKeeper unavailable, unauthenticated callers.

use agent_api::{
    AgentClient, Caller, ClusterTls, Register, RegistrationCall, ReservationApi as _, ReservationCall,
    ReservationRequest,
};
use engine_agent::metadata::failpoints;
use hs2::{Auth, Client, ClientError, ClientOptions, ServiceLogin};
use model::alteration::{Outcome, Source};
use model::error::REQUEST_TIMEOUT;
use model::ledger::RegistrationState;
use model::name::PoolName;
use model::resource::Resource;
use sqlx::{Connection as _, Executor as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::agents::{endpoint, id, run, try_run_as};
use crate::bench::{Bench, Reached, alone, among_others};
use crate::fixture::{WAIT, engine_name, eventually, keys_of, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_transaction_fails_settles_before_it_answers() {
    let _alone = alone().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let path = bench.fixture.folder.path().join("metadata.db");
    let url = format!("sqlite://{}", path.display());
    let mut other = sqlx::SqliteConnection::connect(&url).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let failed = Reached::at(failpoints::ALTER_BEFORE_ABORT);
    let saying = tokio::spawn(async move {
        try_run_as(&mut admin, "ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '2G'", "blocked", 30_000).await
    });
    within("the end of the commit", failed.reached()).await;
    assert!(!saying.is_finished(), "no reply before the id is aborted");
    other.execute("ROLLBACK").await.unwrap();
    let error = saying.await.unwrap().unwrap_err();
    assert_eq!(error.sqlstate(), "57P03", "{}", error.text());
    assert_eq!(bench.store.outcome(&id("blocked")).await.unwrap().unwrap().outcome, Outcome::Aborted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_carried_out_once_the_database_answers_again() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let url = format!("sqlite://{}", bench.fixture.folder.path().join("metadata.db").display());
    let mut other = sqlx::SqliteConnection::connect(&url).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let mut statement = admin.execute("START ENGINE t_1 rp_1 uc_1").await.unwrap();
    eventually("the first failure", async || {
        statement.logs().await.unwrap().into_iter().find(|line| line == "the metadata database does not respond yet")
    })
    .await;
    other.execute("ROLLBACK").await.unwrap();
    statement.collect(WAIT).await.unwrap();
    assert_eq!(bench.store.snapshot().await.unwrap().slots.len(), 1);
}

/// The call of a program with a deadline: it registers the capacity of the pool.
fn register(id: &str, deadline_ms: i64) -> ReservationRequest {
    let register = Register {
        name: "yarn".to_owned(),
        instance: "i-1".to_owned(),
        capacity: Resource::Cpu { cpu_m: 1_000 },
        protected: None,
        kind: None,
        lease_ms: None,
    };
    let pool = PoolName::new("rp_1").unwrap();
    ReservationRequest {
        id: crate::agents::id(id),
        user: "carol".to_owned(),
        groups: Vec::new(),
        source: Source::default(),
        deadline_ms: Some(deadline_ms),
        call: ReservationCall::Registration { pool, call: RegistrationCall::Register(Box::new(register)) },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_not_decided_by_its_deadline_is_refused_and_changes_nothing() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let settling = bench.master.keep_settling();
    run(&mut admin, "ALTER RESOURCE POOL rp_1 CAPACITY REGISTERED").await;
    drop(settling);
    let caller = Caller::new(bench.fixture.keys.proxy.clone(), ClusterTls::Required);
    let client = AgentClient::new(endpoint(&bench.fixture, &bench.agent), caller, WAIT);
    let url = format!("sqlite://{}", bench.fixture.folder.path().join("metadata.db").display());
    let mut other = sqlx::SqliteConnection::connect(&url).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    // Less than the time after which the wait for the lock fails.
    let refused = client.reservations(register("late", 300)).await.unwrap().unwrap_err();
    assert_eq!((refused.error.sqlstate(), refused.error.error_code()), ("HYT00", REQUEST_TIMEOUT));
    let members = refused.ledger.unwrap();
    assert_eq!((members.code.as_str(), members.retryable), ("REQUEST_TIMEOUT", true));
    other.execute("ROLLBACK").await.unwrap();
    let pool = PoolName::new("rp_1").unwrap();
    assert_eq!(bench.store.registration(&pool).await.unwrap().state, RegistrationState::Unregistered);
    client.reservations(register("late", 20_000)).await.unwrap().unwrap();
    assert_eq!(bench.store.registration(&pool).await.unwrap().state, RegistrationState::Registered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_zookeeper_nothing_is_committed_and_requests_still_are() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    bench.fixture.zookeeper.faults().outage(true);
    let error =
        try_run_as(&mut admin, "ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '2G'", "dark", 30_000).await.unwrap_err();
    // Not 08007, although it is unknown whether the node was written: the alteration is aborted.
    assert!(["57P03", "40001"].contains(&error.sqlstate()), "{}", error.text());
    assert_eq!(bench.store.outcome(&id("dark")).await.unwrap().unwrap().outcome, Outcome::Aborted);
    try_run_as(&mut admin, "START ENGINE t_1 rp_1 uc_1", "start", 30_000).await.unwrap();
    bench.fixture.zookeeper.faults().outage(false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_the_agents_key_are_refused() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let (keys, endpoint) = (&bench.fixture.keys, endpoint(&bench.fixture, &bench.agent));
    let address = endpoint.address.clone();
    let login = |caller: Caller| caller.metadata_agent(&endpoint, "admin").unwrap().auth;
    let tls = ClusterTls::Required;
    let Auth::Service(ours) = login(Caller::new(keys.proxy.clone(), tls)) else { panic!("it signs") };
    let stranger = login(Caller::new(keys_of(8).proxy, tls));
    let of_agent = login(Caller::new(keys.metadata_agent.clone(), tls));
    // F6: the file of an engine has no key that signs.
    let of_engine = keys.master.get().engine(&engine_name(1)).zookeeper_password;
    for (auth, what) in [
        (Auth::service("proxy", "", "admin"), "no key"),
        (Auth::service("proxy", of_engine, "admin"), "the password of an engine"),
        (stranger, "another installation"),
        (of_agent, "a metadata agent"),
        (Auth::Service(ServiceLogin { role: "master", ..ours.clone() }), "a proxy as a master"),
        (
            Auth::Service(ServiceLogin { audience: "engine:e-1:uid-1".to_owned(), ..ours.clone() }),
            "a proof for an engine",
        ),
        (Auth::Service(ServiceLogin { generation: 2, ..ours.clone() }), "another generation"),
        (Auth::Service(ServiceLogin { role: "admin", ..ours }), "another role"),
    ] {
        let refused = Client::connect(&ClientOptions::new(address.clone(), auth)).await;
        let Err(ClientError::Unauthenticated(text)) = refused else { panic!("{what} gets in") };
        assert_eq!(text, "a metadata agent accepts only proxies and masters\nHint: Connect to a proxy.", "{what}");
    }
    // Plain Thrift carries no identity.
    let client = Client::connect(&ClientOptions::new(address, Auth::None)).await.unwrap();
    let refused = hs2::Session::open_as(client, Some(("admin", "")), &[]).await.err().unwrap();
    assert!(matches!(&refused, ClientError::Refused(error) if error.sqlstate() == "28000"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_without_its_database_is_not_ready() {
    let _among = among_others().await;
    let bench = Bench::new().await;
    let readyz = async || {
        let mut stream = tokio::net::TcpStream::connect(bench.agent.addr()).await.unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = readyz().await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    bench.store.close().await;
    let answer = eventually("a probe that fails", async || {
        Some(readyz().await).filter(|answer| answer.starts_with("HTTP/1.1 503"))
    })
    .await;
    assert!(answer.contains("metadata database"), "{answer}");
}
