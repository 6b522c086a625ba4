//! Targets that read what proves an identity, and the files that it is compared with.

use std::io::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use authentication::{
    CookieKey, Cookies, JwtAlgorithm, JwtMethod, JwtSettings, KeyLocation, Method as _, Template, Users, Verdict,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hs2::Principal;
use keys::secret_key::KEY_BYTES;
use keys::signature::SigningKey;
use keys::{CallerKeys as _, KeyGeneration, MasterSecrets, MetadataAgentSecrets, ProxySecrets, RoleFile, SecretKey};
use model::clock::ManualClock;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::runtime::{Builder, Runtime};

/// The time at which tokens and cookies are verified, in milliseconds since 1970: 2026-11-01.
const NOW_MS: i64 = 1_793_491_200_000;
const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "enginehouse";
const CLUSTER: &str = "fuzz";

/// A cookie is valid if it was issued, and otherwise not.
pub fn cookie(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let key = || vec![CookieKey { generation: 1, key: "a key of cookies".to_owned() }];
    let cookies = Cookies::new(Box::new(key));
    assert!(cookies.verify(text, NOW_MS, &["file"]).is_err(), "a forged cookie");
    // A user and a group with these names.
    let (user, group) = text.split_once('\n').unwrap_or((text, "analysts"));
    let principal = Principal::authenticated(user, vec![group.to_owned()], "file");
    if let Some(issued) = cookies.issue(&principal, NOW_MS)
        && !text.contains('\0')
    {
        assert_eq!(cookies.verify(&issued, NOW_MS, &["file"]).ok(), Some(principal), "{issued}");
    }
}

/// The method `jwt` with a key set of one key.
struct Issuer {
    runtime: Runtime,
    method: JwtMethod,
    key: SigningKey,
    _keys: NamedTempFile,
}

static ISSUER_OF_TOKENS: LazyLock<Mutex<Issuer>> = LazyLock::new(|| Mutex::new(Issuer::new()));

impl Issuer {
    fn new() -> Self {
        let key = SigningKey::from_seed(&SecretKey::new([9; KEY_BYTES]));
        let public = serde_json::to_value(key.public()).expect("a public key is a text");
        let public = base64::prelude::BASE64_STANDARD.decode(public.as_str().unwrap_or_default());
        let x = BASE64_URL_SAFE_NO_PAD.encode(public.expect("a public key is base64"));
        let mut keys = NamedTempFile::new().expect("a temporary file");
        let set = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "alg": "EdDSA", "use": "sig", "x": x}]});
        keys.write_all(set.to_string().as_bytes()).expect("it is written");
        let settings = JwtSettings {
            issuer: ISSUER.to_owned(),
            audience: vec![AUDIENCE.to_owned()],
            algorithms: JwtAlgorithm::ALL.map(|(_, algorithm)| algorithm).to_vec(),
            keys: KeyLocation::File(keys.path().to_owned()),
            user_claim: "sub".to_owned(),
            groups_claim: "groups".to_owned(),
            leeway: Duration::from_mins(1),
            refresh: Duration::from_hours(1),
            as_password: true,
        };
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let method = runtime.block_on(async { JwtMethod::new(settings, ManualClock::at(NOW_MS)) });
        Self { runtime, method, key, _keys: keys }
    }

    /// The token with these claims, which the issuer signs whatever they are.
    fn token(&self, claims: &[u8]) -> String {
        let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","kid":"k","typ":"at+jwt"}"#);
        let signed = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(claims));
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(self.key.sign(signed.as_bytes())))
    }

    fn accepts(&self, token: &str) -> bool {
        matches!(self.runtime.block_on(self.method.token(token)), Verdict::Accepted { .. })
    }
}

/// A token that the issuer did not sign is not accepted; one that it signed is, if its claims are right.
pub fn bearer(data: &[u8]) {
    let issuer = ISSUER_OF_TOKENS.lock();
    if let Ok(text) = std::str::from_utf8(data) {
        assert!(!issuer.accepts(text), "a forged token");
    }
    if issuer.accepts(&issuer.token(data)) {
        let claims: Value = serde_json::from_slice(data).expect("claims are JSON");
        assert_eq!(claims["iss"], ISSUER);
        let audience = &claims["aud"];
        let is_one = |value: &Value| value == AUDIENCE;
        assert!(is_one(audience) || audience.as_array().is_some_and(|all| all.iter().any(is_one)), "{audience}");
        let expires = claims["exp"].as_f64().expect("a token has an end");
        assert!(expires * 1_000.0 + 60_000.0 >= NOW_MS as f64, "{expires}");
        assert!(claims["sub"].as_str().is_some_and(|user| !user.is_empty()), "{}", claims["sub"]);
    }
}

/// A users file is printed as it was read.
pub fn users_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(users) = Users::parse(text) else { return };
    let printed = users.to_string();
    assert_eq!(Users::parse(&printed).as_ref(), Ok(&users), "{printed}");
}

/// A key file of each role: one with more generations than are allowed, or of another installation, is refused.
pub fn key_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    macro_rules! read {
        ($($secrets:ty),*) => {$(
            if let Ok(file) = toml::from_str::<RoleFile<$secrets>>(text)
                && let Ok(keys) = file.verified(CLUSTER)
            {
                assert_eq!(keys.cluster, CLUSTER);
                let accepted: Vec<KeyGeneration> = keys.accepted();
                assert_eq!(accepted.first(), Some(&keys.in_use()));
                assert!(accepted.len() <= keys::role_keys::MAX_GENERATIONS);
                keys.zookeeper_passwords();
                assert!(keys.metadata_agent_tls().len() <= accepted.len());
            }
        )*};
    }
    read!(ProxySecrets, MasterSecrets, MetadataAgentSecrets);
}

/// The name of a user stays within the value of a filter and of a DN.
pub fn ldap_escape(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (user, dn) = text.split_once('\n').unwrap_or((text, "uid=ann,dc=corp"));
    let filter = Template::group_filter("(&(member={dn})(uid={user}))").expect("a filter");
    let filter = filter.filter_for(user, dn);
    let values =
        filter.strip_prefix("(&(member=").and_then(|rest| rest.strip_suffix("))")).expect("both ends are kept");
    let (of_dn, of_user) = values.split_once(")(uid=").expect("the middle is kept");
    for value in [of_dn, of_user] {
        assert!(!value.contains(['(', ')', '*', '\0']), "{filter}");
        for escape in value.split('\\').skip(1) {
            assert!(escape.len() >= 2 && escape.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit), "{filter}");
        }
    }
    let pattern = Template::pattern("uid={user},ou=people").expect("a pattern");
    if let Some(name) = pattern.bind_name(user) {
        let value =
            name.strip_prefix("uid=").and_then(|rest| rest.strip_suffix(",ou=people")).expect("both ends are kept");
        let mut characters = value.chars();
        while let Some(character) = characters.next() {
            if character == '\\' {
                characters.next().expect("an escaped character");
            } else {
                assert!(!matches!(character, ',' | '+' | '"' | '<' | '>' | ';' | '\0'), "{name}");
            }
        }
    }
}
