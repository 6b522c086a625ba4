//! Searching a model: breadth first, whole, with its limits and counts printed.
//!
//! What a search came to is said in one line, also where a test runner keeps what tests print to itself; the way to a
//! counterexample is printed like anything else. A search that is not whole within [`MOST_STATES`] is a failure, so a
//! reader never takes a part for the whole.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::io::Write as _;
use std::time::Instant;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// A search that reaches this many generated states was not exhaustive, and says so.
pub const MOST_STATES: usize = 200_000_000;

/// What a search came to.
#[derive(Debug)]
pub struct Found {
    /// Different states.
    pub unique: usize,
    /// States as they were generated, the same ones counted again.
    pub generated: usize,
    /// The longest way from the beginning to any state.
    pub depth: usize,
    /// Whether everything within the limits was visited, or a counterexample ended the search.
    pub whole: bool,
    /// The shortest counterexample.
    pub counterexample: Option<Counterexample>,
    /// What should be reached in some run and was not: a search that never gets there shows nothing.
    pub unreached: Vec<&'static str>,
}

/// A way to a state in which a property does not hold.
#[derive(Debug)]
pub struct Counterexample {
    /// The property.
    pub property: &'static str,
    /// The steps that lead there.
    pub steps: Vec<String>,
}

/// Searches a model until everything within its limits was visited or a property failed, and prints what it did.
///
/// The checker keeps the last violation that it met before it stopped; so what it found is looked for again in what
/// can be reached in fewer steps, until there is nothing: a printed way is a shortest one.
pub fn search<M>(title: &str, limits: &dyn Display, model: &M) -> Found
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
    // Written past the test runner, which would keep it. Where nobody listens there is nothing to be told.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
    if let Some(counterexample) = &found.counterexample {
        println!("{title}: counterexample to \"{}\", {} steps", counterexample.property, counterexample.steps.len());
        for (number, step) in counterexample.steps.iter().enumerate() {
            println!("  {:2}. {step}", number + 1);
        }
    }
    found
}

/// One run, of everything or of what takes fewer steps than that.
fn run<M>(model: M, fewer_than: Option<usize>) -> Found
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Hash + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Debug + Display + Clone + PartialEq,
{
    let properties: Vec<(&'static str, bool)> =
        model.properties().iter().map(|it| (it.name, it.expectation == Expectation::Always)).collect();
    let builder = model.checker().finish_when(HasDiscoveries::AnyFailures).target_state_count(MOST_STATES);
    // The checker counts the first state as depth 1 and passes over what is as deep as the target.
    let builder = match fewer_than {
        Some(steps) => builder.target_max_depth(steps + 1),
        None => builder,
    };
    let checker = builder.spawn_bfs().join();
    let mut discoveries = checker.discoveries();
    let unreached = properties.iter().filter(|(name, always)| !always && !discoveries.contains_key(name));
    let unreached = unreached.map(|(name, _)| *name).collect();
    // In the order of the properties, so that the answer is the same every time.
    let failed = properties.iter().filter(|(_, always)| *always);
    let failed = failed.filter_map(|(name, _)| Some((*name, discoveries.remove(name)?.into_actions())));
    let counterexample = failed.min_by_key(|(_, actions)| actions.len()).map(|(property, actions)| Counterexample {
        property,
        steps: actions.iter().map(ToString::to_string).collect(),
    });
    let generated = checker.state_count();
    Found {
        unique: checker.unique_state_count(),
        generated,
        depth: checker.max_depth(),
        whole: generated < MOST_STATES,
        counterexample,
        unreached,
    }
}

impl Found {
    /// The property that failed and the length of the way there.
    pub fn failed(&self) -> Option<(&'static str, usize)> {
        self.counterexample.as_ref().map(|it| (it.property, it.steps.len()))
    }

    /// Whether everything within the limits was visited, every property held everywhere, and the runs got to where
    /// they should.
    pub fn holds(&self) -> bool {
        self.whole && self.counterexample.is_none() && self.unreached.is_empty()
    }
}
