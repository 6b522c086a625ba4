//! One suite for every server: a table of named cases, each below a root of its own.
//!
//! A server passes when all cases do; the runners print how many they ran, and the real server's runner fails when
//! its count differs from the embedded one's.

#![allow(dead_code, clippy::unwrap_used, clippy::panic, missing_docs)]

mod access;
pub mod alter;
mod answers;
mod drains;
mod elections;
mod hostile;
mod looks;
mod registrations;
mod relay;
mod sessions;
mod views;

use std::future::Future;
use std::time::Duration;

use coordination::{
    EngineCredential, Identity, Layout, Lock, Permit, PermitNode, Registration, Session, SessionSettings, SessionState,
    bootstrap, permits, registry,
};
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use model::clock::{SharedClock, SystemClock};
use model::credential::ClusterSecret;
use model::{EngineName, PoolName, TenantName, UnitName};
use tokio::time::{sleep, timeout};
use zookeeper_client as zk;

/// The longest that one case may take.
const CASE_LIMIT: Duration = Duration::from_mins(1);
/// The longest that anything is waited for within a case.
pub const WAIT: Duration = Duration::from_secs(20);
/// Cases that run at once.
const AT_ONCE: usize = 8;

pub type Case = (&'static str, fn(World) -> BoxFuture<'static, ()>);

#[macro_export]
macro_rules! cases {
    ($($module:ident::$name:ident),* $(,)?) => {
        pub const CASES: &[$crate::suite::Case] = &[$((
            stringify!($name),
            |world| Box::pin($module::$name(world)),
        )),*];
    };
}

cases![
    access::base_nodes_are_made_by_whoever_comes_first,
    access::an_engine_registers_itself_and_may_do_nothing_else,
    access::the_agent_makes_the_alter_node_and_only_the_master_deletes_it,
    access::nobody_without_a_credential_reads_or_writes_our_nodes,
    access::another_secret_is_denied,
    elections::the_next_candidate_follows_when_the_master_resigns,
    elections::a_cancelled_candidate_leaves_nothing_behind,
    elections::an_expired_master_writes_nothing_and_is_followed,
    elections::a_lock_of_another_tool_keeps_everybody_from_acting,
    elections::a_candidate_whose_node_was_deleted_starts_anew,
    elections::a_lock_whose_node_was_deleted_writes_nothing,
    elections::two_thirds_of_the_session_timeout_without_an_answer_stop_the_master,
    alter::the_node_holds_the_old_object_with_secrets_masked,
    alter::a_second_alteration_learns_who_and_what_and_is_refused,
    alter::a_second_alteration_follows_when_the_node_goes,
    alter::the_same_id_is_no_conflict,
    alter::a_delete_never_hits_another_alterations_node,
    alter::debris_without_a_child_is_deleted,
    alter::unreadable_nodes_are_read_and_deleted,
    alter::what_is_too_big_is_refused_before_anything_is_written,
    registrations::agents_come_and_go_with_their_sessions,
    registrations::an_engine_registers_only_below_a_permit_of_its_uid,
    registrations::permits_that_are_made_together_have_an_answer_each,
    registrations::uids_that_are_written_together_go_into_permits_as_they_were_seen_or_as_they_are,
    registrations::a_deposed_master_writes_none_of_the_permits_that_wait,
    registrations::a_permit_that_changed_since_admits_nobody,
    registrations::a_dead_sessions_registration_is_no_conflict_once_it_is_gone,
    registrations::a_permit_is_deleted_with_what_was_seen_and_nothing_else,
    registrations::a_uid_is_written_once_and_over_nothing_newer,
    registrations::a_first_registration_leaves_a_mark_that_outlives_it,
    registrations::a_permit_for_an_engine_that_runs_already_has_the_mark_at_once,
    registrations::an_engine_is_woken_by_its_permit_and_its_fact,
    registrations::jdbc_clients_find_a_proxy_without_a_password,
    registrations::a_proxy_that_leaves_is_found_no_more_and_takes_nobody_along,
    drains::a_drain_takes_registration_and_permit_away_in_one_step,
    drains::a_drain_fails_as_a_whole_when_the_registration_came_or_went,
    drains::a_superseded_engine_drains_only_while_the_newer_is_registered,
    drains::a_registration_that_came_and_went_since_is_not_drained,
    drains::a_fact_stands_until_the_master_removes_it,
    hostile::a_crowd_below_one_permit_holds_up_the_reading_of_no_other,
    hostile::names_as_long_as_a_request_keep_the_master_from_nothing,
    hostile::what_an_engine_makes_below_its_permit_wakes_nobody,
    hostile::a_registration_that_nobody_may_read_holds_up_the_reading_of_no_other,
    hostile::a_registration_that_is_too_long_is_not_read,
    hostile::a_registration_whose_address_is_none_is_unreadable,
    hostile::children_that_only_the_engine_may_delete_keep_nobody_from_draining_it,
    hostile::a_registration_with_children_keeps_nobody_from_draining_its_engine,
    hostile::what_was_left_behind_is_a_permit_again_when_its_engine_is_to_have_one,
    hostile::a_registration_that_came_or_went_since_keeps_a_crowded_drain_from_happening,
    looks::each_base_node_is_compared_with_what_it_should_be,
    looks::another_secret_may_not_even_compare,
    looks::the_queue_for_the_lock_is_told_in_its_order,
    looks::an_observation_by_a_session_without_the_lock_writes_nothing,
    looks::a_server_tells_by_itself_what_session_it_grants,
    looks::what_is_no_proxy_in_the_discovery_namespace_is_told_apart,
    views::an_observation_holds_everything,
    views::every_change_wakes_the_master,
    views::hundreds_of_engines_are_observed_and_watched,
    views::a_burst_of_events_wakes_a_few_times_and_not_once_for_each,
    views::suppressed_events_wake_nobody,
    views::a_view_follows_the_registry,
    views::a_view_without_events_follows_by_reading_again,
    views::a_view_keeps_who_vanished_while_its_session_was_built_anew,
    sessions::an_expired_session_is_built_anew_with_what_hangs_on_it,
    sessions::a_failing_rebuild_is_tried_again_before_the_session_is_handed_out,
    sessions::a_node_that_somebody_deletes_is_made_again_while_its_session_lives,
    sessions::without_events_a_node_that_somebody_deletes_is_made_again_too,
    sessions::the_nodes_above_all_others_are_made_again_too,
    sessions::a_closed_supervisor_takes_its_nodes_along,
    sessions::a_server_that_is_not_there_is_unavailable_in_time,
    answers::an_answer_that_never_comes_leaves_the_outcome_open,
    answers::a_write_that_was_not_sent_never_happens_later,
];

/// Records a case that passed: cargo names only the test that runs all of them, and `tests/run` checks that each test
/// that the guarantees name has passed.
fn record_passed(case: &str) {
    let Some(path) = std::env::var_os("EH_TEST_PASSED") else { return };
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    // One write for each line: several tests append at the same time.
    std::io::Write::write_all(&mut file, format!("{case}\n").as_bytes()).unwrap();
}

/// Runs every case against one server; answers how many there were.
pub async fn run(server: &str, servers: &str) -> usize {
    let seed = std::process::id();
    println!("coordination suite on {server}: {} cases, roots /eh-{seed}-<n>/suite", CASES.len());
    let runs = CASES.iter().enumerate().map(|(number, (name, case))| async move {
        let world = World::new(servers, &format!("/eh-{seed}-{number}/suite"));
        let outcome = tokio::spawn(timeout(CASE_LIMIT, case(world))).await;
        let failure = match outcome {
            Ok(Ok(())) => {
                record_passed(name.rsplit("::").next().unwrap_or(name));
                None
            }
            Ok(Err(_)) => Some(format!("took longer than {} s", CASE_LIMIT.as_secs())),
            Err(error) => Some(error.to_string()),
        };
        failure.map(|failure| format!("{name}: {failure}"))
    });
    let failures: Vec<String> =
        stream::iter(runs).buffer_unordered(AT_ONCE).filter_map(|it| async move { it }).collect().await;
    println!("coordination suite on {server}: {} passed, {} failed", CASES.len() - failures.len(), failures.len());
    assert!(failures.is_empty(), "on {server}:\n{}", failures.join("\n"));
    CASES.len()
}

/// A root on a server, and everybody who may speak there.
#[derive(Clone)]
pub struct World {
    pub servers: String,
    pub layout: Layout,
    pub secret: ClusterSecret,
    pub clock: SharedClock,
}

impl World {
    pub fn new(servers: &str, root: &str) -> Self {
        Self {
            servers: servers.to_owned(),
            layout: Layout::new(root, None).unwrap(),
            secret: ClusterSecret::new(*b"a secret of the test suite").unwrap(),
            clock: SystemClock::shared(),
        }
    }

    pub fn root(&self) -> &str {
        self.layout.root()
    }

    pub fn path(&self, below: &str) -> String {
        format!("{}/{below}", self.root())
    }

    pub fn settings(&self, identity: Identity) -> SessionSettings {
        let mut settings = SessionSettings::new(&self.servers, self.layout.clone(), identity);
        settings.session_timeout = Duration::from_secs(5);
        settings.reread = Duration::from_millis(500);
        settings
    }

    pub fn proxy(&self) -> Identity {
        Identity::Proxy(self.secret.clone())
    }

    pub fn master(&self) -> Identity {
        Identity::Master(self.secret.clone())
    }

    pub fn agent(&self) -> Identity {
        Identity::Agent(self.secret.clone())
    }

    pub fn engine(&self, name: &str) -> Identity {
        Identity::Engine(EngineCredential::derive(&self.secret, &engine(name)))
    }

    pub async fn session(&self, identity: Identity) -> Session {
        let base = !matches!(identity, Identity::Engine(_));
        let session = Session::connect(&self.settings(identity), &self.clock).await.unwrap();
        if base {
            bootstrap::create_base_nodes(&session).await.unwrap();
        }
        session
    }

    pub fn election(&self) -> coordination::Election {
        coordination::Election::new(self.settings(self.master()), self.clock.clone(), "suite")
    }

    pub async fn lock(&self) -> Lock {
        within(self.election().win()).await.unwrap()
    }

    /// A client without our layers, as another tool would connect; `login` is `user:password`.
    pub async fn stranger(&self, login: Option<&str>) -> zk::Client {
        let mut connector = zk::Client::connector().with_session_timeout(Duration::from_secs(20));
        if let Some(login) = login {
            connector = connector.with_auth("digest", login.as_bytes());
        }
        connector.connect(&self.servers).await.unwrap()
    }

    pub async fn as_master(&self) -> zk::Client {
        let key = self.secret.derive(&model::credential::Purpose::ZookeeperMaster);
        self.stranger(Some(&format!("master:{key}"))).await
    }

    /// Ends a session as if its timeout had passed: a second connection takes it over and closes it. The first one
    /// takes it back as soon as it notices, so it may need more than one try.
    pub async fn expire(&self, session: &Session) {
        let ended = async {
            while session.state() != SessionState::Expired {
                let Some(takeover) = session.takeover() else { return };
                drop(timeout(Duration::from_millis(500), self.take_over(takeover)).await);
                let _ = timeout(Duration::from_millis(200), session.ended()).await;
            }
        };
        within(ended).await;
        assert_eq!(session.state(), SessionState::Expired);
    }

    /// Ends a session whose client can't reach the server now and so learns of it later.
    pub async fn expire_elsewhere(&self, session: &Session) {
        let client = within(self.take_over(session.takeover().unwrap())).await.unwrap();
        let mut states = client.state_watcher();
        drop(client);
        while !within(states.changed()).await.is_terminated() {}
    }

    async fn take_over(&self, session: zk::SessionInfo) -> Result<zk::Client, zk::Error> {
        zk::Client::connector().with_session(session).connect(&self.servers).await
    }

    /// A permit as a new engine gets it: made first, its uid written later.
    pub async fn made(&self, lock: &Lock, name: &str, uid: &str) -> PermitNode {
        permits::create(lock, &engine(name), &permit(None)).await.unwrap();
        permits::record_uid(lock, &engine(name), uid).await.unwrap();
        permits::read(lock.session(), &engine(name)).await.unwrap().unwrap()
    }

    /// A permit with a uid, as an engine gets it that runs already; as it is read back.
    pub async fn permitted(&self, lock: &Lock, name: &str, uid: &str) -> PermitNode {
        permits::create(lock, &engine(name), &permit(Some(uid))).await.unwrap();
        permits::read(lock.session(), &engine(name)).await.unwrap().unwrap()
    }

    /// An engine that is registered below a new permit; the session keeps it registered.
    pub async fn registered(&self, lock: &Lock, name: &str, uid: &str) -> Session {
        self.permitted(lock, name, uid).await;
        let session = self.session(self.engine(name)).await;
        let standing = registry::read_own(&session, &engine(name)).await.unwrap();
        registry::register(&session, &standing.permit.unwrap(), &registration(uid)).await.unwrap();
        session
    }
}

pub fn engine(name: &str) -> EngineName {
    EngineName::new(name).unwrap()
}

pub fn permit(uid: Option<&str>) -> Permit {
    Permit {
        tenant: TenantName::new("t_1").unwrap(),
        pool: PoolName::new("rp_1").unwrap(),
        unit: UnitName::new("uc_1").unwrap(),
        uid: uid.map(str::to_owned),
    }
}

pub fn registration(uid: &str) -> Registration {
    Registration {
        address: "127.0.0.1:4711".to_owned(),
        capacity: 100,
        config: "0123456789abcdef".to_owned(),
        version: "0.1.0".to_owned(),
        uid: uid.to_owned(),
        catalog: Some(model::table_catalog::TableCatalog::Shared),
    }
}

/// Waits for something that must come.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(WAIT, future).await.expect("it came in time")
}

/// Asks again until the answer is yes: for states of a server that nobody announces.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    let asked = timeout(WAIT, async {
        while !ask().await {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(asked.await.is_ok(), "not in time: {what}");
}
