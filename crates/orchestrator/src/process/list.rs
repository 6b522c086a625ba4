//! `list`: reads every engine of the state directory, after carrying on what is due.

use model::labels::LabelMap;

use super::engine_entry;
use super::state_dir::StateDir;
use super::upkeep;
use crate::{Error, Listing};

/// The engines with the selector's labels. Wakes the watchers if any engine, selected or not, differs from the last listing
/// of this process. Comparing only the keeper's reads would miss a change that is undone between two of them, although
/// another caller has seen it.
pub(super) fn list(state_dir: &StateDir, selector: &LabelMap) -> Result<Listing, Error> {
    let (mut entries, mut unreadable) = engine_entry::read_all(state_dir)?;
    if upkeep::run(state_dir, &entries) {
        (entries, unreadable) = engine_entry::read_all(state_dir)?;
    }
    let engines = entries.into_iter().filter(|entry| !entry.is_over()).map(|entry| entry.observed.into()).collect();
    let mut listing = Listing { engines, unreadable, ..Listing::default() };
    let mut last = state_dir.last_listing.lock();
    if last.as_ref() != Some(&listing) {
        *last = Some(listing.clone());
        state_dir.notifier.notify();
    }
    drop(last);
    listing.engines.retain(|engine| engine.matches(selector));
    Ok(listing)
}
