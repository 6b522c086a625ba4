//! The namespace in which each engine was last observed. A name is used in only one namespace, so the lookup of an engine that
//! is gone reads only that one. A forgotten name costs additional reads, never a wrong result.

use std::collections::{HashMap, VecDeque};

/// The limit of names; the oldest are dropped first.
const MAX_NAMES: usize = 20_000;

#[derive(Debug, Default)]
pub(super) struct LastNamespaces {
    by_name: HashMap<String, String>,
    in_order: VecDeque<String>,
}

impl LastNamespaces {
    pub(super) fn set(&mut self, name: &str, namespace: &str) {
        if let Some(known) = self.by_name.get_mut(name) {
            if known != namespace {
                namespace.clone_into(known);
            }
            return;
        }
        self.by_name.insert(name.to_owned(), namespace.to_owned());
        self.in_order.push_back(name.to_owned());
        if self.in_order.len() > MAX_NAMES
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.by_name.remove(&oldest);
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_names_are_dropped_first() {
        let mut last = LastNamespaces::default();
        for number in 0..=MAX_NAMES {
            last.set(&format!("engine-{number}"), "n");
        }
        last.set("engine-1", "other");
        assert_eq!((last.get("engine-0"), last.get("engine-1")), (None, Some("other")));
        assert_eq!(last.by_name.len(), MAX_NAMES);
    }
}
