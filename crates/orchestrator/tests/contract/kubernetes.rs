//! The harness of pods in a simulated cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::EngineName;
use model::clock::Clock as _;
use orchestrator::{ObservedInstance, Orchestrator};

use super::cluster::Cluster;
use super::harness::{Harness, Program, pod_program, pods};

const NAMESPACE: &str = "rp-1--t-1";

struct Pods {
    cluster: Cluster,
}

pub fn make() -> Arc<dyn Harness> {
    Arc::new(Pods { cluster: Cluster::new() })
}

#[async_trait]
impl Harness for Pods {
    fn instance(&self) -> Arc<dyn Orchestrator> {
        pods("enginehouse", None, self.cluster.client(), self.cluster.clock.clone())
    }

    fn program(&self, _: &EngineName, program: Program) -> (Vec<String>, BTreeMap<String, String>) {
        pod_program(program)
    }

    async fn wait_until_ready(&self, _: &EngineName) {}

    fn advance(&self, by: Duration) {
        self.cluster.advance(by);
    }

    fn now_ms(&self) -> i64 {
        self.cluster.clock.wall_ms()
    }

    fn kill(&self, engine: &ObservedInstance) {
        self.cluster.kill(NAMESPACE, engine.name.as_str());
    }

    fn edit_label(&self, name: &EngineName, label: &str, value: &str) {
        self.cluster.change("pods", NAMESPACE, name.as_str(), |pod| pod["metadata"]["labels"][label] = value.into());
    }

    fn remove_by_hand(&self, engine: &ObservedInstance) {
        self.cluster.remove("pods", NAMESPACE, engine.name.as_str());
    }
}
