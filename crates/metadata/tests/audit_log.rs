//! The log line of the audit: one for each row, with its content, after its COMMIT.

#![allow(clippy::unwrap_used, clippy::panic)]

mod contract;

use std::collections::BTreeMap;
use std::sync::Arc;

use contract::bench::{Bench, abort_of, by, create_unit, id, link};
use metadata::StoreSettings;
use model::alteration::{Abort, Source};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

type Line = BTreeMap<String, String>;

/// Keeps the lines of target `audit`.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Line>>>);

#[derive(Default)]
struct Fields(Line);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "audit"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().push(fields.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Lines {
    /// The lines since the last call.
    fn take(&self) -> Vec<Line> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// The only test of this program: its collector is the process's.
#[tokio::test]
async fn each_row_of_the_audit_is_one_line_of_the_log_after_its_commit() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(StoreSettings::sqlite(&folder.path().join("a.db"))).await.founded(0).await;
    assert_eq!(lines.take().len(), 3);

    bench.start("s-1").await.unwrap();
    let [line] = <[Line; 1]>::try_from(lines.take()).unwrap();
    for (field, expected) in [
        ("message", "control statement"),
        ("request", "s-1"),
        ("user", "admin"),
        ("tenant", "t_1"),
        ("outcome", "committed"),
    ] {
        assert_eq!(line.get(field).map(String::as_str), Some(expected), "{line:?}");
    }
    assert!(line["object"].starts_with("engine \""), "{line:?}");
    assert!(line.contains_key("generation") && line.contains_key("at_ms") && !line.contains_key("via"), "{line:?}");

    // Neither a repeat nor a refused transaction has a row, so neither has a line.
    bench.start("s-1").await.unwrap();
    bench.start_as("s-2", by("eve"), link("t_1", "rp_1", "uc_1")).await.unwrap_err();
    bench.try_alter("found-1", create_unit("uc_1", 0, 3)).await.unwrap();
    assert_eq!(lines.take(), Vec::<Line>::new());

    let word = |text: &str| Some(text.to_owned());
    let source =
        Source { via: word("superset"), method: word("file"), proxy: word("proxy-1:10009"), client: word("192.0.2.7") };
    bench.store.abort(&Abort { source, ..abort_of("a-1") }).await.unwrap();
    let [line] = <[Line; 1]>::try_from(lines.take()).unwrap();
    for (field, expected) in [
        ("outcome", "aborted"),
        ("via", "superset"),
        ("method", "file"),
        ("proxy", "proxy-1:10009"),
        ("client", "192.0.2.7"),
    ] {
        assert_eq!(line.get(field).map(String::as_str), Some(expected), "{line:?}");
    }
    let audited = bench.store.request(&id("s-1")).await.unwrap();
    assert!(audited.is_some());
}
