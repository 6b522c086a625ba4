//! One suite for every server: a table of named cases, each below a root of its own.
//!
//! A server passes when all cases do; the runners print how many they ran, and the real server's runner fails when
//! its count differs from the embedded one's.

#![allow(dead_code, clippy::unwrap_used, clippy::panic, missing_docs)]

mod access;
pub mod alter;
mod answers;
mod diagnose;
mod drains;
mod elections;
mod hostile;
mod key_generations;
mod registrations;
mod relay;
mod sessions;
mod views;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use coordination::{
    EngineCredential, Identity, Layout, Lock, Logins, Permit, PermitNode, Registration, Session, SessionSettings,
    SessionState, ZookeeperTls, bootstrap, digest, permits, registry,
};
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use model::clock::{SharedClock, SystemClock};
use model::role_digests::RoleDigests;
use model::{EngineName, PoolName, TenantName, UnitName};
use tokio::time::{sleep, timeout};
use zookeeper_client as zk;

/// The deadline of a case.
const CASE_LIMIT: Duration = Duration::from_mins(1);
/// The deadline of a wait within a case.
pub const WAIT: Duration = Duration::from_secs(20);
/// The number of cases that run concurrently.
const AT_ONCE: usize = 8;

pub type Case = (&'static str, fn(Installation) -> BoxFuture<'static, ()>);

#[macro_export]
macro_rules! cases {
    ($($module:ident::$name:ident),* $(,)?) => {
        pub const CASES: &[$crate::suite::Case] = &[$((
            stringify!($name),
            |installation| Box::pin($module::$name(installation)),
        )),*];
    };
}

cases![
    access::every_role_creates_the_base_nodes,
    access::an_engine_may_only_register_itself,
    access::agents_create_the_alter_node_and_only_the_master_deletes_it,
    access::anonymous_clients_neither_read_nor_write_our_nodes,
    access::keys_of_another_installation_are_denied,
    key_generations::nodes_are_opened_to_new_keys_and_closed_to_old_ones,
    key_generations::new_logins_are_added_to_open_sessions,
    key_generations::a_master_renews_the_lists_when_its_logins_change,
    key_generations::an_agent_changes_the_keys_in_its_node,
    elections::the_next_candidate_follows_when_the_master_resigns,
    elections::a_cancelled_candidate_leaves_nothing_behind,
    elections::an_expired_master_writes_nothing_and_is_replaced,
    elections::a_lock_of_another_tool_stops_all_masters,
    elections::a_candidate_whose_node_was_deleted_starts_again,
    elections::a_lock_whose_node_was_deleted_writes_nothing,
    elections::the_lease_ends_after_two_thirds_of_the_session_timeout,
    alter::the_node_holds_the_old_object_with_secrets_masked,
    alter::a_second_alteration_is_refused_with_the_holder,
    alter::a_second_alteration_follows_when_the_node_is_deleted,
    alter::the_same_id_is_no_conflict,
    alter::a_delete_never_removes_another_alterations_node,
    alter::debris_without_a_child_is_deleted,
    alter::unreadable_nodes_are_read_and_deleted,
    alter::an_alter_node_that_is_too_large_is_refused_before_any_write,
    registrations::agents_come_and_go_with_their_sessions,
    registrations::an_engine_registers_only_below_a_permit_of_its_uid,
    registrations::batched_permit_creates_have_a_result_each,
    registrations::batched_uid_writes_reread_stale_permits,
    registrations::a_deposed_master_writes_no_permit_of_a_batch,
    registrations::a_stale_permit_admits_no_engine,
    registrations::registering_succeeds_once_the_expired_registration_is_gone,
    registrations::a_permit_keeps_its_number_of_sessions_until_it_is_rewritten,
    registrations::a_later_observation_sees_what_a_first_one_sees,
    registrations::a_permit_is_deleted_exactly_as_it_was_read,
    registrations::a_uid_is_written_once_and_never_over_a_newer_one,
    registrations::a_first_registration_leaves_a_mark_that_outlives_it,
    registrations::a_permit_for_a_running_engine_has_the_mark_at_once,
    registrations::an_engine_is_woken_by_its_permit_and_its_drain_order,
    registrations::jdbc_clients_find_a_proxy_without_a_password,
    registrations::withdrawing_a_proxy_leaves_the_others_registered,
    drains::a_drain_deletes_registration_and_permit_in_one_step,
    drains::a_drain_fails_as_a_whole_if_the_registration_changed,
    drains::a_superseded_engine_drains_only_while_the_newer_is_registered,
    drains::a_drain_fails_if_a_registration_came_and_went,
    drains::a_drain_order_stays_until_the_master_removes_it,
    hostile::many_strays_below_one_permit_delay_no_other_read,
    hostile::strays_with_very_long_names_do_not_block_the_master,
    hostile::strays_cause_no_wake_up,
    hostile::an_unreadable_registration_delays_no_other_read,
    hostile::a_registration_that_is_too_long_is_not_read,
    hostile::a_registration_with_an_invalid_address_is_unreadable,
    hostile::undeletable_strays_do_not_prevent_a_drain,
    hostile::a_registration_with_children_does_not_prevent_a_drain,
    hostile::a_permit_left_behind_is_reused_for_its_engine,
    hostile::a_drain_with_strays_fails_if_the_registration_changed,
    diagnose::base_nodes_are_compared_with_the_layout,
    diagnose::keys_of_another_installation_may_not_read_access_lists,
    diagnose::the_queue_for_the_lock_is_listed_in_order,
    diagnose::an_observation_without_the_lock_writes_nothing,
    diagnose::a_handshake_probe_shows_the_granted_session,
    diagnose::foreign_nodes_in_the_discovery_namespace_are_listed,
    views::an_observation_contains_every_node,
    views::every_change_wakes_the_master,
    views::hundreds_of_engines_are_observed_and_watched,
    views::a_burst_of_events_is_coalesced,
    views::suppressed_events_cause_no_wake_up,
    views::a_view_follows_the_registry,
    views::a_view_without_events_follows_the_registry,
    views::a_view_keeps_missing_engines_after_its_session_was_replaced,
    sessions::an_expired_session_is_replaced_with_its_nodes,
    sessions::a_failing_rebuild_is_retried_before_the_session_is_published,
    sessions::a_deleted_ephemeral_node_is_recreated,
    sessions::a_deleted_ephemeral_node_is_recreated_without_events,
    sessions::deleted_base_nodes_are_recreated,
    sessions::closing_a_supervisor_deletes_its_nodes,
    sessions::a_missing_server_is_unavailable_within_the_deadline,
    answers::a_lost_answer_leaves_the_outcome_unknown,
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

/// Runs every case against one server and returns their number.
pub async fn run(server: &str, servers: &str) -> usize {
    run_at(server, &Servers { ours: servers.to_owned(), plain: servers.to_owned(), tls: None }).await
}

/// The addresses of a server.
#[derive(Clone)]
pub struct Servers {
    /// For the sessions of an installation.
    pub ours: String,
    /// For clients as other tools have them, which have no TLS here.
    pub plain: String,
    pub tls: Option<ZookeeperTls>,
}

/// The same for a server that may have TLS.
pub async fn run_at(server: &str, servers: &Servers) -> usize {
    let seed = std::process::id();
    println!("coordination suite on {server}: {} cases, roots /eh-{seed}-<n>/suite", CASES.len());
    let runs = CASES.iter().enumerate().map(|(number, (name, case))| async move {
        let installation = Installation::at(servers, &format!("/eh-{seed}-{number}/suite"));
        let outcome = tokio::spawn(timeout(CASE_LIMIT, case(installation))).await;
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
        stream::iter(runs).buffer_unordered(AT_ONCE).filter_map(|failure| async move { failure }).collect().await;
    println!("coordination suite on {server}: {} passed, {} failed", CASES.len() - failures.len(), failures.len());
    assert!(failures.is_empty(), "on {server}:\n{}", failures.join("\n"));
    CASES.len()
}

/// A root on a server and the identities that use it.
#[derive(Clone)]
pub struct Installation {
    pub servers: String,
    /// The servers for plain clients.
    plain: String,
    pub tls: Option<ZookeeperTls>,
    pub layout: Layout,
    /// What its keys are made from, one for each accepted generation.
    pub generations: Vec<&'static str>,
    pub clock: SharedClock,
}

impl Installation {
    pub fn new(servers: &str, root: &str) -> Self {
        Self::at(&Servers { ours: servers.to_owned(), plain: servers.to_owned(), tls: None }, root)
    }

    pub fn at(servers: &Servers, root: &str) -> Self {
        let Servers { ours, plain, tls } = servers.clone();
        Self {
            servers: ours,
            plain,
            tls,
            layout: Layout::new(root, None).unwrap(),
            generations: vec!["a generation of the test suite"],
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
        settings.tls.clone_from(&self.tls);
        settings.session_timeout = Duration::from_secs(10);
        settings.reread = Duration::from_millis(500);
        settings
    }

    pub fn proxy(&self) -> Identity {
        Identity::fixed(Logins::proxy(self.passwords("proxy"), &self.roles()))
    }

    pub fn master(&self) -> Identity {
        Identity::fixed(self.master_logins())
    }

    pub fn master_logins(&self) -> Logins {
        let installation = self.clone();
        let engines = move |engine: &EngineName| installation.passwords(engine.as_str());
        Logins::master(self.passwords("master"), &self.roles(), Arc::new(engines))
    }

    pub fn agent(&self) -> Identity {
        Identity::fixed(self.agent_logins())
    }

    pub fn agent_logins(&self) -> Logins {
        Logins::metadata_agent(self.passwords("agent"), &self.roles())
    }

    pub fn engine(&self, name: &str) -> Identity {
        Identity::fixed(Logins::engine(&self.credential(name)))
    }

    pub fn credential(&self, name: &str) -> EngineCredential {
        let password = self.passwords(name).swap_remove(0);
        EngineCredential { engine: engine(name), password, readers: self.roles() }
    }

    /// The passwords of a role or an engine, one for each generation.
    pub fn passwords(&self, of: &str) -> Vec<String> {
        self.generations.iter().map(|generation| format!("{of} of {generation}")).collect()
    }

    fn roles(&self) -> Vec<RoleDigests> {
        let of = |generation: &str, user: &str| digest(user, &format!("{user} of {generation}"));
        let roles = |generation: &&str| RoleDigests {
            master: of(generation, "master"),
            proxy: of(generation, "proxy"),
            metadata_agent: of(generation, "agent"),
        };
        self.generations.iter().map(roles).collect()
    }

    /// The same root with keys of other generations.
    pub fn with_generations(&self, generations: &[&'static str]) -> Self {
        Self { generations: generations.to_vec(), ..self.clone() }
    }

    /// The session of a role, with the base nodes.
    pub async fn session(&self, identity: Identity) -> Session {
        let session = self.engine_session(identity).await;
        bootstrap::create_base_nodes(&session).await.unwrap();
        session
    }

    pub async fn engine_session(&self, identity: Identity) -> Session {
        Session::connect(&self.settings(identity), &self.clock).await.unwrap()
    }

    pub fn election(&self) -> coordination::Election {
        coordination::Election::new(self.settings(self.master()), self.clock.clone(), "suite")
    }

    pub async fn lock(&self) -> Lock {
        within(self.election().win()).await.unwrap()
    }

    /// A plain client, as another tool would connect; `login` is `user:password`.
    pub async fn stranger(&self, login: Option<&str>) -> zk::Client {
        let mut connector = zk::Client::connector().with_session_timeout(Duration::from_secs(20));
        if let Some(login) = login {
            connector = connector.with_auth("digest", login.as_bytes());
        }
        connector.connect(&self.plain).await.unwrap()
    }

    pub async fn as_master(&self) -> zk::Client {
        self.stranger(Some(&format!("master:{}", self.passwords("master")[0]))).await
    }

    /// Expires a session: a second connection takes it over and closes it. The first one takes it back as soon as it notices, so
    /// this may need several attempts.
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

    /// Expires a session whose client cannot reach the server now and so notices later.
    pub async fn expire_elsewhere(&self, session: &Session) {
        let client = within(self.take_over(session.takeover().unwrap())).await.unwrap();
        let mut states = client.state_watcher();
        drop(client);
        while !within(states.changed()).await.is_terminated() {}
    }

    async fn take_over(&self, session: zk::SessionInfo) -> Result<zk::Client, zk::Error> {
        zk::Client::connector().with_session(session).connect(&self.plain).await
    }

    /// A permit for a new engine: created first, its uid written later.
    pub async fn made(&self, lock: &Lock, name: &str, uid: &str) -> PermitNode {
        permits::create(lock, &engine(name), &permit(None)).await.unwrap();
        permits::record_uid(lock, &engine(name), uid).await.unwrap();
        permits::read(lock.session(), &engine(name)).await.unwrap().unwrap()
    }

    /// A permit for a running engine, with its uid, as it is read back.
    pub async fn permitted(&self, lock: &Lock, name: &str, uid: &str) -> PermitNode {
        permits::create(lock, &engine(name), &permit(Some(uid))).await.unwrap();
        permits::read(lock.session(), &engine(name)).await.unwrap().unwrap()
    }

    /// An engine that is registered below a new permit; the session keeps it registered.
    pub async fn registered(&self, lock: &Lock, name: &str, uid: &str) -> Session {
        self.permitted(lock, name, uid).await;
        let session = self.session(self.engine(name)).await;
        let own = registry::read_own(&session, &engine(name)).await.unwrap();
        registry::register(&session, &own.permit.unwrap(), &registration(uid)).await.unwrap();
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
        sessions: None,
        owner: None,
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
        owner: None,
        keys: Vec::new(),
        tls: None,
    }
}

/// Waits for a result, at most [`WAIT`].
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(WAIT, future).await.expect("it took too long")
}

/// Polls until the condition holds: for states of a server without an event.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    let asked = timeout(WAIT, async {
        while !ask().await {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(asked.await.is_ok(), "not in time: {what}");
}
