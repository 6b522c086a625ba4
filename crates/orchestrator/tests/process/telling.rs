//! What the keeper says in the log.

use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use model::clock::SystemClock;
use orchestrator::process::{Config, KEEPER_PERIOD, Process};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, span};

use orchestrator::Orchestrator as _;

use crate::place::{DEADLINE, EPOCH, Place, shell};

/// Keeps the lines of this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(Level, String)>>>, Arc<AtomicUsize>);

/// While there is one collector only, `tracing` asks the thread that comes by a line first whether anybody wants it: a
/// test of another thread, which has none, would say no for all. With two it asks the collectors.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Lines::default()));

impl Lines {
    fn begin() -> Self {
        LazyLock::force(&SECOND);
        Self::default()
    }

    fn count(&self, level: Level, text: &str) -> usize {
        self.0.lock().iter().filter(|(of, line)| *of == level && line.contains(text)).count()
    }

    async fn until(&self, level: Level, text: &str) {
        let come = async {
            while self.count(level, text) == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(DEADLINE, come).await.is_ok(), "no line with {text}: {:?}", self.0.lock());
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("orchestrator") && *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(self.1.fetch_add(1, Ordering::SeqCst) as u64 + 1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().push((*event.metadata().level(), text.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn a_state_directory_that_can_not_be_read_is_told_once_and_that_it_can_again() {
    let lines = Lines::begin();
    let _telling = tracing::subscriber::set_default(lines.clone());
    let place = Place::new();
    let process = Process::open(Config::new(place.state()), SystemClock::shared()).unwrap();
    let engines = place.state().join("engines");
    fs::remove_dir(&engines).unwrap();
    fs::write(&engines, "").unwrap();
    lines.until(Level::WARN, "can't read").await;
    // The keeper goes on looking: nothing happens that could be waited for.
    tokio::time::sleep(KEEPER_PERIOD * 5).await;
    assert_eq!(lines.count(Level::WARN, "can't read"), 1);
    fs::remove_file(&engines).unwrap();
    fs::create_dir(&engines).unwrap();
    lines.until(Level::INFO, "reads the state directory again").await;
    drop(process);
}

#[tokio::test]
async fn a_log_that_can_not_be_limited_is_told_once() {
    // Looks are taken on threads that belong to nobody, so the lines of all threads are kept, of other tests too.
    let lines = Lines::begin();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let place = Place::new();
    let process = place.open();
    let script = "until [ -d ../log.1 ]; do sleep 0.02; done; i=0; \
                  while [ $i -lt 4000 ]; do echo line $i; i=$((i+1)); done; exec sleep 1000";
    let mut wanted = shell("verbose", script);
    wanted.log.keep_bytes = 10_000;
    process.ensure(&wanted, EPOCH).await.unwrap();
    // A folder stands where the old log should be.
    let in_the_way = place.engine("verbose").join("log.1");
    fs::create_dir(&in_the_way).unwrap();
    let told = "what=\"limit the log of an engine\" of=\"verbose\"";
    lines.until(Level::WARN, told).await;
    tokio::time::sleep(KEEPER_PERIOD * 5).await;
    assert_eq!(lines.count(Level::WARN, told), 1);
    fs::remove_dir(&in_the_way).unwrap();
    let log = place.engine("verbose").join("log");
    let cut = async {
        while fs::metadata(&log).unwrap().len() > 10_000 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, cut).await.is_ok(), "the log is as long as before");
}
