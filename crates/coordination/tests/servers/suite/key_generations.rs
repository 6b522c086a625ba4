//! Rotation of keys: sessions and access lists of two generations.

use coordination::{Identity, Session, ZkErrorKind, access_renewal, agents, alter_node, discovery, permits, registry};
use model::key_generation::KeyGeneration;
use std::sync::Arc;
use tokio::sync::watch;

use super::alter::alteration;
use super::{Installation, engine, eventually, within};

/// Whether an identity with these generations reads every kind of node.
async fn reads_everything(installation: &Installation) -> bool {
    let session = installation.engine_session(installation.master()).await;
    let read = async {
        permits::list(&session).await?;

        alter_node::read(&session).await?;
        Ok::<_, coordination::Error>(agents::list(&session).await?.len() + discovery::list(&session).await?.0.len())
    };
    match read.await {
        Ok(found) => {
            assert_eq!(found, 2, "an agent and a proxy");
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ZkErrorKind::Denied, "{error}");
            false
        }
    }
}

/// Each role restarts with a file of both generations, then with one of the new one.
pub async fn nodes_are_opened_to_new_keys_and_closed_to_old_ones(installation: Installation) {
    let old = installation.with_generations(&["one"]);
    let lock = old.lock().await;
    old.registered(&lock, "e-1", "uid-1").await;
    let (agent, proxy) = (old.session(old.agent()).await, old.session(old.proxy()).await);
    agents::register(&agent, "agent-1", agents::AgentRegistration::plain("127.0.0.1:1", &[])).await.unwrap();
    discovery::register(&proxy, "127.0.0.1", 10_009, "0.1.0", &discovery::DriverSettings::default()).await.unwrap();
    alter_node::create(&agent, &alteration("a-1")).await.unwrap();
    assert_eq!(access_renewal::renew(&lock).await.unwrap(), 0, "the lists are as expected");
    lock.resign().await;

    let (both, new) = (installation.with_generations(&["two", "one"]), installation.with_generations(&["two"]));
    assert!(reads_everything(&old).await && reads_everything(&both).await && !reads_everything(&new).await);
    let lock = both.lock().await;
    assert!(access_renewal::renew(&lock).await.unwrap() > 10);
    assert_eq!(access_renewal::renew(&lock).await.unwrap(), 0);
    lock.resign().await;
    assert!(reads_everything(&old).await && reads_everything(&both).await && reads_everything(&new).await);
    // The engine has keys of generation one, and the next of generation two.
    let of_old = old.engine_session(old.engine("e-1")).await;
    assert!(registry::read_own(&of_old, &engine("e-1")).await.unwrap().permit.is_some());

    let lock = new.lock().await;
    new.registered(&lock, "e-2", "uid-2").await;
    assert!(access_renewal::renew(&lock).await.unwrap() > 10);
    lock.resign().await;
    assert!(!reads_everything(&old).await && reads_everything(&both).await && reads_everything(&new).await);
    let denied = registry::read_own(&of_old, &engine("e-1")).await.unwrap_err();
    assert_eq!(denied.kind(), ZkErrorKind::Denied);
}

pub async fn new_logins_are_added_to_open_sessions(installation: Installation) {
    let (old, new) = (installation.with_generations(&["one"]), installation.with_generations(&["two"]));
    let both = installation.with_generations(&["one", "two"]);
    let lock = new.lock().await;
    new.permitted(&lock, "e-1", "uid-1").await;
    let (sender, logins) = watch::channel(Arc::new(old.master_logins()));
    let session = Session::connect(&old.settings(Identity::changing(logins)), &old.clock).await.unwrap();
    assert_eq!(permits::list(&session).await.unwrap_err().kind(), ZkErrorKind::Denied);
    sender.send(Arc::new(both.master_logins())).unwrap();
    eventually("the session has the new login", || async { permits::list(&session).await.is_ok() }).await;
}

/// A master whose key file is replaced while it holds the lock.
pub async fn a_master_renews_the_lists_when_its_logins_change(installation: Installation) {
    let (old, new) = (installation.with_generations(&["one"]), installation.with_generations(&["two"]));
    let both = installation.with_generations(&["one", "two"]);
    let (sender, logins) = watch::channel(Arc::new(old.master_logins()));
    let settings = old.settings(Identity::changing(logins));
    let lock = within(coordination::Election::new(settings, old.clock.clone(), "suite").win()).await.unwrap();
    old.registered(&lock, "e-1", "uid-1").await;
    let lock = Arc::new(lock);
    let renewing = tokio::spawn(access_renewal::keep_renewed(Arc::downgrade(&lock)));
    let session = new.engine_session(new.master()).await;
    assert_eq!(permits::list(&session).await.unwrap_err().kind(), ZkErrorKind::Denied);
    sender.send(Arc::new(both.master_logins())).unwrap();
    eventually("the nodes are open to new keys", || async { permits::list(&session).await.is_ok() }).await;
    drop((lock, sender));
    within(renewing).await.unwrap();
}

pub async fn an_agent_changes_the_keys_in_its_node(installation: Installation) {
    let session = installation.session(installation.agent()).await;
    for generations in [&[][..], &[1], &[1, 2], &[2]] {
        let keys: Vec<KeyGeneration> = generations.iter().copied().map(KeyGeneration).collect();
        agents::register(&session, "agent-1", agents::AgentRegistration::plain("127.0.0.1:1", &keys)).await.unwrap();
        agents::register(&session, "agent-1", agents::AgentRegistration::plain("127.0.0.1:1", &keys)).await.unwrap();
        let listed = agents::list(&session).await.unwrap();
        assert_eq!((listed.len(), &listed[0].keys), (1, &keys));
    }
}
