//! The journal of a fake: what was requested of it, in order.

use model::alteration::Abort;
use model::ledger::{LedgerRecord, ScopedChange};
use model::observation::Publication;

/// One request.
#[derive(Debug)]
pub enum Entry {
    /// The verb of a decision and its engine.
    Effect(String),
    Abort(Abort),
    /// One that was accepted.
    Publication(Publication),
    /// The changes of one transaction of the ledger.
    Changes(Vec<ScopedChange>),
    Record(LedgerRecord),
    /// The namespace of a probe.
    Probe(Option<String>),
}

#[derive(Debug, Default)]
pub struct Journal(Vec<Entry>);

impl Journal {
    pub fn push(&mut self, entry: Entry) {
        self.0.push(entry);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn effects(&self) -> Vec<String> {
        self.pick(|entry| if let Entry::Effect(effect) = entry { Some(effect) } else { None })
    }

    pub fn aborts(&self) -> Vec<Abort> {
        self.pick(|entry| if let Entry::Abort(abort) = entry { Some(abort) } else { None })
    }

    pub fn publications(&self) -> Vec<Publication> {
        self.pick(|entry| if let Entry::Publication(publication) = entry { Some(publication) } else { None })
    }

    /// The changes of the ledger, by transaction.
    pub fn changes(&self) -> Vec<Vec<ScopedChange>> {
        self.pick(|entry| if let Entry::Changes(changes) = entry { Some(changes) } else { None })
    }

    pub fn records(&self) -> Vec<LedgerRecord> {
        self.pick(|entry| if let Entry::Record(record) = entry { Some(record) } else { None })
    }

    pub fn probes(&self) -> Vec<Option<String>> {
        self.pick(|entry| if let Entry::Probe(namespace) = entry { Some(namespace) } else { None })
    }

    fn pick<T: Clone>(&self, pick: impl Fn(&Entry) -> Option<&T>) -> Vec<T> {
        self.0.iter().filter_map(pick).cloned().collect()
    }
}
