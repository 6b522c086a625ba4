//! A `DataFusion` engine as a `HiveServer2` server of its own, for trying a client, or as the server of engines of type
//! `hiveserver2`. It serves until SIGTERM or SIGINT.
//!
//! Options: `--listen HOST:PORT` (on loopback), `--directory DIR` for its tables and spilled data, `--memory-mib N`,
//! `--cores N`, `--engine NAME`, `--tenant NAME`, `--location DIR` (a folder of external tables; repeatable) and
//! `--property KEY=VALUE` (repeatable). Clients present the password of the variable `ENGINEHOUSE_SERVER_PASSWORD`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use datafusion_engine::{Config, Credential, Limits, Server};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        tenant: "tenant".to_owned(),
        engine: "engine".to_owned(),
        catalog_dir: PathBuf::new(),
        catalog: None,
        scratch_dir: PathBuf::new(),
        allowed_locations: Vec::new(),
        own_paths: Vec::new(),
        memory_bytes: 512 << 20,
        cpu_threads: 1,
        credential: Credential::new(std::env::var("ENGINEHOUSE_SERVER_PASSWORD")?),
        properties: BTreeMap::new(),
        limits: Limits::default(),
    };
    let mut directory = std::env::current_dir()?.join("datafusion");
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--listen" => config.listen = value.parse()?,
            "--directory" => directory = value.into(),
            "--memory-mib" => config.memory_bytes = value.parse::<u64>()? << 20,
            "--cores" => config.cpu_threads = value.parse()?,
            "--engine" => config.engine = value,
            "--tenant" => config.tenant = value,
            "--location" => config.allowed_locations.push(value.into()),
            "--property" => {
                let (key, value) = value.split_once('=').ok_or_else(|| format!("\"{value}\" is not KEY=VALUE"))?;
                config.properties.insert(key.to_owned(), value.to_owned());
            }
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    config.catalog_dir = directory.join("catalog");
    config.scratch_dir = directory.join("scratch");
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let server = Server::bind(config).await?;
    println!("listening: {}", server.local_addr());
    let stopped = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    server.run(stopped).await?;
    println!("stopped");
    Ok(())
}
