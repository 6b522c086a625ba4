//! Permissions of the identities.

use coordination::{Session, ZkErrorKind, agents, alter_node, bootstrap, discovery, permits, registry};
use zookeeper_client::{Acls, CreateMode, Error};

use super::alter::alteration;
use super::{Installation, engine};

pub async fn every_role_creates_the_base_nodes(installation: Installation) {
    for identity in [installation.proxy(), installation.agent(), installation.master()] {
        let session = Session::connect(&installation.settings(identity), &installation.clock).await.unwrap();
        bootstrap::create_base_nodes(&session).await.unwrap();
        bootstrap::create_base_nodes(&session).await.unwrap();
    }
    let master = installation.as_master().await;
    let mut names = master.list_children(installation.root()).await.unwrap();
    names.sort();
    assert_eq!(names, ["agents", "bell", "drains", "engines", "lock", "proxies"]);
    assert_eq!(master.list_children(&installation.path("lock")).await.unwrap(), ["master"]);
}

pub async fn an_engine_may_only_register_itself(installation: Installation) {
    let lock = installation.lock().await;
    installation.permitted(&lock, "e-other", "uid-2").await;
    let session = installation.registered(&lock, "e-own", "uid-1").await;
    let key = installation.credential("e-own").password;
    let own = installation.stranger(Some(&format!("engine-e-own:{key}"))).await;
    let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());

    assert!(own.get_data(&installation.path("engines/e-own")).await.is_ok());
    assert!(own.get_data(&installation.path("engines/e-own/live")).await.is_ok());
    let no = Err(Error::NoAuth);
    assert_eq!(own.get_data(&installation.path("engines/e-other")).await.map(drop), no);
    assert_eq!(own.list_children(&installation.path("engines")).await.map(drop), no);
    assert_eq!(own.list_children(&installation.path("agents")).await.map(drop), no);
    assert_eq!(own.set_data(&installation.path("engines/e-own"), b"x", None).await.map(drop), no);
    assert_eq!(own.delete(&installation.path("engines/e-own/live"), None).await, no);
    assert_eq!(own.delete(&installation.path("engines/e-own/answered"), None).await, no);
    assert_eq!(own.set_data(&installation.path("engines/e-own/answered"), b"x", None).await.map(drop), no);
    assert_eq!(own.create(&installation.path("engines/e-other/live"), b"", &anyone).await.map(drop), no);
    assert_eq!(own.create(&installation.path("engines/e-new"), b"", &anyone).await.map(drop), no);
    assert_eq!(own.create(&installation.path("drains/e-own"), b"", &anyone).await.map(drop), no);
    assert_eq!(own.create(&installation.path("lock/alter"), b"", &anyone).await.map(drop), no);
    assert_eq!(own.create(&installation.path("lock/master/x"), b"", &anyone).await.map(drop), no);
    assert_eq!(own.set_data(&installation.path("bell"), b"", None).await.map(drop), no);
    assert_eq!(own.set_acl(&installation.path("engines/e-own/live"), &Acls::anyone_all(), None).await.map(drop), no);

    let stranger_at_own = registry::read_own(&session, &engine("e-other")).await;
    assert_eq!(stranger_at_own.unwrap_err().kind(), ZkErrorKind::Denied);
}

pub async fn agents_create_the_alter_node_and_only_the_master_deletes_it(installation: Installation) {
    let agent = installation.session(installation.agent()).await;
    alter_node::create(&agent, &alteration("a-1")).await.unwrap();
    let raw = installation.stranger(Some(&format!("agent:{}", installation.passwords("agent")[0]))).await;
    assert_eq!(raw.delete(&installation.path("lock/alter/a-1"), None).await, Err(Error::NoAuth));
    assert_eq!(raw.set_data(&installation.path("lock/alter"), b"", None).await.map(drop), Err(Error::NoAuth));
    let proxy = installation.session(installation.proxy()).await;
    assert_eq!(alter_node::create(&proxy, &alteration("a-2")).await.unwrap_err().kind(), ZkErrorKind::Denied);

    let lock = installation.lock().await;
    let seen = alter_node::read(lock.session()).await.unwrap().unwrap();
    alter_node::delete(&lock, &seen).await.unwrap();
    assert_eq!(alter_node::read(&agent).await.unwrap(), None);
}

pub async fn anonymous_clients_neither_read_nor_write_our_nodes(installation: Installation) {
    let lock = installation.lock().await;
    installation.permitted(&lock, "e-1", "uid-1").await;
    let agent = installation.session(installation.agent()).await;
    agents::register(&agent, "agent-1", agents::AgentRegistration::plain("127.0.0.1:1", &[])).await.unwrap();
    alter_node::create(&agent, &alteration("a-1")).await.unwrap();
    let proxy = installation.session(installation.proxy()).await;
    discovery::register(&proxy, "127.0.0.1", 10_009, "0.1.0", &discovery::DriverSettings::default()).await.unwrap();

    let stranger = installation.stranger(None).await;
    let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for path in ["engines/e-1", "agents/agent-1", "lock/alter", "lock/alter/a-1", "bell", "drains"] {
        assert_eq!(stranger.get_data(&installation.path(path)).await.map(drop), Err(Error::NoAuth), "{path}");
    }
    for path in ["x", "lock/x", "lock/master/x", "lock/alter/x", "agents/x", "engines/x", "drains/x", "proxies/x"] {
        let created = stranger.create(&installation.path(path), b"", &anyone).await.map(drop);
        assert_eq!(created, Err(Error::NoAuth), "{path}");
    }
    assert_eq!(stranger.list_children(&installation.path("proxies")).await.unwrap().len(), 1);
}

pub async fn keys_of_another_installation_are_denied(installation: Installation) {
    let lock = installation.lock().await;
    installation.permitted(&lock, "e-1", "uid-1").await;
    let other = installation.with_generations(&["another installation"]);
    let session = Session::connect(&other.settings(other.master()), &other.clock).await.unwrap();
    assert_eq!(permits::list(&session).await.unwrap_err().kind(), ZkErrorKind::Denied);
    assert_eq!(other.election().win().await.unwrap_err().kind(), ZkErrorKind::Denied);
    let error = agents::register(&session, "agent-1", agents::AgentRegistration::plain("127.0.0.1:1", &[]))
        .await
        .unwrap_err()
        .user("tenant \"t_1\"");
    assert!(error.text().contains("cluster.keys"), "{error}");
}
