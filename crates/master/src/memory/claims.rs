//! Whether the instance exists that a registration names: one pass over both lists, as both are in the order of names.

use std::cmp::Ordering;
use std::collections::HashSet;

use foldhash::fast::RandomState;
use model::engine_name::EngineName;
use model::shared::Shared;
use planner::Instance;

/// Which uids the list of instances contains. Nearly always an engine's own instance has the uid that is looked up, and it is the
/// next one in the list.
pub(super) struct Claims<'a> {
    instances: &'a [Shared<Instance>],
    next: usize,
    /// All uids, once one is looked up that is elsewhere.
    uids: Option<HashSet<&'a str, RandomState>>,
}

impl<'a> Claims<'a> {
    pub fn new(instances: &'a [Shared<Instance>]) -> Self {
        Self { instances, next: 0, uids: None }
    }

    /// Whether some instance has the uid. Engines are looked up in the order of names.
    pub fn has(&mut self, engine: &EngineName, uid: Option<&str>) -> bool {
        let Some(uid) = uid else { return false };
        while let Some(instance) = self.instances.get(self.next) {
            match instance.name.cmp(engine) {
                Ordering::Equal if instance.uid == uid => return true,
                Ordering::Less | Ordering::Equal => self.next += 1,
                Ordering::Greater => break,
            }
        }
        self.uids.get_or_insert_with(|| uids(self.instances)).contains(uid)
    }
}

fn uids(instances: &[Shared<Instance>]) -> HashSet<&str, RandomState> {
    instances.iter().map(|instance| instance.uid.as_str()).collect()
}
