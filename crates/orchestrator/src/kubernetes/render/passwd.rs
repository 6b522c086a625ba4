//! The file of accounts in the containers of a Spark engine that runs as its owner.
//!
//! No image knows the owner's uid, and Java's login fails without a name for it. The file replaces that of the image.

use k8s_openapi::api::core::v1::{KeyToPath, VolumeMount};

use super::security;
use crate::kubernetes::names::PASSWD;
use crate::{Error, Spec};

/// Where programs look accounts up.
const PATH: &str = "/etc/passwd";

/// The lines of root and of the owner; `None` if the engine runs as the user of its image.
pub(super) fn line(spec: &Spec, users: security::Users) -> Option<String> {
    let run_as = spec.run_as.as_ref().filter(|_| spec.options.spark.is_some())?;
    let (user, uid) = (&run_as.user, users.spark);
    Some(format!("root:x:0:0:root:/root:/usr/sbin/nologin\n{user}:x:{uid}:{uid}::/tmp:/usr/sbin/nologin\n"))
}

/// Refuses a name that would end its line, or a field of it.
pub(super) fn check(spec: &Spec) -> Result<(), Error> {
    let user = spec.run_as.as_ref().map_or("", |run_as| run_as.user.as_str());
    if spec.options.spark.is_some() && user.contains(|c: char| c == ':' || c.is_control()) {
        return Err(Error::refused(format!("Spark cannot run as user {user:?}: no account can have that name")));
    }
    Ok(())
}

pub(super) fn item() -> KeyToPath {
    KeyToPath { key: PASSWD.to_owned(), mode: None, path: PASSWD.to_owned() }
}

/// Mounts the file of a volume that has the item.
pub(super) fn mount(volume: &str) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: PATH.to_owned(),
        sub_path: Some(PASSWD.to_owned()),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}
