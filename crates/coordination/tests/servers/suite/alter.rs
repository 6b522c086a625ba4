//! The alter node.

use std::time::Duration;

use coordination::alter_node::{self, MAX_ALTER_BYTES};
use coordination::{Alteration, CreateOutcome, Error, Session, ZkErrorKind};
use model::Generation;
use model::alteration::{ObjectKind, ObjectRef, RequestId};
use model::catalog::TenantSpec;
use model::change::{Object, UnitPatch};
use model::configuration::Defaults;
use model::secret::SecretKeys;
use model::{TenantName, UnitName};
use tokio::time::Instant;
use zookeeper_client::{Acls, CreateMode};

use super::{Installation, within};

/// Creates the alter node as soon as it is free, within `wait`.
pub async fn create_when_free(
    session: &Session,
    alteration: &Alteration,
    wait: Duration,
) -> Result<CreateOutcome, Error> {
    let deadline = Instant::now() + wait;
    loop {
        let outcome = alter_node::create(session, alteration).await?;
        let left = deadline.saturating_duration_since(Instant::now());
        if !matches!(outcome, CreateOutcome::Taken(_))
            || left.is_zero()
            || !alter_node::wait_absent(session, left).await?
        {
            return Ok(outcome);
        }
    }
}

pub fn alteration(id: &str) -> Alteration {
    let object = Object::Tenant { name: TenantName::new("t_1").unwrap(), spec: TenantSpec::default() };
    Alteration::new(
        RequestId::new(id).unwrap(),
        object.reference(),
        Generation(7),
        Some(&object),
        &SecretKeys::default(),
        "ALTER TENANT t_1 COMMENT 'x'",
        "admin",
        "agent-1",
        1_700_000_000_000,
    )
}

pub async fn the_node_holds_the_old_object_with_secrets_masked(installation: Installation) {
    let mut spec = UnitPatch::default().create(&Defaults::default()).unwrap();
    spec.properties.insert("db.password".to_owned(), "open sesame".to_owned());
    spec.properties.insert("k".to_owned(), "v".to_owned());
    let old = Object::ResourceUnit { name: UnitName::new("uc_1").unwrap(), spec };
    let mut made = alteration("a-1");
    made = Alteration::new(
        made.id,
        ObjectRef { kind: ObjectKind::ResourceUnit, name: "uc_1".to_owned() },
        made.base_generation,
        Some(&old),
        &SecretKeys::default(),
        made.statement,
        made.by,
        made.agent,
        made.requested_at_ms,
    );
    let agent = installation.session(installation.agent()).await;
    assert_eq!(alter_node::create(&agent, &made).await.unwrap(), CreateOutcome::Created);

    let raw = installation.as_master().await;
    let (data, stat) = raw.get_data(&installation.path("lock/alter")).await.unwrap();
    assert_eq!(stat.ephemeral_owner, 0, "it outlives its creator");
    let json: serde_json::Value = serde_json::from_slice(&data).unwrap();
    assert_eq!(json["version"], 1);
    assert_eq!(json["id"], "a-1");
    assert_eq!(json["object"], serde_json::json!({"kind": "resource_unit", "name": "uc_1"}));
    assert_eq!(json["old"]["spec"]["properties"], serde_json::json!({"db.password": "******", "k": "v"}));
    assert_eq!(json["by"], "admin");
    assert!(!String::from_utf8(data).unwrap().contains("sesame"));

    let read = alter_node::read(&agent).await.unwrap().unwrap();
    assert_eq!(read.content, Ok(made));
    assert_eq!(read.children.len(), 1);
    assert_eq!(read.children[0].session, Some(agent.id()));
    assert_eq!(read.children[0].agent.as_deref(), Some("agent-1"));
    assert!(!read.is_debris());
}

pub async fn a_second_alteration_is_refused_with_the_holder(installation: Installation) {
    let agent = installation.session(installation.agent()).await;
    alter_node::create(&agent, &alteration("a-1")).await.unwrap();
    for wait in [Duration::ZERO, Duration::from_millis(300)] {
        let made = within(create_when_free(&agent, &alteration("a-2"), wait)).await.unwrap();
        let CreateOutcome::Taken(node) = made else { panic!("{made:?}") };
        assert_eq!(node.content.unwrap().by, "admin");
        assert!(node.ctime_ms > 0);
    }
    assert!(!alter_node::wait_absent(&agent, Duration::from_millis(100)).await.unwrap());
}

pub async fn a_second_alteration_follows_when_the_node_is_deleted(installation: Installation) {
    let lock = installation.lock().await;
    let agent = installation.session(installation.agent()).await;
    alter_node::create(&agent, &alteration("a-1")).await.unwrap();
    let waiting = {
        let agent = agent.clone();
        tokio::spawn(async move { create_when_free(&agent, &alteration("a-2"), super::WAIT).await })
    };
    let absent = {
        let agent = agent.clone();
        tokio::spawn(async move { alter_node::wait_absent(&agent, super::WAIT).await })
    };
    let seen = alter_node::read(lock.session()).await.unwrap().unwrap();
    alter_node::delete(&lock, &seen).await.unwrap();
    assert_eq!(within(waiting).await.unwrap().unwrap(), CreateOutcome::Created);
    let now = alter_node::read(&agent).await.unwrap().unwrap();
    assert_eq!(now.children[0].id.as_str(), "a-2");
    // The other waiter may have missed that, and then waits for this node.
    alter_node::delete(&lock, &now).await.unwrap();
    assert!(within(absent).await.unwrap().unwrap());
}

pub async fn the_same_id_is_no_conflict(installation: Installation) {
    let (one, other) =
        (installation.session(installation.agent()).await, installation.session(installation.agent()).await);
    assert_eq!(alter_node::create(&one, &alteration("a-1")).await.unwrap(), CreateOutcome::Created);
    assert_eq!(alter_node::create(&other, &alteration("a-1")).await.unwrap(), CreateOutcome::AlreadyOwn);
    let node = alter_node::read(&other).await.unwrap().unwrap();
    assert_eq!(node.children[0].session, Some(one.id()), "the first session is recorded");
}

pub async fn a_delete_never_removes_another_alterations_node(installation: Installation) {
    let lock = installation.lock().await;
    let agent = installation.session(installation.agent()).await;
    alter_node::create(&agent, &alteration("a-1")).await.unwrap();
    let old = alter_node::read(lock.session()).await.unwrap().unwrap();
    alter_node::delete(&lock, &old).await.unwrap();
    alter_node::create(&agent, &alteration("a-2")).await.unwrap();

    let error = alter_node::delete(&lock, &old).await.unwrap_err();
    assert_eq!(error, Error::NoNode { path: installation.path("lock/alter/a-1") });
    let mut debris = old.clone();
    debris.children.clear();
    let error = alter_node::delete(&lock, &debris).await.unwrap_err();
    assert_eq!(error, Error::NotEmpty { path: installation.path("lock/alter") });
    assert_eq!(alter_node::read(&agent).await.unwrap().unwrap().children[0].id.as_str(), "a-2");
}

pub async fn debris_without_a_child_is_deleted(installation: Installation) {
    let lock = installation.lock().await;
    let hand = installation.as_master().await;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    hand.create(&installation.path("lock/alter"), b"", &options).await.unwrap();
    let seen = alter_node::read(lock.session()).await.unwrap().unwrap();
    assert!(seen.is_debris());
    assert!(seen.content.is_err());
    alter_node::delete(&lock, &seen).await.unwrap();
    assert_eq!(alter_node::read(lock.session()).await.unwrap(), None);
}

pub async fn unreadable_nodes_are_read_and_deleted(installation: Installation) {
    let lock = installation.lock().await;
    let hand = installation.as_master().await;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for (path, data) in [
        ("lock/alter", &br#"{"version":2,"id":"a-1"}"#[..]),
        ("lock/alter/a-1", b"\xff\xfe"),
        ("lock/alter/a-2", b"{}"),
        ("lock/alter/not an id", b""),
    ] {
        hand.create(&installation.path(path), data, &options).await.unwrap();
    }
    let seen = alter_node::read(lock.session()).await.unwrap().unwrap();
    assert_eq!(seen.content.clone().unwrap_err(), "unknown version 2");
    let ids: Vec<&str> = seen.children.iter().map(|child| child.id.as_str()).collect();
    assert_eq!(ids, ["a-1", "a-2"]);
    assert!(seen.children.iter().all(|child| child.session.is_none()));
    assert_eq!(seen.strays, ["not an id"]);
    alter_node::delete(&lock, &seen).await.unwrap();
    assert_eq!(alter_node::read(lock.session()).await.unwrap(), None);
    // More than one multi may delete.
    hand.create(&installation.path("lock/alter"), b"", &options).await.unwrap();
    for number in 0..250 {
        hand.create(&installation.path(&format!("lock/alter/not an id {number}")), b"", &options).await.unwrap();
    }
    let seen = alter_node::read(lock.session()).await.unwrap().unwrap();
    alter_node::delete(&lock, &seen).await.unwrap();
    assert_eq!(alter_node::read(lock.session()).await.unwrap(), None);
}

pub async fn an_alter_node_that_is_too_large_is_refused_before_any_write(installation: Installation) {
    let agent = installation.session(installation.agent()).await;
    let mut big = alteration("a-1");
    big.statement = "x".repeat(MAX_ALTER_BYTES);
    let error = alter_node::create(&agent, &big).await.unwrap_err();
    assert_eq!(error.kind(), ZkErrorKind::Invalid);
    assert_eq!(error.user("tenant \"t_1\"").sqlstate(), "54000");
    assert_eq!(alter_node::read(&agent).await.unwrap(), None);
    big.statement = "x".repeat(MAX_ALTER_BYTES - 1_000);
    assert_eq!(alter_node::create(&agent, &big).await.unwrap(), CreateOutcome::Created);
    assert_eq!(alter_node::read(&agent).await.unwrap().unwrap().content, Ok(big));
}
