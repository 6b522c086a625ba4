//! The contract of a server of ZooKeeper's protocol: a table of behaviours that runs against the embedded server and
//! against ZooKeeper itself.
//!
//! A behaviour receives a server that may have other clients and other data, and works in a folder of its own. It waits
//! for events, never for a fixed time, and fails after [`WAIT`].

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use zookeeper_client::{Acls, Client, CreateMode, CreateOptions};

pub mod access;
pub mod nodes;
pub mod raw;
pub mod sessions;
pub mod transactions;
pub mod watches;
pub mod wire;

/// The deadline of each wait.
pub const WAIT: Duration = Duration::from_secs(20);

/// The options of a node whose options do not matter.
pub const PLAIN: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
/// The same, living with the session.
pub const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
/// The same, with a sequence number.
pub const SEQUENTIAL: CreateOptions<'static> = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());

/// Waits for something that must happen.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT, what).await.expect("timed out")
}

/// A server under test, and a folder in its tree that no other test uses.
#[derive(Clone, Debug)]
pub struct Target {
    pub addr: SocketAddr,
    /// Path of the folder; it exists and is empty.
    pub root: String,
}

impl Target {
    /// Creates the folder.
    #[allow(clippy::disallowed_methods, reason = "a name that no earlier run has used")]
    pub async fn new(addr: SocketAddr, name: &str) -> Self {
        let stamp = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let root = format!("/{name}-{:x}", stamp.as_nanos());
        let client = soon(Client::connect(&addr.to_string())).await.unwrap();
        client.create(&root, b"", &PLAIN).await.unwrap();
        Self { addr, root }
    }

    /// A client whose root is the folder.
    pub async fn client(&self) -> Client {
        self.whole_client().await.chroot(self.root.clone()).unwrap()
    }

    /// A client that sees the whole tree.
    pub async fn whole_client(&self) -> Client {
        let connector = Client::connector().with_session_timeout(Duration::from_secs(10));
        soon(connector.connect(&self.addr.to_string())).await.unwrap()
    }

    /// The full path of a node in the folder.
    pub fn path(&self, name: &str) -> String {
        format!("{}{name}", self.root)
    }
}

/// Passes every behaviour as `module::name` to the macro that makes tests of them.
#[macro_export]
macro_rules! for_each_behaviour {
    ($make:ident) => {
        $make! {
            nodes::a_created_node_reads_back_with_its_stat;
            nodes::creating_twice_or_without_a_parent_is_refused;
            nodes::a_sequence_counts_the_children_ever_made;
            nodes::the_stat_of_a_parent_counts_changes_of_its_children;
            nodes::an_ephemeral_node_has_an_owner_and_no_children;
            nodes::versions_are_checked_by_set_and_delete;
            nodes::a_node_with_children_cannot_be_deleted;
            nodes::descendants_are_counted_and_own_ephemerals_listed;
            nodes::a_container_is_no_ephemeral;
            nodes::a_time_to_live_is_refused;
            nodes::odd_paths_are_refused;
            nodes::built_in_nodes_cannot_be_deleted;
            nodes::sync_answers_and_reconfig_is_refused;
            transactions::a_transaction_happens_as_a_whole;
            transactions::a_failed_transaction_changes_nothing_and_names_the_part;
            transactions::later_parts_see_what_earlier_ones_did;
            transactions::each_part_of_a_failed_transaction_has_its_code;
            transactions::a_failed_transaction_fires_no_watch;
            transactions::reads_in_a_batch_fail_each_for_itself;
            watches::a_data_watch_fires_once;
            watches::an_exists_watch_fires_when_the_node_comes;
            watches::a_child_watch_fires_on_coming_and_going;
            watches::a_deleted_node_fires_data_and_child_watches_once;
            watches::the_event_arrives_before_the_reply_that_shows_the_change;
            watches::an_own_change_fires_before_its_own_reply;
            watches::a_persistent_watch_hears_every_change;
            watches::a_recursive_watch_hears_what_is_below;
            watches::a_removed_watch_hears_nothing;
            watches::watches_set_again_report_missed_changes;
            watches::persistent_watches_set_again_receive_later_events;
            watches::watches_go_with_their_connection;
            watches::a_read_that_fails_sets_no_watch;
            access::strangers_may_only_check_existence;
            access::creating_and_deleting_are_checked_on_the_parent;
            access::the_list_itself_needs_admin_and_counts_its_versions;
            access::without_admin_the_hashes_are_hidden;
            access::impossible_lists_are_refused;
            access::a_check_in_a_transaction_needs_read;
            access::an_event_about_an_unreadable_node_is_not_delivered;
            access::who_am_i_returns_the_identities;
            access::a_wrong_scheme_ends_the_connection;
            sessions::a_session_is_resumed_with_its_password;
            sessions::a_wrong_password_or_unknown_session_is_answered_as_expired;
            sessions::the_older_connection_of_a_session_is_closed;
            sessions::a_silent_session_loses_its_nodes_and_watches_fire;
            sessions::a_ping_keeps_a_session;
            sessions::a_closed_session_loses_its_nodes_at_once;
            sessions::a_timeout_is_granted_within_limits;
            sessions::the_lock_recipe_hands_over;
            wire::an_old_client_is_answered_without_the_read_only_flag;
            wire::a_frame_beyond_the_limit_ends_the_connection;
            wire::a_large_frame_within_the_limit_is_taken;
            wire::an_unknown_operation_is_refused;
            wire::an_unreadable_request_is_refused;
            wire::replies_come_in_the_order_of_requests;
            wire::a_client_ahead_of_the_server_is_rejected;
            wire::four_letter_words_are_answered;
        }
    };
}
