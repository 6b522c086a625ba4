//! Files of all roles from one root key, and what a holder of one file can do.

#![allow(clippy::unwrap_used)]

use serde_json::Value;

use super::*;
use crate::root::Root;
use crate::secret_key::{KEY_BYTES, SecretKey};

const G0: KeyGeneration = KeyGeneration(0);
const G1: KeyGeneration = KeyGeneration(1);
const G2: KeyGeneration = KeyGeneration(2);

fn digest(user: &str, password: &str) -> String {
    format!("{user}:digest of {}", &password[..8])
}

fn root() -> Root {
    Root::new("eh", SecretKey::new([7; KEY_BYTES]))
}

fn old_root() -> Root {
    root().with_cluster_secret(ClusterSecret::new(*b"0123456789abcdef").unwrap())
}

fn keys<S: RoleSecrets>(root: &Root, in_use: KeyGeneration, accepted: &[KeyGeneration]) -> RoleKeys<S> {
    root.role_file::<S>(in_use, accepted, digest).unwrap().verified("eh").unwrap()
}

fn engine(name: &str) -> EngineName {
    EngineName::new(name).unwrap()
}

/// Every text in a document that is long enough to be a key.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) if text.len() >= 32 => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

fn secrets<S: RoleSecrets + Serialize>(root: &Root) -> Vec<String> {
    let file = root.role_file::<S>(G1, &[G1, G2], digest).unwrap();
    let secrets = file.generations.iter().map(|generation| serde_json::to_value(&generation.secret).unwrap());
    secrets.flat_map(|secret| texts(&secret)).collect()
}

fn whole<S: RoleSecrets + Serialize>(root: &Root) -> String {
    serde_json::to_string(&root.role_file::<S>(G1, &[G1, G2], digest).unwrap()).unwrap()
}

#[test]
fn no_file_has_a_secret_of_another_role_or_the_root_key() {
    let root = root();
    let own = [secrets::<ProxySecrets>(&root), secrets::<MasterSecrets>(&root), secrets::<MetadataAgentSecrets>(&root)];
    let files = [whole::<ProxySecrets>(&root), whole::<MasterSecrets>(&root), whole::<MetadataAgentSecrets>(&root)];
    assert_eq!(own.each_ref().map(Vec::len), [6, 8, 8], "two generations");
    let root_key = serde_json::to_value(&root).unwrap()["key"].as_str().unwrap().to_owned();
    for (holder, file) in files.iter().enumerate() {
        assert!(!file.contains(&root_key));
        for (owner, secrets) in own.iter().enumerate() {
            for secret in secrets {
                assert_eq!(file.contains(secret), holder == owner);
            }
        }
    }
}

#[test]
fn a_proxy_can_neither_sign_as_a_master_nor_log_in_as_one() {
    let (root, message) = (root(), b"message");
    let (proxy, master): (ProxyKeys, MasterKeys) = (keys(&root, G1, &[G1]), keys(&root, G1, &[G1]));
    let callers = keys::<MetadataAgentSecrets>(&root, G1, &[G1]).callers();
    let (of_proxy, of_master) = (proxy.sign(G1, message).unwrap(), master.sign(G1, message).unwrap());
    assert!(callers.verify(Role::Proxy, G1, message, &of_proxy));
    assert!(callers.verify(Role::Master, G1, message, &of_master));
    assert!(!callers.verify(Role::Master, G1, message, &of_proxy));
    assert!(!callers.verify(Role::Proxy, G1, message, &of_master));
    assert!(!callers.verify(Role::MetadataAgent, G1, message, &of_proxy));
    assert!(!callers.verify(Role::Proxy, G2, message, &of_proxy), "the generation is not accepted");
    assert!(!callers.verify(Role::Proxy, G1, b"another", &of_proxy));
    assert_ne!(proxy.zookeeper_passwords(), master.zookeeper_passwords());
    assert_eq!(proxy.digests(), master.digests());
    assert!(!callers.accepts_password(""), "there is no generation 0");
    let of_agent = keys::<MetadataAgentSecrets>(&root, G1, &[G1]);
    assert_eq!(of_agent.sign(G1, message), None);
}

#[test]
fn roles_of_two_generations_understand_each_other() {
    let root = root();
    let (old, new): (ProxyKeys, ProxyKeys) = (keys(&root, G1, &[G1, G2]), keys(&root, G2, &[G1, G2]));
    let agent = keys::<MetadataAgentSecrets>(&root, G1, &[G1, G2]).callers();
    assert_eq!((old.accepted(), new.accepted()), (vec![G1, G2], vec![G2, G1]));
    assert_eq!(agent.accepted(), [G1, G2]);
    for (keys, generation) in [(&old, G1), (&old, G2), (&new, G1), (&new, G2)] {
        assert!(agent.verify(Role::Proxy, generation, b"m", &keys.sign(generation, b"m").unwrap()));
    }
    let (first, second) = (old.zookeeper_passwords(), new.zookeeper_passwords());
    assert_eq!(first, [second[1].clone(), second[0].clone()]);
    let retired: ProxyKeys = keys(&root, G2, &[G2]);
    assert_eq!(retired.sign(G1, b"m"), None);
    assert_eq!(retired.cookies(), new.cookies()[..1]);
}

#[test]
fn keys_of_an_engine_open_this_engine_only() {
    let master: MasterKeys = keys(&root(), G1, &[G1]);
    let (one, two) = (master.engine(&engine("a")), master.engine(&engine("b")));
    assert_ne!(one.zookeeper_password, two.zookeeper_password);
    assert_eq!(one.callers, two.callers, "public keys");
    assert_eq!(one.callers.password, None);
    assert_eq!(master.engine_passwords(&engine("a")), [one.zookeeper_password]);
}

#[test]
fn generation_0_is_what_version_0_1_0_derived() {
    let secret = ClusterSecret::new(*b"0123456789abcdef").unwrap();
    let root = old_root();
    let proxy: ProxyKeys = keys(&root, G0, &[G0, G1]);
    let master: MasterKeys = keys(&root, G0, &[G0, G1]);
    let agent: MetadataAgentKeys = keys(&root, G0, &[G0, G1]);
    assert_eq!(proxy.zookeeper_passwords()[0], secret.derive(Purpose::ZookeeperProxy));
    assert_eq!(master.zookeeper_passwords()[0], secret.derive(Purpose::ZookeeperMaster));
    assert_eq!(agent.zookeeper_passwords()[0], secret.derive(Purpose::ZookeeperAgent));
    assert_eq!(agent.fingerprint(), secret.derive(Purpose::Fingerprint));
    assert!(agent.callers().accepts_password(&secret.derive(Purpose::MetadataAgent)));
    assert_eq!(agent.callers().accepted(), [G0, G1]);
    let keys_of_engine = master.engine(&engine("a"));
    assert_eq!(keys_of_engine.zookeeper_password, secret.derive(Purpose::ZookeeperEngine(&engine("a"))));
    assert!(keys_of_engine.callers.accepts_password(&secret.derive(Purpose::Engine(&engine("a")))));
    assert_eq!(proxy.sign(G0, b"m"), None, "it has no signatures");
    assert!(proxy.cluster_secret().is_some());
}

#[test]
fn a_pod_is_marked_by_a_master_of_the_same_installation() {
    let root = old_root();
    let (one, both, old): (MasterKeys, MasterKeys, MasterKeys) =
        (keys(&root, G1, &[G1]), keys(&root, G2, &[G1, G2]), keys(&root, G0, &[G0, G1]));
    let signature = one.sign_pod("rp-1--t-1/one");
    assert!(signature.starts_with("1:"), "{signature}");
    assert!(one.verifies_pod("rp-1--t-1/one", &signature) && both.verifies_pod("rp-1--t-1/one", &signature));
    assert!(!one.verifies_pod("rp-1--t-1/two", &signature));
    assert!(!one.verifies_pod("rp-1--t-1/one", &both.sign_pod("rp-1--t-1/one")), "a generation that is not accepted");
    let of_old = old.sign_pod("rp-1--t-1/one");
    assert_eq!(of_old.len(), 64);
    assert!(old.verifies_pod("rp-1--t-1/one", &of_old) && old.verifies_pod("rp-1--t-1/one", &signature));
    assert!(!one.verifies_pod("rp-1--t-1/one", &of_old));
    let elsewhere = Root::new("staging", SecretKey::new([7; KEY_BYTES]));
    let elsewhere = elsewhere.role_file::<MasterSecrets>(G1, &[G1], digest).unwrap().verified("staging").unwrap();
    assert!(!elsewhere.verifies_pod("rp-1--t-1/one", &signature));
    for wrong in ["", ":", "1:", "x:1", "1", "4294967296:0"] {
        assert!(!both.verifies_pod("rp-1--t-1/one", wrong), "{wrong}");
    }
}

#[test]
fn a_wrong_file_is_refused_with_the_reason() {
    let root = root();
    let file = || root.role_file::<ProxySecrets>(G1, &[G1], digest).unwrap();
    let text = |result: Result<ProxyKeys, UserError>| result.unwrap_err().text();
    assert!(text(file().verified("other")).contains("cluster.name is \"other\""));
    assert!(text(RoleFile { role: Role::Master, ..file() }.verified("eh")).contains("keys of the role master"));
    assert!(text(RoleFile { in_use: G2, ..file() }.verified("eh")).contains("no generation 2"));
    let mut twice = file();
    twice.generations.push(twice.generations[0].clone());
    assert!(text(twice.verified("eh")).contains("generation 1 twice"));
    let mut incomplete = file();
    incomplete.generations[0].secret = None;
    assert!(text(incomplete.verified("eh")).contains("Generation 1 is incomplete"));
    for (in_use, accepted, why) in [
        (G2, vec![G1], "is not accepted"),
        (G1, vec![G1, G1], "named twice"),
        (G0, vec![G0, G1], "this root key has none"),
        (G1, vec![G1; 5], "At most 4"),
    ] {
        let error = root.role_file::<ProxySecrets>(in_use, &accepted, digest).unwrap_err();
        assert!(error.text().contains(why), "{error}");
    }
}

#[test]
fn no_debug_output_has_a_secret() {
    let root = old_root();
    let file = root.role_file::<MasterSecrets>(G1, &[G0, G1], digest).unwrap();
    let master = file.clone().verified("eh").unwrap();
    let printed = format!("{root:?}{file:?}{master:?}{:?}", master.engine(&engine("a")));
    let mut secrets = texts(&serde_json::to_value(&file.generations[1].secret).unwrap());
    secrets.extend(master.zookeeper_passwords());
    secrets.extend(master.engine_passwords(&engine("a")));
    secrets.push("0123456789abcdef".to_owned());
    assert!(secrets.iter().all(|secret| !printed.contains(secret)), "{printed}");
}

#[test]
fn callers_know_the_tls_keys_of_agents_and_engines() {
    let root = root();
    let agent: MetadataAgentKeys = keys(&root, G1, &[G1, G2]);
    let (proxy, master): (ProxyKeys, MasterKeys) = (keys(&root, G2, &[G1, G2]), keys(&root, G1, &[G1]));
    let (generation, seed) = agent.tls().unwrap();
    let public = SigningKey::from_seed(&seed).public();
    assert_eq!(generation, G1, "the one in use");
    // An agent may use the next generation before the caller does.
    assert_eq!(proxy.metadata_agent_tls().len(), 2);
    assert!(proxy.metadata_agent_tls().contains(&public) && master.metadata_agent_tls() == [public]);

    let key = master.engine(&engine("e-1")).tls.unwrap();
    let public = SigningKey::from_seed(&key.seed).public();
    assert_eq!(proxy.engine_tls(&engine("e-1"), &key.signed), Some(public));
    assert_eq!(proxy.engine_tls(&engine("e-2"), &key.signed), None);
    let later: ProxyKeys = keys(&root, G2, &[G2]);
    assert_eq!(later.engine_tls(&engine("e-1"), &key.signed), None, "generation 1 is retired");
    let stranger = Root::new("eh", SecretKey::new([8; KEY_BYTES]));
    assert_eq!(keys::<ProxySecrets>(&stranger, G1, &[G1]).engine_tls(&engine("e-1"), &key.signed), None);
    let other = master.engine(&engine("e-2")).tls.unwrap();
    assert_ne!(key.seed.bytes(), other.seed.bytes());
}

/// Callers that still use generation 0 alone have no other key.
#[test]
fn nothing_of_generation_0_has_a_key_for_tls() {
    let root = old_root();
    assert!(keys::<MetadataAgentSecrets>(&root, G0, &[G0, G1]).tls().is_none());
    assert!(keys::<MasterSecrets>(&root, G0, &[G0, G1]).engine(&engine("e-1")).tls.is_none());
    assert!(keys::<ProxySecrets>(&root, G0, &[G0]).metadata_agent_tls().is_empty());
    assert_eq!(keys::<ProxySecrets>(&root, G0, &[G0, G1]).metadata_agent_tls().len(), 1);
    assert!(keys::<MetadataAgentSecrets>(&root, G1, &[G0, G1]).tls().is_some());
}
