//! The target that reads secret properties as the database has them. A writer of the database chooses the text.

use std::sync::LazyLock;

use keys::secret_key::KEY_BYTES;
use keys::{KeyGeneration, MetadataAgentKeys, Root, SecretKey};
use model::change::UnitPatch;
use model::configuration::Defaults;
use model::name::UnitName;
use model::sealed::{PropertyRef, SealedValue, SealingKeys as _, is_sealed};
use model::sealing::{Sealing, closed};

const KEY: &str = "db.password";
/// A value of `db.password` of unit `fuzz` that was sealed with the first generation.
const GENUINE: &str = "sealed:1:1:AAECAwQFBgcICQoLr4Nr8jNkXqDDDHy1KyKP8oztt0m/Y44=";

fn keys() -> MetadataAgentKeys {
    let root = Root::new("fuzz", SecretKey::new([9; KEY_BYTES]));
    let accepted = [KeyGeneration(1), KeyGeneration(2)];
    let file = root.role_file(KeyGeneration(2), &accepted, |_, _| String::new()).expect("both are accepted");
    file.verified("fuzz").expect("the file is complete")
}

static KEYS: LazyLock<MetadataAgentKeys> = LazyLock::new(keys);
static SEALING: LazyLock<Sealing> = LazyLock::new(|| Sealing::new(keys()));

/// A text that was not sealed for its place is never opened, and no engine starts with it; a value opens at its own place only.
pub fn sealed_property(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let unit = UnitName::new("fuzz").expect("a name");
    let place = PropertyRef { unit: &unit, key: KEY };

    let mut spec = UnitPatch::default().create(&Defaults::default()).expect("a unit");
    spec.properties.insert(KEY.to_owned(), text.to_owned());
    let unopened = SEALING.open(&unit, &mut spec);
    let left = &spec.properties[KEY];
    if text == GENUINE {
        assert!(unopened.is_empty() && left == "hunter2", "{left}");
    } else {
        assert_eq!(left, text, "a forged value");
        assert_eq!(unopened.len(), usize::from(is_sealed(text)), "{text}");
        assert_eq!(closed(&unit, &spec.properties).is_some(), is_sealed(text), "{text}");
    }
    if let Some(parsed) = SealedValue::parse(text) {
        assert_eq!(parsed.to_string(), text, "a second text of the same value");
    }

    let sealed = KEYS.seal(&place, text).expect("random bytes");
    let parsed = SealedValue::parse(&sealed).expect("the form of sealed values");
    assert_eq!(KEYS.open(&place, &parsed).as_deref(), Ok(text));
    let elsewhere = PropertyRef { key: text, ..place };
    assert!(text == KEY || KEYS.open(&elsewhere, &parsed).is_err(), "it was moved to another key");
    let mut altered = parsed.content.as_bytes().to_vec();
    let at = data.iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31) + usize::from(*byte)) % altered.len();
    altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
    let altered = std::str::from_utf8(&altered).expect("base64");
    assert!(KEYS.open(&place, &SealedValue { content: altered, ..parsed }).is_err(), "it was altered at {at}");
}
