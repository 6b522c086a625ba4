//! A set of a few engine names among very many: membership is tested for every engine.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use model::engine_name::EngineName;

/// The bits of the filter that rejects most names without hashing them.
const BITS: usize = 1 << 14;

/// A hash set behind a filter on the last bytes of a name, which are digits of a hash.
#[derive(Debug, Clone)]
pub(crate) struct NameSet {
    names: HashSet<EngineName, RandomState>,
    filter: Box<[u64]>,
}

impl Default for NameSet {
    fn default() -> Self {
        Self { names: HashSet::default(), filter: vec![0; BITS / 64].into() }
    }
}

impl NameSet {
    pub fn insert(&mut self, name: &EngineName) {
        if !self.names.contains(name) {
            let (word, bit) = filter_bit(name);
            self.filter[word] |= bit;
            self.names.insert(name.clone());
        }
    }

    pub fn contains(&self, name: &EngineName) -> bool {
        let (word, bit) = filter_bit(name);
        self.filter[word] & bit != 0 && self.names.contains(name)
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn sorted(&self) -> Vec<&EngineName> {
        let mut sorted: Vec<&EngineName> = self.names.iter().collect();
        sorted.sort();
        sorted
    }
}

fn filter_bit(name: &EngineName) -> (usize, u64) {
    let end = name.as_str().as_bytes().last_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    // Four bits of each digit differ; the multiplication mixes them.
    let at = (end.wrapping_mul(0x9E37_79B1) >> 18) as usize % BITS;
    (at / 64, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn it_contains_exactly_what_was_inserted() {
        let name = |number: usize| EngineName::new(format!("engine-{number:06x}")).unwrap();
        let mut names = NameSet::default();
        for number in (0..3_000).step_by(3) {
            names.insert(&name(number));
        }
        names.insert(&EngineName::new("e").unwrap());
        assert_eq!(names.len(), 1_001);
        assert!((0..3_000).all(|number| names.contains(&name(number)) == (number % 3 == 0)));
        assert!(names.contains(&EngineName::new("e").unwrap()) && !names.contains(&EngineName::new("f").unwrap()));
        assert!(names.sorted().is_sorted());
    }
}
