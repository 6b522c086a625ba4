//! The root key and the key files: commands that make them, and files that roles refuse.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use crate::installation::{program, text};

fn keys(arguments: &[&str]) -> Output {
    program().arg("keys").args(arguments).output().unwrap()
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn refused(output: &Output) -> String {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(!error.contains("panicked"), "{error}");
    error
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The folder of the key files of all roles, below this one; `cluster.name` is the default.
pub fn make_keys(folder: &Path) -> String {
    let (root, files) = (folder.join("root.key"), folder.join("keys"));
    if !root.exists() {
        succeeded(&keys(&["init", "--root", shown(&root)]));
    }
    succeeded(&keys(&["derive", "--root", shown(&root), "--keys", shown(&files)]));
    shown(&files).to_owned()
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The values of the keys with these names, in base64.
fn values(path: &Path, names: &[&str]) -> Vec<String> {
    let file: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let generations = file["generation"].as_array().unwrap();
    let secrets = generations.iter().filter_map(|generation| generation.get("secret")?.as_table());
    secrets.flat_map(|secret| names.iter().map(|name| secret[*name].as_str().unwrap().to_owned())).collect()
}

#[test]
fn the_files_of_the_roles_are_private_and_have_no_secret_of_another_role() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root.key");
    let output = succeeded(&keys(&["init", "--root", shown(&root), "--cluster", "eh"]));
    assert!(output.contains("installation \"eh\"") && output.contains("keep it offline"), "{output}");
    let error = refused(&keys(&["init", "--root", shown(&root)]));
    assert!(error.contains("exists already") && error.contains("Hint:"), "{error}");
    let files = folder.path().join("keys");
    let derive = |more: &[&str]| {
        let arguments = [&["derive", "--root", shown(&root), "--keys", shown(&files)], more].concat();
        keys(&arguments)
    };
    let output = succeeded(&derive(&["--accept", "1,2"]));
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 3, "{output}");
    assert!(lines[0].ends_with("proxy.key: uses generation 1, accepts 1, 2"), "{output}");
    let paths = ["proxy", "master", "metadata-agent"].map(|role| files.join(format!("{role}.key")));
    let secrets = [
        values(&paths[0], &["signing", "zookeeper", "cookie"]),
        values(&paths[1], &["signing", "zookeeper", "pods", "engines"]),
        values(&paths[2], &["zookeeper", "fingerprint"]),
    ];
    assert_eq!((mode(&root), paths.each_ref().map(|path| mode(path))), (0o600, [0o600; 3]));
    for (holder, path) in paths.iter().enumerate() {
        let file = std::fs::read_to_string(path).unwrap();
        for (owner, secrets) in secrets.iter().enumerate() {
            assert_eq!(secrets.len() % 2, 0, "two generations");
            assert!(secrets.iter().all(|secret| file.contains(secret) == (owner == holder)));
        }
    }
    // The same root key makes the same keys, and a file is replaced.
    let before = std::fs::read_to_string(&paths[0]).unwrap();
    succeeded(&derive(&["--role", "proxy", "--accept", "1,2", "--use", "1"]));
    assert_eq!(std::fs::read_to_string(&paths[0]).unwrap(), before);
    for (arguments, expected) in [
        (&["--use", "3", "--accept", "1,2"][..], "Generation 3 is to be used and is not accepted."),
        (&["--accept", "0,1"], "this root key has none"),
        (&["--accept", "1,1"], "named twice"),
        (&["--accept", "1,2,3,4,5"], "At most 4"),
    ] {
        let error = refused(&derive(arguments));
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    set_mode(&root, 0o644);
    let error = refused(&derive(&[]));
    assert!(error.contains("can be read by others") && error.contains("chmod 600"), "{error}");
}

#[test]
fn a_cluster_secret_becomes_generation_0() {
    let folder = tempfile::tempdir().unwrap();
    let (root, secret) = (folder.path().join("root.key"), folder.path().join("cluster.secret"));
    for (content, mode, expected) in [("abc", 0o600, "too short"), (&*"ab".repeat(32), 0o644, "can be read by others")]
    {
        std::fs::write(&secret, content).unwrap();
        set_mode(&secret, mode);
        let error = refused(&keys(&["init", "--root", shown(&root), "--from", shown(&secret)]));
        assert!(error.contains(expected) && !error.contains("abab"), "{error}");
    }
    set_mode(&secret, 0o600);
    let output = succeeded(&keys(&["init", "--root", shown(&root), "--from", shown(&secret)]));
    assert!(output.contains("its generation 0 is the cluster secret"), "{output}");
    let files = folder.path().join("keys");
    let output = succeeded(&keys(&["derive", "--root", shown(&root), "--keys", shown(&files), "--role", "master"]));
    assert!(output.contains("master.key: uses generation 0, accepts 0, 1"), "{output}");
    assert!(!files.join("proxy.key").exists());
}

/// H2 and H3 of the attacks.
#[test]
fn a_key_file_that_does_not_fit_ends_each_role_at_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let files = make_keys(folder.path());
    let configuration = folder.path().join("c.toml");
    let content = format!(
        "[cluster]\nkeys = {files:?}\n[proxy]\nlisten = \"127.0.0.1:0\"\n[metadata_agent]\nlisten = \"127.0.0.1:0\"\n\
         [zookeeper]\nconnect = \"127.0.0.1:1\"\n[database]\nurl = \"postgres://127.0.0.1:1/none\"\n"
    );
    std::fs::write(&configuration, content).unwrap();
    let role = |subcommand: &[&str]| program().args(subcommand).arg("--config").arg(&configuration).output().unwrap();
    assert!(role(&["config", "check"]).status.success());
    let [proxy, master, agent] =
        ["proxy", "master", "metadata-agent"].map(|role| Path::new(&files).join(format!("{role}.key")));
    let good = [&proxy, &master, &agent].map(|path| std::fs::read_to_string(path).unwrap());
    let expect = |path: &Path, expected: &str, roles: &[&[&str]]| {
        for subcommand in roles {
            let error = refused(&role(subcommand));
            assert!(error.starts_with("enginehouse: ") && error.contains("cluster.keys: "), "{subcommand:?}: {error}");
            assert!(error.contains(shown(path)) && error.contains(expected), "{subcommand:?}: {error}");
            let secret = good[0].split('"').nth(9).unwrap();
            assert!(!error.contains(secret), "{error}");
        }
    };
    let of_proxy: &[&[&str]] = &[&["proxy"], &["config", "check"]];
    set_mode(&proxy, 0o644);
    expect(&proxy, "can be read by others", of_proxy);
    set_mode(&proxy, 0o600);
    std::fs::write(&proxy, &good[1]).unwrap();
    expect(&proxy, "They are keys of the role master, and not of the role proxy.", of_proxy);
    std::fs::write(&proxy, good[0].replace("cluster = \"enginehouse\"", "cluster = \"staging\"")).unwrap();
    expect(&proxy, "cluster.name is \"enginehouse\"", of_proxy);
    std::fs::write(&proxy, &good[0][..good[0].len() / 2]).unwrap();
    expect(&proxy, "", of_proxy);
    std::fs::write(&proxy, good[0].replacen("signing = \"", "signing = \"x", 1)).unwrap();
    expect(&proxy, "a key", of_proxy);
    std::fs::write(&proxy, "#\n".repeat(50_000)).unwrap();
    expect(&proxy, "bytes", of_proxy);
    std::fs::write(&proxy, &good[0]).unwrap();
    // A candidate for master needs both files, and a metadata agent its own only.
    std::fs::remove_file(&master).unwrap();
    expect(&master, "it does not exist\nHint: Make the files of all roles", &[&["proxy"]]);
    assert!(role(&["config", "check"]).status.success(), "another machine may have it");
    std::fs::remove_file(&agent).unwrap();
    expect(&agent, "it does not exist", &[&["metadata-agent"]]);
    std::fs::remove_file(&proxy).unwrap();
    expect(&proxy, "it does not exist", of_proxy);
}

#[test]
fn the_cluster_secret_of_version_0_1_0_is_refused_with_the_way_to_keys() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = folder.path().join("c.toml");
    std::fs::write(&configuration, "[cluster]\nname = \"eh\"\nsecret_file = \"cluster.secret\"\n").unwrap();
    for role in [&["proxy"][..], &["metadata-agent"], &["config", "check"]] {
        let error = refused(&program().args(role).arg("--config").arg(&configuration).output().unwrap());
        assert!(error.contains("cluster.secret_file is replaced by cluster.keys"), "{error}");
        assert!(error.contains("enginehouse keys init --cluster eh --from cluster.secret"), "{error}");
    }
}
