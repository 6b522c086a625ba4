//! Tests of the store: connections, permits and probes.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;

#[tokio::test]
async fn the_reason_is_reported_long_before_the_pool_times_out() {
    // Bound and not listening: no other program gets the port, and connections are refused.
    let port = tokio::net::TcpSocket::new_v4().unwrap();
    port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    for scheme in ["postgres", "mysql"] {
        let url = format!("{scheme}://user@{}/nothing", port.local_addr().unwrap());
        let clock = model::clock::SystemClock::shared();
        let store = Store::connect(&StoreSettings::new(url), Rules::default(), clock).await.unwrap();
        let began = Instant::now();
        let Err(Error::Unavailable(reason)) = store.begin(Mode::Write).await else { panic!("{scheme} answers") };
        assert!(reason.to_string().contains("refused"), "{scheme}: {reason}");
        assert!(began.elapsed() < store.inner.settings.connect_deadline / 2, "{scheme}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_hundred_waiting_transactions_share_one_probe() {
    let folder = tempfile::tempdir().unwrap();
    let settings = StoreSettings { connections: 1, ..StoreSettings::sqlite(&folder.path().join("a.db")) };
    Store::migrate(&settings).await.unwrap();
    let clock = model::clock::SystemClock::shared();
    let store = Store::open(&settings, Rules::default(), clock).await.unwrap();
    let held = store.begin(Mode::Snapshot).await.unwrap();
    let waiting: Vec<_> = (0..100)
        .map(|at| {
            let store = if at % 2 == 0 { store.clone() } else { store.for_masters() };
            tokio::spawn(async move { store.catalog().await })
        })
        .collect();
    sleep(PATIENCE + PATIENCE / 2).await;
    assert_eq!(store.inner.probes.load(Ordering::Relaxed), 1);
    held.leave(Ok(())).await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn statements_leave_connections_for_masters() {
    let folder = tempfile::tempdir().unwrap();
    let settings = StoreSettings::sqlite(&folder.path().join("a.db"));
    Store::migrate(&settings).await.unwrap();
    let clock = model::clock::SystemClock::shared();
    let store = Store::open(&settings, Rules::default(), clock).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..settings.connections - MAX_RESERVED {
        held.push(store.begin(Mode::Snapshot).await.unwrap());
    }
    let short = Duration::from_millis(100);
    assert!(timeout(short, store.begin(Mode::Snapshot)).await.is_err(), "a statement waits");
    let master = timeout(settings.connect_deadline, store.for_masters().begin(Mode::Snapshot)).await;
    drop(master.unwrap().unwrap());
}

#[tokio::test]
async fn a_master_does_not_queue_behind_statements_that_write() {
    let folder = tempfile::tempdir().unwrap();
    let settings = StoreSettings::sqlite(&folder.path().join("a.db"));
    Store::migrate(&settings).await.unwrap();
    let clock = model::clock::SystemClock::shared();
    let store = Store::open(&settings, Rules::default(), clock).await.unwrap();
    let held = store.begin(Mode::Write).await.unwrap();
    let (sender, mut order) = tokio::sync::mpsc::channel(9);
    let mut writers = tokio::task::JoinSet::new();
    // Each is queued before the next one is started.
    for (who, of) in [("statement", &store); 8].into_iter().chain([("master", &store.for_masters())]) {
        let (store, sender) = (of.clone(), sender.clone());
        let mut begins = Box::pin(async move { store.begin(Mode::Write).await.unwrap() });
        assert!(timeout(Duration::ZERO, &mut begins).await.is_err(), "the lock is held");
        writers.spawn(async move {
            let begun = begins.await;
            sender.send(who).await.unwrap();
            begun.leave(Ok(())).await.unwrap();
        });
    }
    held.leave(Ok(())).await.unwrap();
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }
    let order: Vec<&str> = (0..9).map(|_| order.try_recv().unwrap()).collect();
    assert!(order[..2].contains(&"master"), "{order:?}");
}
