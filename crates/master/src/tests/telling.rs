//! What a master says in the log of a trouble that lasts.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Metadata, Subscriber, span};

use super::fake::{Fake, memory};
use crate::world::Failure;

const TICK: Duration = Duration::from_secs(2);
/// Ticks within three minutes and a little more.
const TICKS: u32 = 92;
/// At once, and after each minute.
const SAID: usize = 4;

/// Keeps the lines of this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn with(&self, text: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

/// While there is one collector only, `tracing` asks the thread that comes by a line first whether anybody wants it: a
/// test of another thread, which has none, would say no for all. With two it asks the collectors.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Lines::default()));

/// The lines of this thread from now on.
fn told() -> (Lines, DefaultGuard) {
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
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn a_decision_that_fails_at_each_tick_is_told_once_a_minute_and_when_it_succeeds() {
    let (lines, _telling) = told();
    let fake = Fake::with_engines_wanted(1);
    let mut driver = fake.driver(1);
    fake.settle(&mut driver).await;
    let old = fake.present(0);
    fake.commit("a-1", &memory(2));
    driver.tick(&*fake).await;
    let new = fake.present(0);
    assert!(fake.state().world.register(&new));
    let drain = format!("drain engine {old}");
    fake.state().failing.push((drain.clone(), Failure::Refused("no right".to_owned())));
    fake.state().effects.clear();
    for _ in 0..TICKS {
        driver.tick(&*fake).await;
        fake.pass(TICK);
    }
    assert_eq!(fake.state().effects.iter().filter(|it| **it == drain).count(), TICKS as usize, "it is tried each time");
    let said = lines.with("decision failed");
    assert_eq!(said.len(), SAID, "{said:#?}");
    assert!(said[0].contains("times=1 ") && said[SAID - 1].contains("times=91 "), "{said:#?}");
    fake.state().failing.clear();
    driver.tick(&*fake).await;
    driver.tick(&*fake).await;
    let over = lines.with("failed=92 ");
    assert!(over.len() == 1 && over[0].contains("decision applied") && over[0].contains(old.as_str()), "{over:#?}");
}

#[tokio::test]
async fn a_wait_that_lasts_is_told_loudly_once_a_minute_and_when_it_is_over() {
    let (lines, _telling) = told();
    let fake = Fake::with_engines_wanted(1);
    fake.make_node("a-1", 99);
    fake.state().unsettled = true;
    let mut driver = fake.driver(1);
    for _ in 0..TICKS {
        driver.tick(&*fake).await;
        fake.pass(TICK);
    }
    assert_eq!(lines.with("is not settled yet").len(), SAID);
    fake.state().database = false;
    for _ in 0..TICKS {
        driver.tick(&*fake).await;
        fake.pass(TICK);
    }
    let loud = lines.with("the master waits for long").len();
    assert_eq!((loud, lines.with("the master waits").len()), (SAID - 1, SAID), "at once, and loudly after a while");
    fake.state().database = true;
    fake.state().unsettled = false;
    driver.tick(&*fake).await;
    driver.tick(&*fake).await;
    assert_eq!(lines.with("the master waits no longer").len(), 1);
    assert_eq!(lines.with("settling works again").len(), 1);
}
