//! The wire message of call `Observed`: facts and rows in one structure, as version 0.1.0 has it.
//!
//! Above the wire the two are apart: [`AgentApi::record`](crate::AgentApi::record) sends a message with facts only,
//! [`AgentApi::publish`](crate::AgentApi::publish) one with rows only. An agent splits whatever it receives.

use model::demand_report::UnmetDemand;
use model::engine_name::EngineName;
use model::observation::{
    ClusterWarnings, CreatedEngine, EndedEngine, EngineFacts, ObservedEngine, ObservedNode, Publication,
};
use serde::{Deserialize, Serialize};

/// The message. Fields without a default are required by agents of version 0.1.0.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ReportMessage {
    engines: Vec<ObservedEngine>,
    gone: Vec<EngineName>,
    complete: bool,
    #[serde(default)]
    kept: Vec<EngineName>,
    made: Vec<CreatedEngine>,
    ended: Vec<EndedEngine>,
    #[serde(default)]
    served: Vec<(EngineName, u64)>,
    waits_for: Option<String>,
    /// Whether it neither ends a tick nor sets what the master waits for: always true for facts.
    #[serde(default)]
    part: bool,
    #[serde(default)]
    after_tick_ms: Option<i64>,
    namespaces_in_use: Option<Vec<String>>,
    #[serde(default)]
    nodes: Option<Vec<ObservedNode>>,
    #[serde(default, rename = "surroundings")]
    cluster_warnings: Option<ClusterWarnings>,
    #[serde(default)]
    unmet: Option<Vec<UnmetDemand>>,
}

impl From<&EngineFacts> for ReportMessage {
    fn from(facts: &EngineFacts) -> Self {
        let EngineFacts { created, ended, served } = facts.clone();
        Self { made: created, ended, served, part: true, ..Self::default() }
    }
}

impl From<&Publication> for ReportMessage {
    fn from(publication: &Publication) -> Self {
        let publication = publication.clone();
        Self {
            engines: publication.engines,
            gone: publication.gone,
            complete: publication.complete,
            kept: publication.kept,
            made: Vec::new(),
            ended: Vec::new(),
            served: Vec::new(),
            waits_for: publication.waits_for,
            part: publication.part,
            after_tick_ms: publication.after_tick_ms,
            namespaces_in_use: publication.namespaces_in_use,
            nodes: publication.nodes,
            cluster_warnings: publication.cluster_warnings,
            unmet: publication.unmet,
        }
    }
}

impl ReportMessage {
    /// The facts and the rows. A message with facts and nothing else is no publication.
    pub(crate) fn split(mut self) -> (Option<EngineFacts>, Option<Publication>) {
        let (created, ended) = (std::mem::take(&mut self.made), std::mem::take(&mut self.ended));
        let facts = EngineFacts { created, ended, served: std::mem::take(&mut self.served) };
        if facts == EngineFacts::default() {
            return (None, Some(self.into_publication()));
        }
        let has_rows = self != Self { part: true, ..Self::default() };
        (Some(facts), has_rows.then(|| self.into_publication()))
    }

    fn into_publication(self) -> Publication {
        Publication {
            engines: self.engines,
            gone: self.gone,
            complete: self.complete,
            kept: self.kept,
            waits_for: self.waits_for,
            part: self.part,
            after_tick_ms: self.after_tick_ms,
            namespaces_in_use: self.namespaces_in_use,
            nodes: self.nodes,
            cluster_warnings: self.cluster_warnings,
            unmet: self.unmet,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A message of version 0.1.0.
    const OLD: &str = r#"{"engines":[],"gone":[],"complete":false,"made":[{"name":"e","uid":"u","config":"c"}],"ended":[],
        "waits_for":null,"part":true,"namespaces_in_use":null}"#;

    #[test]
    fn facts_and_rows_survive_the_wire_apart() {
        let created =
            CreatedEngine { name: EngineName::new("e").unwrap(), uid: "u".to_owned(), config: "c".to_owned() };
        let facts = EngineFacts { created: vec![created], ..EngineFacts::default() };
        let served = EngineFacts { served: vec![(EngineName::new("e").unwrap(), 7)], ..facts.clone() };
        for facts in [&facts, &served] {
            assert_eq!(ReportMessage::from(facts).split(), (Some(facts.clone()), None));
        }
        for publication in [
            Publication::default(),
            Publication { part: true, ..Publication::default() },
            Publication { complete: true, waits_for: Some("x".to_owned()), ..Publication::default() },
            Publication { unmet: Some(Vec::new()), ..Publication::default() },
        ] {
            assert_eq!(ReportMessage::from(&publication).split(), (None, Some(publication)));
        }
        let old: ReportMessage = serde_json::from_str(OLD).unwrap();
        assert_eq!(old.split(), (Some(facts), None));
    }
}
