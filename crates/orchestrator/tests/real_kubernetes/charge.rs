//! The charge of an engine, compared with what its pods request as the API server returns them.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{Api, ListParams, PostParams};
use model::charge::Container;
use model::configuration::Configuration;
use model::engine_type::EngineType;
use model::labels::NAME;
use orchestrator::{Orchestrator as _, Spec};

use super::requests::{self, Amount};
use super::specs::{EPOCH, configuration, datafusion, spark, spec};
use super::support::TestNamespace;

/// What the container is charged.
fn charged(container: &Container) -> Amount {
    (container.cpu_request_millis, container.memory_request_bytes())
}

impl TestNamespace {
    /// The pods of the engine, with its executors.
    async fn pods_of(&self, spec: &Spec) -> Vec<Pod> {
        let of_engine = ListParams::default().labels(&format!("{NAME}={}", spec.name));
        self.pods().list(&of_engine).await.unwrap().items
    }

    /// Creates the executors of a Spark engine from its Secret and config map, as Spark does.
    pub async fn create_executors(&self, spec: &Spec) {
        let config_maps = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        let data = config_maps.get(spec.name.as_str()).await.unwrap().data.unwrap();
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let secret = secrets.get(spec.name.as_str()).await.unwrap().data.unwrap();
        let properties = std::str::from_utf8(&secret["spark.properties"].0).unwrap();
        let (count, pod) = requests::executors(properties, &data["executor-template.json"]);
        for executor in 1..=count {
            let mut pod = pod.clone();
            // The namespace's default account may not exist yet.
            pod.spec.as_mut().unwrap().service_account_name = Some(self.config.service_account.clone());
            pod.metadata.name = Some(format!("{}-exec-{executor}", spec.name));
            self.pods().create(&PostParams::default(), &pod).await.unwrap();
        }
    }
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_datafusion_engine_is_charged_what_its_pod_requests() {
    let test = TestNamespace::create("charge").await;
    let spec = test.own(datafusion(1));
    test.open().ensure(&spec, EPOCH).await.unwrap();
    let pods = test.pods_of(&spec).await;
    let total = spec.charge.requests();
    assert_eq!((pods.len() as u64, requests::sum(&pods)), (total.engines, (total.cpu_millis, total.memory_bytes)));
    let agent = ("engine-agent".to_owned(), charged(&spec.charge.driver.engine));
    assert_eq!(requests::of_containers(&pods[0]), [agent].into());
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_spark_engine_is_charged_what_its_pods_request() {
    let test = TestNamespace::create("charge-spark").await;
    let kubernetes = test.open();
    let rounded = Configuration {
        cpu_overcommit: Some(300),
        driver_memory: "8G".parse().unwrap(),
        executor_memory: "4G".parse().unwrap(),
        ..configuration(EngineType::Spark)
    };
    for spec in [spark(1), spec(&rounded, 2)] {
        let spec = test.own(spec);
        kubernetes.ensure(&spec, EPOCH).await.unwrap();
        test.create_executors(&spec).await;
        let pods = test.pods_of(&spec).await;
        let total = spec.charge.requests();
        assert_eq!(requests::sum(&pods), (total.cpu_millis, total.memory_bytes));
        let executors = spec.charge.executors.unwrap();
        assert_eq!(pods.len(), 1 + executors.count as usize);
        for pod in pods {
            let expected = if pod.metadata.name.as_deref() == Some(spec.name.as_str()) {
                let agent = ("engine-agent".to_owned(), charged(&spec.charge.driver.agent.unwrap()));
                [agent, ("spark".to_owned(), charged(&spec.charge.driver.engine))].into()
            } else {
                [("spark-kubernetes-executor".to_owned(), charged(&executors.container))].into()
            };
            assert_eq!(requests::of_containers(&pod), expected);
        }
    }
}
