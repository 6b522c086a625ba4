//! Drain orders.

use coordination::{DrainOrder, Error, ZkErrorKind, drains, observe, permits, registry};

use super::{Installation, engine, registration};

fn order(uid: &str) -> DrainOrder {
    DrainOrder { uid: Some(uid.to_owned()), grace_ms: 30_000, reason: "stopped".to_owned(), namespace: None }
}

pub async fn a_drain_deletes_registration_and_permit_in_one_step(installation: Installation) {
    let lock = installation.lock().await;
    let session = installation.registered(&lock, "e-1", "uid-1").await;
    let seen = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    assert!(seen.registration.is_some());
    drains::drain(&lock, &engine("e-1"), Some(&seen), None, &order("uid-1")).await.unwrap();
    assert_eq!(permits::list(lock.session()).await.unwrap(), []);
    let standing = registry::read_own(&session, &engine("e-1")).await.unwrap();
    assert_eq!(standing.permit, None);
    assert_eq!(standing.drain.unwrap().content, Ok(order("uid-1")));
}

pub async fn a_drain_fails_as_a_whole_if_the_registration_changed(installation: Installation) {
    let lock = installation.lock().await;
    let without = installation.permitted(&lock, "e-1", "uid-1").await;
    let session = installation.engine_session(installation.engine("e-1")).await;
    registry::register(&session, &without, &registration("uid-1")).await.unwrap();
    let came = drains::drain(&lock, &engine("e-1"), Some(&without), None, &order("uid-1")).await.unwrap_err();
    assert_eq!(came, Error::NotEmpty { path: installation.path("engines/e-1") });

    let with = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    session.close().await;
    super::eventually("it is gone", || async {
        permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap().registration.is_none()
    })
    .await;
    let went = drains::drain(&lock, &engine("e-1"), Some(&with), None, &order("uid-1")).await.unwrap_err();
    assert_eq!(went, Error::NoNode { path: installation.path("engines/e-1/live") });
    assert_eq!(drains::list(lock.session()).await.unwrap(), [], "neither wrote a drain order");
    drains::drain(&lock, &engine("e-1"), Some(&without), None, &order("uid-1")).await.unwrap();
}

pub async fn a_drain_fails_if_a_registration_came_and_went(installation: Installation) {
    let lock = installation.lock().await;
    let seen = installation.made(&lock, "e-1", "uid-1").await;
    let session = installation.engine_session(installation.engine("e-1")).await;
    registry::register(&session, &seen, &registration("uid-1")).await.unwrap();
    session.close().await;
    let read = || async { permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap() };
    super::eventually("it is gone", || async { read().await.registration.is_none() }).await;

    let moved = Error::NotEmpty { path: installation.path("engines/e-1") };
    let drained = drains::drain(&lock, &engine("e-1"), Some(&seen), None, &order("uid-1")).await;
    assert_eq!(drained.unwrap_err(), moved, "the permit has the children that were read, but also the mark");
    assert_eq!(permits::delete(&lock, &seen).await.unwrap_err(), moved);
    assert_eq!(drains::list(lock.session()).await.unwrap(), []);
    drains::drain(&lock, &engine("e-1"), Some(&read().await), None, &order("uid-1")).await.unwrap();
    assert_eq!(permits::list(lock.session()).await.unwrap(), []);
}

pub async fn a_superseded_engine_drains_only_while_the_newer_is_registered(installation: Installation) {
    let lock = installation.lock().await;
    let _old = installation.registered(&lock, "e-1", "uid-1").await;
    let seen = permits::read(lock.session(), &engine("e-1")).await.unwrap().unwrap();
    let newer = installation.permitted(&lock, "e-2", "uid-2").await;
    let early = drains::drain(&lock, &engine("e-1"), Some(&seen), Some(&engine("e-2")), &order("uid-1")).await;
    assert_eq!(early.unwrap_err(), Error::NoNode { path: installation.path("engines/e-2/live") });
    assert_eq!(drains::list(lock.session()).await.unwrap(), []);

    let session = installation.engine_session(installation.engine("e-2")).await;
    registry::register(&session, &newer, &registration("uid-2")).await.unwrap();
    drains::drain(&lock, &engine("e-1"), Some(&seen), Some(&engine("e-2")), &order("uid-1")).await.unwrap();
}

pub async fn a_drain_order_stays_until_the_master_removes_it(installation: Installation) {
    let lock = installation.lock().await;
    drains::drain(&lock, &engine("e-1"), None, None, &order("uid-1")).await.unwrap();
    let again = drains::drain(&lock, &engine("e-1"), None, None, &order("uid-2")).await.unwrap_err();
    assert_eq!(again, Error::NodeExists { path: installation.path("drains/e-1") });
    let seen = observe(lock.session()).await.unwrap().drains.remove(0);
    assert_eq!(seen.content, Ok(order("uid-1")));

    let next = {
        installation.as_master().await.delete(lock.path(), None).await.unwrap();
        installation.lock().await
    };
    assert_eq!(drains::remove(&lock, &engine("e-1")).await.unwrap_err().kind(), ZkErrorKind::Lost);
    drains::remove(&next, &engine("e-1")).await.unwrap();
    assert_eq!(drains::remove(&next, &engine("e-1")).await.unwrap_err().kind(), ZkErrorKind::Conflict);
    assert_eq!(drains::list(next.session()).await.unwrap(), []);
}
