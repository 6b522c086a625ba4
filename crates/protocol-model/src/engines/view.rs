//! What a plan knows of one name, and the role that it gives to it.

use super::state::{Nodes, Pod, Record, Registration, Slot};

/// The inventory entry of a name.
pub(super) struct EngineView {
    pub slot: usize,
    pub incarnation: u8,
    pub record: Record,
    pub nodes: Nodes,
    /// The pod of the recorded uid, or of the name while none is recorded.
    pub pod: Option<Pod>,
    pub stray: Option<Pod>,
    /// A probe of the recorded or drained uid found no pod.
    pub vanished: bool,
    pub is_stale: bool,
    pub confirmed: bool,
}

impl EngineView {
    pub fn alive(&self) -> Option<Pod> {
        self.pod.filter(|pod| pod.is_alive())
    }

    pub fn is_ready(&self) -> bool {
        let staying = !self.record.condemned && !self.record.ended;
        let registered =
            |pod: Pod| self.nodes.registration.uid() == Some(pod.uid) && self.nodes.drain_order != Some(pod.uid);
        staying && self.alive().is_some_and(registered)
    }

    pub fn uid(&self) -> Option<u8> {
        (self.record.uid != 0).then_some(self.record.uid).or(self.pod.map(|pod| pod.uid))
    }

    pub fn is_registered(&self) -> bool {
        self.nodes.registration != Registration::None
    }

    /// Whether it has an instance, or may have one. One that was never recorded is not created any more.
    pub fn may_exist(&self) -> bool {
        let is_listed = self.pod.is_some() || self.stray.is_some();
        is_listed || !self.record.ended && self.record.uid != 0 && !self.vanished
    }
}

pub(super) enum Role {
    Stale,
    Current(Slot),
    StandIn,
    Condemned { newer: Option<usize> },
    Gone,
}
