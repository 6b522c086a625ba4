//! The log of conditions that last: throttled lines, and one when the condition is over.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use model::Epoch;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Metadata, Subscriber, span};

use super::fake::{Fake, Fault, memory, no_agent, settings};
use crate::candidate::CandidateState;
use crate::ctx::{ControllerCtx, Failure};
use crate::settings::Settings;
use crate::term;
use crate::tick::Reconciler;

const TICK: Duration = Duration::from_secs(2);
/// Ticks within three minutes and a little more.
const TICKS: u32 = 92;
/// At once, and after each minute.
const LOGGED: usize = 4;

/// Keeps the lines of this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn with(&self, text: &str) -> Vec<String> {
        self.0.lock().iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

/// While there is one collector only, `tracing` queries the first thread that reaches a log line for interest in
/// it: a test of another thread, without a collector, would disable the line for all. With two it queries the collectors.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Lines::default()));

/// The lines of this thread from now on.
fn capture() -> (Lines, DefaultGuard) {
    LazyLock::force(&SECOND);
    let lines = Lines::default();
    (lines.clone(), tracing::subscriber::set_default(lines))
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("master")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn a_failing_decision_is_logged_once_a_minute_and_when_it_succeeds() {
    let (lines, _guard) = capture();
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    let old = fake.present(0);
    fake.commit("a-1", &memory(2));
    reconciler.tick(&*fake).await;
    let new = fake.present(0);
    assert!(fake.state().simulation.register(&new));
    let drain = format!("drain engine {old}");
    fake.script(&drain, Fault::Fails(Failure::Refused("no right".to_owned())));
    fake.state().journal.clear();
    for _ in 0..TICKS {
        reconciler.tick(&*fake).await;
        fake.pass(TICK);
    }
    assert_eq!(
        fake.state().journal.effects().iter().filter(|effect| **effect == drain).count(),
        TICKS as usize,
        "it is tried each time"
    );
    let logged = lines.with("decision failed");
    assert_eq!(logged.len(), LOGGED, "{logged:#?}");
    assert!(logged[0].contains("times=1 ") && logged[LOGGED - 1].contains("times=91 "), "{logged:#?}");
    fake.recover();
    reconciler.tick(&*fake).await;
    reconciler.tick(&*fake).await;
    let over = lines.with("failed=92 ");
    assert!(over.len() == 1 && over[0].contains("decision applied") && over[0].contains(old.as_str()), "{over:#?}");
}

#[tokio::test]
async fn a_long_wait_is_logged_once_a_minute_and_at_its_end() {
    let (lines, _guard) = capture();
    let fake = Fake::with_engines_wanted(1);
    fake.create_node("a-1", 99);
    let blocked = Failure::Unknown("a transaction holds the row".to_owned());
    fake.script("database: abort", Fault::Fails(blocked));
    let mut reconciler = fake.reconciler(1);
    for _ in 0..TICKS {
        reconciler.tick(&*fake).await;
        fake.pass(TICK);
    }
    assert_eq!(lines.with("could not settle the alteration yet").len(), LOGGED);
    fake.script("database:", Fault::Fails(no_agent()));
    for _ in 0..TICKS {
        reconciler.tick(&*fake).await;
        fake.pass(TICK);
    }
    let loud = lines.with("still waiting").len();
    assert_eq!((loud, lines.with("waiting").len()), (LOGGED - 1, LOGGED), "at once, and loudly after a while");
    fake.recover();
    reconciler.tick(&*fake).await;
    reconciler.tick(&*fake).await;
    assert_eq!(lines.with("no longer waiting").len(), 1);
    assert_eq!(lines.with("settling works again").len(), 1);
}

#[tokio::test]
async fn chains_left_to_the_next_tick_are_logged_with_their_stage() {
    let (lines, _guard) = capture();
    let fake = Fake::with_engines_wanted(8);
    let settings = Settings { effect_deadline: Duration::from_millis(20), parallelism: 1, ..settings() };
    let mut reconciler = Reconciler::new(settings, Epoch(1), fake.state().now(), CancellationToken::new());
    fake.run_clock();
    fake.script("create engine", Fault::Hangs);
    reconciler.tick(&*fake).await;
    let left = lines.with("left to the next tick");
    assert!(left.len() == 1 && left[0].contains("stage=create "), "{left:#?}");
}

/// The orchestrator has a higher epoch, because the database was restored from an older state.
#[tokio::test]
async fn raising_the_epoch_repeatedly_is_logged_once_and_at_the_end() {
    let (lines, _guard) = capture();
    let fake = Fake::with_engines_wanted(1);
    fake.script("create engine", Fault::Fails(Failure::Deposed("epoch 6 was seen".to_owned())));
    let (sender, mut state) = watch::channel(CandidateState::Candidate);
    let (ctx, settings, stop) = (
        Arc::clone(&fake) as Arc<dyn ControllerCtx>,
        Settings { tick: Duration::from_millis(10), ..settings() },
        CancellationToken::new(),
    );
    let seen = async {
        while fake.state().master().epoch < Epoch(6) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        fake.recover();
        let _ = state.wait_for(|state| matches!(state, CandidateState::Acting { .. })).await;
        stop.cancel();
    };
    let serving = term::serve(ctx, &settings, &sender, &stop);
    tokio::time::timeout(Duration::from_mins(1), futures::future::join(serving, seen)).await.unwrap();
    let raised = lines.with("epoch raised");
    assert!(
        raised.len() == 2 && raised[0].contains("epoch=2 ") && raised[1].contains("epoch raised again"),
        "{raised:#?}"
    );
    assert_eq!(lines.with("tick stopped").len(), 1);
    let over = lines.with("ticks complete again");
    assert!(over.len() == 1 && over[0].contains("times="), "{over:#?}");
    let epoch = fake.state().master().epoch;
    assert!(epoch >= Epoch(6) && over[0].contains(&format!("epoch={epoch} ")), "{epoch}: {over:#?}");
}

#[tokio::test]
async fn a_wrong_amount_of_the_ledger_is_logged_with_both_values() {
    let (lines, _guard) = capture();
    let fake = Fake::with_engines_wanted(2);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    {
        let mut state = fake.state();
        let ledger = &mut state.simulation.desired.snapshot.ledger;
        let (key, mut scope) = ledger.scopes().next().map(|(key, scope)| (key.clone(), *scope)).unwrap();
        scope.counter.held.engines = 7;
        ledger.put_scope(key, scope);
    }
    fake.pass(Duration::from_mins(2));
    reconciler.tick(&*fake).await;
    let logged = lines.with("the ledger held a wrong amount; corrected");
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].contains("stored=7 computed=2"), "{logged:?}");
    fake.pass(Duration::from_mins(2));
    reconciler.tick(&*fake).await;
    assert_eq!(lines.with("the ledger held a wrong amount; corrected").len(), 1, "it was corrected");
}
