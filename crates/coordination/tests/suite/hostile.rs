//! An engine that runs hostile code: it has its own key, and may create below its own permit.

use coordination::{Drain, Error, drains, observe, permits, registry};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use super::{World, engine, live};

/// More than are read below one permit.
const CROWD: usize = 1_001;

fn fact(uid: &str) -> Drain {
    Drain { uid: Some(uid.to_owned()), grace_ms: 0, reason: "stopped".to_owned() }
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
    assert_eq!(seen.permits.iter().map(|permit| permit.crowded).collect::<Vec<_>>(), [true, false]);
    assert!(matches!(permits::delete(&lock, &seen.permits[0]).await, Err(Error::Refused { .. })));

    drains::drain(&lock, &engine("e-1"), Some(&seen.permits[0]), None, &fact("uid-1")).await.unwrap();
    let standing = registry::own(&session, &engine("e-1")).await.unwrap();
    assert!(standing.drain.is_some());
    let permit = standing.permit.unwrap();
    assert!(permit.live.is_none() && !permit.answered, "{permit:?}");
    let again = registry::register(&session, &permit, &live("uid-1")).await.unwrap_err();
    assert!(matches!(again, Error::Refused { .. }), "{again}");
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
    assert!(seen.permits[0].live.as_ref().unwrap().content.is_err());
    permits::delete(&lock, &seen.permits[0]).await.unwrap();
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
    let seen = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    assert_eq!(seen.strays, ["mine"]);
    drains::drain(&lock, &engine("e-1"), Some(&seen), None, &fact("uid-1")).await.unwrap();
    let standing = registry::own(&session, &engine("e-1")).await.unwrap();
    assert_eq!(standing.drain.unwrap().content, Ok(fact("uid-1")));
    let permit = standing.permit.unwrap();
    assert!(permit.live.is_none() && permit.uid().is_none(), "{permit:?}");
    let again = registry::register(&session, &permit, &live("uid-1")).await.unwrap_err();
    assert!(matches!(again, Error::Refused { .. }), "{again}");
    // With the permit as it was before, nobody gets in either.
    assert!(registry::register(&session, &seen, &live("uid-1")).await.is_err());
}

pub async fn a_registration_that_came_or_went_since_keeps_a_crowded_drain_from_happening(world: World) {
    let lock = world.lock().await;
    world.made(&lock, "e-1", "uid-1").await;
    let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
    intruder(&world).await.create(&world.path("engines/e-1/mine"), b"", &anyone).await.unwrap();
    let read = || async { permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap() };
    let without = read().await;
    let session = world.session(world.engine("e-1")).await;
    registry::register(&session, &without, &live("uid-1")).await.unwrap();
    let with = read().await;
    let came = drains::drain(&lock, &engine("e-1"), Some(&without), None, &fact("uid-1")).await.unwrap_err();
    assert_eq!(came, Error::NodeExists { path: world.path("engines/e-1/live") });
    session.close().await;
    super::eventually("it is gone", || async { read().await.live.is_none() }).await;
    let went = drains::drain(&lock, &engine("e-1"), Some(&with), None, &fact("uid-1")).await.unwrap_err();
    assert_eq!(went, Error::NoNode { path: world.path("engines/e-1/live") });
    let passed = drains::drain(&lock, &engine("e-1"), Some(&without), None, &fact("uid-1")).await.unwrap_err();
    assert_eq!(passed, Error::NodeExists { path: world.path("engines/e-1/answered") }, "it came and went");
    assert_eq!(drains::list(lock.session()).await.unwrap(), []);
    drains::drain(&lock, &engine("e-1"), Some(&read().await), None, &fact("uid-1")).await.unwrap();
}
