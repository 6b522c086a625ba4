//! An engine that runs hostile code: it has its own key, and may create below its own permit.

use std::time::Duration;

use coordination::{
    DrainOrder, Error, Lock, PermitNode, SessionState, Wakeups, drains, observe, permits, registration, registry,
};
use tokio::time::timeout;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use super::{World, engine, permit, registration, within};

/// More than anybody deletes below one permit.
const CROWD: usize = 1_001;
/// Bytes of a name of which three don't fit into one request.
const LONG_NAME_BYTES: usize = 400_000;

fn fact(uid: &str) -> DrainOrder {
    DrainOrder { uid: Some(uid.to_owned()), grace_ms: 0, reason: "stopped".to_owned(), namespace: None }
}

/// Whoever has the key of engine `e-1`.
async fn intruder(world: &World) -> Client {
    let key = coordination::EngineCredential::derive(&world.secret, &engine("e-1")).password;
    world.stranger(Some(&format!("engine-e-1:{key}"))).await
}

/// Everything for the maker of a node, nothing for anybody else.
fn own() -> [Acl; 1] {
    [Acl::new(Permission::ALL, AuthId::authed())]
}

/// The permit of engine `e-1`.
async fn seen(lock: &Lock) -> PermitNode {
    permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap()
}

/// Deletes the permit of engine `e-1`, which stays, as nobody's.
async fn left_behind(lock: &Lock) -> PermitNode {
    permits::delete(lock, &seen(lock).await).await.unwrap();
    let left = seen(lock).await;
    assert!(left.left_behind && left.uid().is_none() && left.registration.is_none() && left.strays > 0, "{left:?}");
    left
}

async fn crowd(world: &World, intruder: &Client) {
    let acl = own();
    let own = CreateMode::Persistent.with_acls(Acls::new(&acl));
    for first in (0..CROWD).step_by(200) {
        let mut writer = intruder.new_multi_writer();
        for number in first..CROWD.min(first + 200) {
            writer.add_create(&world.path(&format!("engines/e-1/{number}")), b"", &own).unwrap();
        }
        writer.commit().await.unwrap();
    }
}

pub async fn a_crowd_below_one_permit_holds_up_the_reading_of_no_other(world: World) {
    let lock = world.lock().await;
    let session = world.registered(&lock, "e-1", "uid-1").await;
    let _other = world.registered(&lock, "e-2", "uid-2").await;
    crowd(&world, &intruder(&world).await).await;
    let seen = observe(lock.session()).await.unwrap();
    assert!(seen.permits.iter().all(|permit| permit.ready().is_some() && permit.answered), "{:?}", seen.permits);
    assert_eq!(seen.permits.iter().map(|permit| permit.strays).collect::<Vec<_>>(), [CROWD, 0]);

    drains::drain(&lock, &engine("e-1"), Some(&seen.permits[0]), None, &fact("uid-1")).await.unwrap();
    let standing = registry::read_own(&session, &engine("e-1")).await.unwrap();
    assert!(standing.drain.is_some());
    let permit = standing.permit.unwrap();
    assert!(permit.registration.is_none() && !permit.answered, "{permit:?}");
    let again = registry::register(&session, &permit, &registration("uid-1")).await.unwrap_err();
    assert!(matches!(again, Error::Refused { .. }), "{again}");
    left_behind(&lock).await;
}

pub async fn names_as_long_as_a_request_keep_the_master_from_nothing(world: World) {
    let lock = world.lock().await;
    world.made(&lock, "e-1", "uid-1").await;
    let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let intruder = intruder(&world).await;
    for letter in ["a", "b", "c"] {
        let path = format!("engines/e-1/{}", letter.repeat(LONG_NAME_BYTES));
        intruder.create(&world.path(&path), b"", &anyone).await.unwrap();
    }
    assert_eq!(observe(lock.session()).await.unwrap().permits[0].strays, 3);
    // One request with all three names would be too long: the server cuts off whoever sends it.
    left_behind(&lock).await;
    assert_eq!(lock.session().state(), SessionState::Connected);
    assert!(lock.still_held().await.unwrap());
}

pub async fn what_an_engine_makes_below_its_permit_wakes_nobody(world: World) {
    let lock = world.lock().await;
    world.made(&lock, "e-1", "uid-1").await;
    let wakeups = Wakeups::start(lock.session());
    // All watches are armed by then.
    within(wakeups.next()).await;
    let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
    intruder(&world).await.create(&world.path("engines/e-1/mine"), b"", &anyone).await.unwrap();
    assert!(timeout(Duration::from_millis(500), wakeups.next()).await.is_err());
    let session = world.session(world.engine("e-1")).await;
    registry::register(&session, &seen(&lock).await, &registration("uid-1")).await.unwrap();
    within(wakeups.next()).await;
}

pub async fn a_registration_that_nobody_may_read_holds_up_the_reading_of_no_other(world: World) {
    let lock = world.lock().await;
    world.permitted(&lock, "e-1", "uid-1").await;
    let _other = world.registered(&lock, "e-2", "uid-2").await;
    let acl = own();
    let closed = CreateMode::Ephemeral.with_acls(Acls::new(&acl));
    let intruder = intruder(&world).await;
    intruder.create(&world.path("engines/e-1/live"), b"{}", &closed).await.unwrap();
    let seen = observe(lock.session()).await.unwrap();
    let ready: Vec<bool> = seen.permits.iter().map(|permit| permit.ready().is_some()).collect();
    assert_eq!(ready, [false, true]);
    assert!(seen.permits[0].registration.as_ref().unwrap().content.is_err());
    permits::delete(&lock, &seen.permits[0]).await.unwrap();
}

pub async fn a_registration_whose_address_is_none_is_unreadable(world: World) {
    let lock = world.lock().await;
    world.permitted(&lock, "e-1", "uid-1").await;
    let _other = world.registered(&lock, "e-2", "uid-2").await;
    let anyone = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let intruder = intruder(&world).await;
    let path = world.path("engines/e-1/live");
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

pub async fn a_registration_that_is_too_long_is_not_read(world: World) {
    let lock = world.lock().await;
    let made = world.permitted(&lock, "e-1", "uid-1").await;
    let _other = world.registered(&lock, "e-2", "uid-2").await;
    // All that a registration needs, and then as much as a request takes.
    let mut long =
        br#"{"version":1,"address":"127.0.0.1:1","capacity":1,"config":"","program_version":"","uid":"uid-1"}"#
            .to_vec();
    let anyone = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let intruder = intruder(&world).await;
    let path = world.path("engines/e-1/live");
    intruder.create(&path, &long, &anyone).await.unwrap();
    assert!(seen(&lock).await.ready().is_some(), "it would be one");
    long.resize(LONG_NAME_BYTES, b' ');
    intruder.set_data(&path, &long, None).await.unwrap();
    let looked = observe(lock.session()).await.unwrap().permits;
    let ready: Vec<bool> = looked.iter().map(|permit| permit.ready().is_some()).collect();
    assert_eq!(ready, [false, true]);
    let why = looked[0].registration.as_ref().unwrap().content.clone().unwrap_err();
    assert!(why.contains("400000 bytes"), "{why}");
    // Nor does an honest engine write what nobody would read.
    let session = world.session(world.engine("e-1")).await;
    let endless = coordination::Registration {
        address: "a".repeat(registration::MAX_REGISTRATION_BYTES),
        ..registration("uid-1")
    };
    let refused = registry::register(&session, &made, &endless).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge { limit: registration::MAX_REGISTRATION_BYTES, .. }), "{refused}");
    permits::delete(&lock, &looked[0]).await.unwrap();
}

pub async fn children_that_only_the_engine_may_delete_keep_nobody_from_draining_it(world: World) {
    let lock = world.lock().await;
    let session = world.registered(&lock, "e-1", "uid-1").await;
    let intruder = intruder(&world).await;
    let acl = own();
    for path in ["engines/e-1/mine", "engines/e-1/mine/too"] {
        let own = CreateMode::Persistent.with_acls(Acls::new(&acl));
        intruder.create(&world.path(path), b"", &own).await.unwrap();
    }
    let seen = seen(&lock).await;
    assert_eq!(seen.strays, 1);
    drains::drain(&lock, &engine("e-1"), Some(&seen), None, &fact("uid-1")).await.unwrap();
    let standing = registry::read_own(&session, &engine("e-1")).await.unwrap();
    assert_eq!(standing.drain.unwrap().content, Ok(fact("uid-1")));
    let permit = standing.permit.unwrap();
    assert!(permit.registration.is_none() && permit.uid().is_none(), "{permit:?}");
    let again = registry::register(&session, &permit, &registration("uid-1")).await.unwrap_err();
    assert!(matches!(again, Error::Refused { .. }), "{again}");
    // With the permit as it was before, nobody gets in either.
    assert!(registry::register(&session, &seen, &registration("uid-1")).await.is_err());
    let left = left_behind(&lock).await;
    assert!(left.content.unwrap_err().contains("only that engine may delete"));
}

pub async fn a_registration_with_children_keeps_nobody_from_draining_its_engine(world: World) {
    let lock = world.lock().await;
    let made = world.made(&lock, "e-1", "uid-1").await;
    let intruder = intruder(&world).await;
    let acl = own();
    // What is no ephemeral node may have children, and only its maker may delete those.
    for path in ["engines/e-1/live", "engines/e-1/live/mine"] {
        let own = CreateMode::Persistent.with_acls(Acls::new(&acl));
        intruder.create(&world.path(path), b"{}", &own).await.unwrap();
    }
    let moved = drains::drain(&lock, &engine("e-1"), Some(&made), None, &fact("uid-1")).await.unwrap_err();
    assert_eq!(moved, Error::NotEmpty { path: world.path("engines/e-1") }, "it came since");
    assert_eq!(drains::list(lock.session()).await.unwrap(), []);

    drains::drain(&lock, &engine("e-1"), Some(&seen(&lock).await), None, &fact("uid-1")).await.unwrap();
    assert_eq!(drains::list(lock.session()).await.unwrap()[0].content, Ok(fact("uid-1")));
    assert_eq!(seen(&lock).await.uid(), None);
    left_behind(&lock).await;
}

pub async fn what_was_left_behind_is_a_permit_again_when_its_engine_is_to_have_one(world: World) {
    let lock = world.lock().await;
    let session = world.registered(&lock, "e-1", "uid-1").await;
    let intruder = intruder(&world).await;
    let acl = own();
    for path in ["engines/e-1/mine", "engines/e-1/mine/too"] {
        let own = CreateMode::Persistent.with_acls(Acls::new(&acl));
        intruder.create(&world.path(path), b"", &own).await.unwrap();
    }
    session.close().await;
    super::eventually("its registration is gone", || async { seen(&lock).await.registration.is_none() }).await;
    left_behind(&lock).await;
    // The mark is there already, and an engine that is to be made needs none.
    for uid in [Some("uid-1"), None] {
        permits::create(&lock, &engine("e-1"), &permit(uid)).await.unwrap();
        let again = seen(&lock).await;
        assert!(!again.left_behind && again.uid() == uid && again.answered && again.strays == 1, "{again:?}");
        let exists = permits::create(&lock, &engine("e-1"), &permit(uid)).await.unwrap_err();
        assert_eq!(exists, Error::NodeExists { path: world.path("engines/e-1") });
        left_behind(&lock).await;
    }
}

pub async fn a_registration_that_came_or_went_since_keeps_a_crowded_drain_from_happening(world: World) {
    let lock = world.lock().await;
    world.made(&lock, "e-1", "uid-1").await;
    let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
    intruder(&world).await.create(&world.path("engines/e-1/mine"), b"", &anyone).await.unwrap();
    let read = || async { permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap() };
    let without = read().await;
    let session = world.session(world.engine("e-1")).await;
    registry::register(&session, &without, &registration("uid-1")).await.unwrap();
    let with = read().await;
    let came = drains::drain(&lock, &engine("e-1"), Some(&without), None, &fact("uid-1")).await.unwrap_err();
    assert_eq!(came, Error::NodeExists { path: world.path("engines/e-1/live") });
    session.close().await;
    super::eventually("it is gone", || async { read().await.registration.is_none() }).await;
    let went = drains::drain(&lock, &engine("e-1"), Some(&with), None, &fact("uid-1")).await.unwrap_err();
    assert_eq!(went, Error::NoNode { path: world.path("engines/e-1/live") });
    let passed = drains::drain(&lock, &engine("e-1"), Some(&without), None, &fact("uid-1")).await.unwrap_err();
    assert_eq!(passed, Error::NodeExists { path: world.path("engines/e-1/answered") }, "it came and went");
    assert_eq!(drains::list(lock.session()).await.unwrap(), []);
    drains::drain(&lock, &engine("e-1"), Some(&read().await), None, &fact("uid-1")).await.unwrap();
}
