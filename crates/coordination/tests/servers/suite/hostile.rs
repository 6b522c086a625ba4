//! Hostile engines: an engine has a key of its own and may create nodes below its permit.

use std::time::Duration;

use coordination::{
    DrainOrder, Error, Lock, PermitNode, SessionState, Wakeups, drains, observe, permits, registration, registry,
};
use tokio::time::timeout;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use super::{Installation, engine, permit, registration, within};

/// More strays than are deleted with a permit.
const CROWD: usize = 1_001;
/// The length of a name of which three do not fit into one request.
const LONG_NAME_BYTES: usize = 400_000;

fn order(uid: &str) -> DrainOrder {
    DrainOrder { uid: Some(uid.to_owned()), grace_ms: 0, reason: "stopped".to_owned(), namespace: None }
}

/// A client with the key of engine `e-1`.
async fn intruder(installation: &Installation) -> Client {
    let key = installation.credential("e-1").password;
    installation.stranger(Some(&format!("engine-e-1:{key}"))).await
}

/// All permissions for the creator of a node, none for others.
fn own() -> [Acl; 1] {
    [Acl::new(Permission::ALL, AuthId::authed())]
}

/// The permit of engine `e-1`.
async fn seen(lock: &Lock) -> PermitNode {
    permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap()
}

/// Deletes the permit of engine `e-1`, which is left behind.
async fn left_behind(lock: &Lock) -> PermitNode {
    permits::delete(lock, &seen(lock).await).await.unwrap();
    let left = seen(lock).await;
    assert!(left.left_behind && left.uid().is_none() && left.registration.is_none() && left.strays > 0, "{left:?}");
    left
}

async fn crowd(installation: &Installation, intruder: &Client) {
    let acl = own();
    let own = CreateMode::Persistent.with_acls(Acls::new(&acl));
    for first in (0..CROWD).step_by(200) {
        let mut writer = intruder.new_multi_writer();
        for number in first..CROWD.min(first + 200) {
            writer.add_create(&installation.path(&format!("engines/e-1/{number}")), b"", &own).unwrap();
        }
        writer.commit().await.unwrap();
    }
}

pub async fn many_strays_below_one_permit_delay_no_other_read(installation: Installation) {
    let lock = installation.lock().await;
    let session = installation.registered(&lock, "e-1", "uid-1").await;
    let _other = installation.registered(&lock, "e-2", "uid-2").await;
    crowd(&installation, &intruder(&installation).await).await;
    let seen = observe(lock.session()).await.unwrap();
    assert!(seen.permits.iter().all(|permit| permit.ready().is_some() && permit.answered), "{:?}", seen.permits);
    assert_eq!(seen.permits.iter().map(|permit| permit.strays).collect::<Vec<_>>(), [CROWD, 0]);

    drains::drain(&lock, &engine("e-1"), Some(&seen.permits[0]), None, &order("uid-1")).await.unwrap();
    let standing = registry::read_own(&session, &engine("e-1")).await.unwrap();
    assert!(standing.drain.is_some());
    let permit = standing.permit.unwrap();
    assert!(permit.registration.is_none() && !permit.answered, "{permit:?}");
    let again = registry::register(&session, &permit, &registration("uid-1")).await.unwrap_err();
    assert!(matches!(again, Error::Refused { .. }), "{again}");
    left_behind(&lock).await;
}

pub async fn strays_with_very_long_names_do_not_block_the_master(installation: Installation) {
    let lock = installation.lock().await;
    installation.made(&lock, "e-1", "uid-1").await;
    let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let intruder = intruder(&installation).await;
    for letter in ["a", "b", "c"] {
        let path = format!("engines/e-1/{}", letter.repeat(LONG_NAME_BYTES));
        intruder.create(&installation.path(&path), b"", &anyone).await.unwrap();
    }
    assert_eq!(observe(lock.session()).await.unwrap().permits[0].strays, 3);
    // One request with all three names would be too long: the server closes such a connection.
    left_behind(&lock).await;
    assert_eq!(lock.session().state(), SessionState::Connected);
    assert!(lock.still_held().await.unwrap());
}

pub async fn strays_cause_no_wake_up(installation: Installation) {
    let lock = installation.lock().await;
    installation.made(&lock, "e-1", "uid-1").await;
    let wakeups = Wakeups::start(lock.session());
    // All watches are armed now.
    within(wakeups.next()).await;
    let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
    intruder(&installation).await.create(&installation.path("engines/e-1/mine"), b"", &anyone).await.unwrap();
    assert!(timeout(Duration::from_millis(500), wakeups.next()).await.is_err());
    let session = installation.engine_session(installation.engine("e-1")).await;
    registry::register(&session, &seen(&lock).await, &registration("uid-1")).await.unwrap();
    within(wakeups.next()).await;
}

pub async fn an_unreadable_registration_delays_no_other_read(installation: Installation) {
    let lock = installation.lock().await;
    installation.permitted(&lock, "e-1", "uid-1").await;
    let _other = installation.registered(&lock, "e-2", "uid-2").await;
    let acl = own();
    let closed = CreateMode::Ephemeral.with_acls(Acls::new(&acl));
    let intruder = intruder(&installation).await;
    intruder.create(&installation.path("engines/e-1/live"), b"{}", &closed).await.unwrap();
    let seen = observe(lock.session()).await.unwrap();
    let ready: Vec<bool> = seen.permits.iter().map(|permit| permit.ready().is_some()).collect();
    assert_eq!(ready, [false, true]);
    assert!(seen.permits[0].registration.as_ref().unwrap().content.is_err());
    permits::delete(&lock, &seen.permits[0]).await.unwrap();
}

pub async fn a_registration_with_an_invalid_address_is_unreadable(installation: Installation) {
    let lock = installation.lock().await;
    installation.permitted(&lock, "e-1", "uid-1").await;
    let _other = installation.registered(&lock, "e-2", "uid-2").await;
    let anyone = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let intruder = intruder(&installation).await;
    let path = installation.path("engines/e-1/live");
    intruder.create(&path, b"{}", &anyone).await.unwrap();
    for address in [r"x\u0000:1", "", "127.0.0.1", "127.0.0.1:0", "a b:1", r"a\nb:1"] {
        let text = format!(
            r#"{{"version":1,"address":"{address}","capacity":1,"config":"","program_version":"","uid":"uid-1"}}"#
        );
        intruder.set_data(&path, text.as_bytes(), None).await.unwrap();
        let looked = observe(lock.session()).await.unwrap().permits;
        let ready: Vec<bool> = looked.iter().map(|permit| permit.ready().is_some()).collect();
        assert_eq!(ready, [false, true], "{address}");
        assert!(looked[0].registration.as_ref().unwrap().content.is_err(), "{address}");
    }
}

pub async fn a_registration_that_is_too_long_is_not_read(installation: Installation) {
    let lock = installation.lock().await;
    let made = installation.permitted(&lock, "e-1", "uid-1").await;
    let _other = installation.registered(&lock, "e-2", "uid-2").await;
    // All fields of a registration, and then as much as fits into a request.
    let mut long =
        br#"{"version":1,"address":"127.0.0.1:1","capacity":1,"config":"","program_version":"","uid":"uid-1"}"#
            .to_vec();
    let anyone = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let intruder = intruder(&installation).await;
    let path = installation.path("engines/e-1/live");
    intruder.create(&path, &long, &anyone).await.unwrap();
    assert!(seen(&lock).await.ready().is_some(), "without its length it would be valid");
    long.resize(LONG_NAME_BYTES, b' ');
    intruder.set_data(&path, &long, None).await.unwrap();
    let looked = observe(lock.session()).await.unwrap().permits;
    let ready: Vec<bool> = looked.iter().map(|permit| permit.ready().is_some()).collect();
    assert_eq!(ready, [false, true]);
    let why = looked[0].registration.as_ref().unwrap().content.clone().unwrap_err();
    assert!(why.contains("400000 bytes"), "{why}");
    // An honest engine does not write a registration that would not be read.
    let session = installation.engine_session(installation.engine("e-1")).await;
    let endless = coordination::Registration {
        address: "a".repeat(registration::MAX_REGISTRATION_BYTES),
        ..registration("uid-1")
    };
    let refused = registry::register(&session, &made, &endless).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge { limit: registration::MAX_REGISTRATION_BYTES, .. }), "{refused}");
    permits::delete(&lock, &looked[0]).await.unwrap();
}

pub async fn undeletable_strays_do_not_prevent_a_drain(installation: Installation) {
    let lock = installation.lock().await;
    let session = installation.registered(&lock, "e-1", "uid-1").await;
    let intruder = intruder(&installation).await;
    let acl = own();
    for path in ["engines/e-1/mine", "engines/e-1/mine/too"] {
        let own = CreateMode::Persistent.with_acls(Acls::new(&acl));
        intruder.create(&installation.path(path), b"", &own).await.unwrap();
    }
    let seen = seen(&lock).await;
    assert_eq!(seen.strays, 1);
    drains::drain(&lock, &engine("e-1"), Some(&seen), None, &order("uid-1")).await.unwrap();
    let standing = registry::read_own(&session, &engine("e-1")).await.unwrap();
    assert_eq!(standing.drain.unwrap().content, Ok(order("uid-1")));
    let permit = standing.permit.unwrap();
    assert!(permit.registration.is_none() && permit.uid().is_none(), "{permit:?}");
    let again = registry::register(&session, &permit, &registration("uid-1")).await.unwrap_err();
    assert!(matches!(again, Error::Refused { .. }), "{again}");
    // The permit as it was read before admits no engine either.
    assert!(registry::register(&session, &seen, &registration("uid-1")).await.is_err());
    let left = left_behind(&lock).await;
    assert!(left.content.unwrap_err().contains("only that engine may delete"));
}

pub async fn a_registration_with_children_does_not_prevent_a_drain(installation: Installation) {
    let lock = installation.lock().await;
    let made = installation.made(&lock, "e-1", "uid-1").await;
    let intruder = intruder(&installation).await;
    let acl = own();
    // A persistent node may have children that only their creator may delete.
    for path in ["engines/e-1/live", "engines/e-1/live/mine"] {
        let own = CreateMode::Persistent.with_acls(Acls::new(&acl));
        intruder.create(&installation.path(path), b"{}", &own).await.unwrap();
    }
    let moved = drains::drain(&lock, &engine("e-1"), Some(&made), None, &order("uid-1")).await.unwrap_err();
    assert_eq!(moved, Error::NotEmpty { path: installation.path("engines/e-1") }, "it came since");
    assert_eq!(drains::list(lock.session()).await.unwrap(), []);

    drains::drain(&lock, &engine("e-1"), Some(&seen(&lock).await), None, &order("uid-1")).await.unwrap();
    assert_eq!(drains::list(lock.session()).await.unwrap()[0].content, Ok(order("uid-1")));
    assert_eq!(seen(&lock).await.uid(), None);
    left_behind(&lock).await;
}

pub async fn a_permit_left_behind_is_reused_for_its_engine(installation: Installation) {
    let lock = installation.lock().await;
    let session = installation.registered(&lock, "e-1", "uid-1").await;
    let intruder = intruder(&installation).await;
    let acl = own();
    for path in ["engines/e-1/mine", "engines/e-1/mine/too"] {
        let own = CreateMode::Persistent.with_acls(Acls::new(&acl));
        intruder.create(&installation.path(path), b"", &own).await.unwrap();
    }
    session.close().await;
    super::eventually("its registration is gone", || async { seen(&lock).await.registration.is_none() }).await;
    left_behind(&lock).await;
    // The mark exists already, and a new engine needs none.
    for uid in [Some("uid-1"), None] {
        permits::create(&lock, &engine("e-1"), &permit(uid)).await.unwrap();
        let again = seen(&lock).await;
        assert!(!again.left_behind && again.uid() == uid && again.answered && again.strays == 1, "{again:?}");
        let exists = permits::create(&lock, &engine("e-1"), &permit(uid)).await.unwrap_err();
        assert_eq!(exists, Error::NodeExists { path: installation.path("engines/e-1") });
        left_behind(&lock).await;
    }
}

pub async fn a_drain_with_strays_fails_if_the_registration_changed(installation: Installation) {
    let lock = installation.lock().await;
    installation.made(&lock, "e-1", "uid-1").await;
    let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
    intruder(&installation).await.create(&installation.path("engines/e-1/mine"), b"", &anyone).await.unwrap();
    let read = || async { permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap() };
    let without = read().await;
    let session = installation.engine_session(installation.engine("e-1")).await;
    registry::register(&session, &without, &registration("uid-1")).await.unwrap();
    let with = read().await;
    let came = drains::drain(&lock, &engine("e-1"), Some(&without), None, &order("uid-1")).await.unwrap_err();
    assert_eq!(came, Error::NodeExists { path: installation.path("engines/e-1/live") });
    session.close().await;
    super::eventually("it is gone", || async { read().await.registration.is_none() }).await;
    let went = drains::drain(&lock, &engine("e-1"), Some(&with), None, &order("uid-1")).await.unwrap_err();
    assert_eq!(went, Error::NoNode { path: installation.path("engines/e-1/live") });
    let passed = drains::drain(&lock, &engine("e-1"), Some(&without), None, &order("uid-1")).await.unwrap_err();
    assert_eq!(passed, Error::NodeExists { path: installation.path("engines/e-1/answered") }, "it came and went");
    assert_eq!(drains::list(lock.session()).await.unwrap(), []);
    drains::drain(&lock, &engine("e-1"), Some(&read().await), None, &order("uid-1")).await.unwrap();
}
