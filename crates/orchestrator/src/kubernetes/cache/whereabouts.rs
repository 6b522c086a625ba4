//! In which namespace an engine was seen last: a name is used in one, and who is asked for an engine that is gone has to look
//! there only. Forgetting it costs questions, never a wrong answer.

use std::collections::{HashMap, VecDeque};

/// Names that are remembered; the oldest go first.
const MAX_NAMES: usize = 20_000;

/// Names with their namespaces.
#[derive(Debug, Default)]
pub(super) struct Whereabouts {
    of_name: HashMap<String, String>,
    in_order: VecDeque<String>,
}

impl Whereabouts {
    pub(super) fn note(&mut self, name: &str, namespace: &str) {
        if let Some(known) = self.of_name.get_mut(name) {
            if known != namespace {
                namespace.clone_into(known);
            }
            return;
        }
        self.of_name.insert(name.to_owned(), namespace.to_owned());
        self.in_order.push_back(name.to_owned());
        if self.in_order.len() > MAX_NAMES
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.of_name.remove(&oldest);
        }
    }

    pub(super) fn of(&self, name: &str) -> Option<&str> {
        self.of_name.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_names_are_forgotten_first() {
        let mut whereabouts = Whereabouts::default();
        for number in 0..=MAX_NAMES {
            whereabouts.note(&format!("engine-{number}"), "n");
        }
        whereabouts.note("engine-1", "other");
        assert_eq!((whereabouts.of("engine-0"), whereabouts.of("engine-1")), (None, Some("other")));
        assert_eq!(whereabouts.of_name.len(), MAX_NAMES);
    }
}
