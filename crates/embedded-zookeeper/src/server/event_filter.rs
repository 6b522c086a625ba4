//! Which watch events a fault injection drops.

/// Which events are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EventFilter {
    /// None: the normal state.
    #[default]
    None,
    /// Every event.
    All,
    /// Events about this path and everything below it.
    Below(String),
}

impl EventFilter {
    pub(crate) fn drops(&self, path: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Below(prefix) => {
                let prefix = prefix.trim_end_matches('/');
                path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::EventFilter;

    #[test]
    fn a_prefix_means_whole_names() {
        let table: &[(&str, &str, bool)] =
            &[("/a", "/a", true), ("/a", "/a/b", true), ("/a/", "/a", true), ("/a", "/ab", false), ("/", "/x/y", true)];
        for (prefix, path, dropped) in table {
            assert_eq!(EventFilter::Below((*prefix).to_owned()).drops(path), *dropped, "{prefix} {path}");
        }
        assert!(EventFilter::All.drops("/a"));
        assert!(!EventFilter::None.drops("/a"));
    }
}
