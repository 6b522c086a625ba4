//! The folders that a tenant's files may be in.
//!
//! Invariant: what [`Locations::confine`] returns is an absolute path without symbolic links, `.` or `..` in its
//! existing part, at or below one of the folders and outside of Enginehouse's own. This holds at the time of the call;
//! [`super::confined`] checks again at every file operation.

use std::fmt::Write;
use std::fs;
use std::path::{Component, Path, PathBuf};

use model::error::{ErrorKind, UserError};

use crate::error::EngineError;

/// The characters that make a path a pattern for DataFusion.
const PATTERN_CHARS: [char; 3] = ['?', '*', '['];
/// The most allowed folders in a hint.
const MAX_SHOWN: usize = 10;

/// The allowed folders, each absolute and resolved.
#[derive(Debug, Clone)]
pub struct Locations {
    roots: Vec<PathBuf>,
    /// Excluded paths, each absolute, and resolved as far as it exists.
    own: Vec<PathBuf>,
}

/// A location that may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confined {
    /// The file or folder (of a pattern: the folder before it), resolved.
    pub path: PathBuf,
    /// The form for DataFusion: a `file://` URL, or path and pattern.
    pub text: String,
    /// Whether it exists now.
    pub exists: bool,
}

impl Locations {
    /// Resolves the configured folders. A missing one is refused, because its later location would be unknown.
    pub fn new(folders: &[PathBuf]) -> Result<Self, EngineError> {
        let resolve = |folder: &PathBuf| {
            fs::canonicalize(folder).map_err(|error| EngineError::Config {
                key: "allowed_locations".to_owned(),
                why: format!("{}: {error}", folder.display()),
            })
        };
        Ok(Self { roots: folders.iter().map(resolve).collect::<Result<_, _>>()?, own: Vec::new() })
    }

    /// Excludes files and folders, with everything below them.
    #[must_use]
    pub fn without(mut self, own: &[PathBuf]) -> Self {
        self.own = own.iter().map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.clone())).collect();
        self
    }

    /// Resolves the path of a LOCATION or COPY TO, and refuses it outside the allowed folders.
    pub fn confine(&self, location: &str) -> Result<Confined, UserError> {
        let path = local_path(location)?;
        let pattern = path.find(PATTERN_CHARS).filter(|_| !Path::new(&path).exists());
        let Some(pattern) = pattern else {
            let (resolved, exists) = self.resolve(Path::new(&path), location)?;
            let is_folder = if exists { resolved.is_dir() } else { path.ends_with('/') };
            let text = file_url(&resolved, is_folder);
            return Ok(Confined { path: resolved, text, exists });
        };
        let cut = path[..pattern].rfind('/').map_or(0, |slash| slash + 1);
        let (folder, pattern) = path.split_at(cut);
        let (resolved, exists) = self.resolve(Path::new(folder), location)?;
        let text = format!("{}/{pattern}", resolved.display().to_string().trim_end_matches('/'));
        if pattern.split('/').any(|part| part == "..") || resolved.display().to_string().contains(PATTERN_CHARS) {
            return Err(self.refused(location));
        }
        Ok(Confined { path: resolved, text, exists })
    }

    /// Whether a path, existing or not, is at or below an allowed folder with its links resolved.
    pub fn allows(&self, path: &Path) -> bool {
        self.resolve(path, "").is_ok()
    }

    fn resolve(&self, path: &Path, location: &str) -> Result<(PathBuf, bool), UserError> {
        let mut existing = path;
        let mut missing = Vec::new();
        let resolved = loop {
            match fs::canonicalize(existing) {
                Ok(resolved) => break resolved,
                // A dangling link cannot be resolved, but a write through it would create its target.
                Err(_) if fs::symlink_metadata(existing).is_ok() => return Err(self.refused(location)),
                Err(_) => {}
            }
            match (existing.components().next_back(), existing.parent()) {
                (Some(Component::Normal(name)), Some(parent)) => {
                    missing.push(name.to_owned());
                    existing = parent;
                }
                _ => return Err(self.refused(location)),
            }
        };
        if !self.roots.iter().any(|root| resolved.starts_with(root)) {
            return Err(self.refused(location));
        }
        let exists = missing.is_empty();
        let path = missing.iter().rev().fold(resolved, |path, name| path.join(name));
        if self.own.iter().any(|own| path.starts_with(own)) {
            return Err(self.refused(location));
        }
        Ok((path, exists))
    }

    fn refused(&self, location: &str) -> UserError {
        let folders: Vec<String> = self.roots.iter().take(MAX_SHOWN).map(|root| root.display().to_string()).collect();
        let more = if self.roots.len() > MAX_SHOWN { ", …" } else { "" };
        let allowed = match folders.as_slice() {
            [] => "No folders are allowed".to_owned(),
            folders => format!("Allowed folders are {}{more}", folders.join(", ")),
        };
        UserError::new(
            ErrorKind::InsufficientPrivilege,
            format!("location \"{location}\" is not below an allowed location"),
        )
        .hint(format!(
            "{allowed}. The operator configures them with engines.allowed_locations, or with --allow FOLDER of standalone."
        ))
    }
}

/// The path of `/dir`, `file:/dir` and `file:///dir`; other schemes and relative paths are refused.
fn local_path(location: &str) -> Result<String, UserError> {
    let path = match location.split_once(':') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file") => {
            let rest = match rest.strip_prefix("//") {
                Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
                None => rest,
            };
            percent_decoded(rest)
        }
        Some((scheme, rest)) if rest.starts_with("//") => {
            return Err(UserError::new(
                ErrorKind::NotSupported,
                format!("location \"{location}\" has the unsupported scheme \"{scheme}\""),
            )
            .hint("Specify an absolute path, or a URL that begins with file:///."));
        }
        _ => Some(location.to_owned()),
    };
    match path {
        Some(path) if path.starts_with('/') && !path.contains('\0') => Ok(path),
        _ => Err(UserError::new(ErrorKind::InvalidValue, format!("location \"{location}\" is not an absolute path"))
            .hint("Specify an absolute path, such as '/data/rides/'.")),
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        if bytes[index] == b'%' {
            let digits = text.get(index + 1..index + 3)?;
            decoded.push(u8::from_str_radix(digits, 16).ok()?);
            index += 3;
        } else {
            decoded.push(bytes[index]);
            index += 1;
        }
    }
    String::from_utf8(decoded).ok()
}

/// A `file://` URL of an absolute path; a folder's ends in a slash, as DataFusion tells the two apart.
fn file_url(path: &Path, is_folder: bool) -> String {
    let mut url = "file://".to_owned();
    for byte in path.display().to_string().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => url.push(char::from(byte)),
            _ => {
                let _ = write!(url, "%{byte:02X}");
            }
        }
    }
    if is_folder && !url.ends_with('/') {
        url.push('/');
    }
    url
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use std::os::unix::fs::symlink;

    struct Fixture {
        _dir: tempfile::TempDir,
        root: PathBuf,
        outside: PathBuf,
        locations: Locations,
    }

    fn fixture() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        let (root, outside) = (base.join("allowed"), base.join("outside"));
        fs::create_dir_all(root.join("rides")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(root.join("rides/a b.csv"), "1").unwrap();
        fs::write(outside.join("secret.csv"), "1").unwrap();
        let locations = Locations::new(std::slice::from_ref(&root)).unwrap();
        Fixture { _dir: dir, root, outside, locations }
    }

    #[test]
    fn what_is_below_an_allowed_folder_is_resolved() {
        let fixture = fixture();
        let root = fixture.root.display().to_string();
        let text = |location: String| fixture.locations.confine(&location).unwrap().text;
        assert_eq!(text(format!("{root}/rides")), format!("file://{root}/rides/"));
        assert_eq!(text(format!("{root}/./rides/../rides/")), format!("file://{root}/rides/"));
        assert_eq!(text(format!("file://{root}/rides/a%20b.csv")), format!("file://{root}/rides/a%20b.csv"));
        assert_eq!(text(format!("{root}/rides/*.csv")), format!("{root}/rides/*.csv"));
        let new = fixture.locations.confine(&format!("{root}/new/deeper/")).unwrap();
        assert!(!new.exists);
        assert_eq!(new.text, format!("file://{root}/new/deeper/"));
    }

    #[test]
    fn nothing_leads_out() {
        let fixture = fixture();
        let root = fixture.root.display().to_string();
        symlink(&fixture.outside, fixture.root.join("link")).unwrap();
        symlink(fixture.outside.join("not-yet"), fixture.root.join("dangling")).unwrap();
        for location in [
            "/etc/passwd".to_owned(),
            format!("{root}/../outside/"),
            format!("{root}/../outside/secret.csv"),
            format!("{root}/none/../../outside/secret.csv"),
            format!("{root}/link/"),
            format!("{root}/link/secret.csv"),
            format!("{root}/link/*.csv"),
            format!("{root}/*/../../outside/secret.csv"),
            format!("{root}/dangling"),
            format!("file://{root}/%2e%2e/outside/secret.csv"),
            format!("{root}-but-longer"),
        ] {
            let error = fixture.locations.confine(&location).unwrap_err();
            assert_eq!(error.sqlstate(), "42501", "{location}");
        }
        let error = fixture.locations.confine("/etc/passwd").unwrap_err();
        let hint = error.hint.unwrap();
        assert!(hint.contains(&root) && hint.contains("--allow"), "{hint}");
        assert_eq!(fixture.locations.confine("rides/").unwrap_err().sqlstate(), "22023");
        assert_eq!(fixture.locations.confine("s3://bucket/rides/").unwrap_err().sqlstate(), "0A000");
    }
    #[test]
    fn own_folders_are_refused_below_an_allowed_one() {
        let fixture = fixture();
        let (catalog, engines) = (fixture.root.join("catalog"), fixture.root.join("engines"));
        fs::create_dir_all(catalog.join("t_2")).unwrap();
        let locations = fixture.locations.clone().without(&[catalog.clone(), engines.clone()]);
        symlink(&catalog, fixture.root.join("link")).unwrap();
        for path in [catalog.clone(), catalog.join("t_2/x.json"), fixture.root.join("link/t_2"), engines.join("new")] {
            assert_eq!(locations.confine(&path.display().to_string()).unwrap_err().sqlstate(), "42501", "{path:?}");
            assert!(!locations.allows(&path), "{path:?}");
        }
        assert!(
            locations.allows(&fixture.root.join("rides")) && locations.allows(&fixture.root.join("catalog-of-mine"))
        );
    }
}
