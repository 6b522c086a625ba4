//! Targets that read what engines and pods say of themselves.

use std::sync::LazyLock;

use coordination::Registration;
use keys::{CallerKeys as _, KeyGeneration, ProxyKeys, Root, SecretKey};
use model::EngineName;
use model::engine_labels::EngineLabels;
use model::labels::LabelMap;

/// The keys of a proxy, which know the public key of masters.
fn proxy() -> &'static ProxyKeys {
    static KEYS: LazyLock<ProxyKeys> = LazyLock::new(|| {
        let first = KeyGeneration::FIRST;
        let file = Root::new("eh", SecretKey::new([1; 32])).role_file(first, &[first], |_, _| String::new());
        file.and_then(|file| file.verified("eh")).expect("keys")
    });
    &KEYS
}

/// A registration that is accepted has the address of a host, and no text that would confuse a terminal. No master of this
/// installation has signed its TLS key.
pub fn registration(data: &[u8]) {
    let Ok(Registration { address, config, version, uid, tls, .. }) = Registration::read(data) else { return };
    if let Some(signed) = tls {
        assert_eq!(proxy().engine_tls(&EngineName::new("e-1").expect("a name"), &signed), None);
    }
    let (host, port) = address.rsplit_once(':').expect("an address has a port");
    assert!(!host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0), "{address}");
    for text in [address, config, version, uid] {
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
}

/// Labels, one per line as `key=value`. What they say of an engine is read back from the labels that are written of it.
pub fn labels(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let labels: LabelMap = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    if let Ok(engine) = EngineLabels::decode(&labels) {
        assert_eq!(EngineLabels::decode(&engine.encode()).as_ref(), Ok(&engine), "{labels:?}");
    }
}
