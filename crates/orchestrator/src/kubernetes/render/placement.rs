//! Placement: affinity to the pool's nodes, and toleration of the taint that keeps other pods away from them.

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration,
};
use model::labels;

use crate::Spec;
use crate::kubernetes::names::POOL_TAINT;

/// Required affinity to the pool's nodes; `None` if any node will do.
pub(super) fn affinity(spec: &Spec) -> Option<Affinity> {
    let is_in = |key: &str, value: &str| NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![value.to_owned()]),
    };
    let labels: Vec<_> = spec.options.node_labels.iter().map(|(label, value)| is_in(label, value)).collect();
    let expressions = (!labels.is_empty()).then_some(labels);
    let terms = match (&spec.nodes, &expressions) {
        (None, None) => return None,
        (None, Some(_)) => vec![NodeSelectorTerm { match_expressions: expressions, match_fields: None }],
        // A match field takes a single value, and terms are alternatives: one for each node. The node's name, because the
        // label `kubernetes.io/hostname` may differ from it.
        (Some(nodes), _) => nodes
            .iter()
            .map(|node| NodeSelectorTerm {
                match_expressions: expressions.clone(),
                match_fields: Some(vec![is_in("metadata.name", node)]),
            })
            .collect(),
    };
    let required = NodeSelector { node_selector_terms: terms };
    let node_affinity = NodeAffinity {
        required_during_scheduling_ignored_during_execution: Some(required),
        preferred_during_scheduling_ignored_during_execution: None,
    };
    Some(Affinity { node_affinity: Some(node_affinity), ..Affinity::default() })
}

/// Tolerates the taint of the pool, whatever its effect.
pub(super) fn tolerations(spec: &Spec) -> Vec<Toleration> {
    let pool = spec.labels.get(labels::POOL).cloned();
    let tolerated = pool.map(|pool| Toleration {
        key: Some(POOL_TAINT.to_owned()),
        operator: Some("Equal".to_owned()),
        value: Some(pool),
        ..Toleration::default()
    });
    tolerated.into_iter().collect()
}
