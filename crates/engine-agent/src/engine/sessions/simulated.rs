//! The simulation's model of an engine agent decides like the agent: the same random calls on both, with one clock.
//!
//! No engine answers here: a session is an [`Opening`] that is kept, which has its seat and ends the idle time as one that was
//! inserted has. The calls over the network around it are tested with an engine, in `tests/engine`.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use model::clock::{Clock as _, ManualClock};
use model::engine_name::EngineName;
use model::error::ErrorKind;
use model::number::Generation;
use model::owner::{Owner, SharedBy};
use model::sharing::Sharer;
use model::table_catalog::TableCatalog;
use simulation::Mutant;
use simulation::agent::EngineAgent;
use simulation::rng::Rng;

use super::super::drain::Drain;
use super::super::settings::Key;
use super::*;

const CALLS: usize = 4_000;
const USERS: [&str; 3] = ["ann", "bob", "cyd"];

/// The agent as far as a session depends on it.
struct Agent {
    sessions: Arc<Sessions>,
    drain: Drain,
}

impl Agent {
    fn new(clock: &Arc<ManualClock>) -> Self {
        let (engine, clock) = (EngineName::new("e-1").unwrap(), Arc::clone(clock) as SharedClock);
        let key = Key("key".to_owned());
        let layout = coordination::Layout::new("/eh/agent", None).unwrap();
        let identity = coordination::Identity::fixed(coordination::Logins::metadata_agent(Vec::new(), &[]));
        let settings = Settings {
            engine,
            uid: "uid-1".to_owned(),
            listen: "127.0.0.1:0".parse().unwrap(),
            advertise_host: None,
            run_as: None,
            keys: keys::KeyGeneration::FIRST,
            tls: None,
            callers: keys::Callers::default(),
            config: String::new(),
            catalog: TableCatalog::Shared,
            zookeeper: coordination::SessionSettings::new("127.0.0.1:1".to_owned(), layout, identity),
            start_deadline: Duration::from_mins(1),
            limits: hs2::Limits::default(),
        };
        let backend = Backend { address: "127.0.0.1:1".to_owned(), key };
        let sessions = Sessions::new(Arc::new(settings), backend, Arc::clone(&clock));
        Self { sessions: Arc::new(sessions), drain: Drain::new(clock) }
    }

    /// As the call that opens a session begins.
    fn open(&self, sharer: &Sharer) -> Result<Opening<'_>, ErrorKind> {
        if self.drain.is_draining() {
            return Err(ErrorKind::EngineDraining);
        }
        self.sessions.begin_open(Some(sharer)).map_err(|refusal| refusal.kind)
    }
}

/// How many calls of each kind were done, and refused.
type Done = BTreeMap<&'static str, [usize; 2]>;

/// The same calls on both; returns what was done, or the first difference.
fn compared(seed: u64, mutant: Option<Mutant>) -> Result<Done, String> {
    let (mut rng, clock, mut done) = (Rng::new(seed), ManualClock::at(1_000_000), Done::new());
    let mut left = CALLS;
    while left > 0 {
        left -= 1;
        let agent = Agent::new(&clock);
        let place = ("n-1".to_owned(), Generation(1));
        let mut model = EngineAgent::new("uid-1".to_owned(), place, clock.boottime());
        let (mut open, mut seats): (BTreeMap<u64, Opening<'_>>, Option<Option<u32>>) = (BTreeMap::new(), None);
        while left > 0 && !model.is_draining {
            left -= 1;
            clock.advance(Duration::from_millis(rng.below(8_000)));
            let now = clock.boottime();
            let mut count = |call, is_done: bool| done.entry(call).or_default()[usize::from(!is_done)] += 1;
            match rng.below(40) {
                0..=3 => {
                    let permitted = rng.percent(80).then(|| rng.below(5) as u32);
                    let shared_by = [SharedBy::Tenant, SharedBy::User, SharedBy::Session][rng.index(3)];
                    let owner: Option<Owner> = sharer(&mut rng).owner(shared_by);
                    agent.sessions.apply_permit(permitted, owner.as_ref());
                    model.read_owner(owner.as_ref());
                    (model.has_registered, seats) = (true, Some(permitted));
                }
                4..=20 => {
                    let (id, sharer) = (left as u64, sharer(&mut rng));
                    let opening = agent.open(&sharer);
                    let opens = model.open((id, &sharer), seats.flatten(), now, mutant);
                    if opening.is_ok() != opens {
                        return Err(format!("open: {:?}, and {opens} in the model", opening.err()));
                    }
                    count("open", opens);
                    open.extend(opening.ok().map(|opening| (id, opening)));
                }
                21..=32 => {
                    let place = rng.index(open.len().max(1));
                    let Some(id) = open.keys().nth(place).copied() else { continue };
                    drop(open.remove(&id));
                    model.close(id, now);
                    count("close", true);
                }
                33..=38 => {
                    let idle = Duration::from_millis(rng.below(20_000));
                    let (agrees, agrees_in_model) = (agent.sessions.retire(idle), model.retire(idle, now, mutant));
                    if agrees != agrees_in_model {
                        return Err(format!("retire: {agrees}, and {agrees_in_model} in the model"));
                    }
                    count("retire", agrees);
                }
                _ if rng.percent(20) => {
                    agent.drain.begin(Some(Duration::from_mins(1)));
                    model.is_draining = true;
                    let sharer = sharer(&mut rng);
                    assert_eq!(agent.open(&sharer).err(), Some(ErrorKind::EngineDraining));
                    assert!(!model.open((0, &sharer), seats.flatten(), now, mutant));
                    count("drain", true);
                }
                _ => {}
            }
            let idle = agent.sessions.idle();
            let status = (agent.sessions.counts().taken as usize, idle.lasted, idle.is_retiring);
            let of_model = (model.sessions.len(), model.idle(now), model.is_retiring(now));
            if status != of_model {
                return Err(format!("status {status:?}, and {of_model:?} in the model"));
            }
        }
    }
    Ok(done)
}

/// A user with one of a few sessions.
fn sharer(rng: &mut Rng) -> Sharer {
    Sharer::new(USERS[rng.index(3)], &[], format!("s-{}", rng.below(3)))
}

#[tokio::test]
async fn the_model_of_the_engine_agent_decides_like_the_agent() {
    for seed in 1..=4 {
        let done = compared(seed, None).unwrap();
        println!("seed {seed}: {done:?}");
        for call in ["open", "retire"] {
            let [allowed, refused] = done[call];
            assert!(allowed > 20 && refused > 20, "{call}: {allowed} times done, {refused} times refused");
        }
        assert!(done["drain"][0] > 3);
    }
}

#[tokio::test]
async fn a_model_without_one_of_its_checks_differs_from_the_agent() {
    let mutants =
        [Mutant::ConsentWithoutEffect, Mutant::ConsentOfBusyEngine, Mutant::SeatsUnchecked, Mutant::OwnerUnchecked];
    for mutant in mutants {
        assert!(compared(1, Some(mutant)).is_err(), "{mutant:?} is not noticed");
    }
}
