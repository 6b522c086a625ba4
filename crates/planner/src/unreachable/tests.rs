//! A table of engines on failed nodes, and deliberately broken rules that it detects.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use model::engine_name::EngineName;
use model::shared::Shared;

use super::*;
use crate::observed::{Permit, Registration};

const GRACE: Duration = Duration::from_secs(5);

/// A second instance with the name of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stray {
    None,
    OnReadyNode,
    /// Its node has not been ready for so many seconds.
    OnFailedNode(u64),
}
use Stray::{OnFailedNode, OnReadyNode};

/// An engine and the nodes of its installation, in seconds.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "the pieces of evidence are independent of each other")]
struct Case {
    what: &'static str,
    is_registered: bool,
    has_been_registered: bool,
    is_permit_read: bool,
    is_registry_complete: bool,
    /// How long the node of the engine has not been ready.
    node: Option<u64>,
    /// A second instance with its name.
    stray: Stray,
    /// How many other nodes have engines, and how many of these are not ready.
    others: [usize; 2],
    /// Nodes that are not ready and have no engine that runs.
    without_engines: usize,
    since_suspended: Option<u64>,
    is_unreachable: bool,
}

const ALL: Case = Case {
    what: "all the evidence",
    is_registered: false,
    has_been_registered: true,
    is_permit_read: true,
    is_registry_complete: true,
    node: Some(5),
    stray: Stray::None,
    others: [4, 0],
    without_engines: 0,
    since_suspended: None,
    is_unreachable: true,
};

const TABLE: &[Case] = &[
    ALL,
    Case { what: "it is registered", is_registered: true, is_unreachable: false, ..ALL },
    Case { what: "its node is ready", node: None, is_unreachable: false, ..ALL },
    Case { what: "its node has failed for 4 s", node: Some(4), is_unreachable: false, ..ALL },
    Case { what: "the registry is incomplete", is_registry_complete: false, is_unreachable: false, ..ALL },
    Case {
        what: "it never registered, 29 s",
        has_been_registered: false,
        node: Some(29),
        is_unreachable: false,
        ..ALL
    },
    Case { what: "it never registered, 30 s", has_been_registered: false, node: Some(30), ..ALL },
    Case { what: "its permit was not read, 29 s", is_permit_read: false, node: Some(29), is_unreachable: false, ..ALL },
    Case { what: "its permit was not read, 30 s", is_permit_read: false, node: Some(30), ..ALL },
    Case { what: "another instance is on a ready node", stray: OnReadyNode, is_unreachable: false, ..ALL },
    Case {
        what: "another one's node failed later",
        node: Some(60),
        stray: OnFailedNode(4),
        is_unreachable: false,
        ..ALL
    },
    Case { what: "another one's node failed as well", node: Some(60), stray: OnFailedNode(5), ..ALL },
    Case { what: "two of five nodes have failed", others: [4, 1], ..ALL },
    Case { what: "three of five nodes have failed", others: [4, 2], is_unreachable: false, ..ALL },
    Case { what: "both nodes have failed", others: [1, 1], ..ALL },
    Case { what: "three of six nodes have failed", others: [5, 2], ..ALL },
    Case { what: "four of six nodes have failed", others: [5, 3], is_unreachable: false, ..ALL },
    Case { what: "nodes without engines have failed", others: [4, 1], without_engines: 5, ..ALL },
    Case { what: "just after a suspension", node: Some(60), since_suspended: Some(4), is_unreachable: false, ..ALL },
    Case { what: "a while after a suspension", node: Some(60), since_suspended: Some(5), ..ALL },
];

fn instance(name: &EngineName, uid: &str, node: &str, phase: Phase) -> Instance {
    Instance {
        name: name.clone(),
        uid: uid.to_owned(),
        labels: Arc::default(),
        phase,
        incomplete: false,
        generation: None,
        node: Some(node.to_owned()),
        reason: None,
        fault: None,
        started_at_ms: None,
        log_tail: None,
        pods: None,
        details: Arc::default(),
    }
}

fn is_unreachable(rules: &'static dyn Evidence, case: &Case) -> bool {
    let name = EngineName::new("e-1").unwrap();
    let mut observed = ObservedState {
        registry_complete: case.is_registry_complete,
        since_suspended: case.since_suspended.map(Duration::from_secs),
        ..ObservedState::default()
    };
    let mut fail = |node: &str, secs: Option<u64>| {
        if let Some(secs) = secs {
            let lasted = Duration::from_secs(secs);
            observed.unready.insert(node.to_owned(), UnreadyNode { lasted, is_absent: false });
        }
    };
    fail("n-1", case.node);
    if let OnFailedNode(secs) = case.stray {
        fail("stray", Some(secs));
    }
    let own = instance(&name, "uid-1", "n-1", Phase::Running);
    let mut instances = vec![own.clone()];
    let stray = (case.stray != Stray::None).then(|| instance(&name, "uid-2", "stray", Phase::Running));
    let strays: Vec<Instance> = stray.into_iter().collect();
    instances.extend(strays.iter().cloned());
    for at in 0..case.others[0] {
        let (node, other) = (format!("other-{at}"), EngineName::new(format!("o-{at}")).unwrap());
        fail(&node, (at < case.others[1]).then_some(60));
        instances.push(instance(&other, &node, &node, Phase::Running));
    }
    for at in 0..case.without_engines {
        let (node, other) = (format!("empty-{at}"), EngineName::new(format!("x-{at}")).unwrap());
        fail(&node, Some(60));
        instances.push(instance(&other, &node, &node, Phase::Ended));
    }
    observed.instances = instances.into_iter().map(Shared::from).collect();
    let permit = Permit {
        engine: name.clone(),
        uid: Some("uid-1".to_owned()),
        readable: true,
        answered: case.has_been_registered,
        sessions: case.is_permit_read.then_some(None),
        owner: None,
    };
    let registration = Registration {
        engine: name.clone(),
        uid: Some("uid-1".to_owned()),
        address: String::new(),
        config: String::new(),
        catalog: None,
        unclaimed: Duration::ZERO,
    };
    let engine = Engine {
        name,
        slot: None,
        incarnation: None,
        current_of: None,
        record: None,
        instance: Some(&own),
        strays: strays.iter().collect(),
        permit: Some(&permit),
        registration: case.is_registered.then_some(&registration),
        drain: None,
        load: None,
        reservation: None,
    };
    let limits = Limits { node_grace: GRACE, ..Limits::default() };
    FailedNodes::by(rules, &observed, &limits).is_unreachable(&engine)
}

/// The rows whose result differs.
fn differing(rules: &'static dyn Evidence) -> Vec<&'static str> {
    TABLE.iter().filter(|case| is_unreachable(rules, case) != case.is_unreachable).map(|case| case.what).collect()
}

/// The mutants: a name, and the methods that it replaces.
macro_rules! mutants {
    ($($name:literal { $($methods:tt)* })*) => {
        fn mutants() -> Vec<(&'static str, &'static dyn Evidence)> {
            vec![$({
                struct Broken;
                impl Evidence for Broken {
                    $($methods)*
                }
                ($name, &Broken as &'static dyn Evidence)
            }),*]
        }
    };
}

mutants! {
    "the node alone" {
        fn is_registered(&self, _: &Engine<'_>) -> bool { false }
    }
    "the registration alone" {
        fn unready(&self, _: &ObservedState, _: &str) -> Option<UnreadyNode> {
            Some(UnreadyNode { lasted: Duration::from_hours(1), is_absent: false })
        }
    }
    "the node of any instance" {
        fn later(&self, one: UnreadyNode, other: UnreadyNode) -> bool { one.lasted > other.lasted }
    }
    "a missing registration says something of every engine" {
        fn was_registered(&self, _: &Engine<'_>) -> bool { true }
    }
    "an unread permit says something" {
        fn was_registered(&self, engine: &Engine<'_>) -> bool { engine.permit.is_some_and(|permit| permit.answered) }
    }
    "a missing registration says nothing" {
        fn was_registered(&self, _: &Engine<'_>) -> bool { false }
    }
    "no grace" {
        fn needed(&self, _: bool, _: Duration) -> Duration { Duration::ZERO }
    }
    "the grace off by one" {
        fn needed(&self, was_registered: bool, grace: Duration) -> Duration {
            Design.needed(was_registered, grace) + Duration::from_millis(1)
        }
    }
    "the same grace for every engine" {
        fn needed(&self, _: bool, grace: Duration) -> Duration { grace }
    }
    "an incomplete registry is enough" {
        fn is_complete(&self, _: &ObservedState) -> bool { true }
    }
    "never suspended" {
        fn suspends(&self, _: usize, _: usize) -> bool { false }
    }
    "suspended at a half" {
        fn suspends(&self, failed: usize, with_engines: usize) -> bool {
            failed >= MIN_FAILED && failed * 2 >= with_engines
        }
    }
    "suspended by two nodes" {
        fn may_suspend(&self, failed: usize) -> bool { failed >= 2 }
        fn suspends(&self, failed: usize, with_engines: usize) -> bool { failed >= 2 && failed * 2 > with_engines }
    }
    "suspended by any three nodes" {
        fn suspends(&self, failed: usize, _: usize) -> bool { failed >= MIN_FAILED }
    }
    "nodes of ended engines suspend" {
        fn counts(&self, _: &Instance) -> bool { true }
    }
    "the end of a suspension is ignored" {
        fn counted(&self, unready: UnreadyNode, _: Option<Duration>) -> Duration { unready.lasted }
    }
}

#[test]
fn the_table_holds_and_detects_every_mutant_of_the_evidence() {
    assert_eq!(differing(&Design), Vec::<&str>::new());
    let mut survivors = Vec::new();
    for (name, rules) in mutants() {
        let rows = differing(rules);
        println!("{name}: {rows:?}");
        if rows.is_empty() {
            survivors.push(name);
        }
    }
    assert!(survivors.is_empty(), "not detected: {survivors:?}");
}
