//! The class of an engine's end: the word of the transaction that condemned it, else what was observed of its instance.
//!
//! A plan that is stale records the same class or none: the word of a row is written once.

use model::end::{EndClass, EndWord, StartFault};
use model::engine_state::Phase;

use crate::inventory::Engine;
use crate::observed::Instance;
use crate::role;

/// The class of an engine whose instance has ended or is being deleted; without an instance, of one that no list has.
pub(crate) fn class(engine: &Engine<'_>, instance: Option<&Instance>) -> EndClass {
    let record = engine.record;
    if let Some((record, word)) = record.and_then(|record| Some((record, record.ended_word?))) {
        return EndClass { word, retryable: record.retryable };
    }
    if record.is_some_and(|record| record.end_reason.is_some()) {
        // Condemned by a version without words.
        return EndClass::of(EndWord::Stopped);
    }
    let fault = instance.and_then(|instance| instance.fault);
    if engine.current_of.is_none() {
        if instance.is_none() && engine.uid().is_none() {
            return EndClass::of(EndWord::Unneeded);
        }
        // A stand-in may fail before its successor has registered.
        if fault.is_none() || engine.drain.is_some() {
            return EndClass::of(EndWord::Superseded);
        }
    }
    let word = match instance {
        None => EndWord::Vanished,
        Some(instance) if fault == Some(StartFault::Evicted) || instance.phase == Phase::Terminating => {
            EndWord::Evicted
        }
        Some(_) => EndWord::Failed,
    };
    if engine.has_registered() { EndClass::of(word) } else { EndClass::of_start(word, fault) }
}

/// Why an engine of this class was to end, of which the database has no order: a superseded engine has only the drain order, which
/// names its successor. Its agent reports no more than that it was drained.
pub(crate) fn order<'e>(engine: &'e Engine<'_>, class: EndClass, uid: &str) -> Option<&'e str> {
    let is_recorded = engine.record.is_some_and(|record| record.end_reason.is_some());
    let drain = engine.drain_of(uid).filter(|_| class.word == EndWord::Superseded && !is_recorded);
    drain.map(|drain| drain.reason.as_str())
}

/// The class of an engine that runs without a registration and is given up.
pub(crate) fn unregistered(engine: &Engine<'_>, instance: &Instance) -> EndClass {
    if role::never_registered(engine) {
        EndClass::of_start(EndWord::StartTimeout, instance.fault)
    } else {
        EndClass::of(EndWord::Failed)
    }
}
