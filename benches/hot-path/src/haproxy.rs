//! HAProxy in TCP mode with one thread: the peer of a hop.
//!
//! It copies bytes through a buffer as large as that of our relays, and sets `TCP_NODELAY` on both connections by itself. It does
//! not splice, because that is off by default. With TLS, the first one of a row has it on both sides, and the last one towards
//! the client only, as proxy and engine agent have.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ::tests::certificate::Certificate;
use anyhow::{Context as _, Result, ensure};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

use crate::process::Process;
use crate::waiting;

/// Where Debian's package has the program.
pub const PROGRAM: &str = "/usr/sbin/haproxy";
/// The size of its buffers: that of the one buffer which a worker of our relays copies through.
pub const BUFFER_BYTES: usize = 64 << 10;
/// How long it may take until it listens.
const START_DEADLINE: Duration = Duration::from_secs(10);

/// What all HAProxys have in common.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    pub program: &'a Path,
    pub connections: usize,
    pub tls: Option<&'a Certificate>,
    /// Where configurations and logs are written.
    pub folder: &'a Path,
}

/// A running HAProxy.
#[derive(Debug)]
pub struct Haproxy {
    process: Process,
    address: SocketAddr,
    _port: Reserved,
}

impl Haproxy {
    /// Starts one that relays to `next`, which is another one of a row or the backend.
    pub fn start(name: &str, next: SocketAddr, next_has_tls: bool, options: &Options<'_>) -> Result<Self> {
        let port = Reserved::any().context("cannot reserve a port")?;
        let file = options.folder.join(format!("{name}.cfg"));
        std::fs::write(&file, configuration(name, port.address, next, next_has_tls, options)?)?;
        let mut command = Command::new(options.program);
        // In the foreground.
        command.arg("-db").arg("-f").arg(&file);
        let mut process = Process::start(name, &mut command, options.folder)
            .context("is HAProxy installed? Debian: apt-get install --no-install-recommends haproxy")?;
        waiting::until(&format!("{name} listens"), START_DEADLINE, || {
            process.check()?;
            Ok(TcpStream::connect_timeout(&port.address, START_DEADLINE).ok())
        })?;
        Ok(Self { process, address: port.address, _port: port })
    }

    /// The process that copies.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Where it accepts clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The version that the program prints.
pub fn version(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("-v").output().with_context(|| {
        format!("cannot run {}; Debian: apt-get install --no-install-recommends haproxy", program.display())
    })?;
    ensure!(output.status.success(), "{} -v failed", program.display());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn configuration(
    name: &str,
    address: SocketAddr,
    next: SocketAddr,
    next_has_tls: bool,
    options: &Options<'_>,
) -> Result<String> {
    let connections = options.connections;
    let (to_clients, to_next) = match options.tls {
        None => (String::new(), String::new()),
        Some(certificate) => {
            let pem = combined(certificate, options.folder)?;
            let verified = format!(" ssl verify required ca-file {} no-ssl-reuse", certificate.certificate.display());
            (format!(" ssl crt {}", pem.display()), if next_has_tls { verified } else { String::new() })
        }
    };
    Ok(format!(
        "global\n    nbthread 1\n    maxconn {connections}\n    tune.bufsize {BUFFER_BYTES}\n\
         defaults\n    mode tcp\n    maxconn {connections}\n    timeout connect 10s\n    timeout client 1h\n    timeout server 1h\n\
         listen {name}\n    bind {address}{to_clients}\n    server next {next}{to_next}\n"
    ))
}

/// Certificate and key in one file, as HAProxy reads them.
fn combined(certificate: &Certificate, folder: &Path) -> Result<PathBuf> {
    let file = folder.join("haproxy.pem");
    if !file.exists() {
        let parts = [std::fs::read(&certificate.certificate)?, std::fs::read(&certificate.key)?];
        std::fs::write(&file, parts.concat())?;
    }
    Ok(file)
}

/// A port of this machine that is bound and not listened at, for a process that will: with `SO_REUSEADDR` it may, and the kernel
/// gives the port to no other.
#[derive(Debug)]
struct Reserved {
    _socket: OwnedFd,
    address: SocketAddr,
}

impl Reserved {
    fn any() -> rustix::io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(Self { _socket: socket, address })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_hops_with_tls_have_it() {
        let folder = tempfile::tempdir().unwrap();
        let (here, next) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let mut options = Options { program: Path::new(PROGRAM), connections: 7, tls: None, folder: folder.path() };
        let plain = configuration("one", here, next, true, &options).unwrap();
        assert!(plain.ends_with("listen one\n    bind 127.0.0.1:1\n    server next 127.0.0.1:2\n"), "{plain}");
        assert!(plain.contains("    nbthread 1\n    maxconn 7\n    tune.bufsize 65536\n"), "{plain}");
        let certificate = Certificate::create(folder.path(), "relay").unwrap();
        options.tls = Some(&certificate);
        let last = configuration("one", here, next, false, &options).unwrap();
        assert!(last.contains("bind 127.0.0.1:1 ssl crt ") && last.ends_with("server next 127.0.0.1:2\n"), "{last}");
        let first = configuration("one", here, next, true, &options).unwrap();
        assert!(first.contains("server next 127.0.0.1:2 ssl verify required ca-file "), "{first}");
    }

    #[test]
    fn a_reserved_port_is_given_to_no_other() {
        let reserved = Reserved::any().unwrap();
        assert!(reserved.address.port() > 0 && TcpStream::connect(reserved.address).is_err());
        assert_ne!(Reserved::any().unwrap().address, reserved.address);
    }
}
