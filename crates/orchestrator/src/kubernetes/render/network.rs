//! Who may speak with engines, and with whom they may: the network policies of a namespace of theirs. Nothing is open that does
//! not stand here. `deploy/kubernetes/engines` has the same ones for namespaces that an admin makes; a test compares them.
//!
//! A cluster whose network enforces no policies accepts them, and nothing comes of it.

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
use crate::kubernetes::marks::SPARK_ROLE;

/// The label by which every namespace is found by its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// What bears the roles' pods, as `deploy/kubernetes` makes them.
const OURS: (&str, &str) = ("app.kubernetes.io/name", "enginehouse");
/// Which role it is.
const COMPONENT: &str = "app.kubernetes.io/component";
/// The label that the owner of the coordination service gives to its pods.
const COORDINATION: (&str, &str) = ("enginehouse.io/part", "zookeeper");
/// Where it is found by its clients.
const COORDINATION_PORT: u16 = 2_181;

/// The policies of the namespace.
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
        policy("deny-all", both(all(), Vec::new(), Vec::new())),
        policy("names", outwards(all(), vec![to(vec![name_service()], vec![port("UDP", 53), port("TCP", 53)])])),
        policy("engine", engine(config)),
        policy("spark-driver", driver()),
        policy("spark-executor", executor()),
    ];
    if !config.egress.is_empty() {
        let who = one_of(ROLE, &[ROLE_ENGINE, ROLE_EXECUTOR]);
        policies.push(policy("data", outwards(who, config.egress.iter().map(way_out).collect())));
    }
    policies
}

fn engine(config: &Config) -> NetworkPolicySpec {
    let callers = LabelSelector { match_labels: Some(map(&[OURS])), ..one_of(COMPONENT, &["proxy", "master"]) };
    let coordination = bearing(&[COORDINATION]);
    both(
        bearing(&[(ROLE, ROLE_ENGINE)]),
        vec![from(vec![in_namespace(&config.home_namespace, callers)], vec![tcp(config.agent_port)])],
        vec![to(vec![in_namespace(&config.home_namespace, coordination)], vec![tcp(COORDINATION_PORT)])],
    )
}

/// A policy can't tell whose executor a pod is: those of the namespace reach its other drivers too, and not their agents.
fn driver() -> NetworkPolicySpec {
    both(
        bearing(&[(ROLE, ROLE_ENGINE), (SPARK_ROLE, "driver")]),
        vec![from(vec![executors()], vec![tcp(DRIVER_PORT), tcp(BLOCK_PORT)])],
        vec![to(vec![executors()], Vec::new())],
    )
}

fn executor() -> NetworkPolicySpec {
    let drivers = || here(bearing(&[(SPARK_ROLE, "driver")]));
    both(
        bearing(&[(ROLE, ROLE_EXECUTOR)]),
        vec![from(vec![drivers(), executors()], Vec::new())],
        vec![to(vec![drivers()], vec![tcp(DRIVER_PORT), tcp(BLOCK_PORT)]), to(vec![executors()], Vec::new())],
    )
}

fn way_out(egress: &Egress) -> NetworkPolicyEgressRule {
    let except = egress.except();
    let block = IPBlock { cidr: egress.block(), except: (!except.is_empty()).then_some(except) };
    to(vec![NetworkPolicyPeer { ip_block: Some(block), ..NetworkPolicyPeer::default() }], vec![tcp(egress.port())])
}

fn name_service() -> NetworkPolicyPeer {
    in_namespace("kube-system", bearing(&[("k8s-app", "kube-dns")]))
}

fn executors() -> NetworkPolicyPeer {
    here(bearing(&[(ROLE, ROLE_EXECUTOR)]))
}

fn here(pods: LabelSelector) -> NetworkPolicyPeer {
    NetworkPolicyPeer { pod_selector: Some(pods), ..NetworkPolicyPeer::default() }
}

fn in_namespace(name: &str, pods: LabelSelector) -> NetworkPolicyPeer {
    NetworkPolicyPeer { namespace_selector: Some(bearing(&[(NAMESPACE_NAME, name)])), ..here(pods) }
}

fn both(
    who: LabelSelector,
    ingress: Vec<NetworkPolicyIngressRule>,
    egress: Vec<NetworkPolicyEgressRule>,
) -> NetworkPolicySpec {
    NetworkPolicySpec {
        pod_selector: Some(who),
        policy_types: Some(["Ingress", "Egress"].map(str::to_owned).to_vec()),
        ingress: (!ingress.is_empty()).then_some(ingress),
        egress: (!egress.is_empty()).then_some(egress),
    }
}

fn outwards(who: LabelSelector, egress: Vec<NetworkPolicyEgressRule>) -> NetworkPolicySpec {
    NetworkPolicySpec { policy_types: Some(vec!["Egress".to_owned()]), ..both(who, Vec::new(), egress) }
}

/// No port means all of them.
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

fn bearing(labels: &[(&str, &str)]) -> LabelSelector {
    LabelSelector { match_labels: Some(map(labels)), match_expressions: None }
}

fn one_of(label: &str, values: &[&str]) -> LabelSelector {
    let is_in = LabelSelectorRequirement {
        key: label.to_owned(),
        operator: "In".to_owned(),
        values: Some(values.iter().map(|it| (*it).to_owned()).collect()),
    };
    LabelSelector { match_labels: None, match_expressions: Some(vec![is_in]) }
}

fn map(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect()
}
