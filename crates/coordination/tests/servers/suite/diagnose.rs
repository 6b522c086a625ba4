//! Reads for `doctor`: their results, and that they change nothing.

use std::time::Duration;

use coordination::diagnose::{self, BaseNodeStatus};
use coordination::{DrainOrder, Session, agents, discovery, drains, observe, probe_handshake};
use tokio::net::TcpListener;
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use super::{Installation, engine, within};

async fn master(installation: &Installation) -> Session {
    installation.session(installation.master()).await
}

pub async fn base_nodes_are_compared_with_the_layout(installation: Installation) {
    let session = master(&installation).await;
    let nodes = diagnose::base_nodes(&session).await.unwrap();
    let paths: Vec<&str> = nodes.iter().map(|node| node.path.strip_prefix(installation.root()).unwrap()).collect();
    assert_eq!(paths, ["", "/lock", "/lock/master", "/agents", "/engines", "/drains", "/bell", "/proxies"]);
    assert!(nodes.iter().all(|node| node.status == BaseNodeStatus::AsExpected), "{nodes:#?}");
    let tool = installation.as_master().await;
    let other = [
        Acl::new(Permission::ALL, AuthId::new("digest", &digest_of(&nodes[4].expected, "master"))),
        Acl::new(Permission::READ | Permission::DELETE, AuthId::anyone()),
    ];
    tool.set_acl(&installation.path("engines"), &Acls::new(&other), None).await.unwrap();
    tool.delete(&installation.path("bell"), None).await.unwrap();
    let nodes = diagnose::base_nodes(&session).await.unwrap();
    let (missing, excess) = match &nodes[4].status {
        BaseNodeStatus::Differs { missing_rights, extra_rights } => (missing_rights.clone(), extra_rights.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(missing, ["agent may read it", "proxy may read it"]);
    assert_eq!(excess, ["any client may delete below it, read it"]);
    assert_eq!(nodes[6].status, BaseNodeStatus::Missing);
    // The expected list is in the format of ZooKeeper's command line.
    assert!(nodes[4].expected.contains("digest:master:") && nodes[4].expected.contains(":cdrwa,digest:proxy:"));
    let wanted: Vec<Acl> = nodes[4].expected.split(',').map(acl_of).collect();
    tool.set_acl(&installation.path("engines"), &Acls::new(&wanted), None).await.unwrap();
    assert_eq!(diagnose::base_nodes(&session).await.unwrap()[4].status, BaseNodeStatus::AsExpected);
}

/// `user:hash` of a user in a list.
fn digest_of(words: &str, user: &str) -> String {
    let word = words.split(',').find(|word| word.starts_with(&format!("digest:{user}:"))).unwrap();
    word.trim_start_matches("digest:").rsplit_once(':').unwrap().0.to_owned()
}

/// Parses `scheme:id:permissions` like ZooKeeper's command line.
fn acl_of(word: &str) -> Acl {
    let (scheme, rest) = word.split_once(':').unwrap();
    let (id, letters) = rest.rsplit_once(':').unwrap();
    let right = |letter| match letter {
        'c' => Permission::CREATE,
        'd' => Permission::DELETE,
        'r' => Permission::READ,
        'w' => Permission::WRITE,
        'a' => Permission::ADMIN,
        other => panic!("unknown permission {other}"),
    };
    Acl::new(letters.chars().map(right).fold(Permission::NONE, |all, one| all | one), AuthId::new(scheme, id))
}

pub async fn keys_of_another_installation_may_not_read_access_lists(installation: Installation) {
    drop(master(&installation).await);
    let other = installation.with_generations(&["another installation"]);
    let session = other.engine_session(other.master()).await;
    let nodes = diagnose::base_nodes(&session).await.unwrap();
    assert_eq!(nodes[0].status, BaseNodeStatus::Unreadable, "{nodes:#?}");
}

pub async fn the_queue_for_the_lock_is_listed_in_order(installation: Installation) {
    let session = master(&installation).await;
    assert_eq!(diagnose::queue(&session).await.unwrap(), []);
    let lock = installation.lock().await;
    let second = tokio::spawn({
        let election = installation.election();
        async move { election.win().await }
    });
    super::eventually("two candidates queue", || async { diagnose::queue(&session).await.unwrap().len() == 2 }).await;
    let queue = diagnose::queue(&session).await.unwrap();
    assert_eq!((queue[0].holder(), queue[0].name.as_str()), (lock.holder(), "suite"));
    assert!(queue[1].session != lock.session_id() && queue[1].since_ms >= queue[0].since_ms);
    second.abort();
}

pub async fn an_observation_without_the_lock_writes_nothing(installation: Installation) {
    let lock = installation.lock().await;
    let agent = installation.session(installation.agent()).await;
    agents::register(&agent, "agent-1", agents::AgentRegistration::plain("127.0.0.1:1", &[])).await.unwrap();
    let _engine = installation.registered(&lock, "e-1", "uid-1").await;
    let fact = DrainOrder { uid: Some("uid-2".to_owned()), grace_ms: 5, reason: "because".to_owned(), namespace: None };
    drains::drain(&lock, &engine("e-2"), None, None, &fact).await.unwrap();
    let tool = installation.as_master().await;
    let version = || async { tool.check_stat(&installation.path("drains")).await.unwrap().unwrap().version };
    let before = version().await;
    let seen = observe(&master(&installation).await).await.unwrap();
    assert_eq!(seen, observe(lock.session()).await.unwrap());
    assert_eq!(version().await, before, "an observation has written");
    assert_eq!(seen.drains[0].content, Ok(fact));
}

pub async fn a_handshake_probe_shows_the_granted_session(installation: Installation) {
    let limit = Duration::from_secs(10);
    let tls = installation.tls.as_ref();
    for server in installation.servers.split(',') {
        let granted = within(probe_handshake(server, tls, Duration::from_secs(5), limit)).await.unwrap();
        assert_eq!(granted.timeout, Duration::from_secs(5));
        let least = within(probe_handshake(server, tls, Duration::from_millis(1), limit)).await.unwrap();
        let most = within(probe_handshake(server, tls, Duration::from_hours(24), limit)).await.unwrap();
        assert!(least.timeout < granted.timeout && granted.timeout < most.timeout, "{least:?} {most:?}");
        assert!(least.timeout > Duration::from_millis(1) && most.timeout < Duration::from_hours(24));
    }
    // A closed port, a server that closes the connection, and one that never answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (greeted, accepted) =
        tokio::join!(probe_handshake(&address, None, limit, Duration::from_millis(200)), listener.accept());
    drop(accepted);
    let silent = greeted.unwrap_err().to_string();
    assert!(silent.contains("no session within 200 ms"), "{silent}");
    let closing = tokio::spawn(async move { drop(listener.accept().await.unwrap()) });
    let error = within(probe_handshake(&address, None, limit, limit)).await.unwrap_err().to_string();
    assert!(error.contains("grants no session"), "{error}");
    closing.await.unwrap();
    let error = within(probe_handshake(&address, None, limit, limit)).await.unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
}

pub async fn foreign_nodes_in_the_discovery_namespace_are_listed(installation: Installation) {
    let proxy = installation.session(installation.proxy()).await;
    discovery::register(&proxy, "10.0.0.1", 10_009, "1.2.3", &discovery::DriverSettings::default()).await.unwrap();
    let tool = installation.as_master().await;
    let stray = CreateMode::Persistent.with_acls(Acls::anyone_all());
    tool.create(&installation.path("proxies/stray"), b"", &stray).await.unwrap();
    let (proxies, others) = discovery::list(&proxy).await.unwrap();
    assert_eq!(proxies.len(), 1);
    assert_eq!((proxies[0].address.as_str(), proxies[0].version.as_str()), ("10.0.0.1:10009", "1.2.3"));
    assert_eq!(others, ["stray"]);
}
