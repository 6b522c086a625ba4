//! The listen port, kept across restarts in the data folder, so that clients find the restarted server.
//!
//! The modification time of the port file is the start time of the last server, or later: a server never counts from
//! an earlier time than its predecessor, even if the clock was set back in between.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use super::error::StartError;
use crate::config::Config;

/// Name of the port file in the data folder. It contains the port in decimal and a line end.
pub(crate) const PORT_FILE: &str = "zookeeper-port";
/// How long a kept port may be in use, by a server that is shutting down, before the start fails.
const KEPT_PORT_WAIT: Duration = Duration::from_secs(5);
/// The interval between attempts to bind a kept port.
const KEPT_PORT_RETRY: Duration = Duration::from_millis(50);

/// Listens on the configured or kept port, and keeps the port in the data folder. Also returns the time from which
/// ids count, in milliseconds since 1970: `wall_ms`, or later if an earlier server counted from then.
pub(crate) async fn listen(config: &Config, wall_ms: i64) -> Result<(TcpListener, i64), StartError> {
    let Some(folder) = &config.data_dir else {
        return Ok((bind(config.listen).await?, wall_ms));
    };
    let failed = |source| StartError::DataDir { folder: folder.clone(), source };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let file = folder.join(PORT_FILE);
    let listener = match read(&file).map_err(failed)? {
        Some(port) if config.listen.port() == 0 => {
            let port = port.parse().ok().filter(|port| *port != 0);
            let port = port.ok_or_else(|| StartError::PortFile { file: file.clone() })?;
            bind_kept(SocketAddr::new(config.listen.ip(), port), file.clone(), KEPT_PORT_WAIT).await?
        }
        _ => bind(config.listen).await?,
    };
    let port = listener.local_addr().map_err(failed)?.port();
    let start_ms = wall_ms.max(last_start_ms(&file).map_err(failed)? + 1);
    write(folder, &file, port, start_ms).map_err(failed)?;
    Ok((listener, start_ms))
}

/// The port that a server with this data folder listens on, or will; `None` before the first one started.
pub fn kept_port(folder: &Path) -> io::Result<Option<u16>> {
    let port = read(&folder.join(PORT_FILE))?;
    port.map(|text| {
        text.parse().map_err(|_| io::Error::new(ErrorKind::InvalidData, "the file does not contain a port number"))
    })
    .transpose()
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}

async fn bind_kept(address: SocketAddr, file: PathBuf, wait: Duration) -> Result<TcpListener, StartError> {
    let deadline = Instant::now() + wait;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                sleep(KEPT_PORT_RETRY).await;
            }
            Err(source) if source.kind() == ErrorKind::AddrInUse => {
                return Err(StartError::KeptPortTaken { port: address.port(), file, source });
            }
            Err(source) => return Err(StartError::Listen { address, source }),
        }
    }
}

fn read(file: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// When the last server started, in whole milliseconds, rounded up; 0 if there was none.
fn last_start_ms(file: &Path) -> io::Result<i64> {
    match std::fs::metadata(file).and_then(|metadata| metadata.modified()) {
        Ok(modified) => {
            let since = modified.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            Ok(since.as_nanos().div_ceil(1_000_000) as i64)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// Writes a temporary file and renames it, so that a crash leaves the old port or the new one.
fn write(folder: &Path, file: &Path, port: u16, start_ms: i64) -> io::Result<()> {
    let aside = folder.join(format!("{PORT_FILE}.new"));
    std::fs::write(&aside, format!("{port}\n"))?;
    let start = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(start_ms).unwrap_or(0));
    std::fs::File::options().write(true).open(&aside)?.set_modified(start)?;
    std::fs::rename(aside, file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    #[tokio::test]
    async fn a_start_counts_above_the_last_one_even_if_the_clock_went_back() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config { data_dir: Some(folder.path().to_owned()), ..Config::default() };
        let mut last = 0;
        for (wall_ms, expected) in [(1_000, 1_000), (5_000, 5_000), (10, 5_001), (5_001, 5_002), (9_000, 9_000)] {
            let (listener, start_ms) = listen(&config, wall_ms).await.unwrap();
            assert_eq!(start_ms, expected);
            assert!(last == 0 || last == listener.local_addr().unwrap().port());
            last = listener.local_addr().unwrap().port();
        }
    }

    #[tokio::test]
    async fn a_kept_port_is_waited_for_and_then_given_up() {
        let holder = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = holder.local_addr().unwrap();
        let file = PathBuf::from(PORT_FILE);
        let error = bind_kept(address, file.clone(), KEPT_PORT_RETRY).await.unwrap_err();
        assert!(matches!(error, StartError::KeptPortTaken { port, .. } if port == address.port()));
        let waiting = tokio::spawn(bind_kept(address, file, KEPT_PORT_WAIT));
        tokio::task::yield_now().await;
        drop(holder);
        assert_eq!(waiting.await.unwrap().unwrap().local_addr().unwrap(), address);
    }
}
