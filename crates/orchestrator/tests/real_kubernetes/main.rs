//! Against a real API server with its controllers and without kubelets: what a table can't prove. `EH_TEST_KUBECONFIG` names
//! the admin's kubeconfig; each test has a pool, and so a namespace and an installation, of its own.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code, unused_imports, reason = "shared with the tests of the client")]
#[path = "../cluster/mod.rs"]
mod cluster;
mod part;
#[allow(dead_code, reason = "shared with the tests of the client")]
#[path = "../kubernetes/place.rs"]
mod place;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use model::engine_state::Phase;
use model::labels::{CLUSTER, LabelMap};
use model::{EngineName, Epoch};
use orchestrator::kubernetes::render::{self, room};
use orchestrator::kubernetes::{Config, Right, rights};
use orchestrator::{Deleted, Error, Listing, Orchestrator as _};
use serde_json::{Value, json};

use part::Part;
use place::{EPOCH, LONG, all, config, datafusion, eventually, signer, spark};

fn one(phase: Phase) -> impl Fn(&Listing) -> bool {
    move |listing| listing.engines.first().is_some_and(|it| it.phase == phase)
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn every_object_is_accepted_with_strict_fields() {
    let part = Part::of("objects").await;
    // A first engine makes the namespace with what belongs to it.
    part.open().ensure(&part.own(datafusion(1)), EPOCH).await.unwrap();
    let path = |resource: &str| format!("/api/v1/namespaces/{}/{resource}", part.namespace);
    for spec in [datafusion(3), spark(3)] {
        let mut spec = part.own(spec);
        spec.nodes = Some(vec!["node-1".to_owned(), "node-2".to_owned()]);
        let objects = render::engine(&spec, &part.config, &signer(), EPOCH).unwrap();
        let accepted = part.try_out(&path("pods"), &objects.pod).await.unwrap();
        // Nothing of what we wrote is dropped or changed.
        let wanted = serde_json::to_value(&objects.pod).unwrap();
        assert_eq!(lacks(&wanted["spec"], &accepted["spec"]), Vec::<String>::new());
        let Some(rest) = objects.rest else { continue };
        let (service, config_map) = rest.owned(spec.name.as_str(), "the-uid");
        part.try_out(&path("services"), &service).await.unwrap();
        part.try_out(&path("configmaps"), &config_map).await.unwrap();
        let mut executor: Value = serde_json::from_str(&config_map.data.unwrap()["executor-template.json"]).unwrap();
        executor["metadata"]["name"] = "executor".into();
        executor["spec"]["containers"][0]["image"] = "i".into();
        part.try_out(&path("pods"), &executor).await.unwrap();
    }
    let other = room(&format!("{}-other", part.namespace), &part.config);
    part.try_out("/api/v1/namespaces", &other.namespace).await.unwrap();
    let egress = ["0.0.0.0/0:443", "::/0:443"].map(|it| it.parse().unwrap()).to_vec();
    let path = format!("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies", part.namespace);
    for mut policy in room(&part.namespace, &Config { egress, ..part.config.clone() }).policies {
        // Those of this name are there.
        policy.metadata.name = policy.metadata.name.map(|name| format!("{name}-again"));
        let accepted = part.try_out(&path, &policy).await.unwrap();
        let wanted = serde_json::to_value(&policy).unwrap();
        assert_eq!(lacks(&wanted["spec"], &accepted["spec"]), Vec::<String>::new());
    }
}

/// Paths below which the second lacks something of the first.
fn lacks(wanted: &Value, found: &Value) -> Vec<String> {
    match (wanted, found) {
        _ if wanted == found => Vec::new(),
        (Value::Object(wanted), _) => wanted
            .iter()
            .flat_map(|(key, value)| lacks(value, &found[key]).into_iter().map(move |path| format!("{key}.{path}")))
            .collect(),
        (Value::Array(wanted), _) => (0..wanted.len())
            .flat_map(|at| lacks(&wanted[at], &found[at]).into_iter().map(move |path| format!("{at}.{path}")))
            .collect(),
        // The server writes a quantity in its largest unit.
        (Value::String(wanted), Value::String(found)) if mebibytes(wanted).is_some() => {
            if mebibytes(wanted) == mebibytes(found) { Vec::new() } else { vec![format!("{wanted} is {found}")] }
        }
        // A field that is false by default is left out.
        _ if *wanted == json!(false) && found.is_null() => Vec::new(),
        _ => vec![format!("{wanted} is {found}")],
    }
}

fn mebibytes(quantity: &str) -> Option<u64> {
    let number = |suffix| quantity.strip_suffix(suffix).and_then(|it| it.parse::<u64>().ok());
    number("Mi").or(number("Gi").map(|gibibytes| gibibytes * 1_024))
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn an_engine_is_made_in_a_namespace_that_is_made_for_it_and_lives_and_ends() {
    let part = Part::of("life").await;
    let (kubernetes, other) = (part.open(), part.open());
    let spec = part.own(datafusion(1));
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    assert!(made.created);
    let again = other.ensure(&spec, EPOCH).await.unwrap();
    assert_eq!((&again.uid, again.created), (&made.uid, false));
    assert_eq!(all(&kubernetes).await.engines[0].phase, Phase::Pending);
    part.start(&spec.name).await;
    let running = eventually(&kubernetes, "it runs", one(Phase::Running)).await.engines.remove(0);
    assert_eq!((running.reason.as_deref(), running.node.as_deref()), (None, Some("node-1")));
    assert_eq!(other.get(&spec.name).await.unwrap().unwrap(), running);
    // An hour; a longer grace changes nothing, a shorter one does.
    assert_eq!(kubernetes.delete(&spec.name, &made.uid, LONG, EPOCH).await, Ok(Deleted::Terminating));
    assert_eq!(other.delete(&spec.name, &made.uid, 2 * LONG, EPOCH).await, Ok(Deleted::Terminating));
    assert_eq!(other.delete(&spec.name, &made.uid, Duration::from_mins(5), EPOCH).await, Ok(Deleted::Terminating));
    let grace = part.pods().get(spec.name.as_str()).await.unwrap().metadata.deletion_grace_period_seconds.unwrap();
    assert!((300..330).contains(&grace), "{grace}");
    let told = kubernetes.ensure(&spec, EPOCH).await;
    assert!(matches!(&told, Err(Error::Conflict { reason, .. }) if reason == "it was told to end"), "{told:?}");
    // Without grace it still waits for its kubelet.
    assert_eq!(kubernetes.delete(&spec.name, &made.uid, Duration::ZERO, EPOCH).await, Ok(Deleted::Terminating));
    part.confirm_end(&spec.name).await;
    eventually(&kubernetes, "it is gone", |it| it.engines.is_empty()).await;
    assert_eq!(kubernetes.get(&spec.name).await, Ok(None));
    assert_eq!(kubernetes.delete(&spec.name, &made.uid, LONG, EPOCH).await, Ok(Deleted::Gone));
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn an_engine_that_ended_keeps_its_name_until_it_is_deleted_by_its_uid() {
    let part = Part::of("ended").await;
    let kubernetes = part.open();
    let spec = part.own(datafusion(1));
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    part.start(&spec.name).await;
    let state = json!({"terminated": {"exitCode": 3, "reason": "Error", "message": "a line\nwent wrong\n",
        "startedAt": "2026-01-01T00:00:05Z", "finishedAt": "2026-01-01T00:01:00Z"}, "running": null});
    part.tell(&spec.name, "Failed", &state).await;
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
async fn a_stale_uid_does_not_touch_the_pod_that_has_the_name_now() {
    let part = Part::of("stale").await;
    let kubernetes = part.open();
    let spec = part.own(datafusion(1));
    let first = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    part.confirm_end(&spec.name).await;
    eventually(&kubernetes, "it is gone", |it| it.engines.is_empty()).await;
    let second = part.open().ensure(&spec, EPOCH).await.unwrap();
    let refused = kubernetes.delete(&spec.name, &first.uid, Duration::ZERO, EPOCH).await;
    assert_eq!(refused, Err(Error::Gone { name: spec.name.clone(), uid: first.uid, present: second.uid.clone() }));
    assert_eq!(part.pods().get(spec.name.as_str()).await.unwrap().metadata.uid, Some(second.uid));
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_spark_engine_leaves_its_gate_and_takes_its_service_and_config_map_along() {
    let part = Part::of("spark").await;
    let kubernetes = part.open();
    let spec = part.own(spark(1));
    let name = spec.name.as_str();
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    let pod = part.pods().get(name).await.unwrap();
    assert_eq!(pod.spec.unwrap().scheduling_gates.unwrap_or_default(), []);
    let services = Api::<Service>::namespaced(part.client.clone(), &part.namespace);
    let config_maps = Api::<ConfigMap>::namespaced(part.client.clone(), &part.namespace);
    assert_eq!(services.get(name).await.unwrap().spec.unwrap().cluster_ip.as_deref(), Some("None"));
    assert!(config_maps.get(name).await.unwrap().data.unwrap().contains_key("spark.properties"));
    assert_eq!(kubernetes.delete(&spec.name, &made.uid, LONG, EPOCH).await, Ok(Deleted::Gone), "it has no node");
    let gone = async {
        while services.get_opt(name).await.unwrap().is_some() || config_maps.get_opt(name).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), gone).await.expect("the garbage collector takes them");
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_deposed_master_is_refused_in_another_process_too() {
    let part = Part::of("epoch").await;
    let (deposed, acting) = (part.open(), part.open());
    let made = deposed.ensure(&part.own(datafusion(1)), Epoch(3)).await.unwrap();
    acting.ensure(&part.own(datafusion(2)), Epoch(5)).await.unwrap();
    let refused = Error::Deposed { epoch: Epoch(3), highest: Epoch(5) };
    assert_eq!(deposed.ensure(&part.own(datafusion(3)), Epoch(3)).await, Err(refused.clone()));
    let name = part.own(datafusion(1)).name;
    assert_eq!(deposed.delete(&name, &made.uid, Duration::ZERO, Epoch(3)).await, Err(refused));
    // Many at once, all with a new epoch: one writes it.
    let specs: Vec<_> = (10..20).map(|at| part.own(datafusion(at))).collect();
    let all = futures::future::join_all(specs.iter().map(|spec| acting.ensure(spec, Epoch(6)))).await;
    assert!(all.iter().all(|it| it.as_ref().is_ok_and(|it| it.created)), "{all:?}");
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn what_bears_our_labels_and_not_our_signature_is_foreign() {
    let part = Part::of("foreign").await;
    let kubernetes = part.open();
    let ours = part.own(datafusion(1));
    kubernetes.ensure(&ours, EPOCH).await.unwrap();
    // A copy with a signature of another pod, as a tenant's driver could make it.
    let mut copy = part.pods().get(ours.name.as_str()).await.unwrap();
    let foreign = part.own(datafusion(2));
    copy.metadata.name = Some(foreign.name.to_string());
    (copy.metadata.uid, copy.metadata.resource_version) = (None, None);
    part.pods().create(&PostParams::default(), &copy).await.unwrap();
    let listing = eventually(&kubernetes, "it is told", |listing| !listing.foreign.is_empty()).await;
    assert_eq!((listing.engines.len(), listing.foreign[0].name.as_str()), (1, foreign.name.as_str()));
    let conflict = kubernetes.ensure(&foreign, EPOCH).await;
    assert!(matches!(&conflict, Err(Error::Conflict { reason, .. }) if reason.contains("foreign")), "{conflict:?}");
    let uid = listing.foreign[0].uid.clone();
    assert_eq!(kubernetes.delete(&foreign.name, &uid, Duration::ZERO, EPOCH).await, Ok(Deleted::Gone));
    assert!(part.pods().get_opt(foreign.name.as_str()).await.unwrap().is_some(), "nothing was done to it");
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_label_that_comes_and_goes_and_an_admins_rights() {
    let part = Part::of("labels").await;
    let kubernetes = part.open();
    let spec = part.own(datafusion(1));
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    eventually(&kubernetes, "it is listed", |it| it.engines.len() == 1).await;
    let label = |value: Value| json!({"metadata": {"labels": {CLUSTER: value}}});
    let change = |value: Value| async {
        let params = PatchParams::default();
        part.pods().patch(spec.name.as_str(), &params, &Patch::Merge(&label(value))).await.unwrap()
    };
    change(json!("other")).await;
    eventually(&kubernetes, "it left the list", |it| it.engines.is_empty()).await;
    assert_eq!(kubernetes.get(&spec.name).await.unwrap().unwrap().uid, made.uid);
    change(json!(part.config.cluster)).await;
    let selector: LabelMap = part.config.selector.clone();
    let back = eventually(&kubernetes, "it is back", |it| it.engines.iter().any(|it| it.matches(&selector))).await;
    assert_eq!(back.engines[0].uid, made.uid);
    assert_eq!(kubernetes.missing_rights().await.unwrap(), []);
    assert_eq!(config().service_account, part.config.service_account);
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_master_needs_the_rights_of_the_list_and_no_others() {
    let part = Part::of("rights").await;
    let client = part.user_with(&rights::needed(&part.config)).await;
    let kubernetes = part.open_as(client.clone());
    assert_eq!(kubernetes.missing_rights().await.unwrap(), []);
    let made = kubernetes.ensure(&part.own(datafusion(1)), EPOCH).await.unwrap();
    kubernetes.ensure(&part.own(spark(2)), Epoch(EPOCH.0 + 1)).await.unwrap();
    let spec = part.own(datafusion(1));
    part.start(&spec.name).await;
    let runs = |it: &Listing| it.find(&spec.name).is_some_and(|it| it.phase == Phase::Running);
    eventually(&kubernetes, "it runs", runs).await;
    let nobody = EngineName::new("nobody").unwrap();
    assert_eq!(kubernetes.get(&nobody).await, Ok(None));
    kubernetes.capacity().await.unwrap();
    let epoch = Epoch(EPOCH.0 + 1);
    assert_eq!(kubernetes.delete(&spec.name, &made.uid, LONG, epoch).await, Ok(Deleted::Terminating));
    // Everything else is denied.
    for path in ["secrets", "pods/x/log", "pods/x/exec?command=x", "persistentvolumeclaims"] {
        let path = format!("/api/v1/namespaces/{}/{path}", part.namespace);
        let denied = client.request::<Value>(http::Request::get(path.as_str()).body(Vec::new()).unwrap()).await;
        assert!(matches!(&denied, Err(kube::Error::Api(status)) if status.code == 403), "{path}: {denied:?}");
    }
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn each_right_that_is_missing_is_found_and_named_by_the_effect_that_needs_it() {
    let part = Part::of("missing").await;
    let all = rights::needed(&part.config);
    // One at a time would be a namespace, a user and a watch for each; these are the ones that effects meet.
    for (at, (verb, resource)) in
        [("create", "services"), ("create", "namespaces"), ("create", "roles")].iter().enumerate()
    {
        let part = Part::of(&format!("missing-{at}")).await;
        let is_it = |right: &&Right| right.verb == *verb && right.resource == *resource;
        let rest: Vec<Right> = rights::needed(&part.config).into_iter().filter(|right| !is_it(&right)).collect();
        let kubernetes = part.open_as(part.user_with(&rest).await);
        let missing = kubernetes.missing_rights().await.unwrap();
        assert_eq!(missing, all.iter().filter(is_it).cloned().collect::<Vec<_>>());
        let refused = kubernetes.ensure(&part.own(spark(1)), EPOCH).await;
        match refused {
            Err(Error::Refused { reason }) if reason.contains("a right is missing") && reason.contains(resource) => {}
            other => panic!("{verb} {resource}: {other:?}"),
        }
        let there = Api::<Pod>::namespaced(part.client.clone(), &part.namespace).list(&ListParams::default()).await;
        assert!(there.unwrap().items.is_empty());
    }
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_quota_that_is_used_up_is_a_refusal_that_says_so() {
    let part = Part::of("quota").await;
    let kubernetes = part.open();
    kubernetes.ensure(&part.own(datafusion(1)), EPOCH).await.unwrap();
    let quota = json!({"metadata": {"name": "engines"}, "spec": {"hard": {"count/pods": "1"}}});
    let quotas = Api::<ResourceQuota>::namespaced(part.client.clone(), &part.namespace);
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let counted = async {
        while quotas.get("engines").await.unwrap().status.and_then(|it| it.used).is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), counted).await.expect("the controller counts what is there");
    let refused = kubernetes.ensure(&part.own(datafusion(2)), EPOCH).await;
    assert!(
        matches!(&refused, Err(Error::Refused { reason }) if reason.contains("the quota is used up")),
        "{refused:?}"
    );
    assert!(!kubernetes.ensure(&part.own(datafusion(1)), EPOCH).await.unwrap().created, "one that is there is no more");
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn a_namespace_that_is_being_deleted_takes_no_engine_for_now() {
    let part = Part::of("going").await;
    let kubernetes = part.open();
    let spec = part.own(datafusion(1));
    kubernetes.ensure(&spec, EPOCH).await.unwrap();
    // Something in it waits, so that it stays on its way out.
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    let params = PatchParams::default();
    part.pods().patch(spec.name.as_str(), &params, &Patch::Merge(&held)).await.unwrap();
    let namespaces = Api::<Namespace>::all(part.client.clone());
    namespaces.delete(&part.namespace, &DeleteParams::default()).await.unwrap();
    let going = kubernetes.ensure(&part.own(datafusion(2)), EPOCH).await;
    assert!(going.as_ref().is_err_and(Error::is_retryable), "{going:?}");
    // Whose pod waits for somebody's finalizer is listed until it is gone.
    let ending = |it: &Listing| it.find(&spec.name).is_some_and(|it| it.phase == Phase::Terminating);
    eventually(&kubernetes, "it is told to end", ending).await;
    let free = json!({"metadata": {"finalizers": null}});
    part.pods().patch(spec.name.as_str(), &params, &Patch::Merge(&free)).await.unwrap();
    eventually(&kubernetes, "it is gone", |it| it.engines.is_empty()).await;
}
