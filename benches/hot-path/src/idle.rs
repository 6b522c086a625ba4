//! Idle sessions: the memory and the threads that they cost each process, and whether they slow down a busy one.
//!
//! Each kind has an installation of its own, because a process that has freed memory opens sessions in it. A few sessions are
//! opened before the first reading: the first ones pay for what all share.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustls::ClientConfig;

use crate::cores::{Cores, Placement};
use crate::driver::connection::Buffer;
use crate::driver::endpoint::Endpoint;
use crate::driver::logins;
use crate::driver::round_trips::RoundTrips;
use crate::driver::session::Session;
use crate::haproxy::Options;
use crate::installation::{Installation, Plan, USER};
use crate::measured::{Measurements, Quantity, Round};
use crate::open_files::OpenFiles;
use crate::process_usage::Resident;
use crate::rounds::place;
use crate::route::{self, HaproxyRow, Route, Through};
use crate::spread::{Spread, percentile};
use crate::waiting;

/// Sessions before the first reading.
const FIRST_SESSIONS: usize = 100;
/// The sessions that one engine agent accepts are 2,000; some are kept for the busy one.
const SESSIONS_OF_AN_ENGINE: usize = 1_900;
/// The statement that binds a session to an engine.
const BINDING: &str = "SELECT 1";
/// A process is at rest when its resident set has been the same for so long.
const REST: Duration = Duration::from_secs(1);
/// How long that may take; the last reading counts then.
const REST_DEADLINE: Duration = Duration::from_secs(20);
/// Round trips of a block with and without idle sessions.
const CALLS: usize = 2_000;

/// What idle sessions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A session of a proxy that has run no statement.
    Unbound,
    /// A session of a proxy that has an engine, too.
    Bound,
    /// A session of the bare backend through two HAProxys.
    Haproxy,
}

impl Kind {
    /// In the order of the tables.
    pub const ALL: [Self; 3] = [Self::Unbound, Self::Bound, Self::Haproxy];

    /// As the tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unbound => "unbound",
            Self::Bound => "bound",
            Self::Haproxy => "through HAProxy",
        }
    }
}

/// What a number of idle sessions costs the processes of one role.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    pub kind: Kind,
    pub role: &'static str,
    pub processes: usize,
    pub sessions: usize,
    /// For each session, in KiB: of the resident set, and of its proportional share.
    pub resident_kib: f64,
    pub proportional_kib: f64,
    /// For all of them together.
    pub threads: i64,
}

/// Of round trips with idle sessions to those without, on one route.
#[derive(Debug, Clone, PartialEq)]
pub struct Busy {
    pub alone: Measurements,
    pub beside: Measurements,
    pub sessions: usize,
}

/// What this part of the benchmark needs.
pub struct Setting<'a> {
    pub plan: Plan<'a>,
    pub haproxy: Options<'a>,
    pub tls: Option<&'a Arc<ClientConfig>>,
    pub open_files: OpenFiles,
    pub cores: Cores,
    /// Numbers of sessions, increasing.
    pub sessions: &'a [usize],
    /// Rounds of a busy session, alone and beside idle ones.
    pub rounds: usize,
}

/// A role with its processes.
struct Role {
    name: &'static str,
    pids: Vec<u32>,
}

/// Measures every kind.
pub fn measure(setting: &Setting<'_>) -> Result<(Vec<Cost>, Busy)> {
    let most = setting.sessions.last().copied().context("no number of sessions")?;
    setting.open_files.check(most + FIRST_SESSIONS)?;
    let mut costs = Vec::new();
    let mut busy = None;
    for kind in Kind::ALL {
        let engines = if kind == Kind::Bound { (most + FIRST_SESSIONS).div_ceil(SESSIONS_OF_AN_ENGINE) } else { 1 };
        let proxies = setting.open_files.proxies_for(most + FIRST_SESSIONS);
        let plan = Plan { engines, proxies, ..setting.plan };
        let installation = Installation::start(&plan, setting.tls)?;
        let row = HaproxyRow::start(installation.backend()?.address, &setting.haproxy, setting.tls)?;
        let routes = route::all(&installation, &row)?;
        place(&routes, setting.cores, Placement::Free, installation.standalone())?;
        let (roles, endpoints) = watched(kind, &installation, &row)?;
        let mut buffer = Buffer::default();
        let mut lanes = if kind == Kind::Unbound { open_lanes(&routes, &mut buffer)? } else { Vec::new() };
        let mut alone = Measurements::default();
        run_lanes(&mut lanes, &mut alone, 0..setting.rounds, &mut buffer)?;
        let mut idle = Vec::new();
        open(kind, &endpoints, FIRST_SESSIONS, &mut idle)?;
        let before = at_rest(&roles)?;
        for sessions in setting.sessions {
            open(kind, &endpoints, FIRST_SESSIONS + sessions, &mut idle)?;
            let after = at_rest(&roles)?;
            for ((role, before), after) in roles.iter().zip(&before).zip(&after) {
                costs.push(cost(kind, role, *sessions, before, after));
            }
        }
        let mut beside = Measurements::default();
        run_lanes(&mut lanes, &mut beside, 0..setting.rounds, &mut buffer)?;
        logins::for_each(idle, Session::close)?;
        run_lanes(&mut lanes, &mut alone, setting.rounds..2 * setting.rounds, &mut buffer)?;
        for lane in lanes {
            lane.1.close(&mut buffer)?;
        }
        if kind == Kind::Unbound {
            busy = Some(Busy { alone, beside, sessions: most });
        }
    }
    Ok((costs, busy.context("no busy session was measured")?))
}

/// The roles whose memory is read, and where the sessions of this kind are opened.
fn watched(kind: Kind, installation: &Installation, row: &HaproxyRow) -> Result<(Vec<Role>, Vec<Endpoint>)> {
    let proxies = installation.proxies();
    let role = |name, pids| Role { name, pids };
    if kind == Kind::Haproxy {
        let [first, last] = row.pids();
        let roles = vec![role("first HAProxy", vec![first]), role("last HAProxy", vec![last])];
        return Ok((roles, vec![row.endpoint()]));
    }
    let endpoints = (0..proxies.len()).map(|proxy| installation.endpoint(proxy)).collect::<Result<Vec<_>>>()?;
    let mut roles = vec![role("proxy", proxies)];
    if kind == Kind::Bound {
        roles.push(role("agent", installation.agents()));
        roles.push(role("backend", installation.backends()));
    }
    Ok((roles, endpoints))
}

/// Opens sessions until there are so many, evenly at the endpoints, and binds them if they are to be bound.
fn open(kind: Kind, endpoints: &[Endpoint], count: usize, idle: &mut Vec<Session>) -> Result<()> {
    let missing = count.checked_sub(idle.len()).context("more sessions than requested")?;
    for (number, endpoint) in endpoints.iter().enumerate() {
        let share = missing / endpoints.len() + usize::from(number < missing % endpoints.len());
        let opened = logins::open(endpoint, USER, share).with_context(|| format!("{share} sessions"))?;
        let bound = parking_lot::Mutex::new(Vec::with_capacity(opened.len()));
        logins::for_each(opened, |mut session, buffer| {
            if kind == Kind::Bound {
                session.run(BINDING, buffer)?;
            }
            bound.lock().push(session);
            Ok(())
        })?;
        idle.append(&mut bound.into_inner());
    }
    ensure!(idle.len() == count, "{} sessions of {count} are open", idle.len());
    Ok(())
}

/// Reads what the roles have once it does not change any more.
fn at_rest(roles: &[Role]) -> Result<Vec<Resident>> {
    let read = || roles.iter().map(|role| Resident::of_all(&role.pids)).collect::<Result<Vec<_>>>();
    let mut last = read()?;
    let rest = waiting::until("processes are at rest", REST_DEADLINE, || {
        waiting::pause(REST);
        let now = read()?;
        let is_same = now.iter().zip(&last).all(|(now, last)| now.rss_kib == last.rss_kib);
        last.clone_from(&now);
        Ok(is_same.then_some(()))
    });
    if let Err(error) = rest {
        println!("note: {error:#}");
    }
    Ok(last)
}

fn cost(kind: Kind, role: &Role, sessions: usize, before: &Resident, after: &Resident) -> Cost {
    let each = |before: u64, after: u64| (after as f64 - before as f64) / sessions as f64;
    let cost = Cost {
        kind,
        role: role.name,
        processes: role.pids.len(),
        sessions,
        resident_kib: each(before.rss_kib, after.rss_kib),
        proportional_kib: each(before.pss_kib, after.pss_kib),
        threads: after.threads as i64 - before.threads as i64,
    };
    println!(
        "idle kind={:?} role={:?} processes={} sessions={sessions} rss_kib={} rss_kib_before={} kib_per_session={:.3} \
         pss_kib_per_session={:.3} threads={} threads_before={}",
        kind.name(),
        cost.role,
        cost.processes,
        after.rss_kib,
        before.rss_kib,
        cost.resident_kib,
        cost.proportional_kib,
        after.threads,
        before.threads
    );
    cost
}

/// A busy session on each route.
type Lane<'a> = (&'a Route, RoundTrips);

fn open_lanes<'a>(routes: &'a [Route], buffer: &mut Buffer) -> Result<Vec<Lane<'a>>> {
    routes.iter().map(|route| Ok((route, RoundTrips::open(&route.endpoint, 0, USER, buffer)?))).collect()
}

/// Measures the rounds of these numbers, in which the routes alternate.
fn run_lanes(
    lanes: &mut [Lane<'_>],
    measurements: &mut Measurements,
    rounds: std::ops::Range<usize>,
    buffer: &mut Buffer,
) -> Result<()> {
    for number in rounds {
        let count = lanes.len();
        for at in 0..count {
            let (route, round_trips) = &mut lanes[(at + number) % count];
            let mut times = Vec::new();
            round_trips.run(CALLS, &mut times, buffer)?;
            times.sort_unstable();
            let round = Round { placement: Placement::Free, number };
            for (quantity, part) in [(Quantity::RoundTrip, 0.5), (Quantity::RoundTripP99, 0.99)] {
                let time = percentile(&times, part).context("no round trip")? as f64 / 1e3;
                measurements.add(round, route.through, quantity, time);
            }
        }
    }
    Ok(())
}

impl Busy {
    /// How much the direct route itself has changed: beside idle sessions against alone, less one.
    pub fn drift(&self) -> Option<f64> {
        let median = |measurements: &Measurements| {
            Some(measurements.spread(Placement::Free, Through::Nothing, Quantity::RoundTrip)?.median)
        };
        Some(median(&self.beside)? / median(&self.alone)? - 1.0)
    }

    /// The median of round trips through Enginehouse beside idle sessions against that without, each less the direct route's.
    pub fn ratio(&self) -> Option<f64> {
        let added = |measurements: &Measurements| {
            let added = measurements.added(Placement::Free, Through::Enginehouse, Quantity::RoundTrip);
            Spread::of(added.into_values())
        };
        Some(added(&self.beside)?.median / added(&self.alone)?.median)
    }
}
