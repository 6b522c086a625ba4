//! The rounds: every route is measured in every round, pinned and free, in an order that rotates.
//!
//! Within a round the routes alternate in blocks, so that a disturbance meets all of them. Each measured value is printed as it is,
//! one line for each route and quantity.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::cores::{Cores, Placement};
use crate::driver::connection::Buffer;
use crate::driver::fetches::Fetches;
use crate::driver::logins;
use crate::driver::round_trips::RoundTrips;
use crate::driver::session::Session;
use crate::installation::USER;
use crate::measured::{Measurements, Quantity, Round};
use crate::process_usage::ProcessorTime;
use crate::route::{Route, Through, Watched};
use crate::spread::percentile;

/// Calls on each route after the processes were placed, which are not measured.
const CALLS_TO_WARM_UP: usize = 100;

/// How much is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Rounds of each placement.
    pub rounds: usize,
    /// The blocks of each quantity on each route in a round.
    pub blocks: usize,
    /// The calls of a block.
    pub calls: usize,
    /// The sizes of frames in bytes, with the fetches of a block.
    pub frames: Vec<(usize, usize)>,
    /// The logins of a block.
    pub logins: usize,
}

impl Volume {
    /// That of a measurement.
    pub fn whole(rounds: usize) -> Self {
        let frames = vec![(1_000, 500), (64_000, 250), (359_000, 60), (16_000_000, 2)];
        Self { rounds, blocks: 10, calls: 500, frames, logins: 40 }
    }

    /// To try it out.
    pub fn quick(rounds: usize) -> Self {
        let frames = vec![(1_000, 200), (64_000, 100), (359_000, 25), (16_000_000, 1)];
        Self { rounds, blocks: 2, calls: 250, frames, logins: 25 }
    }
}

/// A route with the sessions that measure it.
struct Lane<'a> {
    route: &'a Route,
    round_trips: RoundTrips,
    session: Session,
    /// One for each size of frames.
    fetches: Vec<Fetches>,
}

impl<'a> Lane<'a> {
    fn open(route: &'a Route, volume: &Volume, buffer: &mut Buffer) -> Result<Self> {
        let mut session = Session::open(&route.endpoint, 0, USER, buffer)?;
        let mut fetches = Vec::new();
        for (bytes, _) in &volume.frames {
            fetches.push(Fetches::begin(&mut session, *bytes, Fetches::ENDLESS, buffer)?);
        }
        let round_trips = RoundTrips::open(&route.endpoint, 1, USER, buffer)?;
        Ok(Self { route, round_trips, session, fetches })
    }
}

/// Measures all rounds.
pub fn measure(routes: &[Route], volume: &Volume, cores: Cores, standalone: u32) -> Result<Measurements> {
    let mut buffer = Buffer::default();
    let mut lanes = Vec::new();
    for route in routes {
        let name = route.through.name();
        lanes.push(Lane::open(route, volume, &mut buffer).with_context(|| format!("the route {name}"))?);
    }
    let mut measurements = Measurements::default();
    for number in 1..=volume.rounds {
        let mut placements = Placement::ALL;
        placements.rotate_left(number % Placement::ALL.len());
        for placement in placements {
            place(routes, cores, placement, standalone)?;
            for lane in &mut lanes {
                lane.round_trips.run(CALLS_TO_WARM_UP, &mut Vec::new(), &mut buffer)?;
            }
            let round = Round { placement, number };
            round_trips(&mut lanes, round, volume, &mut measurements, &mut buffer)?;
            for size in 0..volume.frames.len() {
                fetches(&mut lanes, round, volume, size, &mut measurements, &mut buffer)?;
            }
            log_ins(&lanes, round, volume, &mut measurements)?;
        }
    }
    for lane in lanes {
        lane.round_trips.close(&mut buffer)?;
        lane.session.close(&mut buffer)?;
    }
    Ok(measurements)
}

/// Places the processes of all routes.
pub fn place(routes: &[Route], cores: Cores, placement: Placement, standalone: u32) -> Result<()> {
    let driver = std::process::id();
    let of = |is_relay: bool| {
        let processes = routes.iter().flat_map(|route| &route.processes);
        let mut pids: Vec<u32> = processes
            .filter(|process| process.is_relay == is_relay && process.pid != driver)
            .map(|process| process.pid)
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    };
    cores.place(placement, &of(true), &[of(false), vec![standalone]].concat())
}

/// The numbers of the lanes; each is first in another turn.
fn order(lanes: usize, turn: usize) -> impl Iterator<Item = usize> {
    (0..lanes).map(move |at| (at + turn) % lanes)
}

fn round_trips(
    lanes: &mut [Lane<'_>],
    round: Round,
    volume: &Volume,
    measurements: &mut Measurements,
    buffer: &mut Buffer,
) -> Result<()> {
    let mut measured: Vec<(Vec<u64>, Used)> = lanes.iter().map(|lane| (Vec::new(), Used::new(lane.route))).collect();
    for block in 0..volume.blocks {
        for at in order(lanes.len(), round.number + block) {
            let (times, used) = &mut measured[at];
            used.while_running(|| lanes[at].round_trips.run(volume.calls, times, buffer))?;
        }
    }
    for (lane, (mut times, used)) in lanes.iter().zip(measured) {
        let through = lane.route.through;
        times.sort_unstable();
        let microseconds = |part| percentile(&times, part).map_or(f64::NAN, |nanoseconds| nanoseconds as f64 / 1e3);
        let (middle, high) = (microseconds(0.5), microseconds(0.99));
        measurements.add(round, through, Quantity::RoundTrip, middle);
        measurements.add(round, through, Quantity::RoundTripP99, high);
        let millions = times.len() as f64 / 1e6;
        if let Some(relays) = used.of_relays() {
            measurements.add(round, through, Quantity::ProcessorPerMillionCalls, relays.as_secs_f64() / millions);
        }
        for (process, time) in &used.0 {
            measurements.add(round, through, Quantity::CallsOf(process.name), time.as_secs_f64() / millions);
        }
        let used = used.per("s_per_million_calls", millions);
        print(round, through, &format!("round_trip_p50_us={middle:.2} round_trip_p99_us={high:.2}{used}"));
    }
    Ok(())
}

fn fetches(
    lanes: &mut [Lane<'_>],
    round: Round,
    volume: &Volume,
    size: usize,
    measurements: &mut Measurements,
    buffer: &mut Buffer,
) -> Result<()> {
    let (_, frames) = volume.frames[size];
    let mut measured: Vec<(Duration, Used)> =
        lanes.iter().map(|lane| (Duration::ZERO, Used::new(lane.route))).collect();
    for block in 0..volume.blocks {
        for at in order(lanes.len(), round.number + block) {
            let (took, used) = &mut measured[at];
            let Lane { session, fetches, .. } = &mut lanes[at];
            *took += used.while_running(|| fetches[size].run(session, frames, buffer))?;
        }
    }
    for (lane, (took, used)) in lanes.iter().zip(measured) {
        let (through, bytes) = (lane.route.through, lane.fetches[size].bytes());
        let gigabytes = (bytes * frames * volume.blocks) as f64 / 1e9;
        let rate = gigabytes / took.as_secs_f64();
        measurements.add(round, through, Quantity::Throughput(bytes), rate);
        if let Some(relays) = used.of_relays() {
            let each = relays.as_secs_f64() / gigabytes;
            measurements.add(round, through, Quantity::ProcessorPerGigabyte(bytes), each);
        }
        for (process, time) in &used.0 {
            let each = time.as_secs_f64() / gigabytes;
            measurements.add(round, through, Quantity::GigabyteOf(process.name, bytes), each);
        }
        let used = used.per("s_per_gb", gigabytes);
        print(round, through, &format!("frame={bytes} gb_per_second={rate:.3}{used}"));
    }
    Ok(())
}

fn log_ins(lanes: &[Lane<'_>], round: Round, volume: &Volume, measurements: &mut Measurements) -> Result<()> {
    let mut measured = vec![Duration::ZERO; lanes.len()];
    for block in 0..volume.blocks {
        for at in order(lanes.len(), round.number + block) {
            measured[at] += logins::measure(&lanes[at].route.endpoint, USER, volume.logins)?;
        }
    }
    for (lane, took) in lanes.iter().zip(measured) {
        let rate = (volume.logins * volume.blocks) as f64 / took.as_secs_f64();
        measurements.add(round, lane.route.through, Quantity::Logins, rate);
        print(round, lane.route.through, &format!("logins_per_second={rate:.1}"));
    }
    Ok(())
}

/// The processor time that the processes of a route have used.
#[derive(Debug)]
struct Used(Vec<(Watched, Duration)>);

impl Used {
    fn new(route: &Route) -> Self {
        Self(route.processes.iter().map(|process| (process.clone(), Duration::ZERO)).collect())
    }

    /// Adds what they use while the work runs.
    fn while_running<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let Self(sums) = self;
        let read = |(process, _): &(Watched, Duration)| ProcessorTime::read(process.pid);
        let before = sums.iter().map(read).collect::<Result<Vec<_>>>()?;
        let done = work()?;
        for ((process, sum), before) in sums.iter_mut().zip(before) {
            *sum += ProcessorTime::read(process.pid)?.since(&before);
        }
        Ok(done)
    }

    /// The sum of the relays; `None` on the direct route.
    fn of_relays(&self) -> Option<Duration> {
        let mut relays = self.0.iter().filter(|(process, _)| process.is_relay).map(|(_, used)| *used).peekable();
        relays.peek()?;
        Some(relays.sum())
    }

    /// As words of a raw line.
    fn per(&self, unit: &str, count: f64) -> String {
        let word = |(process, used): &(Watched, Duration)| {
            format!(" {}_{unit}={:.4}", process.name, used.as_secs_f64() / count)
        };
        self.0.iter().map(word).collect()
    }
}

fn print(round: Round, through: Through, values: &str) {
    println!("{} round={} route={} {values}", round.placement.name(), round.number, through.word());
}
