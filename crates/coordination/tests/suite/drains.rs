//! Drain orders.

use coordination::{DrainOrder, Error, ZkErrorKind, drains, observe, permits, registry};

use super::{World, engine, registration};

fn fact(uid: &str) -> DrainOrder {
    DrainOrder { uid: Some(uid.to_owned()), grace_ms: 30_000, reason: "stopped".to_owned(), namespace: None }
}

pub async fn a_drain_takes_registration_and_permit_away_in_one_step(world: World) {
    let lock = world.lock().await;
    let session = world.registered(&lock, "e-1", "uid-1").await;
    let seen = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    assert!(seen.registration.is_some());
    drains::drain(&lock, &engine("e-1"), Some(&seen), None, &fact("uid-1")).await.unwrap();
    assert_eq!(permits::list(lock.session()).await.unwrap(), []);
    let standing = registry::read_own(&session, &engine("e-1")).await.unwrap();
    assert_eq!(standing.permit, None);
    assert_eq!(standing.drain.unwrap().content, Ok(fact("uid-1")));
}

pub async fn a_drain_fails_as_a_whole_when_the_registration_came_or_went(world: World) {
    let lock = world.lock().await;
    let without = world.permitted(&lock, "e-1", "uid-1").await;
    let session = world.session(world.engine("e-1")).await;
    registry::register(&session, &without, &registration("uid-1")).await.unwrap();
    let came = drains::drain(&lock, &engine("e-1"), Some(&without), None, &fact("uid-1")).await.unwrap_err();
    assert_eq!(came, Error::NotEmpty { path: world.path("engines/e-1") });

    let with = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    session.close().await;
    super::eventually("it is gone", || async {
        permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap().registration.is_none()
    })
    .await;
    let went = drains::drain(&lock, &engine("e-1"), Some(&with), None, &fact("uid-1")).await.unwrap_err();
    assert_eq!(went, Error::NoNode { path: world.path("engines/e-1/live") });
    assert_eq!(drains::list(lock.session()).await.unwrap(), [], "neither wrote a fact");
    drains::drain(&lock, &engine("e-1"), Some(&without), None, &fact("uid-1")).await.unwrap();
}

pub async fn a_registration_that_came_and_went_since_is_not_drained(world: World) {
    let lock = world.lock().await;
    let seen = world.made(&lock, "e-1", "uid-1").await;
    let session = world.session(world.engine("e-1")).await;
    registry::register(&session, &seen, &registration("uid-1")).await.unwrap();
    session.close().await;
    let read = || async { permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap() };
    super::eventually("it is gone", || async { read().await.registration.is_none() }).await;

    let moved = Error::NotEmpty { path: world.path("engines/e-1") };
    let drained = drains::drain(&lock, &engine("e-1"), Some(&seen), None, &fact("uid-1")).await;
    assert_eq!(drained.unwrap_err(), moved, "there is as little below the permit as was seen, but for the mark");
    assert_eq!(permits::delete(&lock, &seen).await.unwrap_err(), moved);
    assert_eq!(drains::list(lock.session()).await.unwrap(), []);
    drains::drain(&lock, &engine("e-1"), Some(&read().await), None, &fact("uid-1")).await.unwrap();
    assert_eq!(permits::list(lock.session()).await.unwrap(), []);
}

pub async fn a_superseded_engine_drains_only_while_the_newer_is_registered(world: World) {
    let lock = world.lock().await;
    let _old = world.registered(&lock, "e-1", "uid-1").await;
    let seen = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    let newer = world.permitted(&lock, "e-2", "uid-2").await;
    let early = drains::drain(&lock, &engine("e-1"), Some(&seen), Some(&engine("e-2")), &fact("uid-1")).await;
    assert_eq!(early.unwrap_err(), Error::NoNode { path: world.path("engines/e-2/live") });
    assert_eq!(drains::list(lock.session()).await.unwrap(), []);

    let session = world.session(world.engine("e-2")).await;
    registry::register(&session, &newer, &registration("uid-2")).await.unwrap();
    drains::drain(&lock, &engine("e-1"), Some(&seen), Some(&engine("e-2")), &fact("uid-1")).await.unwrap();
}

pub async fn a_fact_stands_until_the_master_removes_it(world: World) {
    let lock = world.lock().await;
    drains::drain(&lock, &engine("e-1"), None, None, &fact("uid-1")).await.unwrap();
    let again = drains::drain(&lock, &engine("e-1"), None, None, &fact("uid-2")).await.unwrap_err();
    assert_eq!(again, Error::NodeExists { path: world.path("drains/e-1") });
    let seen = observe(lock.session()).await.unwrap().drains.remove(0);
    assert_eq!(seen.content, Ok(fact("uid-1")));

    let next = {
        world.as_master().await.delete(lock.path(), None).await.unwrap();
        world.lock().await
    };
    assert_eq!(drains::remove(&lock, &engine("e-1")).await.unwrap_err().kind(), ZkErrorKind::Lost);
    drains::remove(&next, &engine("e-1")).await.unwrap();
    assert_eq!(drains::remove(&next, &engine("e-1")).await.unwrap_err().kind(), ZkErrorKind::Conflict);
    assert_eq!(drains::list(next.session()).await.unwrap(), []);
}
