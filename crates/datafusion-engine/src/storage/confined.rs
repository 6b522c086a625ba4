//! An object store over the local file system that is confined to the allowed folders.
//!
//! Every operation resolves the path's links first and is refused outside. A stale table definition, a pattern, or a link
//! created after the table leads no further than [`Locations`] allows. Between the check and the operation, a process with
//! write access to the folder could still replace a link; such a process can read the files anyway.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use model::error::{ErrorKind, UserError};

use super::Locations;

/// The local file system, confined to the allowed folders.
#[derive(Debug)]
pub struct ConfinedFiles {
    files: Arc<LocalFileSystem>,
    locations: Arc<Locations>,
}

impl ConfinedFiles {
    /// Confines the machine's file system.
    pub fn new(locations: Arc<Locations>) -> Self {
        Self { files: Arc::new(LocalFileSystem::new()), locations }
    }

    fn check(&self, path: &Path) -> Result<()> {
        if is_allowed(&self.files, &self.locations, path) { Ok(()) } else { Err(refused(path)) }
    }
}

fn is_allowed(files: &LocalFileSystem, locations: &Locations, path: &Path) -> bool {
    files.path_to_filesystem(path).is_ok_and(|path| locations.allows(&path))
}

fn refused(path: &Path) -> Error {
    let error =
        UserError::new(ErrorKind::InsufficientPrivilege, format!("file \"/{path}\" is not below an allowed location"));
    Error::PermissionDenied { path: path.to_string(), source: Box::new(error) }
}

impl fmt::Display for ConfinedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfinedFiles({})", self.files)
    }
}

#[async_trait]
impl ObjectStore for ConfinedFiles {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.check(location)?;
        self.files.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.check(location)?;
        self.files.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.check(location)?;
        self.files.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.check(location)?;
        self.files.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (files, allowed) = (Arc::clone(&self.files), Arc::clone(&self.locations));
        let checked = locations.map(move |path| {
            path.and_then(|path| if is_allowed(&files, &allowed, &path) { Ok(path) } else { Err(refused(&path)) })
        });
        self.files.delete_stream(checked.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let root = Path::default();
        if let Err(error) = self.check(prefix.unwrap_or(&root)) {
            return futures::stream::once(async { Err(error) }).boxed();
        }
        let (files, allowed) = (Arc::clone(&self.files), Arc::clone(&self.locations));
        self.files
            .list(prefix)
            .try_filter(move |meta| futures::future::ready(is_allowed(&files, &allowed, &meta.location)))
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let root = Path::default();
        self.check(prefix.unwrap_or(&root))?;
        let mut found = self.files.list_with_delimiter(prefix).await?;
        found.objects.retain(|meta| is_allowed(&self.files, &self.locations, &meta.location));
        found.common_prefixes.retain(|path| is_allowed(&self.files, &self.locations, path));
        Ok(found)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.check(from)?;
        self.check(to)?;
        self.files.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.check(from)?;
        self.check(to)?;
        self.files.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use datafusion::object_store::ObjectStoreExt;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[tokio::test]
    async fn a_link_made_afterwards_is_neither_listed_nor_read_nor_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        let (root, outside) = (base.join("allowed"), base.join("outside"));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(root.join("mine.csv"), "1").unwrap();
        fs::write(outside.join("secret.csv"), "2").unwrap();
        let files = ConfinedFiles::new(Arc::new(Locations::new(std::slice::from_ref(&root)).unwrap()));
        symlink(outside.join("secret.csv"), root.join("linked.csv")).unwrap();
        symlink(&outside, root.join("folder")).unwrap();

        let at = |name: &str| Path::from_absolute_path(root.join(name)).unwrap();
        let listed: Vec<_> = files.list(Some(&Path::from_absolute_path(&root).unwrap())).try_collect().await.unwrap();
        let names: Vec<_> = listed.iter().filter_map(|meta| meta.location.filename()).collect();
        assert_eq!(names, ["mine.csv"]);
        assert!(files.get(&at("mine.csv")).await.is_ok());
        assert!(matches!(files.get(&at("linked.csv")).await, Err(Error::PermissionDenied { .. })));
        assert!(matches!(files.put(&at("folder/new.csv"), "3".into()).await, Err(Error::PermissionDenied { .. })));
        assert!(!outside.join("new.csv").exists());
    }
}
