//! A run: the script and what follows from it, until it has ended or an invariant is violated.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use master::{Reconciler, Settings, Ticked};
use model::error::UserError;
use parking_lot::Mutex;
use planner::Limits;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::context::Context;
use crate::event::{Event, Scripted};
use crate::mutant::Mutant;
use crate::script::{self, Script};
use crate::state::State;

/// How often the master ticks without a wake-up.
pub const TICK: Duration = Duration::from_secs(10);
/// Less than the end of a run waits.
const DRAIN_GRACE: Duration = Duration::from_mins(5);
/// More ticks in a row that make progress are a plan that never settles.
const MAX_PROGRESS: u32 = 2_000;

/// What a run shows.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub seed: u64,
    /// The invariant that was violated, with the time of the run and the number of the event.
    pub violation: Option<Violation>,
    pub activity: Activity,
    /// The virtual time that passed.
    pub simulated: Duration,
    /// The processor time that it took.
    pub took: Duration,
    /// The time that it took by the wall clock: more, if other programs run on the machine.
    pub elapsed: Duration,
}

impl Outcome {
    /// What the runs show together, apart from violations.
    pub fn speed(outcomes: &[Self]) -> Speed {
        let sum = |of: fn(&Self) -> Duration| outcomes.iter().map(of).sum();
        Speed { simulated: sum(|one| one.simulated), took: sum(|one| one.took), elapsed: sum(|one| one.elapsed) }
    }
}

/// How fast runs were.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    pub simulated: Duration,
    pub took: Duration,
    pub elapsed: Duration,
}

impl Speed {
    /// In multiples of processor time, the documented measure: it does not depend on what else runs on the machine.
    pub fn of_processor(&self) -> f64 {
        self.simulated.as_secs_f64() / self.took.as_secs_f64()
    }

    /// In multiples of real time.
    pub fn of_wall_clock(&self) -> f64 {
        self.simulated.as_secs_f64() / self.elapsed.as_secs_f64()
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} h in {:.1} s of processor time, {:.0} x, and in {:.1} s by the wall clock, {:.0} x",
            self.simulated.as_secs_f64() / 3_600.0,
            self.took.as_secs_f64(),
            self.of_processor(),
            self.elapsed.as_secs_f64(),
            self.of_wall_clock()
        )
    }
}

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub what: String,
    pub at: Duration,
    /// The number of events before it.
    pub step: u64,
}

/// A run of one seed.
pub struct Run {
    pub(crate) world: Arc<Mutex<State>>,
    term: Option<(Reconciler, Context)>,
    terms: u64,
    settings: Settings,
    runtime: Runtime,
    mutant: Option<Mutant>,
    in_progress: u32,
}

impl Run {
    pub fn new(seed: u64, mutant: Option<Mutant>) -> Result<Self, UserError> {
        Self::with(seed, mutant, script::founding(seed)?)
    }

    /// One whose catalog these statements create.
    fn with(seed: u64, mutant: Option<Mutant>, founding: Vec<Scripted>) -> Result<Self, UserError> {
        let mut limits = Limits { drain_grace: DRAIN_GRACE, ..Limits::default() };
        if mutant == Some(Mutant::CancelledAtOnce) {
            limits.cancel_after = Duration::ZERO;
        }
        let settings = Settings { limits, tick: TICK, ..Settings::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|error| UserError::new(model::error::ErrorKind::Internal, error.to_string()))?;
        let world = State::new(seed, &settings, mutant);
        let run = Self {
            world: Arc::new(Mutex::new(world)),
            term: None,
            terms: 0,
            settings,
            runtime,
            mutant,
            in_progress: 0,
        };
        {
            let mut world = run.world.lock();
            for statement in founding {
                world.happen_at_once(statement);
            }
            world.schedule(Duration::ZERO, Event::Elect);
        }
        Ok(run)
    }

    /// Adds events at their times, counted from now on.
    pub fn add(&self, script: &[(Duration, Scripted)]) {
        let mut world = self.world.lock();
        for (after, event) in script {
            world.schedule(*after, Event::Scripted(event.clone()));
        }
    }

    /// Runs until that time; returns whether nothing was violated.
    pub fn run_until(&mut self, until: Duration) -> bool {
        loop {
            let event = {
                let mut world = self.world.lock();
                if world.violation.is_some() {
                    return false;
                }
                world.next(until)
            };
            match event {
                None => return true,
                Some(Event::Tick) => self.tick(),
                Some(Event::Elect) => self.elect(),
                Some(event) => self.world.lock().handle(event),
            }
        }
    }

    /// Runs for this time.
    pub fn run_for(&mut self, time: Duration) -> bool {
        let until = self.world.lock().now + time;
        self.run_until(until)
    }

    fn elect(&mut self) {
        let mut world = self.world.lock();
        if world.nodes.lock.is_some() && self.term.is_some() {
            return;
        }
        if world.now < world.faults.away_until {
            return world.schedule(Duration::from_secs(1), Event::Elect);
        }
        self.terms += 1;
        world.activity.terms += 1;
        world.nodes.lock = Some(self.terms);
        let epoch = world.database.raise_epoch(&format!("master-{}", self.terms)).epoch;
        let reconciler = Reconciler::new(self.settings.clone(), epoch, world.now, CancellationToken::new());
        self.term = Some((reconciler, Context { world: Arc::clone(&self.world), lock: self.terms }));
        world.tick_within(Duration::ZERO);
    }

    fn tick(&mut self) {
        {
            let mut world = self.world.lock();
            if world.tick_at.is_none_or(|at| at > world.now) {
                return;
            }
            world.tick_at = None;
            world.last_tick = world.now;
            world.activity.ticks += 1;
        }
        let Some((reconciler, context)) = &mut self.term else { return };
        let ticked = self.runtime.block_on(reconciler.tick(context));
        let mut world = self.world.lock();
        world.waiting_when_read = None;
        match ticked {
            Ticked::Done { progress, due } => {
                self.in_progress = if progress { self.in_progress + 1 } else { 0 };
                if self.in_progress > MAX_PROGRESS {
                    world.violated("the plan never settles".to_owned());
                }
                if progress {
                    world.tick_within(Duration::ZERO);
                } else if self.mutant != Some(Mutant::NoTimer) {
                    world.tick_within(due.unwrap_or(TICK).min(TICK));
                }
                world.judge_charges();
                world.judge_serving();
                world.activity.slots += world.database.state().slots.len() as u64;
            }
            Ticked::Stopped(_) => {
                self.term = None;
                if world.nodes.lock.is_some() {
                    world.nodes.lock = None;
                    world.schedule(Duration::from_millis(100), Event::Elect);
                }
            }
        }
    }

    /// What has happened so far.
    pub fn outcome(&self, seed: u64, began: Began) -> Outcome {
        let world = self.world.lock();
        let violation =
            world.violation.clone().map(|what| Violation { what, at: world.now, step: world.activity.events });
        Outcome {
            seed,
            violation,
            activity: world.activity,
            simulated: world.now,
            took: time_of(ClockId::ThreadCPUTime).saturating_sub(began.processor),
            elapsed: time_of(ClockId::Monotonic).saturating_sub(began.wall),
        }
    }
}

/// Runs a script and the end, at which everything that is wanted must be there.
pub fn run_script(seed: u64, length: Duration, script: &Script, mutant: Option<Mutant>) -> Result<Outcome, UserError> {
    let began = Began::now();
    let mut run = Run::new(seed, mutant)?;
    run.add(script);
    if run.run_until(length) {
        run.settle()?;
    }
    Ok(run.outcome(seed, began))
}

/// Runs the beginning of a script, without the end of a run.
pub fn run_beginning(seed: u64, length: Duration, script: &Script) -> Result<Outcome, UserError> {
    let began = Began::now();
    let mut run = Run::new(seed, None)?;
    run.add(script);
    run.run_until(length);
    Ok(run.outcome(seed, began))
}

/// Runs the script of a large installation with that many engines. The outcome is that of its time with faults; afterwards these
/// end, and what is left must be what is wanted.
pub fn run_large(seed: u64, length: Duration, engines: u64) -> Result<Outcome, UserError> {
    let began = Began::now();
    let mut run = Run::with(seed, None, script::founding_large(engines)?)?;
    run.add(&script::script_large(seed, engines, length)?);
    let goes_on = run.run_until(length);
    let outcome = run.outcome(seed, began);
    if goes_on {
        run.rest();
    }
    Ok(Outcome { violation: run.outcome(seed, began).violation, ..outcome })
}

/// Runs the script of a seed.
pub fn run(seed: u64, length: Duration, mutant: Option<Mutant>) -> Result<Outcome, UserError> {
    run_script(seed, length, &script::script(seed, length)?, mutant)
}

/// When a run began.
#[derive(Debug, Clone, Copy)]
pub struct Began {
    processor: Duration,
    wall: Duration,
}

impl Began {
    /// Now, in this thread.
    pub fn now() -> Self {
        Self { processor: time_of(ClockId::ThreadCPUTime), wall: time_of(ClockId::Monotonic) }
    }
}

fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The shortest script that was found to violate an invariant: without what follows the violation, then without parts that are
/// not needed. At most `runs` runs.
pub fn minimize(seed: u64, length: Duration, mutant: Option<Mutant>, runs: usize) -> Result<Script, UserError> {
    let mut script = script::script(seed, length)?;
    let first = run_script(seed, length, &script, mutant)?;
    let Some(violation) = first.violation else { return Ok(script) };
    script.retain(|(at, _)| *at <= violation.at);
    let (mut left, mut size) = (runs, script.len().div_ceil(2));
    while size > 0 && left > 0 {
        let mut from = 0;
        while from < script.len() && left > 0 {
            let mut fewer = script.clone();
            fewer.drain(from..(from + size).min(script.len()));
            left -= 1;
            if run_script(seed, length.min(violation.at), &fewer, mutant)?.violation.is_some() {
                script = fewer;
            } else {
                from += size;
            }
        }
        size /= 2;
    }
    Ok(script)
}
