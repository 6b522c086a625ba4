//! A database with a latency of 3 ms: the writes for 10,000 engines fit into the deadlines of their calls.

#![allow(clippy::unwrap_used, clippy::panic)]

mod contract;

use std::time::{Duration, Instant};

use contract::bench::{Bench, create_pool, create_tenant, create_unit, memory};
use metadata::StoreSettings;
use model::engine_state::Phase;
use model::observation::Publication;
use model::slot::{Renewal, Replacement};
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

const ENGINES: u32 = 10_000;
/// On the second database in the default tier.
const FEWER_ENGINES: u32 = 2_500;
/// One way; a round trip takes twice as long.
const ONE_WAY: Duration = Duration::from_micros(1_500);
/// Rows of a part of a report, and how long a master waits for its answer.
const PART: usize = 1_000;
const PART_DEADLINE: Duration = Duration::from_millis(3_300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs EH_TEST_POSTGRES"]
async fn an_alteration_of_10_000_engines_commits_3_ms_from_postgres() {
    let url = std::env::var("EH_TEST_POSTGRES").expect("EH_TEST_POSTGRES is a postgres:// URL");
    let schema = format!("eh_{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    execute(&url, format!("CREATE SCHEMA {schema}")).await;
    let sign = if url.contains('?') { '&' } else { '?' };
    alters_and_reports(format!("{}{sign}options[search_path]={schema}", far(&url).await), ENGINES).await;
}

/// 10,000 of them with `EH_TEST_TIER=long`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs EH_TEST_MARIADB"]
async fn an_alteration_of_thousands_of_engines_commits_3_ms_from_mariadb() {
    let url = std::env::var("EH_TEST_MARIADB").expect("EH_TEST_MARIADB is a mysql:// URL");
    let database = format!("eh_{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    execute(&url, format!("CREATE DATABASE {database}")).await;
    let is_long = std::env::var("EH_TEST_TIER").is_ok_and(|tier| tier == "long");
    let engines = if is_long { ENGINES } else { FEWER_ENGINES };
    alters_and_reports(format!("{}/{database}", far(&url).await.trim_end_matches('/')), engines).await;
}

async fn execute(url: &str, sql: String) {
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(url).await.unwrap();
    connection.execute(AssertSqlSafe(sql)).await.unwrap();
    connection.close().await.unwrap();
}

async fn alters_and_reports(url: String, engines: u32) {
    let bench = Bench::open(StoreSettings::new(url)).await;
    bench.alter("a-1", create_unit("uc_1", engines, engines)).await;
    bench.alter("a-2", create_pool("rp_1", &["uc_1"])).await;
    let took = |since: Instant| since.elapsed().as_millis();
    let since = Instant::now();
    bench.alter("a-3", create_tenant("t_1", &["rp_1"], &[])).await;
    println!("distance: add {engines} slots: {} ms", took(since));
    let before = bench.present().await;
    let since = Instant::now();
    bench.alter("a-4", memory("uc_1", "2G")).await;
    println!("distance: renew {engines} slots: {} ms", took(since));
    let names = bench.present().await;
    let before: std::collections::HashSet<_> = before.into_iter().collect();
    assert_eq!(names.iter().filter(|name| !before.contains(name)).count(), engines as usize);
    let epoch = bench.epoch().await;
    for (at, part) in names.chunks(PART).take(2).enumerate() {
        let seen = part.iter().map(|name| contract::engines::seen(name, Phase::Running)).collect();
        let since = Instant::now();
        bench.store.publish(epoch, &Publication { engines: seen, part: true, ..Publication::default() }).await.unwrap();
        println!("distance: report {PART} rows: {} ms", took(since));
        assert!(since.elapsed() < PART_DEADLINE, "part {at}: {} ms", took(since));
    }
    let slots = bench.store.snapshot().await.unwrap().slots;
    let renewals: Vec<Renewal> = slots
        .into_iter()
        .take(PART)
        .map(|slot| Renewal {
            slot: slot.key.clone(),
            observed: slot.incarnation,
            failures: 0,
            replacement: Replacement::StandIn,
            condemn: None,
            ends: None,
        })
        .collect();
    let since = Instant::now();
    let drawn = bench.store.new_incarnations(epoch, &renewals).await.unwrap();
    println!("distance: draw {PART} incarnations: {} ms", took(since));
    assert!(drawn.len() == PART && drawn.iter().all(Result::is_ok));
    assert!(since.elapsed() < PART_DEADLINE, "{} ms", took(since));
    let since = Instant::now();
    bench.alter("a-5", contract::bench::change_tenant("t_1", &[])).await;
    println!("distance: delete {engines} slots: {} ms", took(since));
    assert!(bench.present().await.is_empty());
}

/// The URL of a relay to the server that delays both directions.
async fn far(url: &str) -> String {
    let (before, rest) = url.split_once('@').unwrap();
    let (server, after) = rest.split_once('/').unwrap_or((rest, ""));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = format!("{before}@{}/{after}", listener.local_addr().unwrap());
    let server = server.to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
            tokio::spawn(delayed(from_client, to_server));
            tokio::spawn(delayed(from_server, to_client));
        }
    });
    far
}

async fn delayed(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut bytes = vec![0; 1 << 20];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        tokio::time::sleep(ONE_WAY).await;
        if to.write_all(&bytes[..count]).await.is_err() {
            break;
        }
    }
}
