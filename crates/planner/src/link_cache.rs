//! A cache of what all slots of one (tenant, pool, unit) share.
//!
//! A plan looks at every engine, and most of them are as desired. Their expected labels and the nodes of their pool follow
//! from the catalog; computing them for each engine would be most of a plan's time.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use model::catalog::PoolSpec;
use model::configuration::Configuration;
use model::engine_labels::ConfigurationLabels;
use model::name::PoolName;
use model::slot::{Link, SlotKey};

use crate::desired::DesiredState;
use crate::observed::ObservedState;

/// A cache of encoded configurations, kept between plans: the hashes of a thousand are most of the time of a full plan. An
/// entry is used only for an equal configuration, so losing the cache costs nothing but time.
#[derive(Debug, Clone, Default)]
pub(crate) struct LabelCache {
    entries: BTreeMap<Link, (Configuration, Arc<ConfigurationLabels>)>,
}

impl LabelCache {
    fn get(&mut self, link: Link, configuration: Configuration) -> Arc<ConfigurationLabels> {
        if let Some((cached, labels)) = self.entries.get(&link)
            && *cached == configuration
        {
            return Arc::clone(labels);
        }
        let labels = Arc::new(ConfigurationLabels::new(&configuration));
        self.entries.insert(link, (configuration, Arc::clone(&labels)));
        labels
    }

    /// Clears the cache once it has far more entries than there are slots.
    pub fn trim(&mut self, desired: &DesiredState) {
        if self.entries.len() > 2 * desired.snapshot.slots.len() {
            self.entries.clear();
        }
    }
}

/// What the slots of one (tenant, pool, unit) share.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    key: SlotKey,
    /// The labels of the configuration; `None` if the catalog has no such unit or pool.
    pub labels: Option<Arc<ConfigurationLabels>>,
    pub nodes: Option<Rc<PoolNodes<'a>>>,
}

/// The nodes on which the engines of a pool may run.
#[derive(Debug)]
pub(crate) struct PoolNodes<'a> {
    pool: &'a PoolSpec,
    is_empty: bool,
    listed: Option<HashSet<&'a str>>,
}

/// The group that was used last, and the nodes of every pool.
#[derive(Debug, Default)]
pub(crate) struct LinkCache<'a> {
    last: Option<Group<'a>>,
    pools: BTreeMap<&'a PoolName, Option<Rc<PoolNodes<'a>>>>,
}

impl<'a> LinkCache<'a> {
    /// The slot's group. Slots arrive in order, so one group is requested many times in a row.
    pub fn get(&mut self, desired: &'a DesiredState, key: &'a SlotKey, labels: &mut LabelCache) -> &Group<'a> {
        if self.last.as_ref().is_none_or(|group| !group.key.has_link_of(key)) {
            self.last = None;
        }
        let pools = &mut self.pools;
        self.last.get_or_insert_with(|| Group {
            key: key.clone(),
            labels: desired.configuration(key).map(|configuration| labels.get(key.link(), configuration)),
            nodes: pools.entry(&key.pool).or_insert_with(|| PoolNodes::new(desired, key)).clone(),
        })
    }
}

impl<'a> PoolNodes<'a> {
    fn new(desired: &'a DesiredState, key: &SlotKey) -> Option<Rc<Self>> {
        let pool = desired.pool(key)?;
        let listed = pool.nodes.as_ref().map(|nodes| nodes.iter().map(String::as_str).collect());
        Some(Rc::new(Self { pool, is_empty: desired.lacks_nodes(key).is_some(), listed }))
    }

    /// Whether the node has left the pool. A pool without nodes keeps its engines, because it cannot replace them.
    pub fn has_lost(&self, node: &str, observed: &ObservedState) -> bool {
        if self.is_empty {
            return false;
        }
        let is_listed = self.listed.as_ref().is_none_or(|nodes| nodes.contains(node));
        // The labels of an unknown node are unknown too.
        let labels = if self.pool.node_selector.is_empty() { None } else { observed.nodes.get(node) };
        !(is_listed && labels.is_none_or(|labels| self.pool.selects(labels)))
    }
}
