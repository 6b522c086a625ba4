//! The keeper's log lines.

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

use crate::support::{DEADLINE, EPOCH, TestDir, shell};

/// A subscriber that keeps the log lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(Level, String)>>>, Arc<AtomicUsize>);

/// With a single subscriber, `tracing` caches the interest of the first thread that reaches a callsite, and the thread of
/// another test has no subscriber. With two, it asks every subscriber.
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
async fn an_unreadable_state_directory_is_logged_once() {
    let lines = Lines::begin();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let dir = TestDir::new();
    let process = Process::open(Config::new(dir.state()), SystemClock::shared()).unwrap();
    let engines = dir.state().join("engines");
    fs::remove_dir(&engines).unwrap();
    fs::write(&engines, "").unwrap();
    lines.until(Level::WARN, "cannot read the state directory").await;
    // The keeper keeps reading, without an event to wait for.
    tokio::time::sleep(KEEPER_PERIOD * 5).await;
    assert_eq!(lines.count(Level::WARN, "cannot read the state directory"), 1);
    fs::remove_file(&engines).unwrap();
    fs::create_dir(&engines).unwrap();
    lines.until(Level::INFO, "reads the state directory again").await;
    drop(process);
}

#[tokio::test]
async fn a_log_that_cannot_be_limited_is_logged_once() {
    // Reads run on the blocking pool, so the lines of all threads are kept, including those of other tests.
    let lines = Lines::begin();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let dir = TestDir::new();
    let process = dir.open();
    let script = "until [ -d ../log.1 ]; do sleep 0.02; done; i=0; \
                  while [ $i -lt 4000 ]; do echo line $i; i=$((i+1)); done; exec sleep 1000";
    let mut spec = shell("verbose", script);
    spec.log.keep_bytes = 10_000;
    process.ensure(&spec, EPOCH).await.unwrap();
    // A folder blocks the path of the old log.
    let obstacle = dir.engine("verbose").join("log.1");
    fs::create_dir(&obstacle).unwrap();
    let line = "task=\"limit the log of an engine\" object=\"verbose\"";
    lines.until(Level::WARN, line).await;
    tokio::time::sleep(KEEPER_PERIOD * 5).await;
    assert_eq!(lines.count(Level::WARN, line), 1);
    fs::remove_dir(&obstacle).unwrap();
    let log = dir.engine("verbose").join("log");
    let cut = async {
        while fs::metadata(&log).unwrap().len() > 10_000 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, cut).await.is_ok(), "the log was not limited");
}
