//! What all slots of one (tenant, pool, unit) have in common, worked out once for a run of them.
//!
//! A plan looks at every engine in every tick, and nearly all of them are as they should be. What their labels have to
//! say and which nodes are their pool's follows from the catalog: to work it out for each engine would be most of a
//! plan's time.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use model::catalog::PoolSpec;
use model::configuration::Configuration;
use model::labels::ConfigurationLabels;
use model::name::PoolName;
use model::slot::{Link, SlotKey};

use crate::desired::Desired;
use crate::observed::Observed;

/// Configurations that were put into words, from one plan to the next: the hashes of a thousand are most of the time of a
/// plan for all engines. Nothing hangs on it but time, for words are taken from it only for an equal configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Words {
    worded: BTreeMap<Link, (Configuration, Arc<ConfigurationLabels>)>,
}

impl Words {
    fn of(&mut self, link: Link, configuration: Configuration) -> Arc<ConfigurationLabels> {
        if let Some((known, words)) = self.worded.get(&link)
            && *known == configuration
        {
            return Arc::clone(words);
        }
        let words = Arc::new(ConfigurationLabels::new(&configuration));
        self.worded.insert(link, (configuration, Arc::clone(&words)));
        words
    }

    /// Forgets everything once it holds more than slots could ask for.
    pub fn trim(&mut self, desired: &Desired) {
        if self.worded.len() > 2 * desired.snapshot.slots.len() {
            self.worded.clear();
        }
    }
}

/// Of one (tenant, pool, unit).
#[derive(Debug)]
pub(crate) struct Linked<'a> {
    key: SlotKey,
    /// What labels say of the configuration; `None` if the catalog lacks the unit or the pool.
    pub labels: Option<Arc<ConfigurationLabels>>,
    /// The pool and its nodes.
    pub place: Option<Rc<Place<'a>>>,
}

/// Where the engines of a pool may be.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pool: &'a PoolSpec,
    lacks_nodes: bool,
    listed: Option<HashSet<&'a str>>,
}

/// What was worked out last.
#[derive(Debug, Default)]
pub(crate) struct Run<'a> {
    last: Option<Linked<'a>>,
    places: BTreeMap<&'a PoolName, Option<Rc<Place<'a>>>>,
}

impl<'a> Run<'a> {
    /// Of the slot's (tenant, pool, unit). Slots that come in order are asked for in runs.
    pub fn of(&mut self, desired: &'a Desired, key: &'a SlotKey, words: &mut Words) -> &Linked<'a> {
        let differs =
            |it: &Linked<'_>| (&it.key.tenant, &it.key.pool, &it.key.unit) != (&key.tenant, &key.pool, &key.unit);
        if self.last.as_ref().is_none_or(differs) {
            self.last = None;
        }
        let places = &mut self.places;
        self.last.get_or_insert_with(|| Linked {
            key: key.clone(),
            labels: desired.configuration(key).map(|it| words.of(key.link(), it)),
            place: places.entry(&key.pool).or_insert_with(|| Place::of(desired, key)).clone(),
        })
    }
}

impl<'a> Place<'a> {
    fn of(desired: &'a Desired, key: &SlotKey) -> Option<Rc<Self>> {
        let pool = desired.pool(key)?;
        let listed = pool.nodes.as_ref().map(|nodes| nodes.iter().map(String::as_str).collect());
        Some(Rc::new(Self { pool, lacks_nodes: desired.lacks_nodes(key).is_some(), listed }))
    }

    /// Whether the node is no longer one of the pool's. In a pool without any node there is nothing to replace an engine
    /// by: it lives on.
    pub fn is_left_by(&self, node: &str, observed: &Observed) -> bool {
        if self.lacks_nodes {
            return false;
        }
        let is_listed = self.listed.as_ref().is_none_or(|nodes| nodes.contains(node));
        // Of a node that is not known nobody can say which labels it has.
        let labels = if self.pool.node_selector.is_empty() { None } else { observed.nodes.get(node) };
        !(is_listed && labels.is_none_or(|labels| self.pool.selects(labels)))
    }
}
