//! `enginehouse keys`: the root key of an installation, and the key file of each role.
//!
//! The root key belongs to no process: it makes the keys of every role.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use keys::role::RoleSecrets;
use keys::{KeyGeneration, MasterSecrets, MetadataAgentSecrets, ProxySecrets, Role, Root, SecretKey};
use serde::Serialize;

use crate::cli::{KeysCommand, KeysDeriveArguments, KeysInitArguments};
use crate::key_files;
use crate::output::print_line;

pub fn run(command: &KeysCommand) -> anyhow::Result<ExitCode> {
    match command {
        KeysCommand::Init(arguments) => init(arguments)?,
        KeysCommand::Derive(arguments) => derive(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn init(arguments: &KeysInitArguments) -> anyhow::Result<()> {
    let KeysInitArguments { root: path, cluster, from } = arguments;
    let root = new_root(cluster, from.as_deref())?;
    write_root(path, &root)?;
    print_line(&format!("wrote the root key of installation \"{cluster}\" to {}", path.display()));
    if root.has_cluster_secret() {
        print_line("its generation 0 is the cluster secret; generation 1 is new");
    }
    print_line("keep it offline: no process needs it, and it makes the keys of every role");
    Ok(())
}

/// A root key of random bytes.
pub fn new_root(cluster: &str, cluster_secret: Option<&Path>) -> anyhow::Result<Root> {
    let root = Root::new(cluster, SecretKey::random().context("the operating system has no random bytes")?);
    Ok(match cluster_secret {
        Some(path) => root.with_cluster_secret(key_files::read_cluster_secret(path)?),
        None => root,
    })
}

/// Writes a root key where none is yet.
pub fn write_root(path: &Path, root: &Root) -> anyhow::Result<()> {
    let text = format!(
        "# The root key of an Enginehouse installation: secret. No process needs it.\n{}",
        toml::to_string(root)?
    );
    key_files::write_secret_file(path, &text, false)
}

/// Reads a root key.
pub fn read_root(path: &Path) -> anyhow::Result<Root> {
    let text = key_files::read_secret_file("root key", path)?;
    // The error of the parser would quote a line with a secret.
    toml::from_str(&text).map_err(|error| anyhow::anyhow!("{}: {}", path.display(), error.message()))
}

fn derive(arguments: &KeysDeriveArguments) -> anyhow::Result<()> {
    let root = read_root(&arguments.root)?;
    let accepted: Vec<KeyGeneration> = match &arguments.accept {
        Some(generations) => generations.iter().copied().map(KeyGeneration).collect(),
        None if root.has_cluster_secret() => vec![KeyGeneration::CLUSTER_SECRET, KeyGeneration::FIRST],
        None => vec![KeyGeneration::FIRST],
    };
    let Some(lowest) = accepted.iter().min() else { bail!("--accept names no generation") };
    let in_use = arguments.use_generation.map_or(*lowest, KeyGeneration);
    let roles = arguments.role.map_or_else(|| Role::ALL.to_vec(), |role| vec![role.into()]);
    std::fs::create_dir_all(&arguments.keys).with_context(|| format!("cannot create {}", arguments.keys.display()))?;
    for role in roles {
        write_role(&root, role, in_use, &accepted, &arguments.keys)?;
        let list: Vec<String> = accepted.iter().map(ToString::to_string).collect();
        print_line(&format!(
            "wrote {}: uses generation {in_use}, accepts {}",
            key_files::path(&arguments.keys, role).display(),
            list.join(", ")
        ));
    }
    Ok(())
}

/// Writes the key file of a role into a folder.
pub fn write_role(
    root: &Root,
    role: Role,
    in_use: KeyGeneration,
    accepted: &[KeyGeneration],
    folder: &Path,
) -> anyhow::Result<()> {
    let text = match role {
        Role::Proxy => file::<ProxySecrets>(root, in_use, accepted),
        Role::Master => file::<MasterSecrets>(root, in_use, accepted),
        Role::MetadataAgent => file::<MetadataAgentSecrets>(root, in_use, accepted),
    }?;
    key_files::write_secret_file(&key_files::path(folder, role), &text, true)
}

fn file<S: RoleSecrets + Serialize>(
    root: &Root,
    in_use: KeyGeneration,
    accepted: &[KeyGeneration],
) -> anyhow::Result<String> {
    let file = root.role_file::<S>(in_use, accepted, coordination::digest);
    let file = file.map_err(|error| anyhow::anyhow!("{}", error.text()))?;
    Ok(format!("# The keys of the role {}: secret.\n{}", S::ROLE, toml::to_string(&file)?))
}
