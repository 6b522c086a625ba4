//! Tests against a real API server with its controllers and without kubelets. `EH_TEST_KUBECONFIG` is the path of the
//! administrator's kubeconfig; each test has its own namespace and installation.

#![allow(clippy::unwrap_used, clippy::panic)]

mod charge;
#[allow(dead_code, unused_imports, reason = "shared with the tests of the client")]
#[path = "../cluster/mod.rs"]
mod cluster;
mod executors;
#[allow(dead_code, reason = "shared with the tests of the client")]
#[path = "../kubernetes/requests.rs"]
mod requests;
#[allow(dead_code, reason = "shared with the tests of the client")]
#[path = "../kubernetes/support.rs"]
mod specs;
mod support;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota, Secret, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use model::engine_state::Phase;
use model::labels::{CLUSTER, LabelMap};
use model::{EngineName, Epoch};
use orchestrator::kubernetes::render;
use orchestrator::kubernetes::{Config, Permission, permissions};
use orchestrator::{Deleted, Error, Listing, Orchestrator as _, RunAs, Spec};
use serde_json::{Value, json};

use specs::{EPOCH, LONG, all, config, datafusion, eventually, signer, spark};
use support::TestNamespace;

fn one(phase: Phase) -> impl Fn(&Listing) -> bool {
    move |listing| listing.engines.first().is_some_and(|engine| engine.phase == phase)
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn every_object_is_accepted_with_strict_fields() {
    let test = TestNamespace::create("objects").await;
    // A first engine creates the namespace with its objects.
    test.open().ensure(&test.own(datafusion(1)), EPOCH).await.unwrap();
    let path = |resource: &str| format!("/api/v1/namespaces/{}/{resource}", test.namespace);
    let as_ann = |spec| Spec { run_as: Some(RunAs { user: "ann".to_owned(), folders: Vec::new() }), ..spec };
    let config = Config { user_ids: [("ann".to_owned(), 20_001)].into(), ..test.config.clone() };
    for spec in [datafusion(3), spark(3), as_ann(datafusion(4)), as_ann(spark(4))] {
        let mut spec = test.own(spec);
        spec.nodes = Some(vec!["node-1".to_owned(), "node-2".to_owned()]);
        let objects = render::engine(&spec, &config, &signer(), EPOCH).unwrap();
        let accepted = test.try_out(&path("pods"), &objects.pod).await.unwrap();
        // The server drops and changes nothing that we write.
        let sent = serde_json::to_value(&objects.pod).unwrap();
        assert_eq!(missing_paths(&sent["spec"], &accepted["spec"]), Vec::<String>::new());
        // The admission of restricted pods has accepted the user.
        let users = accepted["spec"]["containers"].as_array().unwrap().iter();
        let users: Vec<_> =
            users.map(|container| container["securityContext"]["runAsUser"].as_i64().unwrap()).collect();
        let engine = if spec.options.spark.is_some() { 185 } else { 10_001 };
        assert_eq!(users.last(), Some(&if spec.run_as.is_some() { 20_001 } else { engine }));
        let owned = objects.owned.with_owner(spec.name.as_str(), "the-uid");
        test.try_out(&path("secrets"), &owned.secret).await.unwrap();
        let (Some(service), Some(config_map)) = (owned.service, owned.config_map) else { continue };
        test.try_out(&path("services"), &service).await.unwrap();
        test.try_out(&path("configmaps"), &config_map).await.unwrap();
        let mut executor: Value = serde_json::from_str(&config_map.data.unwrap()["executor-template.json"]).unwrap();
        executor["metadata"]["name"] = "executor".into();
        executor["spec"]["containers"][0]["image"] = "i".into();
        test.try_out(&path("pods"), &executor).await.unwrap();
    }
    let other = render::namespace(&format!("{}-other", test.namespace), &test.config);
    test.try_out("/api/v1/namespaces", &other.namespace).await.unwrap();
    let egress = ["0.0.0.0/0:443", "::/0:443"].map(|destination| destination.parse().unwrap()).to_vec();
    let path = format!("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies", test.namespace);
    for mut policy in render::namespace(&test.namespace, &Config { egress, ..test.config.clone() }).policies {
        // Those names exist already.
        policy.metadata.name = policy.metadata.name.map(|name| format!("{name}-again"));
        let accepted = test.try_out(&path, &policy).await.unwrap();
        let sent = serde_json::to_value(&policy).unwrap();
        assert_eq!(missing_paths(&sent["spec"], &accepted["spec"]), Vec::<String>::new());
    }
}

/// The paths at which the found value lacks or changes a part of the sent one.
fn missing_paths(sent: &Value, found: &Value) -> Vec<String> {
    match (sent, found) {
        _ if sent == found => Vec::new(),
        (Value::Object(sent), _) => sent
            .iter()
            .flat_map(|(key, value)| {
                missing_paths(value, &found[key]).into_iter().map(move |path| format!("{key}.{path}"))
            })
            .collect(),
        (Value::Array(sent), _) => (0..sent.len())
            .flat_map(|at| missing_paths(&sent[at], &found[at]).into_iter().map(move |path| format!("{at}.{path}")))
            .collect(),
        // The server writes a quantity in its largest unit.
        (Value::String(sent), Value::String(found)) if mebibytes(sent).is_some() => {
            if mebibytes(sent) == mebibytes(found) { Vec::new() } else { vec![format!("{sent} is {found}")] }
        }
        // The server omits a field that is false by default.
        _ if *sent == json!(false) && found.is_null() => Vec::new(),
        _ => vec![format!("{sent} is {found}")],
    }
}

fn mebibytes(quantity: &str) -> Option<u64> {
    let number = |suffix| quantity.strip_suffix(suffix).and_then(|digits| digits.parse::<u64>().ok());
    number("Mi").or(number("Gi").map(|gibibytes| gibibytes * 1_024))
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn the_life_of_an_engine_in_a_new_namespace() {
    let test = TestNamespace::create("life").await;
    let (kubernetes, other) = (test.open(), test.open());
    let spec = test.own(datafusion(1));
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    assert!(made.created);
    let again = other.ensure(&spec, EPOCH).await.unwrap();
    assert_eq!((&again.uid, again.created), (&made.uid, false));
    assert_eq!(all(&kubernetes).await.engines[0].phase, Phase::Pending);
    test.start(&spec.name).await;
    let running = eventually(&kubernetes, "it runs", one(Phase::Running)).await.engines.remove(0);
    assert_eq!((running.reason.as_deref(), running.node.as_deref()), (None, Some("node-1")));
    assert_eq!(other.get(&spec.name, None).await.unwrap().unwrap(), *running);
    // A longer grace than the first one has no effect; a shorter one has.
    assert_eq!(kubernetes.delete(&spec.name, &made.uid, LONG, EPOCH).await, Ok(Deleted::Terminating));
    assert_eq!(other.delete(&spec.name, &made.uid, 2 * LONG, EPOCH).await, Ok(Deleted::Terminating));
    assert_eq!(other.delete(&spec.name, &made.uid, Duration::from_mins(5), EPOCH).await, Ok(Deleted::Terminating));
    let grace = test.pods().get(spec.name.as_str()).await.unwrap().metadata.deletion_grace_period_seconds.unwrap();
    assert!((300..330).contains(&grace), "{grace}");
    let conflict = kubernetes.ensure(&spec, EPOCH).await;
    assert!(matches!(&conflict, Err(Error::Conflict { reason, .. }) if reason == "it is terminating"), "{conflict:?}");
    // Even without grace it waits for its kubelet.
    assert_eq!(kubernetes.delete(&spec.name, &made.uid, Duration::ZERO, EPOCH).await, Ok(Deleted::Terminating));
    test.confirm_end(&spec.name).await;
    eventually(&kubernetes, "it is gone", |listing| listing.engines.is_empty()).await;
    assert_eq!(kubernetes.get(&spec.name, None).await, Ok(None));
    assert_eq!(kubernetes.delete(&spec.name, &made.uid, LONG, EPOCH).await, Ok(Deleted::Gone));
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn an_ended_engine_keeps_its_name_until_it_is_deleted_by_uid() {
    let test = TestNamespace::create("ended").await;
    let kubernetes = test.open();
    let spec = test.own(datafusion(1));
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    test.start(&spec.name).await;
    let state = json!({"terminated": {"exitCode": 3, "reason": "Error", "message": "a line\nwent wrong\n",
        "startedAt": "2026-01-01T00:00:05Z", "finishedAt": "2026-01-01T00:01:00Z"}, "running": null});
    test.set_status(&spec.name, "Failed", &state).await;
    let ended = eventually(&kubernetes, "it has ended", one(Phase::Ended)).await.engines.remove(0);
    assert_eq!((ended.reason.as_deref(), ended.log_tail.as_deref()), (Some("exit code 3"), Some("a line\nwent wrong")));
    let taken = kubernetes.ensure(&spec, EPOCH).await;
    assert!(matches!(&taken, Err(Error::Conflict { reason, .. }) if reason == "it has ended"), "{taken:?}");
    let other = kubernetes.delete(&spec.name, "another", LONG, EPOCH).await;
    assert!(matches!(&other, Err(Error::Gone { present, .. }) if *present == made.uid), "{other:?}");
    assert_eq!(kubernetes.delete(&spec.name, &made.uid, LONG, EPOCH).await, Ok(Deleted::Gone));
    assert!(all(&kubernetes).await.engines.is_empty());
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_stale_uid_does_not_touch_the_current_pod_of_the_name() {
    let test = TestNamespace::create("stale").await;
    let kubernetes = test.open();
    let spec = test.own(datafusion(1));
    let first = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    test.confirm_end(&spec.name).await;
    eventually(&kubernetes, "it is gone", |listing| listing.engines.is_empty()).await;
    let second = test.open().ensure(&spec, EPOCH).await.unwrap();
    let refused = kubernetes.delete(&spec.name, &first.uid, Duration::ZERO, EPOCH).await;
    assert_eq!(refused, Err(Error::Gone { name: spec.name.clone(), uid: first.uid, present: second.uid.clone() }));
    assert_eq!(test.pods().get(spec.name.as_str()).await.unwrap().metadata.uid, Some(second.uid));
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_spark_engine_is_ungated_and_its_objects_are_deleted_with_it() {
    let test = TestNamespace::create("spark").await;
    let kubernetes = test.open();
    let spec = test.own(spark(1));
    let name = spec.name.as_str();
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    let pod = test.pods().get(name).await.unwrap();
    assert_eq!(pod.spec.unwrap().scheduling_gates.unwrap_or_default(), []);
    let services = Api::<Service>::namespaced(test.client.clone(), &test.namespace);
    let config_maps = Api::<ConfigMap>::namespaced(test.client.clone(), &test.namespace);
    assert_eq!(services.get(name).await.unwrap().spec.unwrap().cluster_ip.as_deref(), Some("None"));
    let secrets = Api::<Secret>::namespaced(test.client.clone(), &test.namespace);
    assert!(config_maps.get(name).await.unwrap().data.unwrap().contains_key("executor-template.json"));
    let secret = secrets.get(name).await.unwrap().data.unwrap();
    assert_eq!(secret["owner-uid"].0, made.uid.as_bytes());
    assert!(secret.contains_key("spark.properties"));
    assert_eq!(kubernetes.delete(&spec.name, &made.uid, LONG, EPOCH).await, Ok(Deleted::Gone), "it has no node");
    let gone = async {
        while services.get_opt(name).await.unwrap().is_some()
            || config_maps.get_opt(name).await.unwrap().is_some()
            || secrets.get_opt(name).await.unwrap().is_some()
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), gone).await.expect("the garbage collector deletes them");
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_deposed_master_is_refused_in_another_process() {
    let test = TestNamespace::create("epoch").await;
    let (deposed, acting) = (test.open(), test.open());
    let made = deposed.ensure(&test.own(datafusion(1)), Epoch(3)).await.unwrap();
    acting.ensure(&test.own(datafusion(2)), Epoch(5)).await.unwrap();
    let refused = Error::Deposed { epoch: Epoch(3), highest: Epoch(5) };
    assert_eq!(deposed.ensure(&test.own(datafusion(3)), Epoch(3)).await, Err(refused.clone()));
    let name = test.own(datafusion(1)).name;
    assert_eq!(deposed.delete(&name, &made.uid, Duration::ZERO, Epoch(3)).await, Err(refused));
    // Many concurrent effects with a new epoch: one of them writes it.
    let specs: Vec<_> = (10..20).map(|at| test.own(datafusion(at))).collect();
    let all = futures::future::join_all(specs.iter().map(|spec| acting.ensure(spec, Epoch(6)))).await;
    assert!(all.iter().all(|result| result.as_ref().is_ok_and(|ensured| ensured.created)), "{all:?}");
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_pod_with_our_labels_and_without_our_signature_is_foreign() {
    let test = TestNamespace::create("foreign").await;
    let kubernetes = test.open();
    let ours = test.own(datafusion(1));
    kubernetes.ensure(&ours, EPOCH).await.unwrap();
    // A copy with the signature of another pod, which a tenant's driver could create.
    let mut copy = test.pods().get(ours.name.as_str()).await.unwrap();
    let foreign = test.own(datafusion(2));
    copy.metadata.name = Some(foreign.name.to_string());
    (copy.metadata.uid, copy.metadata.resource_version) = (None, None);
    test.pods().create(&PostParams::default(), &copy).await.unwrap();
    let listing = eventually(&kubernetes, "it is listed", |listing| !listing.foreign.is_empty()).await;
    assert_eq!((listing.engines.len(), listing.foreign[0].name.as_str()), (1, foreign.name.as_str()));
    let conflict = kubernetes.ensure(&foreign, EPOCH).await;
    assert!(matches!(&conflict, Err(Error::Conflict { reason, .. }) if reason.contains("foreign")), "{conflict:?}");
    let uid = listing.foreign[0].uid.clone();
    assert_eq!(kubernetes.delete(&foreign.name, &uid, Duration::ZERO, EPOCH).await, Ok(Deleted::Gone));
    assert!(test.pods().get_opt(foreign.name.as_str()).await.unwrap().is_some(), "it was not touched");
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_changed_label_removes_and_restores_an_engine() {
    let test = TestNamespace::create("labels").await;
    let kubernetes = test.open();
    let spec = test.own(datafusion(1));
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    eventually(&kubernetes, "it is listed", |listing| listing.engines.len() == 1).await;
    let label = |value: Value| json!({"metadata": {"labels": {CLUSTER: value}}});
    let change = |value: Value| async {
        let params = PatchParams::default();
        test.pods().patch(spec.name.as_str(), &params, &Patch::Merge(&label(value))).await.unwrap()
    };
    change(json!("other")).await;
    eventually(&kubernetes, "it left the list", |listing| listing.engines.is_empty()).await;
    assert_eq!(kubernetes.get(&spec.name, None).await.unwrap().unwrap().uid, made.uid);
    change(json!(test.config.cluster)).await;
    let selector: LabelMap = test.config.selector.clone();
    let back =
        eventually(&kubernetes, "it is back", |listing| listing.engines.iter().any(|engine| engine.matches(&selector)))
            .await;
    assert_eq!(back.engines[0].uid, made.uid);
    assert_eq!(kubernetes.missing_permissions().await.unwrap(), []);
    assert_eq!(config().service_account, test.config.service_account);
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_master_needs_exactly_the_required_permissions() {
    let test = TestNamespace::create("permissions").await;
    let client = test.user_with(&permissions::required(&test.config)).await;
    let kubernetes = test.open_as(client.clone());
    assert_eq!(kubernetes.missing_permissions().await.unwrap(), []);
    let made = kubernetes.ensure(&test.own(datafusion(1)), EPOCH).await.unwrap();
    kubernetes.ensure(&test.own(spark(2)), Epoch(EPOCH.0 + 1)).await.unwrap();
    let spec = test.own(datafusion(1));
    test.start(&spec.name).await;
    let runs = |listing: &Listing| listing.find(&spec.name).is_some_and(|engine| engine.phase == Phase::Running);
    eventually(&kubernetes, "it runs", runs).await;
    let absent = EngineName::new("absent").unwrap();
    assert_eq!(kubernetes.get(&absent, None).await, Ok(None));
    let epoch = Epoch(EPOCH.0 + 1);
    assert_eq!(kubernetes.delete(&spec.name, &made.uid, LONG, epoch).await, Ok(Deleted::Terminating));
    // Everything else is denied.
    for path in ["secrets", "pods/x/log", "pods/x/exec?command=x", "persistentvolumeclaims"] {
        let path = format!("/api/v1/namespaces/{}/{path}", test.namespace);
        let denied = client.request::<Value>(http::Request::get(path.as_str()).body(Vec::new()).unwrap()).await;
        assert!(matches!(&denied, Err(kube::Error::Api(status)) if status.code == 403), "{path}: {denied:?}");
    }
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn each_missing_permission_is_named_by_the_effect_that_needs_it() {
    let test = TestNamespace::create("missing").await;
    let all = permissions::required(&test.config);
    // A test of every permission would need a namespace, a user and a watch for each; these are the ones that effects need.
    for (at, (verb, resource)) in
        [("create", "services"), ("create", "namespaces"), ("create", "roles")].iter().enumerate()
    {
        let test = TestNamespace::create(&format!("missing-{at}")).await;
        let is_it = |permission: &&Permission| permission.verb == *verb && permission.resource == *resource;
        let rest: Vec<Permission> =
            permissions::required(&test.config).into_iter().filter(|permission| !is_it(&permission)).collect();
        let kubernetes = test.open_as(test.user_with(&rest).await);
        let missing = kubernetes.missing_permissions().await.unwrap();
        assert_eq!(missing, all.iter().filter(is_it).cloned().collect::<Vec<_>>());
        let refused = kubernetes.ensure(&test.own(spark(1)), EPOCH).await;
        match refused {
            Err(Error::Refused { reason, .. }) if reason.contains("permission denied") && reason.contains(resource) => {
            }
            other => panic!("{verb} {resource}: {other:?}"),
        }
        let pods = Api::<Pod>::namespaced(test.client.clone(), &test.namespace).list(&ListParams::default()).await;
        assert!(pods.unwrap().items.is_empty());
    }
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn an_exceeded_quota_is_refused_and_named() {
    let test = TestNamespace::create("quota").await;
    let kubernetes = test.open();
    kubernetes.ensure(&test.own(datafusion(1)), EPOCH).await.unwrap();
    let quota = json!({"metadata": {"name": "engines"}, "spec": {"hard": {"count/pods": "1"}}});
    let quotas = Api::<ResourceQuota>::namespaced(test.client.clone(), &test.namespace);
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let counted = async {
        while quotas.get("engines").await.unwrap().status.and_then(|status| status.used).is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), counted).await.expect("the controller counts the pods");
    // The admission of pods reads the quota from a cache, which is a moment behind.
    let pod = render::engine(&test.own(datafusion(3)), &test.config, &signer(), EPOCH).unwrap().pod;
    let path = format!("/api/v1/namespaces/{}/pods", test.namespace);
    let in_effect = async {
        while test.try_out(&path, &pod).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), in_effect).await.expect("the quota is in effect");
    let refused = kubernetes.ensure(&test.own(datafusion(2)), EPOCH).await;
    assert!(matches!(&refused, Err(Error::Limit { reason }) if reason.contains("quota exceeded")), "{refused:?}");
    assert!(!kubernetes.ensure(&test.own(datafusion(1)), EPOCH).await.unwrap().created, "an existing one adds none");
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_terminating_namespace_refuses_engines_as_transient() {
    let test = TestNamespace::create("terminating").await;
    let kubernetes = test.open();
    let spec = test.own(datafusion(1));
    kubernetes.ensure(&spec, EPOCH).await.unwrap();
    // A finalizer in it keeps it terminating.
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    let params = PatchParams::default();
    test.pods().patch(spec.name.as_str(), &params, &Patch::Merge(&held)).await.unwrap();
    let namespaces = Api::<Namespace>::all(test.client.clone());
    namespaces.delete(&test.namespace, &DeleteParams::default()).await.unwrap();
    let refused = kubernetes.ensure(&test.own(datafusion(2)), EPOCH).await;
    assert!(refused.as_ref().is_err_and(Error::is_retryable), "{refused:?}");
    // An engine whose pod waits for a finalizer is listed until it is gone.
    let terminating =
        |listing: &Listing| listing.find(&spec.name).is_some_and(|engine| engine.phase == Phase::Terminating);
    eventually(&kubernetes, "it is terminating", terminating).await;
    let free = json!({"metadata": {"finalizers": null}});
    test.pods().patch(spec.name.as_str(), &params, &Patch::Merge(&free)).await.unwrap();
    eventually(&kubernetes, "it is gone", |listing| listing.engines.is_empty()).await;
}
