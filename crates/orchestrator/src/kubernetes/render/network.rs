//! The network policies of a namespace of engines: which connections engines accept and open. Everything else is denied.
//! `deploy/kubernetes/engines` has the same policies for namespaces that an administrator creates; a test compares them.
//!
//! A cluster whose network does not enforce policies accepts them without effect.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use model::labels::{LabelMap, ROLE, ROLE_ENGINE, ROLE_EXECUTOR};

use super::properties::{BLOCK_PORT, DRIVER_PORT};
use crate::kubernetes::Egress;
use crate::kubernetes::config::Config;
use crate::kubernetes::labels::SPARK_ROLE;

/// The label of every namespace with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// The label of the pods of `deploy/kubernetes`.
const OURS: (&str, &str) = ("app.kubernetes.io/name", "enginehouse");
/// The label with the role of such a pod.
const COMPONENT: &str = "app.kubernetes.io/component";
/// The label that the operator of the coordination service gives to its pods.
const COORDINATION: (&str, &str) = ("enginehouse.io/part", "zookeeper");
const COORDINATION_PORT: u16 = 2_181;

pub(super) fn policies(namespace: &str, labels: &LabelMap, config: &Config) -> Vec<NetworkPolicy> {
    let policy = |name: &str, spec: NetworkPolicySpec| NetworkPolicy {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
    };
    let mut policies = vec![
        policy("deny-all", ingress_and_egress(all(), Vec::new(), Vec::new())),
        policy("names", egress_only(all(), vec![to(vec![dns()], vec![port("UDP", 53), port("TCP", 53)])])),
        policy("engine", engine(config)),
        policy("spark-driver", driver()),
        policy("spark-executor", executor()),
    ];
    if !config.egress.is_empty() {
        let engines = one_of(ROLE, &[ROLE_ENGINE, ROLE_EXECUTOR]);
        policies.push(policy("data", egress_only(engines, config.egress.iter().map(egress_rule).collect())));
    }
    policies
}

fn engine(config: &Config) -> NetworkPolicySpec {
    let callers = LabelSelector { match_labels: Some(map(&[OURS])), ..one_of(COMPONENT, &["proxy", "master"]) };
    let coordination = labelled(&[COORDINATION]);
    ingress_and_egress(
        labelled(&[(ROLE, ROLE_ENGINE)]),
        vec![from(vec![in_namespace(&config.home_namespace, callers)], vec![tcp(config.agent_port)])],
        vec![to(vec![in_namespace(&config.home_namespace, coordination)], vec![tcp(COORDINATION_PORT)])],
    )
}

/// A policy cannot distinguish the executors of different drivers: all executors of the namespace reach all of its drivers,
/// but not their agents.
fn driver() -> NetworkPolicySpec {
    ingress_and_egress(
        labelled(&[(ROLE, ROLE_ENGINE), (SPARK_ROLE, "driver")]),
        vec![from(vec![executors()], vec![tcp(DRIVER_PORT), tcp(BLOCK_PORT)])],
        vec![to(vec![executors()], Vec::new())],
    )
}

fn executor() -> NetworkPolicySpec {
    let drivers = || same_namespace(labelled(&[(SPARK_ROLE, "driver")]));
    ingress_and_egress(
        labelled(&[(ROLE, ROLE_EXECUTOR)]),
        vec![from(vec![drivers(), executors()], Vec::new())],
        vec![to(vec![drivers()], vec![tcp(DRIVER_PORT), tcp(BLOCK_PORT)]), to(vec![executors()], Vec::new())],
    )
}

fn egress_rule(egress: &Egress) -> NetworkPolicyEgressRule {
    let except = egress.except();
    let block = IPBlock { cidr: egress.block(), except: (!except.is_empty()).then_some(except) };
    to(vec![NetworkPolicyPeer { ip_block: Some(block), ..NetworkPolicyPeer::default() }], vec![tcp(egress.port())])
}

fn dns() -> NetworkPolicyPeer {
    in_namespace("kube-system", labelled(&[("k8s-app", "kube-dns")]))
}

fn executors() -> NetworkPolicyPeer {
    same_namespace(labelled(&[(ROLE, ROLE_EXECUTOR)]))
}

fn same_namespace(pods: LabelSelector) -> NetworkPolicyPeer {
    NetworkPolicyPeer { pod_selector: Some(pods), ..NetworkPolicyPeer::default() }
}

fn in_namespace(name: &str, pods: LabelSelector) -> NetworkPolicyPeer {
    NetworkPolicyPeer { namespace_selector: Some(labelled(&[(NAMESPACE_NAME, name)])), ..same_namespace(pods) }
}

fn ingress_and_egress(
    pods: LabelSelector,
    ingress: Vec<NetworkPolicyIngressRule>,
    egress: Vec<NetworkPolicyEgressRule>,
) -> NetworkPolicySpec {
    NetworkPolicySpec {
        pod_selector: Some(pods),
        policy_types: Some(["Ingress", "Egress"].map(str::to_owned).to_vec()),
        ingress: (!ingress.is_empty()).then_some(ingress),
        egress: (!egress.is_empty()).then_some(egress),
    }
}

fn egress_only(pods: LabelSelector, egress: Vec<NetworkPolicyEgressRule>) -> NetworkPolicySpec {
    NetworkPolicySpec { policy_types: Some(vec!["Egress".to_owned()]), ..ingress_and_egress(pods, Vec::new(), egress) }
}

/// No port means all ports.
fn from(peers: Vec<NetworkPolicyPeer>, ports: Vec<NetworkPolicyPort>) -> NetworkPolicyIngressRule {
    NetworkPolicyIngressRule { from: Some(peers), ports: (!ports.is_empty()).then_some(ports) }
}

fn to(peers: Vec<NetworkPolicyPeer>, ports: Vec<NetworkPolicyPort>) -> NetworkPolicyEgressRule {
    NetworkPolicyEgressRule { to: Some(peers), ports: (!ports.is_empty()).then_some(ports) }
}

fn tcp(number: u16) -> NetworkPolicyPort {
    port("TCP", number)
}

fn port(protocol: &str, number: u16) -> NetworkPolicyPort {
    NetworkPolicyPort {
        protocol: Some(protocol.to_owned()),
        port: Some(IntOrString::Int(i32::from(number))),
        end_port: None,
    }
}

/// Every pod.
fn all() -> LabelSelector {
    LabelSelector::default()
}

fn labelled(labels: &[(&str, &str)]) -> LabelSelector {
    LabelSelector { match_labels: Some(map(labels)), match_expressions: None }
}

fn one_of(label: &str, values: &[&str]) -> LabelSelector {
    let is_in = LabelSelectorRequirement {
        key: label.to_owned(),
        operator: "In".to_owned(),
        values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
    };
    LabelSelector { match_labels: None, match_expressions: Some(vec![is_in]) }
}

fn map(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect()
}
