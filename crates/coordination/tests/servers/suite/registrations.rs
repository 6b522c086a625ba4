//! Agents, permits, registrations, discovery.

use std::time::Duration;

use coordination::discovery::DriverSettings;
use coordination::permit_batch::{self, UidUpdate};
use coordination::{
    Error, Observer, Permit, PermitNode, ZkErrorKind, agents, discovery, drains, observe, permits, registry,
};
use model::shared::Shared;
use tokio::time::timeout;
use zookeeper_client::{Acls, CreateMode};

use super::{Installation, engine, eventually, permit, registration, within};

pub async fn agents_come_and_go_with_their_sessions(installation: Installation) {
    let reader = installation.session(installation.proxy()).await;
    let (one, other) =
        (installation.session(installation.agent()).await, installation.session(installation.agent()).await);
    agents::register(&one, "agent-1", agents::AgentRegistration::plain("127.0.0.1:1", &[])).await.unwrap();
    agents::register(&one, "agent-1", agents::AgentRegistration::plain("127.0.0.1:1", &[])).await.unwrap();
    agents::register(&other, "agent-2", agents::AgentRegistration::plain("127.0.0.1:2", &[])).await.unwrap();
    let held =
        agents::register(&other, "agent-1", agents::AgentRegistration::plain("127.0.0.1:2", &[])).await.unwrap_err();
    assert_eq!(held, Error::StillHeld { path: installation.path("agents/agent-1"), session: one.id() });
    assert_eq!(
        agents::register(&one, "a/b", agents::AgentRegistration::plain("", &[])).await.unwrap_err().kind(),
        ZkErrorKind::Invalid
    );

    reader.sync().await.unwrap();
    let there: Vec<_> = agents::list(&reader)
        .await
        .unwrap()
        .into_iter()
        .map(|agent| (agent.id, agent.address, agent.session))
        .collect();
    assert_eq!(
        there,
        [
            ("agent-1".to_owned(), "127.0.0.1:1".to_owned(), one.id()),
            ("agent-2".to_owned(), "127.0.0.1:2".to_owned(), other.id())
        ]
    );
    one.close().await;
    eventually("the closed agent is gone", || async { agents::list(&reader).await.unwrap().len() == 1 }).await;
    installation.expire(&other).await;
    eventually("the expired agent is gone", || async { agents::list(&reader).await.unwrap().is_empty() }).await;
}

pub async fn an_engine_registers_only_below_a_permit_of_its_uid(installation: Installation) {
    let lock = installation.lock().await;
    let session = installation.engine_session(installation.engine("e-1")).await;
    let standing = registry::read_own(&session, &engine("e-1")).await.unwrap();
    assert_eq!((standing.permit, standing.drain), (None, None));

    permits::create(&lock, &engine("e-1"), &permit(None)).await.unwrap();
    let bare = registry::read_own(&session, &engine("e-1")).await.unwrap().permit.unwrap();
    assert_eq!(
        registry::register(&session, &bare, &registration("uid-1")).await.unwrap_err().kind(),
        ZkErrorKind::Invalid
    );
    permits::record_uid(&lock, &engine("e-1"), "uid-1").await.unwrap();
    let mine = registry::read_own(&session, &engine("e-1")).await.unwrap().permit.unwrap();
    assert_eq!(
        registry::register(&session, &mine, &registration("uid-2")).await.unwrap_err().kind(),
        ZkErrorKind::Invalid
    );
    registry::register(&session, &mine, &registration("uid-1")).await.unwrap();
    registry::register(&session, &mine, &registration("uid-1")).await.unwrap();

    let seen = permits::list(lock.session()).await.unwrap().remove(0);
    assert_eq!(seen.ready().unwrap().content, Ok(registration("uid-1")));
    assert_eq!(seen.ready().unwrap().session, session.id());
}

pub async fn a_stale_permit_admits_no_engine(installation: Installation) {
    let lock = installation.lock().await;
    installation.permitted(&lock, "e-1", "uid-1").await;
    let session = installation.engine_session(installation.engine("e-1")).await;
    let old = registry::read_own(&session, &engine("e-1")).await.unwrap().permit.unwrap();
    permits::set_uid(&lock, &old, "uid-2").await.unwrap();
    let error = registry::register(&session, &old, &registration("uid-1")).await.unwrap_err();
    assert_eq!(error, Error::BadVersion { path: installation.path("engines/e-1") });
    let now = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    permits::delete(&lock, &now).await.unwrap();
    let error = registry::register(&session, &old, &registration("uid-1")).await.unwrap_err();
    assert_eq!(error, Error::NoNode { path: installation.path("engines/e-1") });
}

pub async fn a_permit_keeps_its_number_of_sessions_until_it_is_rewritten(installation: Installation) {
    let lock = installation.lock().await;
    let sessions = async |name: &str| {
        permits::read(lock.session(), &engine(name)).await.unwrap().unwrap().content.unwrap().sessions
    };
    permits::create(&lock, &engine("e-1"), &Permit { sessions: Some(3), ..permit(None) }).await.unwrap();
    permits::record_uid(&lock, &engine("e-1"), "uid-1").await.unwrap();
    assert_eq!(sessions("e-1").await, Some(3));
    let session = installation.engine_session(installation.engine("e-1")).await;
    let mine = registry::read_own(&session, &engine("e-1")).await.unwrap().permit.unwrap();
    permits::set_sessions(&lock, &mine, Some(5)).await.unwrap();
    assert_eq!(sessions("e-1").await, Some(5));
    let late = permits::set_sessions(&lock, &mine, Some(4)).await.unwrap_err();
    assert_eq!(late, Error::BadVersion { path: installation.path("engines/e-1") });
    let late = registry::register(&session, &mine, &registration("uid-1")).await.unwrap_err();
    assert_eq!(late.kind(), ZkErrorKind::Conflict, "an engine registers below the permit that it has read");
    let now = registry::read_own(&session, &engine("e-1")).await.unwrap().permit.unwrap();
    registry::register(&session, &now, &registration("uid-1")).await.unwrap();
    permits::set_sessions(&lock, &now, None).await.unwrap();
    let rewritten = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    assert!(rewritten.ready().is_some(), "its engine stays registered");
    assert_eq!(rewritten.content.unwrap(), permit(Some("uid-1")));
    let (data, _) = installation.as_master().await.get_data(&installation.path("engines/e-1")).await.unwrap();
    assert!(!String::from_utf8(data).unwrap().contains("sessions"), "as a master of an earlier version writes it");
}

pub async fn registering_succeeds_once_the_expired_registration_is_gone(installation: Installation) {
    let lock = installation.lock().await;
    let dead = installation.registered(&lock, "e-1", "uid-1").await;
    let session = installation.engine_session(installation.engine("e-1")).await;
    let permit = registry::read_own(&session, &engine("e-1")).await.unwrap().permit.unwrap();
    let error = registry::register(&session, &permit, &registration("uid-1")).await.unwrap_err();
    assert_eq!(error, Error::StillHeld { path: installation.path("engines/e-1/live"), session: dead.id() });
    installation.expire(&dead).await;
    eventually("it registers", || async {
        registry::register(&session, &permit, &registration("uid-1")).await.is_ok()
    })
    .await;
}

pub async fn a_later_observation_sees_what_a_first_one_sees(installation: Installation) {
    let lock = installation.lock().await;
    let observer = Observer::default();
    let check = async |step: &str| {
        let later = observer.observe(lock.session()).await.unwrap();
        assert_eq!(later, observe(lock.session()).await.unwrap(), "{step}");
        let again = observer.observe(lock.session()).await.unwrap();
        assert_eq!(again, later, "{step}, and nothing since");
        let is_same = |(one, other): (&Shared<PermitNode>, &Shared<PermitNode>)| Shared::is_same(one, other);
        assert!(again.permits.iter().zip(&later.permits).all(is_same), "{step}: what has not changed is shared");
        later.permits
    };
    let read = async |name: &str| permits::read(lock.session(), &engine(name)).await.unwrap().unwrap();
    assert!(check("no permit").await.is_empty());
    installation.permitted(&lock, "e-0", "uid-0").await;
    permits::create(&lock, &engine("e-1"), &permit(None)).await.unwrap();
    check("one without a uid").await;
    permits::record_uid(&lock, &engine("e-1"), "uid-1").await.unwrap();
    check("its uid").await;
    let first = installation.engine_session(installation.engine("e-1")).await;
    registry::register(&first, &read("e-1").await, &registration("uid-1")).await.unwrap();
    assert!(check("a registration").await[1].answered);
    permits::set_sessions(&lock, &read("e-1").await, Some(3)).await.unwrap();
    check("its sessions").await;
    installation.expire(&first).await;
    eventually("it is gone", || async { read("e-1").await.registration.is_none() }).await;
    assert!(check("no registration").await[1].registration.is_none());
    let second = installation.engine_session(installation.engine("e-1")).await;
    registry::register(&second, &read("e-1").await, &registration("uid-1")).await.unwrap();
    let of = |permits: &[Shared<PermitNode>]| permits[1].registration.as_ref().unwrap().session;
    assert_eq!(of(&check("another registration").await), second.id());
    let key = installation.credential("e-1").password;
    let hostile = installation.stranger(Some(&format!("engine-e-1:{key}"))).await;
    let (stray, options) =
        (installation.path("engines/e-1/mine"), CreateMode::Persistent.with_acls(Acls::anyone_all()));
    hostile.create(&stray, b"", &options).await.unwrap();
    assert_eq!(check("a stray").await[1].strays, 1);
    installation.as_master().await.delete(&stray, None).await.unwrap();
    assert_eq!(check("no stray").await[1].strays, 0);
    permits::delete(&lock, &read("e-1").await).await.unwrap();
    assert_eq!(check("no permit for it").await.len(), 1);
    permits::create(&lock, &engine("e-1"), &permit(Some("uid-2"))).await.unwrap();
    assert_eq!(check("a permit again").await[1].uid(), Some("uid-2"));
    let many: Vec<_> = (10..610).map(|number| (engine(&format!("e-{number}")), permit(None))).collect();
    assert!(permit_batch::create(&lock, &many).await.iter().all(Result::is_ok));
    assert_eq!(check("more than one request reads").await.len(), 602);
}

pub async fn a_permit_is_deleted_exactly_as_it_was_read(installation: Installation) {
    let lock = installation.lock().await;
    let before = installation.permitted(&lock, "e-1", "uid-1").await;
    let session = installation.engine_session(installation.engine("e-1")).await;
    registry::register(&session, &before, &registration("uid-1")).await.unwrap();
    let error = permits::delete(&lock, &before).await.unwrap_err();
    assert_eq!(error, Error::NotEmpty { path: installation.path("engines/e-1") });

    // A hostile engine creates a node below its permit.
    let key = installation.credential("e-1").password;
    let hostile = installation.stranger(Some(&format!("engine-e-1:{key}"))).await;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    hostile.create(&installation.path("engines/e-1/mine"), b"", &options).await.unwrap();
    let seen = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    assert_eq!(seen.strays, 1);
    permits::delete(&lock, &seen).await.unwrap();
    assert_eq!(permits::list(lock.session()).await.unwrap(), []);
    let again = permits::delete(&lock, &seen).await.unwrap_err();
    assert_eq!(again.kind(), ZkErrorKind::Conflict, "{again}");
}

pub async fn a_first_registration_leaves_a_mark_that_outlives_it(installation: Installation) {
    let lock = installation.lock().await;
    let made = installation.made(&lock, "e-1", "uid-1").await;
    assert!(!made.answered);
    let first = installation.engine_session(installation.engine("e-1")).await;
    registry::register(&first, &made, &registration("uid-1")).await.unwrap();
    let seen = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    assert!(seen.answered && seen.registration.is_some() && seen.strays == 0, "{seen:?}");

    installation.expire(&first).await;
    let read = || async { permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap() };
    eventually("the registration is gone", || async { read().await.registration.is_none() }).await;
    assert!(read().await.answered, "the mark stays");

    // An engine that registers again may have read its permit before or after the mark was created.
    for permit in [read().await, made] {
        let session = installation.engine_session(installation.engine("e-1")).await;
        registry::register(&session, &permit, &registration("uid-1")).await.unwrap();
        assert_eq!(read().await.registration.unwrap().session, session.id());
        session.close().await;
        eventually("the registration is gone", || async { read().await.registration.is_none() }).await;
    }
    assert!(read().await.answered);
    permits::delete(&lock, &read().await).await.unwrap();
    assert_eq!(permits::list(lock.session()).await.unwrap(), []);
}

pub async fn a_permit_for_a_running_engine_has_the_mark_at_once(installation: Installation) {
    let lock = installation.lock().await;
    let permitted = installation.permitted(&lock, "e-1", "uid-1").await;
    assert!(permitted.answered && permitted.registration.is_none(), "an earlier permit may have had a registration");
    let session = installation.engine_session(installation.engine("e-1")).await;
    let own = registry::read_own(&session, &engine("e-1")).await.unwrap().permit.unwrap();
    registry::register(&session, &own, &registration("uid-1")).await.unwrap();
    permits::delete(&lock, &permitted).await.unwrap_err();
    let seen = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    permits::delete(&lock, &seen).await.unwrap();
    assert_eq!(permits::list(lock.session()).await.unwrap(), []);
}

pub async fn a_uid_is_written_once_and_never_over_a_newer_one(installation: Installation) {
    let lock = installation.lock().await;
    permits::create(&lock, &engine("e-1"), &permit(None)).await.unwrap();
    let exists = permits::create(&lock, &engine("e-1"), &permit(None)).await.unwrap_err();
    assert_eq!(exists, Error::NodeExists { path: installation.path("engines/e-1") });
    let seen = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    assert_eq!(seen.uid(), None);
    permits::set_uid(&lock, &seen, "uid-1").await.unwrap();
    let late = permits::set_uid(&lock, &seen, "uid-2").await.unwrap_err();
    assert_eq!(late, Error::BadVersion { path: installation.path("engines/e-1") });
    permits::record_uid(&lock, &engine("e-1"), "uid-1").await.unwrap();
    let now = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    assert_eq!(now.content, Ok(permit(Some("uid-1"))));
    assert_eq!(now.version, 1, "the same uid is not written twice");
    let missing = permits::record_uid(&lock, &engine("e-2"), "uid-1").await.unwrap_err();
    assert_eq!(missing, Error::NoNode { path: installation.path("engines/e-2") });
}

pub async fn an_engine_is_woken_by_its_permit_and_its_drain_order(installation: Installation) {
    let lock = installation.lock().await;
    let session = installation.engine_session(installation.engine("e-1")).await;
    let mut watch = registry::watch_own(&session, &engine("e-1"));
    watch.arm().await.unwrap();
    installation.permitted(&lock, "e-1", "uid-1").await;
    within(watch.next()).await;
    watch.arm().await.unwrap();
    let standing = registry::read_own(&session, &engine("e-1")).await.unwrap();
    let seen = standing.permit.unwrap();
    let fact = coordination::DrainOrder {
        uid: Some("uid-1".to_owned()),
        grace_ms: 5,
        reason: "test".to_owned(),
        namespace: None,
    };
    drains::drain(&lock, &engine("e-1"), Some(&seen), None, &fact).await.unwrap();
    within(watch.next()).await;
    let standing = registry::read_own(&session, &engine("e-1")).await.unwrap();
    assert_eq!(standing.permit, None);
    assert_eq!(standing.drain.unwrap().content, Ok(fact.clone()));
    // A caller that has not armed it waits as well.
    let mut late = registry::watch_own(&session, &engine("e-1"));
    let mut woken = tokio::spawn(async move { late.next().await });
    assert!(timeout(Duration::from_millis(200), &mut woken).await.is_err());
    // The first change may come before the watch is armed.
    eventually("it is woken", || async {
        drains::remove(&lock, &engine("e-1")).await.unwrap();
        drains::drain(&lock, &engine("e-1"), None, None, &fact).await.unwrap();
        woken.is_finished()
    })
    .await;
}

pub async fn jdbc_clients_find_a_proxy_without_a_password(installation: Installation) {
    let proxy = installation.session(installation.proxy()).await;
    let path = discovery::register(&proxy, "127.0.0.1", 10_009, "0.1.0", &DriverSettings::default()).await.unwrap();
    assert_eq!(
        discovery::register(&proxy, "127.0.0.1", 10_009, "0.1.0", &DriverSettings::default()).await.unwrap(),
        path,
        "once per session"
    );
    let client = installation.stranger(None).await;
    let namespace = format!("/{}", installation.layout.discovery_namespace());
    let names = client.list_children(&namespace).await.unwrap();
    assert_eq!(names.len(), 1);
    assert!(names[0].starts_with("serverUri=127.0.0.1:10009;version=0.1.0;sequence=0"), "{}", names[0]);
    let (data, _) = client.get_data(&path).await.unwrap();
    assert_eq!(
        String::from_utf8(data).unwrap(),
        "hive.server2.thrift.bind.host=127.0.0.1;hive.server2.thrift.port=10009;hive.server2.transport.mode=binary"
    );
    proxy.close().await;
    let over_tls = installation.session(installation.proxy()).await;
    let drivers = DriverSettings { use_tls: true, principal: Some("hive/_HOST@EXAMPLE".to_owned()) };
    let path = discovery::register(&over_tls, "127.0.0.1", 10_010, "0.1.0", &drivers).await.unwrap();
    let (data, _) = client.get_data(&path).await.unwrap();
    let (_, of_drivers) =
        std::str::from_utf8(&data).unwrap().split_once(";hive.server2.transport.mode=binary").unwrap();
    assert_eq!(
        of_drivers,
        ";hive.server2.use.SSL=true;hive.server2.authentication=KERBEROS;\
         hive.server2.authentication.kerberos.principal=hive/_HOST@EXAMPLE;hive.server2.thrift.sasl.qop=auth"
    );
    over_tls.close().await;
    eventually("the node goes", || async { client.list_children(&namespace).await.unwrap().is_empty() }).await;
}

pub async fn withdrawing_a_proxy_leaves_the_others_registered(installation: Installation) {
    let (leaves, stays) =
        (installation.session(installation.proxy()).await, installation.session(installation.proxy()).await);
    let of = async |session| {
        discovery::register(session, "127.0.0.1", 10_009, "0.1.0", &DriverSettings::default()).await.unwrap()
    };
    let (gone, there) = (of(&leaves).await, of(&stays).await);
    let client = installation.stranger(None).await;
    assert!(discovery::withdraw(&leaves, "127.0.0.1", 10_009, "0.1.0").await.unwrap());
    assert!(client.check_stat(&gone).await.unwrap().is_none());
    assert!(client.check_stat(&there).await.unwrap().is_some(), "another session's, of the same address");
    assert!(!discovery::withdraw(&leaves, "127.0.0.1", 10_009, "0.1.0").await.unwrap(), "nothing is left");
    assert_ne!(of(&leaves).await, gone, "it may register again");
}

pub async fn batched_permit_creates_have_a_result_each(installation: Installation) {
    let lock = installation.lock().await;
    installation.permitted(&lock, "e-2", "uid-2").await;
    let wanted = ["e-1", "e-2", "e-3"].map(|name| (engine(name), permit(None)));
    let exists = Error::NodeExists { path: installation.path("engines/e-2") };
    assert_eq!(permit_batch::create(&lock, &wanted).await, [Ok(()), Err(exists), Ok(())]);
    // More than fit into one multi, with and without uid.
    let many: Vec<_> = (10..10 + permit_batch::MAX_BATCH + 6)
        .map(|number| (engine(&format!("e-{number}")), permit((number % 2 == 0).then_some("uid"))))
        .collect();
    assert!(permit_batch::create(&lock, &many).await.iter().all(Result::is_ok));
    let there = permits::list(lock.session()).await.unwrap();
    assert_eq!(there.len(), 3 + many.len());
    for (name, wanted) in &many {
        let made = there.iter().find(|node| node.engine == *name).unwrap();
        assert_eq!((made.content.as_ref(), made.answered), (Ok(wanted), wanted.uid.is_some()), "{name}");
    }
}

pub async fn batched_uid_writes_reread_stale_permits(installation: Installation) {
    let lock = installation.lock().await;
    let known = |name: &str, version| UidUpdate { engine: engine(name), permit: permit(Some("uid-1")), version };
    permits::create(&lock, &engine("e-1"), &permit(None)).await.unwrap();
    permits::create(&lock, &engine("e-2"), &permit(None)).await.unwrap();
    let all = [known("e-1", 0), known("e-2", 0)];
    assert_eq!(permit_batch::record_uids(&lock, &all).await, [Ok(()), Ok(())]);
    permits::create(&lock, &engine("e-3"), &permit(None)).await.unwrap();
    let gone = Error::NoNode { path: installation.path("engines/e-4") };
    // The second has changed since: it is read again and has the uid already.
    let all = [known("e-3", 0), known("e-2", 0), known("e-4", 0)];
    assert_eq!(permit_batch::record_uids(&lock, &all).await, [Ok(()), Ok(()), Err(gone)]);
    for node in permits::list(lock.session()).await.unwrap() {
        assert_eq!((node.uid(), node.version), (Some("uid-1"), 1), "{}", node.engine);
    }
}

pub async fn a_deposed_master_writes_no_permit_of_a_batch(installation: Installation) {
    let first = installation.lock().await;
    permits::create(&first, &engine("e-1"), &permit(None)).await.unwrap();
    installation.as_master().await.delete(first.path(), None).await.unwrap();
    let second = installation.lock().await;
    assert!(first.lease_valid(), "it does not know yet; the server rejects the write");
    let wanted = ["e-2", "e-3"].map(|name| (engine(name), permit(None)));
    for late in permit_batch::create(&first, &wanted).await {
        assert_eq!(late.unwrap_err().kind(), ZkErrorKind::Lost);
    }
    let known = |name: &str| UidUpdate { engine: engine(name), permit: permit(Some("uid-1")), version: 0 };
    for late in permit_batch::record_uids(&first, &[known("e-1"), known("e-1")]).await {
        assert_eq!(late.unwrap_err().kind(), ZkErrorKind::Lost);
    }
    let there = permits::list(second.session()).await.unwrap();
    assert_eq!(there.iter().map(|node| (node.engine.as_str(), node.uid())).collect::<Vec<_>>(), [("e-1", None)]);
}
