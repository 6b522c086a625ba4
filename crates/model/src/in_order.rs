//! Lookups by engine name in the order of names: a join of sorted lists in one pass.

use std::iter::Peekable;

use crate::engine_name::EngineName;

/// The values that are still to come, of an iterator in the order of names.
#[derive(Debug)]
pub struct InOrder<'a, T, I: Iterator<Item = (&'a EngineName, T)>>(Peekable<I>);

impl<'a, T: Copy, I: Iterator<Item = (&'a EngineName, T)>> InOrder<'a, T, I> {
    /// Of a map by name, or of a list in the order of names.
    pub fn new(values: impl IntoIterator<IntoIter = I>) -> Self {
        Self(values.into_iter().peekable())
    }

    /// The value of the engine. Names before the last one are not found any more.
    pub fn get(&mut self, name: &EngineName) -> Option<T> {
        while self.0.next_if(|(before, _)| *before < name).is_some() {}
        self.0.peek().filter(|(next, _)| *next == name).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_name_is_found_in_order() {
        let name = |name: &str| EngineName::new(name).unwrap();
        let values: BTreeMap<EngineName, u8> = [(name("b"), 1), (name("d"), 2), (name("e"), 3)].into();
        let mut found = InOrder::new(&values);
        let names = ["a", "b", "b", "c", "e", "f", "d"];
        assert_eq!(
            names.map(|text| found.get(&name(text)).copied()),
            [None, Some(1), Some(1), None, Some(3), None, None]
        );
    }
}
