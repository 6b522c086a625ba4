//! The method in a chain: beside a method that owns some users, and with the delays of failures.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use authentication::{Chain, Method, Throttle, Verdict};
use hs2::{Credentials, HttpScheme, Mechanism};
use serde_json::json;

use super::signer::Signer;
use super::{Fixture, MINUTE, NOW_S, claims, fixture, header};

/// Owns one user, whose password is `right`, and counts the passwords that it sees.
struct Owner(AtomicUsize);

#[async_trait]
impl Method for Owner {
    fn name(&self) -> &'static str {
        "file"
    }

    fn owns(&self, user: &str) -> bool {
        user == "root"
    }

    async fn login(&self, user: &str, password: &str) -> Verdict {
        self.0.fetch_add(1, Ordering::Relaxed);
        match (user, password) {
            ("root", "right") => Verdict::Accepted { user: None, groups: Vec::new(), expires_ms: None },
            ("root", _) => Verdict::Refused,
            _ => Verdict::Unknown,
        }
    }

    async fn groups(&self, user: &str) -> Option<Vec<String>> {
        (user == "root").then(Vec::new)
    }
}

fn peer() -> SocketAddr {
    ([127, 0, 0, 1], 1).into()
}

fn credentials(user: &str, password: &str) -> Credentials {
    let (authzid, user, password) = (String::new(), user.to_owned(), password.to_owned());
    Credentials { mechanism: Mechanism::SaslPlain, authzid, user, password }
}

/// The folder has the keys.
fn chain(it: Fixture) -> (Chain, Arc<Owner>, tempfile::TempDir) {
    let owner = Arc::new(Owner(AtomicUsize::new(0)));
    let methods: Vec<Arc<dyn Method>> = vec![Arc::clone(&owner) as _, Arc::new(it.method)];
    (Chain::new(methods, Throttle::new(5 * MINUTE, it.clock.clone()), it.clock), owner, it.folder)
}

#[tokio::test]
async fn a_token_is_no_password_of_another_method_and_of_none_of_its_users() {
    let signer = Signer::ed25519();
    let (chain, owner, _folder) = chain(fixture(&[&signer], |_| {}));
    let of_ann = signer.token(&header("EdDSA"), &claims(&json!({ "groups": ["etl"] })));
    let of_root = signer.token(&header("EdDSA"), &claims(&json!({ "sub": "root" })));
    let principal = chain.authenticate_token(peer(), &of_ann).await.unwrap();
    assert_eq!(
        (principal.user.as_str(), principal.method, principal.groups.as_slice()),
        ("ann", "jwt", &["etl".to_owned()][..])
    );
    assert_eq!(principal.expires_ms, Some((NOW_S + 330) * 1_000));
    for user in ["", "ann"] {
        assert_eq!(chain.authenticate(peer(), &credentials(user, &of_ann)).await.unwrap(), principal);
    }
    assert_eq!(owner.0.load(Ordering::Relaxed), 0, "no other method has seen the token");
    assert_eq!(chain.authenticate(peer(), &credentials("root", "right")).await.unwrap().method, "file");
    for refused in [
        chain.authenticate_token(peer(), &of_root).await,
        chain.authenticate(peer(), &credentials("root", &of_root)).await,
    ] {
        let error = refused.unwrap_err();
        assert_eq!((error.sqlstate(), error.text().as_str()), ("28000", "authentication failed"));
    }
}

#[tokio::test]
async fn a_chain_offers_what_its_methods_take() {
    let signer = Signer::ed25519();
    for as_password in [true, false] {
        let it = fixture(&[&signer], |settings| settings.as_password = as_password);
        let alone = Chain::new(vec![Arc::new(it.method)], Throttle::new(5 * MINUTE, it.clock.clone()), it.clock);
        let expected: &[HttpScheme] =
            if as_password { &[HttpScheme::Basic, HttpScheme::Bearer] } else { &[HttpScheme::Bearer] };
        assert_eq!(alone.http_schemes(), expected);
        assert_eq!(alone.accepts_no_user_name(), as_password);
        assert_eq!(alone.groups("ann").await, None, "only a token knows them");
        assert_eq!(alone.groups_if_possible("ann").await, Some(Vec::new()));
    }
    let (both, _, _folder) = chain(fixture(&[&signer], |settings| settings.as_password = false));
    assert_eq!(both.http_schemes(), [HttpScheme::Basic, HttpScheme::Bearer]);
}
