//! The layout: all paths below one root, and the base nodes that everything else is created below.
//!
//! The root has one or more levels (`/enginehouse`, `/my-app/my-project`). Only the discovery namespace may be outside of it,
//! because JDBC clients name it; it must hold nothing else.

use model::alteration::RequestId;
use model::{EngineName, ErrorKind, UserError};

use crate::credentials::Access;

/// The root, unless configured.
pub const DEFAULT_ROOT: &str = "/enginehouse";
/// The maximum length of root and namespace, in bytes.
pub const MAX_ROOT_BYTES: usize = 255;
/// The discovery namespace below the root, unless configured.
const DEFAULT_NAMESPACE: &str = "proxies";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: String,
    namespace: String,
}

impl Default for Layout {
    fn default() -> Self {
        Self { root: DEFAULT_ROOT.to_owned(), namespace: format!("{DEFAULT_ROOT}/{DEFAULT_NAMESPACE}") }
    }
}

impl Layout {
    /// `root` has a leading `/`. `discovery_namespace` has none, like `zooKeeperNamespace` of a JDBC URL; `None` is `proxies`
    /// below the root.
    pub fn new(root: &str, discovery_namespace: Option<&str>) -> Result<Self, UserError> {
        let root = checked("root", root)?;
        let namespace = match discovery_namespace {
            None => format!("{root}/{DEFAULT_NAMESPACE}"),
            Some(name) => checked("discovery namespace", &format!("/{}", name.trim_start_matches('/')))?,
        };
        let layout = Self { root, namespace };
        let taken = [layout.lock(), layout.agents(), layout.engines(), layout.drains(), layout.bell()];
        let inside = |path: &str, parent: &str| path == parent || path.starts_with(&format!("{parent}/"));
        let clash = inside(&layout.root, &layout.namespace) || taken.iter().any(|path| inside(&layout.namespace, path));
        if clash {
            return Err(UserError::new(
                ErrorKind::InvalidValue,
                format!("discovery namespace \"{}\" overlaps with other nodes", layout.discovery_namespace()),
            )
            .detail("JDBC clients take every child of the namespace for a server, so it must hold nothing else.")
            .hint(format!("Use {}.", format!("{}/{DEFAULT_NAMESPACE}", layout.root).trim_start_matches('/'))));
        }
        Ok(layout)
    }

    /// The root, such as `/enginehouse`.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The discovery namespace as in a JDBC URL, such as `enginehouse/proxies`.
    pub fn discovery_namespace(&self) -> &str {
        self.namespace.trim_start_matches('/')
    }

    pub(crate) fn lock(&self) -> String {
        format!("{}/lock", self.root)
    }

    pub(crate) fn master_lock(&self) -> String {
        format!("{}/lock/master", self.root)
    }

    pub(crate) fn alter(&self) -> String {
        format!("{}/lock/alter", self.root)
    }

    pub(crate) fn alter_child(&self, id: &RequestId) -> String {
        format!("{}/lock/alter/{id}", self.root)
    }

    pub(crate) fn agents(&self) -> String {
        format!("{}/agents", self.root)
    }

    pub(crate) fn agent(&self, id: &str) -> String {
        format!("{}/agents/{id}", self.root)
    }

    pub(crate) fn engines(&self) -> String {
        format!("{}/engines", self.root)
    }

    pub(crate) fn permit(&self, engine: &EngineName) -> String {
        format!("{}/engines/{engine}", self.root)
    }

    pub(crate) fn registration(&self, engine: &EngineName) -> String {
        format!("{}/engines/{engine}/{LIVE}", self.root)
    }

    pub(crate) fn answered(&self, engine: &EngineName) -> String {
        format!("{}/engines/{engine}/{ANSWERED}", self.root)
    }

    pub(crate) fn drains(&self) -> String {
        format!("{}/drains", self.root)
    }

    pub(crate) fn drain(&self, engine: &EngineName) -> String {
        format!("{}/drains/{engine}", self.root)
    }

    pub(crate) fn bell(&self) -> String {
        format!("{}/bell", self.root)
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// The name of a registration below its permit.
pub(crate) const LIVE: &str = "live";
/// The name of the mark below a permit: an engine has registered there, or that is unknown.
pub(crate) const ANSWERED: &str = "answered";

fn checked(what: &str, path: &str) -> Result<String, UserError> {
    let level = |name: &str| !name.is_empty() && name != "." && name != ".." && name != "zookeeper";
    let detail = if let Some(refused) = path.chars().find(|c| is_refused(*c)) {
        format!("Character U+{:04X} is not allowed.", u32::from(refused))
    } else if path.len() > MAX_ROOT_BYTES {
        format!("It has {} bytes; the limit is {MAX_ROOT_BYTES} bytes.", path.len())
    } else if !path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(level)) {
        "It must be a path of one or more levels that begins with / and does not end with /.".to_owned()
    } else {
        return Ok(path.to_owned());
    };
    Err(UserError::new(ErrorKind::InvalidValue, format!("invalid zookeeper {what} \"{}\"", path.escape_debug()))
        .detail(detail)
        .hint(format!("Use for example {DEFAULT_ROOT} or /my-app/my-project.")))
}

/// The characters that ZooKeeper's `PathUtils.validatePath` rejects (beyond U+FFFF it sees surrogates), and the space, which
/// would be invisible at the end of a path.
fn is_refused(character: char) -> bool {
    matches!(character,
        '\0'..=' ' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{10ffff}')
}

/// The levels above a path, outermost first: `/a/b/c` has `/a` and `/a/b`.
pub(crate) fn ancestors(path: &str) -> Vec<String> {
    path.match_indices('/').skip(1).map(|(at, _)| path[..at].to_owned()).collect()
}

/// The root and the base nodes below it, each with its ACL.
pub(crate) fn base_and_root(layout: &Layout, access: &Access) -> Vec<(String, Vec<zookeeper_client::Acl>)> {
    let mut nodes = vec![(layout.root().to_owned(), access.root())];
    nodes.extend(base(layout, access));
    nodes
}

/// The base nodes below the root, each with its ACL.
pub(crate) fn base(layout: &Layout, access: &Access) -> Vec<(String, Vec<zookeeper_client::Acl>)> {
    let mut nodes = vec![(layout.lock(), access.lock())];
    if access.is_master() {
        nodes.push((layout.master_lock(), access.master_only()));
    }
    nodes.extend([
        (layout.agents(), access.agents()),
        (layout.engines(), access.read_only()),
        (layout.drains(), access.read_only()),
        (layout.bell(), access.bell()),
        (layout.namespace().to_owned(), access.namespace()),
    ]);
    nodes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn all_paths_are_below_a_root_of_two_levels() {
        let layout = Layout::new("/my-app/my-project", None).unwrap();
        let engine = EngineName::new("e-1").unwrap();
        assert_eq!(layout.alter(), "/my-app/my-project/lock/alter");
        assert_eq!(layout.registration(&engine), "/my-app/my-project/engines/e-1/live");
        assert_eq!(layout.discovery_namespace(), "my-app/my-project/proxies");
        assert_eq!(Layout::new(DEFAULT_ROOT, None).unwrap(), Layout::default());
        assert_eq!(ancestors("/a/b/c"), ["/a", "/a/b"]);
    }

    #[test]
    fn the_discovery_namespace_must_not_overlap_with_other_nodes() {
        assert_eq!(Layout::new("/eh", Some("hiveserver2")).unwrap().namespace(), "/hiveserver2");
        assert_eq!(Layout::new("/eh", Some("/a/b")).unwrap().discovery_namespace(), "a/b");
        for taken in ["eh", "eh/lock", "eh/engines/x", "eh/bell"] {
            assert_eq!(Layout::new("/eh", Some(taken)).unwrap_err().sqlstate(), "22023", "{taken}");
        }
        assert_eq!(Layout::new("/a/b", Some("a")).unwrap_err().sqlstate(), "22023");
    }

    #[test]
    fn an_invalid_root_is_refused() {
        for root in ["", "/", "eh", "/eh/", "//eh", "/a//b", "/a b", "/zookeeper", "/a/../b"] {
            assert_eq!(Layout::new(root, None).unwrap_err().sqlstate(), "22023", "{root}");
        }
        assert!(Layout::new(&format!("/{}", "a".repeat(MAX_ROOT_BYTES)), None).is_err());
    }

    #[test]
    fn characters_that_zookeeper_rejects_are_named() {
        for (character, name) in [
            ('\0', "U+0000"),
            ('\u{1f}', "U+001F"),
            (' ', "U+0020"),
            ('\u{7f}', "U+007F"),
            ('\u{80}', "U+0080"),
            ('\u{9f}', "U+009F"),
            ('\u{e000}', "U+E000"),
            ('\u{f8ff}', "U+F8FF"),
            ('\u{fff0}', "U+FFF0"),
            ('\u{ffff}', "U+FFFF"),
            ('\u{10000}', "U+10000"),
            ('\u{1f600}', "U+1F600"),
        ] {
            let error = Layout::new(&format!("/eh{character}"), None).unwrap_err();
            assert!(error.text().contains(name), "{error}");
            assert_eq!(Layout::new("/eh", Some(&format!("a{character}b"))).unwrap_err().sqlstate(), "22023", "{name}");
        }
        for taken in ['!', '~', '\u{a0}', 'ä', '\u{d7ff}', '\u{f900}', '\u{ffef}'] {
            assert_eq!(Layout::new(&format!("/eh{taken}"), None).unwrap().root(), format!("/eh{taken}"));
        }
    }
}
