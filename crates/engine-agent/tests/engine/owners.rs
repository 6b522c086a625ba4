//! Owners: an engine that its permit dedicates to one opens no session of another.

use coordination::permits;
use hs2::{ClientError, Session};
use model::error::{ENGINE_OWNED, ErrorKind, UserError};
use model::owner::{Owner, SharedBy};
use model::sharing::Sharer;

use crate::fixture::{WAIT, eventually, permit_of};
use crate::permitted::{PermittedEngine, refusal};

struct Bench(PermittedEngine);

impl Bench {
    /// An engine that has registered below a permit with the owner.
    async fn new(owner: Option<Owner>) -> Self {
        let permitted = PermittedEngine::new(None, owner.clone()).await;
        assert_eq!(permitted.registration.owner, owner, "the registration names the owner in the permit");
        Self(permitted)
    }

    /// Opens a session of the user as a proxy does that states whose it is, or does not.
    async fn open(&self, user: &str, sharer: Option<&Sharer>) -> Result<Session, ClientError> {
        let mut settings = std::collections::BTreeMap::new();
        if let Some(sharer) = sharer {
            agent_api::write_sharer(&mut settings, sharer);
        }
        self.0.open(user, &settings.into_iter().collect::<Vec<(String, String)>>()).await
    }

    async fn refused(&self, user: &str, sharer: Option<&Sharer>) -> UserError {
        refusal(self.open(user, sharer).await)
    }
}

fn sharer(user: &str, groups: &[&str], session: &str) -> Sharer {
    Sharer::new(user, &groups.iter().map(|group| (*group).to_owned()).collect::<Vec<_>>(), session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_of_an_owner_opens_no_session_of_another() {
    let ann = sharer("ann", &["etl"], "1");
    for shared_by in [SharedBy::Group, SharedBy::User, SharedBy::Session] {
        let bench = Bench::new(ann.owner(shared_by)).await;
        let mut own = bench.open("ann", Some(&ann)).await.unwrap();
        own.run("SELECT 1", WAIT).await.unwrap();
        let others = [
            (sharer("bob", &["bi"], "2"), false),
            (sharer("bob", &["etl"], "2"), shared_by == SharedBy::Group),
            (sharer("ann", &["bi"], "3"), shared_by == SharedBy::User),
        ];
        for (other, is_admitted) in others {
            if is_admitted {
                bench.open(&other.user, Some(&other)).await.unwrap().close().await.unwrap();
                let closed = async || (bench.0.engine.datafusion.load().0 == 1).then_some(());
                eventually("the end of the other session", closed).await;
                continue;
            }
            let error = bench.refused(&other.user, Some(&other)).await;
            let (kind, code) = (error.kind, error.error_code());
            assert_eq!((kind, code, error.sqlstate()), (ErrorKind::EngineOwned, ENGINE_OWNED, "08S01"));
            let owner = ann.owner(shared_by).unwrap();
            assert_eq!(error.message, format!("engine \"{}\" is dedicated to {owner}", bench.0.engine.name));
            assert!(error.hint.is_some());
        }
        assert_eq!(bench.0.engine.datafusion.load().0, 1, "nothing was opened for the others");
        assert_eq!(bench.0.status().await.sessions, 1, "nor do they have a seat");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_user_is_that_of_the_connection() {
    let bench = Bench::new(Some(Owner::User("ann".to_owned()))).await;
    // The settings have no user, and whatever else a session sends changes nothing.
    let error = bench.refused("bob", Some(&sharer("ann", &[], "1"))).await;
    assert_eq!(error.detail.as_deref(), Some("The session is of user \"bob\"."));
    let forged = [("enginehouse.session.user".to_owned(), "ann".to_owned())];
    let opened = bench.0.open("bob", &forged).await;
    assert!(matches!(opened.err(), Some(ClientError::Refused(error)) if error.kind == ErrorKind::EngineOwned));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_does_not_state_whose_session_it_is_is_refused() {
    let bench = Bench::new(Some(Owner::User("ann".to_owned()))).await;
    let error = bench.refused("ann", None).await;
    assert_eq!(error.kind, ErrorKind::EngineOwned);
    assert_eq!(error.detail.as_deref(), Some("The proxy does not state whose session it is."));
    // At an engine that the tenant shares it is not needed.
    Bench::new(None).await.open("ann", None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_of_an_engine_never_changes() {
    let ann = sharer("ann", &[], "1");
    let bench = Bench::new(ann.owner(SharedBy::User)).await;
    let mut seen = permit_of(&bench.0.lock, &bench.0.engine.name).await.unwrap();
    seen.content.as_mut().unwrap().owner = None;
    permits::set_sessions(&bench.0.lock, &seen, Some(5)).await.unwrap();
    // It has read the permit, as its number of sessions shows.
    eventually("five seats", async || (bench.0.status().await.seats == Some(5)).then_some(())).await;
    assert_eq!(bench.refused("bob", Some(&sharer("bob", &[], "2"))).await.kind, ErrorKind::EngineOwned);
    bench.open("ann", Some(&ann)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_engine_sees_whose_session_it_is() {
    let ann = sharer("ann", &["etl"], "5e551");
    let bench = Bench::new(ann.owner(SharedBy::User)).await;
    let mut settings = std::collections::BTreeMap::from([("set:hiveconf:my.key".to_owned(), "mine".to_owned())]);
    agent_api::write_sharer(&mut settings, &ann);
    let settings: Vec<(String, String)> = settings.into_iter().collect();
    let mut session = bench.0.open("ann", &settings).await.unwrap();
    let shown = session.run("SET", WAIT).await.unwrap();
    let shown: Vec<String> = shown.rows.iter().flatten().map(ToString::to_string).collect();
    assert!(shown.iter().any(|value| value.contains("my.key")), "{shown:?}");
    assert!(!shown.iter().any(|value| value.contains("enginehouse.session") || value.contains("5e551")), "{shown:?}");
}
