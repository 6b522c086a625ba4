//! The nodes of the cluster: the names that a pool may list, and their capacity. Empty without the permission to list them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use model::fit::NodeAmount;
use model::observation::MAX_NODES;
use model::observed_pods::PodSize;

use super::names;
use crate::Error;

/// The limit of nodes that an error lists.
const MAX_LISTED: usize = 10;

/// The facts about a node that are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeFacts {
    pub(super) labels: BTreeMap<String, String>,
    /// What pods may use.
    pub(super) allocatable: NodeAmount,
    /// Whether the kubelet reports it as ready: its pods run.
    pub(super) is_ready: bool,
    /// Whether new pods may be scheduled there: ready and not cordoned.
    pub(super) is_schedulable: bool,
}

#[derive(Debug, Default)]
pub(super) struct Nodes {
    known: BTreeMap<String, NodeFacts>,
    resync: Option<BTreeMap<String, NodeFacts>>,
    /// Whether they were ever listed. Without the permission they never are, and no spec is refused because of its nodes.
    synced: bool,
    /// Whether the first list has succeeded or failed.
    tried: bool,
}

impl Nodes {
    pub(super) fn begin_resync(&mut self) {
        self.resync = Some(BTreeMap::new());
    }

    /// Returns whether anything changed.
    pub(super) fn apply(&mut self, node: &Node) -> bool {
        let name = node.metadata.name.clone().unwrap_or_default();
        let facts = facts(node);
        let is_resync = self.resync.is_some();
        let nodes = self.resync.as_mut().unwrap_or(&mut self.known);
        if nodes.len() >= MAX_NODES && !nodes.contains_key(&name) {
            return false;
        }
        nodes.insert(name, facts.clone()).as_ref() != Some(&facts) && !is_resync
    }

    /// Returns whether anything changed.
    pub(super) fn delete(&mut self, node: &Node) -> bool {
        node.metadata.name.as_ref().is_some_and(|name| self.known.remove(name).is_some())
    }

    /// Returns whether anything changed.
    pub(super) fn finish_resync(&mut self) -> bool {
        self.tried = true;
        let Some(listed) = self.resync.take() else { return false };
        let changed = !self.synced || listed != self.known;
        (self.known, self.synced) = (listed, true);
        changed
    }

    pub(super) fn mark_broken(&mut self) {
        (self.tried, self.resync) = (true, None);
    }

    /// Whether the first list has succeeded or failed.
    pub(super) fn is_tried(&self) -> bool {
        self.tried
    }

    pub(super) fn all(&self) -> &BTreeMap<String, NodeFacts> {
        &self.known
    }

    /// Refuses a node list if none of its nodes exists.
    pub(super) fn check(&self, listed: Option<&[String]>) -> Result<(), Error> {
        // Above the limit of kept nodes, an unknown one may exist.
        let all_known = self.synced && self.known.len() < MAX_NODES;
        let Some(listed) = listed.filter(|_| all_known) else { return Ok(()) };
        if listed.iter().any(|node| self.known.contains_key(node)) {
            return Ok(());
        }
        let short = |names: Vec<&str>| match names.len() {
            0..=MAX_LISTED => names.join(", "),
            count => format!("{} and {} more", names[..MAX_LISTED].join(", "), count - MAX_LISTED),
        };
        Err(Error::refused(format!(
            "none of the nodes {} exists; the cluster has {}",
            short(listed.iter().map(String::as_str).collect()),
            short(self.known.keys().map(String::as_str).collect())
        )))
    }
}

fn facts(node: &Node) -> NodeFacts {
    let status = node.status.as_ref();
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let spec = node.spec.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let is_ready =
        conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    NodeFacts {
        labels: node.metadata.labels.clone().unwrap_or_default(),
        allocatable: capacity(allocatable),
        is_ready,
        is_schedulable: is_ready && !spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
    }
}

/// The sum of what the containers of a pod may use and request. A container that only relays is above its nominal size while it
/// does, so it is counted by its request, as in the [charge](model::charge).
pub(super) fn size_of(pod: &Pod) -> PodSize {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let has_spark = containers.iter().any(|container| container.name == names::SPARK);
    let size = |container: &Container| {
        let resources = container.resources.as_ref();
        let requests = capacity(resources.and_then(|resources| resources.requests.as_ref()));
        let limits = capacity(resources.and_then(|resources| resources.limits.as_ref()));
        let is_engine = match container.name.as_str() {
            names::SPARK | names::EXECUTOR => true,
            names::AGENT => !has_spark,
            _ => false,
        };
        let cpu_millis = if is_engine { limits.cpu_millis.max(requests.cpu_millis) } else { requests.cpu_millis };
        PodSize { cpu_millis, requests }
    };
    containers.iter().map(size).fold(PodSize::ZERO, PodSize::plus)
}

fn capacity(quantities: Option<&BTreeMap<String, Quantity>>) -> NodeAmount {
    let millis = |resource: &str| quantities.and_then(|all| all.get(resource)).and_then(milli_units).unwrap_or(0);
    NodeAmount { cpu_millis: millis("cpu"), memory_bytes: millis("memory") / 1_000 }
}

/// Parses a Kubernetes quantity into thousandths of its unit: `3920m`, `4`, `16Gi`, `1e3`, `0.5`.
fn milli_units(quantity: &Quantity) -> Option<u64> {
    const SUFFIXES: [(&str, u128); 13] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("Pi", 1 << 50),
        ("Ei", 1 << 60),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("P", 1_000_000_000_000_000),
        ("E", 1_000_000_000_000_000_000),
        ("", 1),
    ];
    let text = quantity.0.trim();
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction: String = fraction.chars().chain("000".chars()).take(3).collect();
    let millis = whole.parse::<u128>().ok()?.checked_mul(1_000)?.checked_add(fraction.parse().ok()?)?;
    let value = if suffix == "m" {
        millis / 1_000
    } else if let Some(exponent) = suffix.strip_prefix(['e', 'E']).and_then(|digits| digits.parse::<u32>().ok()) {
        millis.checked_mul(10u128.checked_pow(exponent)?)?
    } else {
        let factor = SUFFIXES.iter().find(|(known, _)| *known == suffix).map(|(_, factor)| *factor)?;
        millis.checked_mul(factor)?
    };
    u64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kubernetes_quantities_are_parsed() {
        for (text, millis) in [
            ("3920m", Some(3_920)),
            ("4", Some(4_000)),
            ("0.5", Some(500)),
            ("16Gi", Some(1_000 << 34)),
            ("1k", Some(1_000_000)),
            ("1e3", Some(1_000_000)),
            ("2E", None),
            ("", None),
            ("x", None),
            ("1Zi", None),
        ] {
            assert_eq!(milli_units(&Quantity(text.to_owned())), millis, "{text}");
        }
    }

    fn node(name: &str, ready: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"zone": "a"}},
            "spec": {},
            "status": {"allocatable": {"cpu": "3920m", "memory": "16Gi"},
                "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_node_list_is_refused_only_if_none_is_known_to_exist() {
        let mut nodes = Nodes::default();
        let listed = ["node-9".to_owned()];
        nodes.check(Some(&listed)).unwrap();
        nodes.begin_resync();
        nodes.apply(&node("node-1", "True"));
        assert!(nodes.finish_resync());
        assert!(nodes.check(Some(&listed)).unwrap_err().to_string().contains("none of the nodes node-9"));
        nodes.check(Some(&["node-9".to_owned(), "node-1".to_owned()])).unwrap();
        nodes.check(None).unwrap();
    }

    #[test]
    fn above_the_limit_of_kept_nodes_none_is_refused() {
        let mut nodes = Nodes::default();
        nodes.begin_resync();
        for number in 0..=MAX_NODES {
            nodes.apply(&node(&format!("node-{number}"), "True"));
        }
        nodes.finish_resync();
        assert_eq!(nodes.all().len(), MAX_NODES);
        nodes.check(Some(&[format!("node-{MAX_NODES}")])).unwrap();
    }

    #[test]
    fn a_node_has_its_capacity() {
        let mut nodes = Nodes::default();
        nodes.begin_resync();
        nodes.apply(&node("node-1", "True"));
        nodes.finish_resync();
        let facts = nodes.all()["node-1"].clone();
        assert_eq!(facts.allocatable, NodeAmount { cpu_millis: 3_920, memory_bytes: 16 << 30 });
        assert!(facts.is_ready && facts.is_schedulable);
        assert!(nodes.apply(&node("node-1", "False")));
        assert!(!nodes.apply(&node("node-1", "False")), "unchanged");
        let facts = &nodes.all()["node-1"];
        assert!(!facts.is_ready && !facts.is_schedulable);
    }

    #[test]
    fn a_cordoned_node_is_ready_and_takes_no_new_pods() {
        let mut cordoned = node("node-1", "True");
        cordoned.spec.get_or_insert_default().unschedulable = Some(true);
        let facts = facts(&cordoned);
        assert!(facts.is_ready && !facts.is_schedulable);
    }
}
