//! A few names among very many: whether a name is one of them is asked of every engine there is.

use std::collections::HashSet;

use model::engine_name::EngineName;

/// How many bits say at once that a name is none of them.
const BITS: usize = 1 << 14;

/// Names of engines. Of a name that is not among them that is known, nearly always, from its last bytes, which are digits of a
/// hash.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    all: HashSet<EngineName>,
    ends: Box<[u64]>,
}

impl Default for Names {
    fn default() -> Self {
        Self { all: HashSet::new(), ends: vec![0; BITS / 64].into() }
    }
}

impl Names {
    pub fn insert(&mut self, name: &EngineName) {
        if !self.all.contains(name) {
            let (word, bit) = place(name);
            self.ends[word] |= bit;
            self.all.insert(name.clone());
        }
    }

    pub fn contains(&self, name: &EngineName) -> bool {
        let (word, bit) = place(name);
        self.ends[word] & bit != 0 && self.all.contains(name)
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// In their order.
    pub fn sorted(&self) -> Vec<&EngineName> {
        let mut sorted: Vec<&EngineName> = self.all.iter().collect();
        sorted.sort();
        sorted
    }
}

fn place(name: &EngineName) -> (usize, u64) {
    let end = name.as_str().as_bytes().last_chunk::<4>().map_or(0, |it| u32::from_le_bytes(*it));
    // Four bits of each digit differ: a multiplication brings them together.
    let at = (end.wrapping_mul(0x9E37_79B1) >> 18) as usize % BITS;
    (at / 64, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn it_holds_what_was_put_into_it_and_nothing_else() {
        let name = |number: usize| EngineName::new(format!("engine-{number:06x}")).unwrap();
        let mut names = Names::default();
        for it in (0..3_000).step_by(3) {
            names.insert(&name(it));
        }
        names.insert(&EngineName::new("e").unwrap());
        assert_eq!(names.len(), 1_001);
        assert!((0..3_000).all(|it| names.contains(&name(it)) == (it % 3 == 0)));
        assert!(names.contains(&EngineName::new("e").unwrap()) && !names.contains(&EngineName::new("f").unwrap()));
        assert!(names.sorted().is_sorted());
    }
}
