//! Shares a resource pool with the engines of a tenant: reserves, works, renews and releases.
//!
//! `share_a_pool <proxy>[,<proxy>…] <user> <tenant> <pool>`, with the password in `ENGINEHOUSE_PASSWORD`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use reservation_client::{Claim, Client, ClientOptions, RequestKey, ReservationRequest, Resource};
use tokio::sync::oneshot;

/// How long the reservation is valid without a renewal.
const LEASE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [proxies, user, tenant, pool] = arguments.as_slice() else {
        anyhow::bail!("usage: share_a_pool <proxy>[,<proxy>…] <user> <tenant> <pool>");
    };
    let proxies = proxies.split(',').map(str::to_owned).collect();
    let password = std::env::var("ENGINEHOUSE_PASSWORD").unwrap_or_default();
    let client = Arc::new(Client::new(ClientOptions::new(proxies, user, password)));

    // Half a core and 512 MiB for one instance, or a place in the queue for up to a minute.
    let instance = format!("batch-{}", std::process::id());
    let resource = Resource::from_json(r#"{"type": "Load", "memory": "512M", "cpu": 0.5}"#)?;
    let mut request = ReservationRequest::on_pool(tenant, pool, resource, &instance);
    request.creator = Some("share_a_pool".to_owned());
    request.wait = Some(Duration::from_mins(1));
    // A program that may crash here would store the key first.
    let key = RequestKey::random();
    let reservation = client.obtain(&request, &key).await.context("no capacity")?;
    println!("reserved {} ({})", reservation.id, reservation.state);

    let claim = Claim::new(&reservation, &instance);
    client.confirm(&claim, None, Some(LEASE)).await.context("the reservation was lost before the work began")?;
    let (lost, is_lost) = oneshot::channel();
    let renewal = client.keep_renewed(claim.clone(), LEASE, move |error| {
        let _ = lost.send(error);
    });

    // A program that loses its reservation stops: its amount may belong to another program.
    tokio::select! {
        result = work() => println!("worked: {result}"),
        Ok(error) = is_lost => anyhow::bail!("stopped without a result: {error}"),
    }
    drop(renewal);
    let released = client.release(&claim).await.context("could not release")?;
    println!("{} {}", released.state, released.id);
    Ok(())
}

/// What the program is for.
async fn work() -> u64 {
    tokio::time::sleep(Duration::from_millis(500)).await;
    (1..=100).sum()
}
