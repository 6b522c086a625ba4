//! Fault injection of the fake, on which the tests of the master rely.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use model::clock::ManualClock;
use model::engine_state::Phase;
use model::labels::LabelMap;
use model::observation::ObservedNode;
use model::{EngineName, Epoch};
use orchestrator::memory::{Behaviour, End, Memory, Verb};
use orchestrator::{Error, Orchestrator, Spec};

const EPOCH: Epoch = Epoch(1);

fn memory() -> (Memory, Arc<ManualClock>) {
    let clock = ManualClock::at(1_700_000_000_000);
    (Memory::new(clock.clone()), clock)
}

fn name(text: &str) -> EngineName {
    EngineName::new(text).unwrap()
}

fn spec(text: &str) -> Spec {
    Spec::new(name(text), vec!["/bin/engine".to_owned()])
}

async fn count_of_engines(memory: &Memory) -> usize {
    memory.list(&LabelMap::new()).await.unwrap().engines.len()
}

#[tokio::test]
async fn an_injected_failure_has_no_effect_and_occurs_once() {
    let (memory, _) = memory();
    memory.fail_next(Verb::Ensure, Error::refused("no quota"));
    memory.fail_next(Verb::Ensure, Error::transient("no reply"));
    assert_eq!(memory.ensure(&spec("one"), EPOCH).await, Err(Error::refused("no quota")));
    assert!(memory.ensure(&spec("one"), EPOCH).await.unwrap_err().is_retryable());
    assert_eq!(count_of_engines(&memory).await, 0);
    assert!(memory.ensure(&spec("one"), EPOCH).await.unwrap().created);
}

#[tokio::test]
async fn a_call_with_a_lost_reply_has_its_effect() {
    let (memory, _) = memory();
    memory.lose_reply(Verb::Ensure);
    assert!(memory.ensure(&spec("one"), EPOCH).await.unwrap_err().is_retryable());
    let again = memory.ensure(&spec("one"), EPOCH).await.unwrap();
    assert!(!again.created);
    memory.lose_reply(Verb::Delete);
    memory.delete(&name("one"), &again.uid, Duration::ZERO, EPOCH).await.unwrap_err();
    assert_eq!(count_of_engines(&memory).await, 0);
}

#[tokio::test]
async fn a_held_verb_hangs_before_its_effect_until_it_is_released() {
    let (memory, _) = memory();
    let held = memory.hold(Verb::Ensure);
    let spec = spec("one");
    let mut hanging = pin!(memory.ensure(&spec, EPOCH));
    assert!(matches!(hanging.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    assert_eq!((memory.count(Verb::Ensure), count_of_engines(&memory).await), (1, 0));
    held.release();
    assert!(hanging.await.unwrap().created);
    assert!(!memory.ensure(&spec, EPOCH).await.unwrap().created);
}

#[tokio::test]
async fn a_frozen_list_is_stale_and_a_get_is_not() {
    let (memory, _) = memory();
    memory.ensure(&spec("old"), EPOCH).await.unwrap();
    memory.freeze_lists();
    memory.ensure(&spec("new"), EPOCH).await.unwrap();
    memory.vanish(&name("old"));
    let listing = memory.list(&LabelMap::new()).await.unwrap();
    assert!(listing.find(&name("old")).is_some() && listing.find(&name("new")).is_none());
    assert_eq!(memory.get(&name("old"), None).await.unwrap(), None);
    assert!(memory.get(&name("new"), None).await.unwrap().is_some());
    memory.thaw_lists();
    assert!(memory.list(&LabelMap::new()).await.unwrap().find(&name("new")).is_some());
}

#[tokio::test]
async fn refused_creates_leave_existing_engines() {
    let (memory, _) = memory();
    memory.ensure(&spec("one"), EPOCH).await.unwrap();
    memory.refuse_creates(Some("quota exceeded"));
    assert_eq!(memory.ensure(&spec("two"), EPOCH).await, Err(Error::refused("quota exceeded")));
    assert!(!memory.ensure(&spec("one"), EPOCH).await.unwrap().created);
    memory.refuse_creates(None);
    assert!(memory.ensure(&spec("two"), EPOCH).await.unwrap().created);
}

#[tokio::test]
async fn a_crash_loop_ends_every_new_engine_on_time() {
    let (memory, clock) = memory();
    let second = Duration::from_secs(1);
    memory.behave(Behaviour {
        starts_after: second,
        ..Behaviour::ending(second, End::code(1).with_reason("no licence"))
    });
    for id in ["one", "two"] {
        memory.ensure(&spec(id), EPOCH).await.unwrap();
        let mut wake_ups = memory.watch();
        for phase in [Phase::Pending, Phase::Running, Phase::Ended] {
            let engine = memory.get(&name(id), None).await.unwrap().unwrap();
            assert_eq!(engine.phase, phase);
            clock.advance(second);
            memory.settle();
            if phase != Phase::Ended {
                wake_ups.wait().await;
            }
        }
        let ended = memory.get(&name(id), None).await.unwrap().unwrap();
        assert_eq!((ended.reason.as_deref(), ended.log_tail.as_deref()), (Some("no licence"), Some("no licence")));
        assert_eq!(ended.exit.unwrap().ended_at_ms - ended.started_at_ms.unwrap(), 1_000);
    }
}

#[tokio::test]
async fn engines_of_others_are_adopted_and_every_call_is_recorded() {
    let (memory, _) = memory();
    memory.ensure(&spec("one"), EPOCH).await.unwrap();
    let mut foreign = memory.get(&name("one"), None).await.unwrap().unwrap();
    foreign.name = name("foreign");
    "foreign-uid".clone_into(&mut foreign.uid);
    memory.put(foreign);
    memory.clear_calls();
    memory.delete(&name("foreign"), "foreign-uid", Duration::ZERO, Epoch(2)).await.unwrap();
    assert_eq!(count_of_engines(&memory).await, 1);
    let calls = memory.calls();
    assert_eq!(calls.iter().map(|call| call.verb).collect::<Vec<_>>(), [Verb::Delete, Verb::List]);
    assert_eq!((calls[0].uid.as_deref(), calls[0].epoch), (Some("foreign-uid"), Some(Epoch(2))));
}

#[tokio::test]
async fn nodes_report_what_their_engines_request_until_these_end() {
    let (memory, clock) = memory();
    let memory = memory.with_capacity(&["node-1", "node-2"], None);
    let node = |name: &str, cpu_used_millis| ObservedNode {
        name: name.to_owned(),
        cpu_millis: 8_000,
        cpu_used_millis,
        ..ObservedNode::default()
    };
    memory.set_nodes(vec![node("node-1", 100), node("node-2", 0)]);
    let used = async || {
        let nodes = memory.nodes().await.unwrap();
        nodes.into_iter().map(|node| node.cpu_used_millis).collect::<Vec<_>>()
    };
    for engine in ["one", "two", "three"] {
        let mut spec = spec(engine);
        spec.charge.driver.engine.cpu_request_millis = 500;
        memory.ensure(&spec, EPOCH).await.unwrap();
    }
    assert_eq!(used().await, [1_100, 500]);
    memory.end(&name("one"), &End::code(0));
    let two = memory.get(&name("two"), None).await.unwrap().unwrap();
    memory.delete(&two.name, &two.uid, Duration::from_secs(5), EPOCH).await.unwrap();
    clock.advance(Duration::from_secs(5));
    assert_eq!(used().await, [600, 0]);
}
