//! Check of the keys: which generations the roles of this machine, the metadata agents and the engines have, whether one of
//! them may be retired, and what offers no TLS between roles.

use std::collections::BTreeSet;

use coordination::{Agent, PermitNode, Session};
use keys::KeyGeneration;
use metadata::StoredSecrets;
use model::shared::Shared;

use super::checks::KEYS;
use super::report::{Finding, Report, count as plural, named};
use super::role_files::{Generations, RoleFiles};
use super::secrets;
use super::target::{Target, bounded};
use crate::configuration::TlsMode;

/// Checks the keys; agents and engines only if there is a session. `stored` says how secret properties are stored, or why that was not
/// read.
pub async fn check(
    target: &Target,
    session: Result<&Session, &String>,
    stored: Result<&StoredSecrets, &String>,
    report: &mut Report,
) {
    let mut holders = Vec::new();
    if let Ok(session) = session {
        let read = async {
            let (agents, permits) =
                tokio::try_join!(coordination::agents::list(session), coordination::permits::list(session))?;
            Ok::<_, coordination::Error>((agents, permits))
        };
        match bounded("reading the keys of agents and engines", read).await {
            Ok((agents, permits)) => holders = holders_of(&agents, &permits),
            Err(reason) => return report.skip(&[KEYS], &reason),
        }
    }
    let files = target.keys.generations();
    let folder = target.configuration.cluster.keys.display().to_string();
    let mut findings = diagnose(&files, &holders, stored, &folder);
    findings.extend(stored.into_iter().flat_map(|stored| secrets::diagnose(stored, &files)));
    findings.extend(without_tls(target.configuration.cluster.tls, &holders));
    let mut summary = summary(&files, &target.keys, &holders);
    let of_secrets = match stored {
        Ok(stored) => secrets::summary(stored),
        Err(reason) => Some(format!("secret properties were not read: {reason}")),
    };
    if let Some(text) = of_secrets {
        summary = format!("{summary}; {text}");
    }
    report.checked(KEYS, summary, findings);
}

/// An agent or an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    name: String,
    is_engine: bool,
    /// The one that it uses; of an agent without TLS it is not seen here.
    own: Option<KeyGeneration>,
    accepted: BTreeSet<KeyGeneration>,
    offers_tls: bool,
}

fn holders_of(agents: &[Agent], permits: &[Shared<PermitNode>]) -> Vec<Holder> {
    let accepted = |keys: &[KeyGeneration]| -> BTreeSet<KeyGeneration> {
        if keys.is_empty() { [KeyGeneration::CLUSTER_SECRET].into() } else { keys.iter().copied().collect() }
    };
    let of_agent = |agent: &Agent| Holder {
        name: format!("metadata agent {}", agent.address),
        is_engine: false,
        own: agent.tls,
        accepted: accepted(&agent.keys),
        offers_tls: agent.tls.is_some(),
    };
    let of_engine = |permit: &PermitNode| {
        let live = permit.registration.as_ref()?.content.as_ref().ok()?;
        Some(Holder {
            name: permit.engine.to_string(),
            is_engine: true,
            own: Some(live.keys.first().copied().unwrap_or(KeyGeneration::CLUSTER_SECRET)),
            accepted: accepted(&live.keys),
            offers_tls: live.tls.is_some(),
        })
    };
    let engines = permits.iter().filter_map(|permit| of_engine(permit));
    agents.iter().map(of_agent).chain(engines).collect()
}

fn diagnose(
    files: &[Generations],
    holders: &[Holder],
    stored: Result<&StoredSecrets, &String>,
    folder: &str,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(first) = files.first() else { return findings };
    let (in_use, accepted) = (first.in_use, &first.accepted);
    if let Some(other) = files.iter().find(|file| (file.in_use, &file.accepted) != (in_use, accepted)) {
        let what = format!("{} and {} differ", first.text(), other.text());
        let mend = "derive the key files of all roles with the same --use and --accept";
        findings.push(Finding::warning(folder, what, mend).about_set_up());
    }
    let is_stranger = |holder: &&Holder| holder.accepted.is_disjoint(accepted);
    let strangers: Vec<String> = holders.iter().filter(is_stranger).map(|holder| holder.name.clone()).collect();
    if !strangers.is_empty() {
        let what = format!("{} no generation of keys that the roles of this machine have", accept(&strangers));
        let mend = "give the agents files with a common generation; RESTART ENGINE replaces an engine";
        findings.push(Finding::problem(folder, what, mend));
    }
    for old in accepted.iter().filter(|generation| **generation != in_use && **generation < in_use) {
        let needs = |holder: &&Holder| holder.own == Some(*old) || !holder.accepted.contains(&in_use);
        let mut needed: Vec<String> = holders.iter().filter(needs).map(|holder| holder.name.clone()).collect();
        let sealed = stored.ok().and_then(|stored| secrets::sealed_with(stored, *old));
        let mut mends = Vec::new();
        if !needed.is_empty() {
            mends.push(format!(
                "give these agents files that use generation {in_use}, and replace the engines by RESTART ENGINE"
            ));
        }
        if let Some(sealed) = sealed {
            mends.push(format!(
                "metadata agents that use generation {in_use} seal secret properties again within a minute"
            ));
            needed.push(sealed);
        }
        let (what, mend) = if needed.is_empty() && stored.is_err() {
            (
                format!(
                    "generation {old} of the keys is still accepted; nothing that is registered needs it, and secret properties in \
                     the database, which may, were not read"
                ),
                "before it is retired, run the doctor where it can read the database: with the configuration of a metadata agent"
                    .to_owned(),
            )
        } else if needed.is_empty() {
            let rest: Vec<String> = accepted.iter().filter(|it| *it != old).map(ToString::to_string).collect();
            let what =
                format!("generation {old} of the keys is still accepted, and nothing that is registered needs it");
            (
                what,
                format!(
                    "enginehouse keys derive --use {in_use} --accept {}, once no process has an older file",
                    rest.join(",")
                ),
            )
        } else {
            let what = format!("generation {old} of the keys cannot be retired yet: {} it", need(&needed));
            (what, mends.join("; "))
        };
        let what = if *old == KeyGeneration::CLUSTER_SECRET {
            format!("{what}; it is the cluster secret, with which every process can act as any role")
        } else {
            what
        };
        findings.push(Finding::warning(folder, what, mend).about_set_up());
    }
    findings
}

/// What cannot be reached by TLS, and whether plain text can be given up.
fn without_tls(mode: TlsMode, holders: &[Holder]) -> Option<Finding> {
    if mode == TlsMode::Off {
        return None;
    }
    let is_plain = |holder: &&Holder| !holder.offers_tls;
    let plain: Vec<String> = holders.iter().filter(is_plain).map(|holder| holder.name.clone()).collect();
    let offer = if plain.len() == 1 { "offers" } else { "offer" };
    match mode {
        TlsMode::Required if !plain.is_empty() => Some(Finding::problem(
            "cluster.tls",
            format!("{} {offer} no TLS, which the roles of this machine require", named(&plain)),
            "restart these agents with cluster.tls = \"required\"; RESTART ENGINE replaces an engine",
        )),
        TlsMode::Optional if plain.is_empty() && !holders.is_empty() => Some(
            Finding::warning(
                "cluster.tls",
                "plain text is still accepted between roles, and all that is registered offers TLS",
                "set cluster.tls = \"required\" for all roles, and restart them one after the other",
            )
            .about_set_up(),
        ),
        TlsMode::Optional if !plain.is_empty() => Some(
            Finding::warning(
                "cluster.tls",
                format!("{} {offer} no TLS, and what is sent there is plain text", named(&plain)),
                "restart these agents with cluster.tls = \"optional\"; RESTART ENGINE replaces an engine",
            )
            .about_set_up(),
        ),
        _ => None,
    }
}

fn summary(files: &[Generations], keys: &RoleFiles, holders: &[Holder]) -> String {
    let mut parts: Vec<String> = files.iter().map(Generations::text).collect();
    let missing = keys.missing();
    if !missing.is_empty() {
        parts.push(format!("no keys of {} here", missing.join(", ")));
    }
    let engines = holders.iter().filter(|holder| holder.is_engine).count();
    let agents = holders.len() - engines;
    parts.push(format!("registered: {}, {}", plural(agents, "metadata agent"), plural(engines, "engine")));
    parts.join("; ")
}

fn accept(names: &[String]) -> String {
    format!("{} {}", named(names), if names.len() == 1 { "accepts" } else { "accept" })
}

fn need(names: &[String]) -> String {
    // Secret properties are several.
    let is_one = matches!(names, [one] if !one.starts_with(secrets::SUBJECT));
    format!("{} {}", named(names), if is_one { "needs" } else { "need" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::name::UnitName;

    use super::*;

    const ROLES: [&str; 2] = ["master", "proxy"];

    fn files(in_use: u32, accepted: &[u32]) -> Vec<Generations> {
        let file = |role| Generations {
            role,
            in_use: KeyGeneration(in_use),
            accepted: accepted.iter().copied().map(KeyGeneration).collect(),
        };
        ROLES.into_iter().map(file).collect()
    }

    fn engine(own: u32, accepted: &[u32]) -> Holder {
        Holder {
            name: format!("e-{own}"),
            is_engine: true,
            own: Some(KeyGeneration(own)),
            accepted: accepted.iter().copied().map(KeyGeneration).collect(),
            offers_tls: true,
        }
    }

    /// An agent that accepts these generations and uses the first one.
    fn agent(accepted: &[u32]) -> Holder {
        Holder { name: "metadata agent a:1".to_owned(), is_engine: false, ..engine(accepted[0], accepted) }
    }

    fn whats(files: &[Generations], holders: &[Holder]) -> Vec<String> {
        diagnose(files, holders, Ok(&StoredSecrets::default()), "keys")
            .into_iter()
            .map(|finding| format!("{} -> {}", finding.what, finding.mend))
            .collect()
    }

    #[test]
    fn one_generation_everywhere_is_healthy() {
        assert_eq!(whats(&files(1, &[1]), &[agent(&[1]), engine(1, &[1])]), Vec::<String>::new());
        assert_eq!(whats(&files(1, &[1, 2]), &[agent(&[1, 2])]), Vec::<String>::new(), "a later one is no finding");
    }

    #[test]
    fn an_old_generation_may_be_retired_once_nothing_needs_it() {
        let found = whats(&files(2, &[1, 2]), &[agent(&[2, 1]), engine(2, &[1, 2])]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("nothing that is registered needs it"), "{found:?}");
        assert!(found[0].contains("--use 2 --accept 2,"), "{found:?}");
        for holder in [agent(&[1]), agent(&[1, 2]), engine(1, &[1]), engine(1, &[1, 2])] {
            let found = whats(&files(2, &[1, 2]), &[holder]);
            assert!(found[0].contains("cannot be retired yet") && found[0].contains("needs it"), "{found:?}");
        }
    }

    #[test]
    fn a_generation_that_secret_properties_are_sealed_with_is_not_retired() {
        let units = [UnitName::new("uc_1").unwrap()].into();
        let stored = StoredSecrets { sealed: [(KeyGeneration(1), units)].into(), ..StoredSecrets::default() };
        let findings = diagnose(&files(2, &[1, 2]), &[agent(&[2, 1]), engine(2, &[1, 2])], Ok(&stored), "keys");
        assert_eq!(findings.len(), 1, "{findings:?}");
        let finding = &findings[0];
        let expected =
            "generation 1 of the keys cannot be retired yet: secret properties of resource unit \"uc_1\" need it";
        assert_eq!(finding.what, expected);
        assert!(finding.mend.contains("metadata agents that use generation 2 seal"), "{}", finding.mend);
    }

    #[test]
    fn no_generation_is_retired_while_secret_properties_were_not_read() {
        let reason = "the file has no section [database]".to_owned();
        let findings = diagnose(&files(2, &[1, 2]), &[agent(&[2, 1]), engine(2, &[1, 2])], Err(&reason), "keys");
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(
            findings[0].what.ends_with("secret properties in the database, which may, were not read"),
            "{findings:?}"
        );
        assert!(findings[0].mend.contains("run the doctor where it can read the database"), "{findings:?}");
        // What needs it is named whatever else does.
        let findings = diagnose(&files(2, &[1, 2]), &[agent(&[1])], Err(&reason), "keys");
        assert!(findings[0].what.contains("cannot be retired yet"), "{findings:?}");
    }

    #[test]
    fn the_cluster_secret_is_named() {
        let found = whats(&files(1, &[0, 1]), &[engine(0, &[0])]);
        assert!(found[0].contains("e-0 needs it; it is the cluster secret"), "{found:?}");
    }

    #[test]
    fn what_shares_no_generation_is_a_problem() {
        let holders = [agent(&[2]), engine(3, &[3]), engine(3, &[3]), engine(3, &[3])];
        let found = whats(&files(1, &[1]), &holders);
        assert!(found[0].starts_with("metadata agent a:1, e-3, e-3 and 1 more accept no generation"), "{found:?}");
    }

    #[test]
    fn what_offers_no_tls_is_named() {
        let holders = [agent(&[1]), Holder { offers_tls: false, ..engine(1, &[1]) }];
        let found = |mode, holders| without_tls(mode, holders).map(|finding| finding.what);
        let required = found(TlsMode::Required, &holders).unwrap();
        assert_eq!(required, "e-1 offers no TLS, which the roles of this machine require");
        let optional = found(TlsMode::Optional, &holders).unwrap();
        assert_eq!(optional, "e-1 offers no TLS, and what is sent there is plain text");
        let all_offer = found(TlsMode::Optional, &holders[..1]).unwrap();
        assert!(all_offer.contains("all that is registered offers TLS"), "{all_offer}");
        assert_eq!(found(TlsMode::Required, &holders[..1]), None);
        assert_eq!(found(TlsMode::Optional, &[]), None);
        assert_eq!(found(TlsMode::Off, &holders), None);
    }

    #[test]
    fn files_that_differ_are_named() {
        let mut files = files(1, &[1]);
        files[1].accepted.insert(KeyGeneration(2));
        let found = whats(&files, &[]);
        let what = "master.key (uses 1, accepts 1) and proxy.key (uses 1, accepts 1, 2) differ";
        assert!(found[0].starts_with(what), "{found:?}");
    }
}
