//! The nodes of the cluster, as far as we may look at them: what a pool may name, and what fits there.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use model::observation::MAX_NODES;

use crate::Error;

/// Nodes that an error lists at most.
const LISTED: usize = 10;

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// CPU that pods may have, in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory that pods may have, in bytes.
    pub memory_bytes: u64,
    /// Whether new pods may go there: ready and not cordoned.
    pub is_open: bool,
}

/// All nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    known: BTreeMap<String, NodeFacts>,
    reading: Option<BTreeMap<String, NodeFacts>>,
    /// Whether they were ever read; without the right to look they never are, and nothing is refused for it.
    filled: bool,
    /// Whether the first look has an outcome.
    asked: bool,
}

impl Nodes {
    pub(super) fn begin(&mut self) {
        self.reading = Some(BTreeMap::new());
    }

    /// Takes a node in; whether anything changed.
    pub(super) fn told(&mut self, node: &Node) -> bool {
        let name = node.metadata.name.clone().unwrap_or_default();
        let facts = facts(node);
        let is_read = self.reading.is_some();
        let nodes = self.reading.as_mut().unwrap_or(&mut self.known);
        if nodes.len() >= MAX_NODES && !nodes.contains_key(&name) {
            return false;
        }
        nodes.insert(name, facts.clone()).as_ref() != Some(&facts) && !is_read
    }

    pub(super) fn removed(&mut self, node: &Node) -> bool {
        node.metadata.name.as_ref().is_some_and(|name| self.known.remove(name).is_some())
    }

    pub(super) fn done(&mut self) -> bool {
        self.asked = true;
        let Some(read) = self.reading.take() else { return false };
        let changed = !self.filled || read != self.known;
        (self.known, self.filled) = (read, true);
        changed
    }

    /// They can't be read now.
    pub(super) fn broke(&mut self) {
        (self.asked, self.reading) = (true, None);
    }

    /// Whether the first look has an outcome.
    pub(super) fn is_asked(&self) -> bool {
        self.asked
    }

    pub(super) fn all(&self) -> &BTreeMap<String, NodeFacts> {
        &self.known
    }

    /// Refuses a list of nodes of which none is there.
    pub(super) fn check(&self, wanted: Option<&[String]>) -> Result<(), Error> {
        // Where there may be more than are kept, one that is not known may be there all the same.
        let all_known = self.filled && self.known.len() < MAX_NODES;
        let Some(wanted) = wanted.filter(|_| all_known) else { return Ok(()) };
        if wanted.iter().any(|node| self.known.contains_key(node)) {
            return Ok(());
        }
        let short = |names: Vec<&str>| match names.len() {
            0..=LISTED => names.join(", "),
            count => format!("{} and {} more", names[..LISTED].join(", "), count - LISTED),
        };
        Err(Error::refused(format!(
            "none of the nodes {} is there; the cluster has {}",
            short(wanted.iter().map(String::as_str).collect()),
            short(self.known.keys().map(String::as_str).collect())
        )))
    }
}

fn facts(node: &Node) -> NodeFacts {
    let status = node.status.as_ref();
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let of = |resource: &str| allocatable.and_then(|it| it.get(resource)).and_then(milli_units).unwrap_or(0);
    let spec = node.spec.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True");
    NodeFacts {
        labels: node.metadata.labels.clone().unwrap_or_default(),
        cpu_millis: of("cpu"),
        memory_bytes: of("memory") / 1_000,
        is_open: ready && !spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
    }
}

/// CPU, in thousandths of a core, and memory, in bytes, that the containers of a pod ask for.
pub(super) fn asked_by(pod: &Pod) -> (u64, u64) {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(asked);
    containers.fold((0, 0), |sum: (u64, u64), it| (sum.0.saturating_add(it.0), sum.1.saturating_add(it.1)))
}

fn asked(container: &Container) -> (u64, u64) {
    let requests = container.resources.as_ref().and_then(|it| it.requests.as_ref());
    let of = |resource: &str| requests.and_then(|it| it.get(resource)).and_then(milli_units).unwrap_or(0);
    (of("cpu"), of("memory") / 1_000)
}

/// A quantity as Kubernetes writes it, in thousandths of its unit: `3920m`, `4`, `16Gi`, `1e3`, `0.5`.
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
    } else if let Some(exponent) = suffix.strip_prefix(['e', 'E']).and_then(|it| it.parse::<u32>().ok()) {
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
    fn quantities_are_read_as_kubernetes_writes_them() {
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
    fn nodes_are_refused_only_when_none_is_there_and_that_is_known() {
        let mut nodes = Nodes::default();
        let wanted = ["node-9".to_owned()];
        nodes.check(Some(&wanted)).unwrap();
        nodes.begin();
        nodes.told(&node("node-1", "True"));
        assert!(nodes.done());
        assert!(nodes.check(Some(&wanted)).unwrap_err().to_string().contains("none of the nodes node-9"));
        nodes.check(Some(&["node-9".to_owned(), "node-1".to_owned()])).unwrap();
        nodes.check(None).unwrap();
    }

    #[test]
    fn more_nodes_than_are_kept_refuse_nothing() {
        let mut nodes = Nodes::default();
        nodes.begin();
        for number in 0..=MAX_NODES {
            nodes.told(&node(&format!("node-{number}"), "True"));
        }
        nodes.done();
        assert_eq!(nodes.all().len(), MAX_NODES);
        nodes.check(Some(&[format!("node-{MAX_NODES}")])).unwrap();
    }

    #[test]
    fn a_node_is_told_with_its_room() {
        let mut nodes = Nodes::default();
        nodes.begin();
        nodes.told(&node("node-1", "True"));
        nodes.done();
        let facts = nodes.all()["node-1"].clone();
        assert_eq!((facts.cpu_millis, facts.memory_bytes, facts.is_open), (3_920, 16 << 30, true));
        assert!(nodes.told(&node("node-1", "False")));
        assert!(!nodes.told(&node("node-1", "False")), "nothing new");
        assert!(!nodes.all()["node-1"].is_open);
    }
}
