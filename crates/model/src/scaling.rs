//! The call with which a master adds and removes slots that follow demand, and its results.
//!
//! A request names the slots of its link as the plan saw them. If others have been added, removed or renewed since, it is
//! refused and the next plan decides again: a repeat after a lost answer therefore adds nothing twice.

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};

use crate::end::EndWord;
use crate::number::{Generation, Incarnation};
use crate::owner::Owner;
use crate::slot::{Link, Slot, SlotKey, StartedFor};

/// The most slots that one call adds and removes.
pub const MAX_SCALED_SLOTS: usize = 256;

/// The slots of a link as a plan saw them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SlotsSeen {
    pub count: u32,
    /// The highest incarnation among them; 0 without slots. A slot that was removed and another that was added leave the
    /// count as it was.
    pub newest: Incarnation,
    /// The generation at which they were read. A slot that was added and removed since leaves both as they were. 0, of an older
    /// version, is not compared.
    #[serde(default)]
    pub read_at: Generation,
}

/// A slot that goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRemoval {
    pub slot: SlotKey,
    /// Its incarnation in the plan.
    pub incarnation: Incarnation,
    /// Why its engine ends.
    pub reason: String,
    /// The same in one word.
    pub word: EndWord,
}

/// The slots of origin *demand* that a link gains for one owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotAddition {
    /// Whose sessions the engines serve; `None` if the tenant shares them.
    pub owner: Option<Owner>,
    /// The user and the client application that the engines are charged to; `None` if only the tenant is.
    pub started_for: Option<StartedFor>,
    pub count: u32,
}

/// The slots that one link gains and loses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkScale {
    pub link: Link,
    pub seen: SlotsSeen,
    /// The slots that are added, each with a charged reservation.
    pub add: Vec<SlotAddition>,
    /// The slots of origin *demand* that are removed.
    pub remove: Vec<SlotRemoval>,
}

/// The links that a master scales in one transaction, each once; at most [`MAX_SCALED_SLOTS`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleRequest {
    pub links: Vec<LinkScale>,
    /// How long the reservation of an added slot may stay unconfirmed, if a scope of it has a limit, in milliseconds.
    pub reservation_ttl_ms: i64,
    /// How long running statements of a removed engine may continue, in milliseconds.
    pub grace_ms: i64,
}

/// A slot that was added, with its reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedSlot {
    pub slot: SlotKey,
    pub incarnation: Incarnation,
}

/// The result for one link. The links of a call do not affect each other, except that they share capacity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkScaled {
    /// It was carried out as far as there is capacity.
    Scaled {
        added: Vec<AddedSlot>,
        /// What the first slot that was not added is short of, as a sentence.
        short: Option<String>,
    },
    /// Nothing was changed; why.
    Refused(String),
}

impl SlotsSeen {
    /// Whether there are the same slots in `other`, as far as these tell.
    pub fn are_those_of(&self, other: &Self) -> bool {
        (self.count, self.newest) == (other.count, other.newest)
    }

    /// What a reader of these slots of one link sees.
    pub fn of<'a, S: Borrow<Slot> + 'a>(slots: impl IntoIterator<Item = &'a S>) -> Self {
        slots.into_iter().map(Borrow::borrow).fold(Self::default(), |seen, slot| Self {
            count: seen.count + 1,
            newest: seen.newest.max(slot.incarnation),
            ..seen
        })
    }
}

impl SlotAddition {
    /// So many slots that the tenant shares.
    pub const fn of_tenant(count: u32) -> Self {
        Self { owner: None, started_for: None, count }
    }
}

impl LinkScale {
    /// How many slots it adds.
    pub fn added(&self) -> u32 {
        self.add.iter().fold(0, |sum, addition| sum.saturating_add(addition.count))
    }
}

impl ScaleRequest {
    /// The number of slots that it adds and removes.
    pub fn slots(&self) -> usize {
        self.links.iter().map(|link| link.added() as usize + link.remove.len()).sum()
    }
}
