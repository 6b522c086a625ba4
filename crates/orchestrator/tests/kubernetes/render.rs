//! The rendered objects of specs, compared with golden files.

use std::collections::BTreeSet;

use model::labels;
use orchestrator::kubernetes::render::{self, EngineObjects};
use orchestrator::kubernetes::{Config, permissions};
use orchestrator::{Error, RunAs};

use super::golden;
use super::support::{EPOCH, config, datafusion, signer, spark};

fn rendered(spec: &orchestrator::Spec) -> EngineObjects {
    render::engine(spec, &config(), &signer(), EPOCH).unwrap()
}

#[test]
fn an_engine_without_executors_is_a_gated_pod_with_a_secret() {
    let spec = datafusion(3);
    let objects = rendered(&spec);
    golden::object("datafusion-pod.json", &objects.pod);
    let owned = objects.owned.with_owner(spec.name.as_str(), "the-pods-uid");
    assert!(owned.service.is_none() && owned.config_map.is_none());
    golden::object("datafusion-secret.json", &owned.secret);
}

#[test]
fn a_spark_engine_is_a_gated_pod_with_secret_service_and_config_map() {
    let spec = spark(3);
    let objects = rendered(&spec);
    golden::object("spark-pod.json", &objects.pod);
    let mut owned = objects.owned.with_owner(spec.name.as_str(), "the-pods-uid");
    golden::object("spark-service.json", &owned.service.unwrap());
    let data = owned.secret.data.as_mut().unwrap();
    golden::text("spark.properties", &text(&data.remove("spark.properties").unwrap()));
    golden::object("spark-secret-without-properties.json", &owned.secret);
    let mut config_map = owned.config_map.unwrap();
    let data = config_map.data.as_mut().unwrap();
    golden::text("executor-template.json", &format!("{}\n", data.remove("executor-template.json").unwrap()));
    golden::object("spark-config-map-without-template.json", &config_map);
}

fn text(bytes: &k8s_openapi::ByteString) -> String {
    String::from_utf8(bytes.0.clone()).unwrap()
}

/// The role `view` describes pods and reads config maps, and must see neither a key nor a secret property of a unit.
#[test]
fn what_is_secret_is_in_the_secret_alone() {
    for mut spec in [datafusion(3), spark(3)] {
        spec.files[0].content = b"password = \"canary-of-the-agent\"".to_vec();
        if let Some(spark) = &mut spec.options.spark {
            spark.properties.insert("spark.hadoop.secret".to_owned(), "canary-of-the-unit".to_owned());
        }
        let EngineObjects { pod, owned } = rendered(&spec);
        for shown in [serde_json::to_string(&pod), serde_json::to_string(&owned.config_map)] {
            assert!(!shown.unwrap().contains("canary"), "{}", spec.name);
        }
        let data = owned.secret.data.unwrap();
        assert!(text(&data["file-0"]).contains("canary-of-the-agent"));
        assert_eq!((owned.secret.immutable, owned.secret.type_.as_deref()), (Some(true), Some("Opaque")));
        // Spark sees nothing of the agent's, and the agent nothing of Spark's.
        let of_agent =
            pod.spec.unwrap().volumes.unwrap().into_iter().find(|volume| volume.name == "agent-files").unwrap();
        let keys: Vec<_> = of_agent.secret.unwrap().items.unwrap().into_iter().map(|item| item.key).collect();
        assert_eq!(keys, ["file-0", "owner-uid"]);
    }
}

#[test]
fn equal_specs_render_to_equal_objects() {
    assert_eq!(rendered(&spark(3)), rendered(&spark(3)));
    assert_ne!(rendered(&spark(3)).pod.metadata.name, rendered(&spark(4)).pod.metadata.name);
}

#[test]
fn a_namespace_restricts_pods_and_its_account_to_pods() {
    let objects = render::namespace("rp-1--t-1", &config());
    let text = [
        serde_json::to_value(&objects.namespace),
        serde_json::to_value(&objects.service_account),
        serde_json::to_value(&objects.role),
        serde_json::to_value(&objects.role_binding),
    ];
    golden::object("namespace.json", &text.map(Result::unwrap));
}

#[test]
fn a_namespace_has_network_policies_and_the_configured_egress() {
    golden::object("network-policies.json", &render::namespace("rp-1--t-1", &config()).policies);
    let egress = ["0.0.0.0/0:443", "10.1.0.0/16:9000"].map(|rule| rule.parse().unwrap()).to_vec();
    let mut policies = render::namespace("rp-1--t-1", &Config { egress, ..config() }).policies;
    golden::object("network-policy-of-data.json", &policies.pop());
    assert_eq!(policies, render::namespace("rp-1--t-1", &config()).policies);
    assert!(render::namespace("rp-1--t-1", &Config { network_policies: false, ..config() }).policies.is_empty());
}

#[test]
fn the_permissions_of_a_master() {
    let text = |config: &Config| {
        permissions::required(config).iter().map(|permission| format!("{permission}\n")).collect::<Vec<_>>().concat()
    };
    golden::text("rights-whole-cluster.txt", &text(&config()));
    let mut listed = config();
    listed.namespaces = Some(vec!["rp-1--t-1".to_owned()]);
    listed.make_namespaces = false;
    golden::text("rights-listed-namespaces.txt", &text(&listed));
}

#[test]
fn no_container_runs_as_root_or_writes_outside_its_volumes() {
    for spec in [datafusion(3), spark(3)] {
        let pod = rendered(&spec).pod.spec.unwrap();
        assert_eq!((pod.automount_service_account_token, pod.share_process_namespace), (Some(false), Some(false)));
        let mut users = BTreeSet::new();
        for container in pod.containers {
            let security = container.security_context.unwrap();
            assert_eq!(security.run_as_non_root, Some(true), "{}", container.name);
            assert_eq!(security.allow_privilege_escalation, Some(false), "{}", container.name);
            assert_eq!(security.read_only_root_filesystem, Some(true), "{}", container.name);
            assert!(users.insert(security.run_as_user.unwrap()), "two containers with the same user");
        }
    }
}

#[test]
fn spark_shares_no_volume_or_variable_with_its_agent() {
    let pod = rendered(&spark(3)).pod.spec.unwrap();
    let spark = pod.containers.iter().find(|container| container.name == "spark").unwrap();
    let agent = pod.containers.iter().find(|container| container.name == "engine-agent").unwrap();
    let mounts = |container: &k8s_openapi::api::core::v1::Container| -> BTreeSet<String> {
        container.volume_mounts.iter().flatten().map(|mount| mount.name.clone()).collect()
    };
    assert_eq!(mounts(spark).intersection(&mounts(agent)).count(), 0);
    let variables: Vec<_> = spark.env.iter().flatten().map(|variable| variable.name.as_str()).collect();
    assert!(!variables.iter().any(|name| name.starts_with("ENGINEHOUSE")), "{variables:?}");
    let token = |container| mounts(container).contains("spark-token");
    assert_eq!((token(spark), token(agent)), (true, false));
}

/// The lines of Spark's properties file.
fn properties(spec: &orchestrator::Spec, config: &Config) -> Vec<String> {
    let objects = render::engine(spec, config, &signer(), EPOCH).unwrap();
    text(&objects.owned.secret.data.unwrap()["spark.properties"]).lines().map(str::to_owned).collect()
}

#[test]
fn a_driver_without_executors_runs_locally() {
    let mut spec = spark(3);
    let mut config = config();
    config.api_server = "https://kubernetes:6443".to_owned();
    let has = |spec: &orchestrator::Spec, line: &str| properties(spec, &config).iter().any(|found| found == line);
    assert!(has(&spec, "spark.master=k8s://https://kubernetes:6443"));
    spec.options.spark.as_mut().unwrap().max_executors = 0;
    assert!(has(&spec, "spark.master=local[1]") && has(&spec, "spark.dynamicAllocation.enabled=false"));
    assert!(!properties(&spec, &config).iter().any(|line| line.starts_with("spark.executor.instances")));
}

#[test]
fn settings_that_the_pod_needs_override_those_of_the_spec() {
    let mut spec = spark(3);
    let spark = spec.options.spark.as_mut().unwrap();
    spark.properties.insert("spark.kubernetes.namespace".to_owned(), "another".to_owned());
    for name in ["JAVA_HOME", "SPARK_LOCAL_DIRS", "POD_ADDRESS"] {
        spark.environment.insert(name.to_owned(), "/custom".to_owned());
    }
    assert!(properties(&spec, &config()).contains(&"spark.kubernetes.namespace=rp-1--t-1".to_owned()));
    let pod = rendered(&spec).pod.spec.unwrap();
    let env = pod.containers[1].env.as_ref().unwrap();
    let custom = |variable: &&k8s_openapi::api::core::v1::EnvVar| variable.value.as_deref() == Some("/custom");
    let kept: Vec<_> = env.iter().filter(custom).map(|variable| &variable.name).collect();
    assert_eq!((kept.as_slice(), env.len()), (&[&"JAVA_HOME".to_owned()][..], 3));
}

#[test]
fn a_spec_that_no_pod_can_implement_is_refused() {
    type Change = fn(&mut orchestrator::Spec);
    let bad: [(Change, &str); 9] = [
        (|spec| spec.image.clear(), "no image"),
        (|spec| spec.locality = "rp_1".to_owned(), "invalid namespace name"),
        (|spec| drop(spec.labels.insert("x".to_owned(), "a b".to_owned())), "invalid value"),
        (|spec| drop(spec.annotations.insert("a b".to_owned(), String::new())), "invalid name"),
        (
            |spec| drop(spec.labels.insert(labels::CLUSTER.to_owned(), "other".to_owned())),
            "the selector of this installation",
        ),
        (|spec| "owner-uid".clone_into(&mut spec.files[0].path), "has the name of one of ours"),
        (|spec| spec.files[0].content = vec![b'a'; render::MAX_FILES_BYTES + 1], "bytes of files"),
        (|spec| spec.charge = spark(3).charge, "charge"),
        (|spec| spec.nodes = Some(Vec::new()), "node list is empty"),
    ];
    for (change, word) in bad {
        let mut spec = datafusion(3);
        change(&mut spec);
        match render::engine(&spec, &config(), &signer(), EPOCH) {
            Err(Error::Refused { reason, .. }) if reason.contains(word) => {}
            other => panic!("{word}: {other:?}"),
        }
    }
    let mut imageless = config();
    imageless.agent_image.clear();
    let without_agent = render::engine(&spark(3), &imageless, &signer(), EPOCH);
    assert!(without_agent.unwrap_err().to_string().contains("kubernetes.agent_image"));
    let mut listed = config();
    listed.namespaces = Some(vec!["other".to_owned()]);
    let elsewhere = render::engine(&datafusion(3), &listed, &signer(), EPOCH);
    assert!(elsewhere.unwrap_err().to_string().contains("kubernetes.namespaces"));
}

/// The spec with an owner, and a configuration with the owner's uid.
fn owned(spec: orchestrator::Spec) -> (orchestrator::Spec, Config) {
    let run_as = Some(RunAs { user: "ann@example.org".to_owned(), folders: Vec::new() });
    let user_ids = [("ann@example.org".to_owned(), 20_001), ("bob".to_owned(), 20_002)].into();
    (orchestrator::Spec { run_as, ..spec }, Config { user_ids, ..config() })
}

/// Name, user and group of each container.
fn users(containers: &[k8s_openapi::api::core::v1::Container]) -> Vec<(&str, Option<i64>, Option<i64>)> {
    let user = |container: &k8s_openapi::api::core::v1::Container| {
        let security = container.security_context.clone().unwrap();
        assert_eq!((security.run_as_non_root, security.allow_privilege_escalation), (Some(true), Some(false)));
        (security.run_as_user, security.run_as_group)
    };
    let of = |container| -> (Option<i64>, Option<i64>) { user(container) };
    containers.iter().map(|container| (container.name.as_str(), of(container).0, of(container).1)).collect()
}

#[test]
fn statements_of_an_owner_run_with_the_owners_uid() {
    let (spec, config) = owned(datafusion(3));
    let objects = render::engine(&spec, &config, &signer(), EPOCH).unwrap();
    let pod = objects.pod.spec.unwrap();
    assert_eq!(users(&pod.containers), [("engine-agent", Some(20_001), Some(20_001))]);
    assert_eq!(pod.security_context.unwrap().run_as_non_root, Some(true));

    let (spec, config) = owned(spark(3));
    let objects = render::engine(&spec, &config, &signer(), EPOCH).unwrap();
    let pod = objects.pod.spec.unwrap();
    let agent = ("engine-agent", Some(10_001), Some(10_001));
    assert_eq!(users(&pod.containers), [agent, ("spark", Some(20_001), Some(20_001))]);
    let data = objects.owned.config_map.unwrap().data.unwrap();
    let executor: k8s_openapi::api::core::v1::Pod = serde_json::from_str(&data["executor-template.json"]).unwrap();
    let executor = executor.spec.unwrap();
    assert_eq!(users(&executor.containers), [("spark-kubernetes-executor", Some(20_001), Some(20_001))]);
    // Java's login needs a name for the uid, and the image has none.
    assert!(data["passwd"].contains("\nann@example.org:x:20001:20001:"), "{}", data["passwd"]);
    for (pod, container) in [(&pod, &pod.containers[1]), (&executor, &executor.containers[0])] {
        let mounts = container.volume_mounts.as_ref().unwrap();
        let passwd = mounts.iter().find(|mount| mount.mount_path == "/etc/passwd").unwrap();
        assert_eq!((passwd.sub_path.as_deref(), passwd.read_only), (Some("passwd"), Some(true)));
        let volume = pod.volumes.iter().flatten().find(|volume| volume.name == passwd.name).unwrap();
        let (name, items) = match (&volume.config_map, &volume.projected) {
            (Some(source), _) => (&source.name, &source.items),
            (None, Some(projected)) => {
                let mut sources = projected.sources.iter().flatten();
                let source = sources.find_map(|source| source.config_map.as_ref()).unwrap();
                (&source.name, &source.items)
            }
            (None, None) => panic!("{volume:?}"),
        };
        assert_eq!(*name, spec.name.to_string());
        assert!(items.iter().flatten().any(|item| item.key == "passwd" && item.path == "passwd"));
    }
    let agent_mounts = pod.containers[0].volume_mounts.as_ref().unwrap();
    assert!(!agent_mounts.iter().any(|mount| mount.mount_path == "/etc/passwd"));
}

#[test]
fn no_pod_runs_as_root_as_an_agent_or_as_a_user_without_a_uid() {
    for (uid, expected) in [
        (None, "user \"ann@example.org\" has no uid in kubernetes.user_ids"),
        (Some(0), "has uid 0 in kubernetes.user_ids, and no engine runs as root"),
        (Some(10_001), "has uid 10001 in kubernetes.user_ids, which is that of engine agents"),
        (Some(1 << 31), "above the limit of 2147483647"),
    ] {
        for spec in [datafusion(3), spark(3)] {
            let (spec, mut config) = owned(spec);
            config.user_ids = uid.map(|uid| ("ann@example.org".to_owned(), uid)).into_iter().collect();
            // Also if the configuration was not validated.
            match render::engine(&spec, &config, &signer(), EPOCH) {
                Err(Error::Refused { reason, .. }) if reason.contains(expected) => {}
                other => panic!("{expected}: {other:?}"),
            }
            assert_eq!(config.validate().is_ok(), uid.is_none(), "{uid:?}");
        }
    }
    for name in ["a:b", "a\nroot:x:0:0:::"] {
        let (mut spec, mut config) = owned(spark(3));
        config.user_ids.insert(name.to_owned(), 20_003);
        spec.run_as.as_mut().unwrap().user = name.to_owned();
        let error = render::engine(&spec, &config, &signer(), EPOCH).unwrap_err().to_string();
        assert!(error.contains("no account can have that name"), "{error}");
    }
}
