//! Checks of ZooKeeper: each server, the session timeout, our root and its access lists, the discovery namespace.

use std::time::Duration;

use coordination::diagnose::{self, BaseNode, BaseNodeStatus};
use coordination::{Error, GrantedSession, Session, ZookeeperTls, probe_handshake};
use futures::future::join_all;
use model::span;

use super::checks::{ACCESS_LISTS, DISCOVERY, ROOT, SERVERS, SESSION_TIMEOUT};
use super::report::{Finding, Report};
use super::target::{CONNECT_DEADLINE, Target, bounded};
use crate::output::with_causes;

/// A requested timeout that every server raises to its minimum.
const SHORTEST: Duration = Duration::from_millis(1);
/// A requested timeout that every server lowers to its maximum.
const LONGEST: Duration = Duration::from_hours(24);

/// The sessions that one server grants for three requested timeouts.
struct Server {
    address: String,
    configured: Result<GrantedSession, Error>,
    shortest: Result<GrantedSession, Error>,
    longest: Result<GrantedSession, Error>,
}

/// Checks each server of the connect string.
pub async fn servers(target: &Target, report: &mut Report) {
    let section = &target.configuration.zookeeper;
    let tls = match section.trust() {
        Ok(tls) => tls,
        Err(error) => {
            let mend = "correct zookeeper.ca_file";
            let finding = Finding::problem(&section.connect, with_causes(&error), mend);
            report.checked(SERVERS, "none was probed", vec![finding]);
            return report.skip(&[SESSION_TIMEOUT], "no server was probed");
        }
    };
    let asked =
        section.connect.split(',').map(|address| ask(address.to_owned(), tls.as_ref(), section.session_timeout.0));
    let servers = join_all(asked).await;
    reached(&servers, tls.is_some(), report);
    granted(&servers, section.session_timeout.0, report);
}

async fn ask(address: String, tls: Option<&ZookeeperTls>, wanted: Duration) -> Server {
    let (configured, shortest, longest) = tokio::join!(
        probe_handshake(&address, tls, wanted, CONNECT_DEADLINE),
        probe_handshake(&address, tls, SHORTEST, CONNECT_DEADLINE),
        probe_handshake(&address, tls, LONGEST, CONNECT_DEADLINE),
    );
    Server { address, configured, shortest, longest }
}

fn reached(servers: &[Server], is_encrypted: bool, report: &mut Report) {
    let mend = if is_encrypted {
        "start that server, or correct its certificate, zookeeper.ca_file or its port in zookeeper.connect"
    } else {
        "start that server, or remove it from zookeeper.connect"
    };
    let mut findings = Vec::new();
    let mut times = Vec::new();
    for server in servers {
        match &server.configured {
            Ok(granted) => times.push(format!("{} grants a session in {}", server.address, span::age(granted.took))),
            Err(error) => findings.push(Finding::problem(
                &server.address,
                format!("it grants no session: {}", reason(error)),
                mend,
            )),
        }
    }
    if times.is_empty() {
        times.push("no server grants a session".to_owned());
    }
    report.checked(SERVERS, times.join("; "), findings);
}

/// The reason, without a prefix that names ZooKeeper.
fn reason(error: &Error) -> String {
    match error {
        Error::Unavailable(cause) => cause.to_string(),
        other => other.to_string(),
    }
}

fn granted(servers: &[Server], wanted: Duration, report: &mut Report) {
    let (mut findings, mut summary) = (Vec::new(), Vec::new());
    for server in servers {
        let Ok(granted) = &server.configured else { continue };
        let limit = |of: &Result<GrantedSession, Error>| {
            of.as_ref().map_or_else(|_| "?".to_owned(), |session| span::print(session.timeout))
        };
        let limits = format!("{} to {}", limit(&server.shortest), limit(&server.longest));
        summary.push(format!("{} as configured ({} grants {limits})", span::print(granted.timeout), server.address));
        if granted.timeout == wanted {
            continue;
        }
        summary.pop();
        let (word, key) =
            if granted.timeout > wanted { ("longer", "minSessionTimeout") } else { ("shorter", "maxSessionTimeout") };
        findings.push(Finding::problem(
            &server.address,
            format!(
                "it grants {} although {} is configured, which is {word}: its limits are {limits}, by default 2 and 20 times its tickTime",
                span::print(granted.timeout),
                span::print(wanted)
            ),
            format!("set zookeeper.session_timeout within {limits}, or change {key} of the server"),
        ));
    }
    if servers.iter().all(|server| server.configured.is_err()) {
        report.skip(&[SESSION_TIMEOUT], "no server grants a session");
    } else {
        let summary = if summary.is_empty() { "not as configured".to_owned() } else { summary.join("; ") };
        report.checked(SESSION_TIMEOUT, summary, findings);
    }
}

/// Checks our nodes; `session` is the reason if there is none.
pub async fn nodes(target: &Target, session: Result<&Session, &String>, report: &mut Report) {
    let session = match session {
        Ok(session) => session,
        Err(reason) => {
            let why = format!("there is no session with ZooKeeper: {reason}");
            return report.skip(&[ROOT, ACCESS_LISTS, DISCOVERY], &why);
        }
    };
    if let Err(reason) = &target.keys.master {
        report.skip(&[ROOT, ACCESS_LISTS], &format!("only a master may read access lists: {reason}"));
    } else {
        match bounded("reading access lists", diagnose::base_nodes(session)).await {
            Ok(nodes) => base(target, &nodes, report),
            Err(reason) => report.skip(&[ROOT, ACCESS_LISTS], &reason),
        }
    }
    match bounded("reading the discovery namespace", coordination::discovery::list(session)).await {
        Ok((proxies, others)) => {
            let namespace =
                target.zookeeper().map(|settings| settings.layout.discovery_namespace().to_owned()).unwrap_or_default();
            let findings = others.iter().map(|name| {
                let path = format!("/{namespace}/{name}");
                let mend = format!("delete it with ZooKeeper's command line: deleteall {path}");
                Finding::problem(&path, "JDBC drivers mistake it for a proxy", mend)
            });
            let summary = match proxies.len() {
                0 => "no proxy is registered for JDBC clients".to_owned(),
                count => format!("{count} registered for JDBC clients in {namespace}"),
            };
            report.checked(DISCOVERY, summary, findings.collect());
        }
        Err(reason) => report.skip(&[DISCOVERY], &reason),
    }
}

fn base(target: &Target, nodes: &[BaseNode], report: &mut Report) {
    let Some(root) = nodes.first() else { return report.skip(&[ROOT, ACCESS_LISTS], "there are no base nodes") };
    let missing = |path: &str| {
        let mend = "every role creates it when it starts or opens a new session: restart a proxy or a metadata agent";
        Finding::problem(path, "it does not exist", mend)
    };
    match root.status {
        BaseNodeStatus::Missing => report.checked(ROOT, "missing", vec![missing(&root.path)]),
        BaseNodeStatus::Unreadable => report.checked(
            ROOT,
            "not readable",
            vec![Finding::problem(
                &root.path,
                "a master with these keys may not read it",
                format!(
                    "every role of an installation needs keys of the same root key ({}), and each installation a root of its own (zookeeper.root)",
                    target.configuration.cluster.keys.display()
                ),
            )],
        ),
        _ => report.checked(ROOT, format!("{} exists and is open to the master", root.path), Vec::new()),
    }
    if matches!(root.status, BaseNodeStatus::Missing | BaseNodeStatus::Unreadable) {
        return report.skip(&[ACCESS_LISTS], "the root cannot be read");
    }
    let findings: Vec<Finding> = nodes
        .iter()
        .filter_map(|node| {
            let what = match &node.status {
                BaseNodeStatus::AsExpected => return None,
                BaseNodeStatus::Missing => return Some(missing(&node.path)),
                BaseNodeStatus::Unreadable => "the master cannot read its access list".to_owned(),
                BaseNodeStatus::Differs { missing_rights, extra_rights } => {
                    let part = |word: &str, rights: &[String]| {
                        (!rights.is_empty()).then(|| format!("{word}: {}", rights.join("; ")))
                    };
                    let parts = [part("it grants too much", extra_rights), part("it lacks", missing_rights)];
                    parts.into_iter().flatten().collect::<Vec<_>>().join(", and ")
                }
            };
            let mend = format!(
                "as the master or a superuser, in ZooKeeper's command line: setAcl {} {}",
                node.path, node.expected
            );
            Some(Finding::problem(&node.path, what, mend))
        })
        .collect();
    let good = nodes.len() - findings.len();
    report.checked(
        ACCESS_LISTS,
        format!("{good} of {} base nodes have the required access lists", nodes.len()),
        findings,
    );
}
