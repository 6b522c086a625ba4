//! The peer: the same trace in virtual time, where nothing takes time but the use of the engines. It shows what the order
//! of admission costs by itself, at the shortest interval of a master's ticks.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use model::UnitName;
use model::ledger::{
    Amounts, End, Holder, Ledger, Moment, PoolCapacity, Request as Reserve, Scope, ScopeKey, Scopes, State,
};
use model::number::{Epoch, Incarnation};
use model::quota::{Guarantee, Limit};
use model::resource::{Amount, Triple};
use planner::{AdmissionRules, Headroom, PATIENCE, Request, admit};

use super::catalog;
use super::outcome::{Outcome, Served};
use super::schedule::Trace;

/// The shortest time between two ticks of a master.
const PAUSE: Duration = Duration::from_millis(50);
/// When the trace starts, by the clock of the ledger.
const START_MS: i64 = 2_000_000_000_000;

/// Plays the trace; `guaranteed` is the guaranteed CPU of each tenant.
pub fn play(trace: &Trace, guaranteed: Option<i64>) -> Outcome<'_> {
    let mut headroom = Headroom { ledger: ledger(trace, guaranteed), ..Headroom::default() };
    let mut served: Vec<Served> = Vec::new();
    let mut arrivals = trace.requests.iter().enumerate().peekable();
    let mut waiting: Vec<Request> = Vec::new();
    // By their ends.
    let mut running: BTreeMap<(Duration, Arc<str>), usize> = BTreeMap::new();
    let mut now = Duration::ZERO;
    while arrivals.peek().is_some() || !waiting.is_empty() || !running.is_empty() {
        let at = Moment { now_ms: START_MS + now.as_millis() as i64, epoch: Epoch(1) };
        let mut changed = false;
        while let Some(((_, id), _)) = running.first_key_value().filter(|((ends, _), _)| *ends <= now) {
            let end = End { id: Arc::clone(id), state: State::Released, reason: "used".into() };
            headroom.ledger.end(&end, at).unwrap();
            running.pop_first();
            changed = true;
        }
        headroom.ledger.forget_ended(|_| false);
        while let Some((number, _)) = arrivals.next_if(|(_, request)| request.at <= now) {
            waiting.push(request(trace, number));
            changed = true;
        }
        if changed {
            let rules = AdmissionRules { at, patience: PATIENCE, awaiting: [].into() };
            let admission = admit(&waiting, &mut headroom, &rules);
            let granted: HashSet<Arc<str>> =
                admission.granted.iter().map(|request| Arc::clone(&request.reservation.id)).collect();
            for id in &granted {
                let number: usize = id.rsplit_once('-').unwrap().1.parse().unwrap();
                let request = trace.requests[number];
                let ended = now + request.runs();
                served.push(Served { request, began: now, ended, instance: (now, ended) });
                running.insert((ended, Arc::clone(id)), number);
            }
            waiting.retain(|request| !granted.contains(&request.reservation.id));
        }
        now += PAUSE;
    }
    Outcome { trace, served }
}

fn ledger(trace: &Trace, guaranteed: Option<i64>) -> Ledger {
    let guarantee =
        guaranteed.map(|cores| Guarantee { amount: 1_000 * cores, borrow: Limit::Unlimited, lend: Limit::Unlimited });
    let guarantee = Triple { cpu_m: guarantee, memory: None, engines: None };
    let capacity = PoolCapacity {
        capacity: Triple {
            cpu_m: Limit::Of(1_000 * trace.cores as i64),
            memory: Limit::Unlimited,
            engines: Limit::Unlimited,
        },
        protected: Amount::ZERO,
        overcommit_percent: 100,
    };
    let mut ledger = Ledger::default();
    ledger.put_scope(ScopeKey::pool(&catalog::pool()), capacity.scope(&vec![guarantee; trace.tenants]).unwrap());
    for tenant in 0..trace.tenants {
        ledger.put_scope(ScopeKey::tenant(&catalog::tenant(tenant), &catalog::pool()), Scope::tenant(&guarantee));
    }
    ledger
}

fn request(trace: &Trace, number: usize) -> Request {
    let of = trace.requests[number];
    let id: Arc<str> = format!("engine-{number}").into();
    let unit = UnitName::new(catalog::unit(of.shape)).unwrap();
    let amount = Amount { cpu_m: 1_000 * i64::from(of.cores()), memory: 1 << 30, engines: 1 };
    let reservation = Reserve {
        id: Arc::clone(&id),
        holder: Holder::Engine { unit, incarnation: Incarnation(1) },
        lineage: id,
        scopes: Scopes::new(&catalog::tenant(of.tenant), &catalog::pool(), None, None),
        amounts: Amounts::same(amount).unwrap(),
        asked: None,
        ttl_ms: None,
    };
    let asked_at_ms = START_MS + of.at.as_millis() as i64;
    Request { reservation: reservation.into(), replaces: None, priority: 0, asked_at_ms, pods: None }
}
