//! A stand-alone server for trying a client, by hand or from a script. It serves until its standard input ends.
//!
//! Prints `listening: HOST:PORT` when it is ready. Options: `--listen HOST:PORT`, `--data-dir DIR`.

use std::io::Write as _;

use embedded_zookeeper::{Config, Server};
use tokio::io::AsyncReadExt as _;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = Config::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--listen" => config.listen = value.parse()?,
            "--data-dir" => config.data_dir = Some(value.into()),
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    let server = Server::start(config).await?;
    println!("listening: {}", server.addr());
    std::io::stdout().flush()?;
    let mut ignored = [0; 1024];
    let mut input = tokio::io::stdin();
    while input.read(&mut ignored).await? > 0 {}
    server.shutdown().await;
    Ok(())
}
