//! The routes from the driver to the backend that are compared, with the processes on each.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use rustls::ClientConfig;

use crate::driver::endpoint::Endpoint;
use crate::haproxy::{Haproxy, Options};
use crate::installation::Installation;

/// What a route goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Through {
    /// Nothing: the bare backend. Always without TLS.
    Nothing,
    OneHaproxy,
    TwoHaproxys,
    /// Proxy and engine agent.
    Enginehouse,
}

impl Through {
    /// In the order of the tables.
    pub const ALL: [Self; 4] = [Self::Nothing, Self::OneHaproxy, Self::TwoHaproxys, Self::Enginehouse];

    /// As the tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "direct",
            Self::OneHaproxy => "one HAProxy",
            Self::TwoHaproxys => "two HAProxys",
            Self::Enginehouse => "Enginehouse",
        }
    }

    /// One word, for raw lines.
    pub fn word(self) -> &'static str {
        match self {
            Self::Nothing => "direct",
            Self::OneHaproxy => "haproxy-1",
            Self::TwoHaproxys => "haproxy-2",
            Self::Enginehouse => "enginehouse",
        }
    }
}

/// A process whose processor time is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    pub name: &'static str,
    pub pid: u32,
    /// Whether it is between driver and backend.
    pub is_relay: bool,
}

/// A way from the driver to the backend.
#[derive(Debug, Clone)]
pub struct Route {
    pub through: Through,
    pub endpoint: Endpoint,
    pub processes: Vec<Watched>,
}

/// Two HAProxys in front of a backend; the second one is also the only one of the route with one.
pub struct HaproxyRow {
    first: Haproxy,
    last: Haproxy,
    tls: Option<Arc<ClientConfig>>,
}

impl HaproxyRow {
    /// Starts both; an error if one of them does not accept clients in time.
    pub fn start(backend: SocketAddr, options: &Options<'_>, tls: Option<&Arc<ClientConfig>>) -> Result<Self> {
        let last = Haproxy::start("haproxy-last", backend, false, options)?;
        let first = Haproxy::start("haproxy-first", last.address(), true, options)?;
        Ok(Self { first, last, tls: tls.cloned() })
    }

    /// Their processes, the first hop first.
    pub fn pids(&self) -> [u32; 2] {
        [self.first.pid(), self.last.pid()]
    }

    /// Where clients of both connect.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.first.address(), tls: self.tls.clone() }
    }
}

/// The routes to the first backend of an installation.
pub fn all(installation: &Installation, row: &HaproxyRow) -> Result<Vec<Route>> {
    let engine = installation.backend()?;
    let ends = [("backend", engine.backend), ("driver", std::process::id())];
    let route = |through, endpoint, relays: &[(&'static str, u32)]| {
        let watched = |is_relay| move |&(name, pid): &(&'static str, u32)| Watched { name, pid, is_relay };
        let processes = relays.iter().map(watched(true)).chain(ends.iter().map(watched(false))).collect();
        Route { through, endpoint, processes }
    };
    let [first, last] = row.pids();
    let to_last = Endpoint { address: row.last.address(), tls: row.tls.clone() };
    let proxy = installation.proxies()[0];
    Ok(vec![
        route(Through::Nothing, Endpoint { address: engine.address, tls: None }, &[]),
        route(Through::OneHaproxy, to_last, &[("haproxy", last)]),
        route(Through::TwoHaproxys, row.endpoint(), &[("haproxy-first", first), ("haproxy-last", last)]),
        route(Through::Enginehouse, installation.endpoint(0)?, &[("proxy", proxy), ("agent", engine.agent)]),
    ])
}
