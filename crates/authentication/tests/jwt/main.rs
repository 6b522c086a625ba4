//! The method `jwt`: which tokens are accepted, and when the issuer's keys are read. The scenarios have a real issuer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chain;
mod key_source;
mod signer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use authentication::{JwtAlgorithm, JwtMethod, JwtSettings, KeyLocation, Method as _, Verdict};
use model::clock::ManualClock;
use ring::hmac;
use serde_json::{Value, json};
use signer::{Signer, assemble, encode};

const ISSUER: &str = "https://issuer.example";
/// In seconds since 1970.
const NOW_S: i64 = 1_800_000_000;
const MINUTE: Duration = Duration::from_mins(1);

fn settings(keys: KeyLocation) -> JwtSettings {
    JwtSettings {
        issuer: ISSUER.to_owned(),
        audience: vec!["enginehouse".to_owned(), "sql".to_owned()],
        algorithms: JwtAlgorithm::ALL.map(|(_, algorithm)| algorithm).to_vec(),
        keys,
        user_claim: "sub".to_owned(),
        groups_claim: "groups".to_owned(),
        leeway: Duration::from_secs(30),
        refresh: 10 * MINUTE,
        as_password: true,
    }
}

fn write_keys(path: &Path, keys: &[Value]) {
    std::fs::write(path, json!({ "keys": keys }).to_string()).unwrap();
}

/// A method with the keys of these signers, which have their positions as ids, and its clock.
struct Fixture {
    method: JwtMethod,
    clock: Arc<ManualClock>,
    folder: tempfile::TempDir,
}

fn fixture(signers: &[&Signer], change: impl FnOnce(&mut JwtSettings)) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let keys: Vec<Value> = signers.iter().enumerate().map(|(at, signer)| signer.jwk(&at.to_string())).collect();
    write_keys(&path, &keys);
    let clock = ManualClock::at(NOW_S * 1_000);
    let mut settings = settings(KeyLocation::File(path));
    change(&mut settings);
    Fixture { method: JwtMethod::new(settings, clock.clone()), clock, folder }
}

fn claims(more: &Value) -> Value {
    let mut claims = json!({ "iss": ISSUER, "aud": "enginehouse", "sub": "ann", "exp": NOW_S + 300 });
    for (name, value) in more.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(name),
            value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    claims
}

fn header(algorithm: &str) -> Value {
    json!({ "alg": algorithm, "kid": "0", "typ": "at+jwt" })
}

/// The user and the groups of a token, or why it is rejected.
async fn login(method: &JwtMethod, token: &str) -> Result<(String, String), &'static str> {
    match method.token(token).await {
        Verdict::Accepted { user, groups, expires_ms } => {
            assert!(expires_ms.is_some());
            Ok((user.unwrap(), groups.join("; ")))
        }
        Verdict::Rejected(reason) => Err(reason),
        Verdict::Unavailable(error) => {
            assert_eq!(error.sqlstate(), "57P03");
            Err("unavailable")
        }
        verdict => panic!("{verdict:?}"),
    }
}

/// What [`login`] returns for a token of `ann`.
#[allow(clippy::unnecessary_wraps)]
fn ann(groups: &str) -> Result<(String, String), &'static str> {
    Ok(("ann".to_owned(), groups.to_owned()))
}

#[tokio::test]
async fn every_algorithm_verifies_tokens_of_its_own_keys_only() {
    let signers = [Signer::rsa(), Signer::p256(), Signer::p384(), Signer::ed25519()];
    let of = |algorithm: &str| match algorithm {
        "ES256" => 1,
        "ES384" => 2,
        "EdDSA" => 3,
        _ => 0,
    };
    let it = fixture(&signers.each_ref(), |_| {});
    for (algorithm, _) in JwtAlgorithm::ALL {
        for (at, signer) in signers.iter().enumerate() {
            let header = json!({ "alg": algorithm, "kid": at.to_string() });
            let token = signer.token(&header, &claims(&json!({})));
            let expected = if at == of(algorithm) { ann("") } else { Err("token with an unknown key") };
            assert_eq!(login(&it.method, &token).await, expected, "{algorithm} {at}");
        }
        // Without an id the only key of its kind is used.
        let token = signers[of(algorithm)].token(&json!({ "alg": algorithm }), &claims(&json!({})));
        assert_eq!(login(&it.method, &token).await, ann(""), "{algorithm}");
        let another = match of(algorithm) {
            0 => Signer::rsa(),
            1 => Signer::p256(),
            2 => Signer::p384(),
            _ => Signer::ed25519(),
        };
        let token = another.token(&json!({ "alg": algorithm }), &claims(&json!({})));
        assert_eq!(login(&it.method, &token).await, Err("token with a wrong signature"), "{algorithm}");
    }
}

#[tokio::test]
async fn algorithms_that_are_not_listed_or_need_no_private_key_are_refused() {
    let signer = Signer::rsa();
    let it = fixture(&[&signer], |settings| {
        settings.algorithms = vec![JwtAlgorithm::from_word("RS256").unwrap()];
    });
    let token = signer.token(&header("PS256"), &claims(&json!({})));
    let not_listed = Err("token with an algorithm that is not in jwt.algorithms");
    assert_eq!(login(&it.method, &token).await, not_listed);
    // The public key as a shared secret.
    let secret = signer.jwk("0")["n"].as_str().unwrap().to_owned();
    for algorithm in ["HS256", "HS384", "HS512"] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let token = assemble(&header(algorithm), &claims(&json!({})), |it| hmac::sign(&key, it).as_ref().to_vec());
        assert_eq!(login(&it.method, &token).await, not_listed, "{algorithm}");
    }
    for algorithm in [json!("none"), json!("None"), json!(""), json!(null), json!(["RS256"]), json!("rs256")] {
        for signed in ["", "x"] {
            let header = json!({ "alg": algorithm, "kid": "0" });
            let token = assemble(&header, &claims(&json!({})), |_| signed.as_bytes().to_vec());
            assert_eq!(login(&it.method, &token).await, Err("no signed token"), "{algorithm} {signed}");
        }
    }
}

#[tokio::test]
async fn claims_are_required_and_have_one_type() {
    let signer = Signer::ed25519();
    let it = fixture(&[&signer], |_| {});
    for (more, expected) in [
        (json!({ "aud": ["other", "sql"], "nbf": NOW_S, "exp": NOW_S as f64 + 0.5 }), ann("")),
        (json!({ "iss": null }), Err("token of another issuer")),
        (json!({ "iss": "https://issuer.example/" }), Err("token of another issuer")),
        (json!({ "iss": 5 }), Err("token of another issuer")),
        (json!({ "aud": null }), Err("token for another audience")),
        (json!({ "aud": "other" }), Err("token for another audience")),
        (json!({ "aud": [] }), Err("token for another audience")),
        (json!({ "aud": { "sql": true } }), Err("token for another audience")),
        (json!({ "exp": null }), Err("token without a valid exp or nbf")),
        (json!({ "exp": (NOW_S + 300).to_string() }), Err("token without a valid exp or nbf")),
        (json!({ "exp": [NOW_S + 300] }), Err("no signed token")),
        (json!({ "nbf": "now" }), Err("token without a valid exp or nbf")),
        (json!({ "sub": null }), Err("token without a valid user name in jwt.user_claim")),
        (json!({ "sub": 5 }), Err("token without a valid user name in jwt.user_claim")),
        (json!({ "groups": 5 }), Err("token without a list of texts in jwt.groups_claim")),
    ] {
        let token = signer.token(&header("EdDSA"), &claims(&more));
        assert_eq!(login(&it.method, &token).await, expected, "{more}");
    }
    for name in ["", "@admins", "ann\nroot", "a\0b", &"x".repeat(256)] {
        let token = signer.token(&header("EdDSA"), &claims(&json!({ "sub": name })));
        let expected = Err("token without a valid user name in jwt.user_claim");
        assert_eq!(login(&it.method, &token).await, expected, "{name:?}");
    }
}

#[tokio::test]
async fn user_and_groups_come_from_the_configured_claims() {
    let signer = Signer::p256();
    let it = fixture(&[&signer], |settings| {
        settings.user_claim = "preferred_username".to_owned();
        settings.groups_claim = "roles".to_owned();
    });
    for (roles, groups) in [
        (json!(["etl", "analysts", "etl"]), "analysts; etl"),
        (json!("analysts"), "analysts"),
        (json!(["@admins", "", "a,b", 5, " x", "etl\n", "ok"]), "ok"),
        (json!(null), ""),
    ] {
        let more = json!({ "preferred_username": "ann", "sub": "4711", "roles": roles, "groups": ["dba"] });
        let token = signer.token(&header("ES256"), &claims(&more));
        assert_eq!(login(&it.method, &token).await, ann(groups), "{roles}");
    }
    let many: Vec<String> = (0..1_200).map(|number| format!("{number}")).collect();
    let token = signer.token(&header("ES256"), &claims(&json!({ "preferred_username": "ann", "roles": many })));
    assert_eq!(login(&it.method, &token).await.unwrap().1.split("; ").count(), 1_000);
}

#[tokio::test]
async fn a_token_counts_within_its_times_and_the_leeway_also_from_the_cache() {
    let signer = Signer::ed25519();
    let it = fixture(&[&signer], |_| {});
    let token = signer.token(&header("EdDSA"), &claims(&json!({ "nbf": NOW_S + 31 })));
    assert_eq!(login(&it.method, &token).await, Err("token not valid yet"));
    it.clock.advance(Duration::from_secs(1));
    assert_eq!(login(&it.method, &token).await, ann(""));
    // It is cached: no key verifies it any more.
    write_keys(&it.folder.path().join("keys.json"), &[Signer::ed25519().jwk("0")]);
    it.clock.advance(Duration::from_secs(328));
    assert_eq!(login(&it.method, &token).await, ann(""), "it has expired within the leeway");
    it.clock.advance(Duration::from_secs(1));
    assert_eq!(login(&it.method, &token).await, Err("token expired"));
}

#[tokio::test]
async fn a_header_chooses_nothing_but_a_key_of_the_issuer() {
    let (signer, attacker) = (Signer::ed25519(), Signer::ed25519());
    let it = fixture(&[&signer], |_| {});
    let with = |more: &Value| {
        let mut header = header("EdDSA");
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        header
    };
    // No test could reach these addresses.
    for more in [
        json!({ "jwk": attacker.jwk("0") }),
        json!({ "jku": "https://attacker.example/keys" }),
        json!({ "x5u": "https://attacker.example/certificate" }),
        json!({ "x5c": ["AAAA"] }),
    ] {
        let token = attacker.token(&with(&more), &claims(&json!({})));
        assert_eq!(login(&it.method, &token).await, Err("token with a wrong signature"), "{more}");
        let token = signer.token(&with(&more), &claims(&json!({})));
        assert_eq!(login(&it.method, &token).await, ann(""), "they are ignored: {more}");
    }
    for (more, expected) in [
        (json!({ "crit": ["exp"], "exp": 5 }), "token with critical extensions"),
        (json!({ "crit": [] }), "token with critical extensions"),
        (json!({ "b64": false }), "token with critical extensions"),
        (json!({ "enc": "A128GCM" }), "encrypted or compressed token"),
        (json!({ "zip": "DEF" }), "encrypted or compressed token"),
        (json!({ "kid": "1" }), "token with an unknown key"),
        (json!({ "kid": 5 }), "no signed token"),
    ] {
        let token = signer.token(&with(&more), &claims(&json!({})));
        assert_eq!(login(&it.method, &token).await, Err(expected), "{more}");
    }
}

#[tokio::test]
async fn what_is_no_signed_token_is_refused() {
    let signer = Signer::ed25519();
    let it = fixture(&[&signer], |_| {});
    let token = signer.token(&header("EdDSA"), &claims(&json!({})));
    let parts: Vec<&str> = token.split('.').collect();
    let [head, body, signed] = parts[..] else { panic!("{token}") };
    for text in [
        String::new(),
        "..".to_owned(),
        "a.b.c".to_owned(),
        head.to_owned(),
        format!("{head}.{body}"),
        // A token that is encrypted has five parts (RFC 7516).
        format!("{head}.{body}.{signed}.{body}.{signed}"),
        format!("{}.{body}.{signed}", encode("[]")),
        format!("{head}.{body}.{signed}="),
        format!(" {token}"),
    ] {
        assert_eq!(login(&it.method, &text).await, Err("no signed token"), "{text}");
    }
    for text in [
        format!("{head}.{}.{signed}", encode(claims(&json!({ "sub": "bob" })).to_string())),
        format!("{head}.{body}."),
        format!("{head}.{body}.{}", &signed[..signed.len() - 2]),
    ] {
        assert_eq!(login(&it.method, &text).await, Err("token with a wrong signature"), "{text}");
    }
    let token = signer.token(&header("EdDSA"), &json!("no object"));
    assert_eq!(login(&it.method, &token).await, Err("no signed token"));
    let padding = |length: usize| claims(&json!({ "padding": "x".repeat(length) }));
    let short = signer.token(&header("EdDSA"), &padding(12_000));
    assert!(short.len() < 16 << 10 && login(&it.method, &short).await == ann(""));
    let long = signer.token(&header("EdDSA"), &padding(12_300));
    assert!(long.len() > 16 << 10);
    assert_eq!(login(&it.method, &long).await, Err("token longer than 16 KiB"));
}

#[tokio::test]
async fn a_token_may_be_a_password_only_if_the_settings_permit_it() {
    let signer = Signer::ed25519();
    let token = signer.token(&header("EdDSA"), &claims(&json!({})));
    for as_password in [true, false] {
        let it = fixture(&[&signer], |settings| settings.as_password = as_password);
        assert_eq!(it.method.takes_as_token(&token), as_password);
        let verdict = it.method.login("ann", &token).await;
        assert!(matches!(verdict, Verdict::Accepted { .. }) == as_password, "{verdict:?}");
        assert!(matches!(it.method.login("ann", "secret.with.dots").await, Verdict::Unknown));
        assert!(!matches!(it.method.login("bob", &token).await, Verdict::Accepted { .. }), "it is ann's");
    }
}
