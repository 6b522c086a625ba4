//! The engines that an incremental plan covers.

use crate::name_set::NameSet;

/// A subset of the engines and slots.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    pub names: NameSet,
    /// The slots whose current engines are in scope, as indexes of the snapshot's list.
    pub slots: Vec<usize>,
}
