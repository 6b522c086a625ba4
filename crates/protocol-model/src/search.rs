//! Exhaustive breadth-first search of a model.
//!
//! The result of a search is printed in one line past the test runner, with its limits and counts; the steps to a counterexample
//! are printed normally. A search that is incomplete within [`MAX_STATES`] is a failure.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::io::Write as _;
use std::time::Instant;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// A search that generates this many states is incomplete.
pub const MAX_STATES: usize = 200_000_000;

/// The result of a search.
#[derive(Debug)]
pub struct SearchResult {
    /// The number of distinct states.
    pub unique: usize,
    /// The number of generated states, including duplicates.
    pub generated: usize,
    /// The maximum number of steps to a state.
    pub depth: usize,
    /// Whether everything within the limits was visited, unless a counterexample ended the search.
    pub complete: bool,
    /// The shortest counterexample.
    pub counterexample: Option<Counterexample>,
    /// The `sometimes` properties that no run reached: such a search shows nothing.
    pub unreached: Vec<&'static str>,
}

/// The steps to a state in which a property does not hold.
#[derive(Debug)]
pub struct Counterexample {
    pub property: &'static str,
    pub steps: Vec<String>,
}

/// Searches a model until everything within its limits was visited or a property failed, and prints the result.
///
/// The checker keeps the last violation that it met before it stopped. So the search is repeated with fewer steps until it finds
/// none: a printed counterexample is a shortest one.
pub fn search<M>(title: &str, limits: &dyn Display, model: &M) -> SearchResult
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Debug + Hash + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Debug + Display + Clone + PartialEq,
{
    let begun = Instant::now();
    let mut found = run(model.clone(), None);
    while let Some(known) = &found.counterexample {
        let shorter = run(model.clone(), Some(known.steps.len()));
        if shorter.counterexample.is_none() {
            break;
        }
        found = shorter;
    }
    let line = format!(
        "model: {title}: {} states, {} generated, depth {}, {:.1} s; limits: {limits}",
        found.unique,
        found.generated,
        found.depth,
        begun.elapsed().as_secs_f32()
    );
    // Written past the test runner, which would capture it. An error of standard output is ignored.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
    if let Some(counterexample) = &found.counterexample {
        println!("{title}: counterexample to \"{}\", {} steps", counterexample.property, counterexample.steps.len());
        for (number, step) in counterexample.steps.iter().enumerate() {
            println!("  {:2}. {step}", number + 1);
        }
    }
    found
}

/// One run of the checker, of everything or of fewer steps than that.
fn run<M>(model: M, fewer_than: Option<usize>) -> SearchResult
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Hash + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Debug + Display + Clone + PartialEq,
{
    let properties: Vec<(&'static str, bool)> = model
        .properties()
        .iter()
        .map(|property| (property.name, property.expectation == Expectation::Always))
        .collect();
    let builder = model.checker().finish_when(HasDiscoveries::AnyFailures).target_state_count(MAX_STATES);
    // The checker counts the first state as depth 1 and skips states at the target depth.
    let builder = match fewer_than {
        Some(steps) => builder.target_max_depth(steps + 1),
        None => builder,
    };
    let checker = builder.spawn_bfs().join();
    let mut discoveries = checker.discoveries();
    let unreached = properties.iter().filter(|(name, always)| !always && !discoveries.contains_key(name));
    let unreached = unreached.map(|(name, _)| *name).collect();
    // In the order of the properties, so that the result is deterministic.
    let failed = properties.iter().filter(|(_, always)| *always);
    let failed = failed.filter_map(|(name, _)| Some((*name, discoveries.remove(name)?.into_actions())));
    let counterexample = failed.min_by_key(|(_, actions)| actions.len()).map(|(property, actions)| Counterexample {
        property,
        steps: actions.iter().map(ToString::to_string).collect(),
    });
    let generated = checker.state_count();
    SearchResult {
        unique: checker.unique_state_count(),
        generated,
        depth: checker.max_depth(),
        complete: generated < MAX_STATES,
        counterexample,
        unreached,
    }
}

impl SearchResult {
    /// The property that failed, and the number of steps to the violation.
    pub fn failed(&self) -> Option<(&'static str, usize)> {
        self.counterexample.as_ref().map(|found| (found.property, found.steps.len()))
    }

    /// Whether the search was complete, every property held, and every `sometimes` property was reached.
    pub fn holds(&self) -> bool {
        self.complete && self.counterexample.is_none() && self.unreached.is_empty()
    }
}
