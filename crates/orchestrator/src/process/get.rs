//! `get`: reads one engine, after carrying on its deletion.

use model::EngineName;

use super::state_dir::StateDir;
use super::{engine_entry, upkeep};
use crate::{Error, ObservedInstance};

pub(super) fn get(state_dir: &StateDir, name: &EngineName) -> Result<Option<ObservedInstance>, Error> {
    let mut entry = engine_entry::read(state_dir, name.as_str())?;
    if let Some(deleted) = entry.take_if(|entry| entry.deletion.is_some()) {
        upkeep::run(state_dir, &[deleted]);
        entry = engine_entry::read(state_dir, name.as_str())?;
    }
    Ok(entry.filter(|entry| !entry.is_over()).map(|entry| entry.observed))
}
