//! Part of the check of the keys: how the secret properties of units are stored, and whether metadata agents can open them.

use std::collections::BTreeSet;

use keys::KeyGeneration;
use metadata::StoredSecrets;
use model::name::UnitName;

use super::report::{Finding, count as plural, named};
use super::role_files::Generations;

/// The first words of what a finding is about.
pub const SUBJECT: &str = "secret properties of";

fn of_units(units: &BTreeSet<UnitName>) -> String {
    let names: Vec<String> = units.iter().map(|name| format!("\"{name}\"")).collect();
    format!("{SUBJECT} resource unit{} {}", if names.len() == 1 { "" } else { "s" }, named(&names))
}

/// Such as `secret properties of resource unit "uc_1"`, if there are any that are sealed with this generation.
pub fn sealed_with(stored: &StoredSecrets, generation: KeyGeneration) -> Option<String> {
    stored.sealed.get(&generation).map(of_units)
}

/// The findings that no old generation of the key files has.
pub fn diagnose(stored: &StoredSecrets, files: &[Generations]) -> Vec<Finding> {
    let Some(file) = files.first() else { return Vec::new() };
    let mut findings = Vec::new();
    for (generation, units) in stored.sealed.iter().filter(|(generation, _)| **generation != file.in_use) {
        let units = of_units(units);
        if !file.accepted.contains(generation) {
            let what = format!(
                "{units} are sealed with generation {generation} of the keys, which is not accepted: no engines are created for them"
            );
            let mend = format!(
                "enginehouse keys derive --accept …,{generation} for all roles, or set the properties again with ALTER RESOURCE UNIT"
            );
            findings.push(Finding::problem("secret properties", what, mend));
        } else if *generation > file.in_use {
            let what = format!(
                "{units} are sealed with generation {generation} of the keys, and generation {} is in use",
                file.in_use
            );
            let mend = format!("keep generation {generation} accepted, or derive the files with --use {generation}");
            findings.push(Finding::warning("secret properties", what, mend).about_set_up());
        }
    }
    if !stored.in_clear.is_empty() && file.in_use != KeyGeneration::CLUSTER_SECRET {
        let what = format!("{} are in clear in the database", of_units(&stored.in_clear));
        let mend = "start a metadata agent with a key file of this generation: it seals them within a minute";
        findings.push(Finding::warning("secret properties", what, mend).about_set_up());
    }
    findings
}

/// `None` if no unit has any.
pub fn summary(stored: &StoredSecrets) -> Option<String> {
    let units = |units: &BTreeSet<UnitName>| plural(units.len(), "resource unit");
    let sealed = stored.sealed.iter().map(|(generation, of)| format!("sealed with {generation}: {}", units(of)));
    let in_clear = (!stored.in_clear.is_empty()).then(|| format!("in clear: {}", units(&stored.in_clear)));
    let parts: Vec<String> = sealed.chain(in_clear).collect();
    (!parts.is_empty()).then(|| format!("secret properties {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn stored(in_clear: &[&str], sealed: &[(u32, &[&str])]) -> StoredSecrets {
        let set = |names: &[&str]| names.iter().map(|name| UnitName::new(*name).unwrap()).collect();
        StoredSecrets {
            in_clear: set(in_clear),
            sealed: sealed.iter().map(|(generation, names)| (KeyGeneration(*generation), set(names))).collect(),
        }
    }

    fn found(stored: &StoredSecrets, in_use: u32, accepted: &[u32]) -> Vec<String> {
        let accepted = accepted.iter().copied().map(KeyGeneration).collect();
        let files = [Generations { role: "metadata-agent", in_use: KeyGeneration(in_use), accepted }];
        diagnose(stored, &files).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn values_of_the_generation_in_use_are_healthy() {
        let sealed = stored(&[], &[(2, &["uc_1", "uc_2"])]);
        assert_eq!(found(&sealed, 2, &[1, 2]), Vec::<String>::new());
        assert_eq!(summary(&sealed).unwrap(), "secret properties sealed with 2: 2 resource units");
        assert_eq!(summary(&StoredSecrets::default()), None);
        assert_eq!(found(&stored(&["uc_1"], &[]), 0, &[0, 1]), Vec::<String>::new(), "generation 0 seals nothing");
    }

    #[test]
    fn values_that_no_agent_opens_are_a_problem() {
        let whats = found(&stored(&[], &[(1, &["uc_1"]), (2, &["uc_2"])]), 2, &[2]);
        assert_eq!(whats.len(), 1);
        let expected = "secret properties of resource unit \"uc_1\" are sealed with generation 1 of the keys, which is not accepted";
        assert!(whats[0].starts_with(expected), "{whats:?}");
    }

    #[test]
    fn values_of_a_later_generation_or_in_clear_are_named() {
        let whats = found(&stored(&["uc_1"], &[(3, &["uc_1", "uc_2", "uc_3", "uc_4"])]), 2, &[2, 3]);
        assert!(whats[0].contains("\"uc_1\", \"uc_2\", \"uc_3\" and 1 more are sealed with generation 3"), "{whats:?}");
        assert_eq!(whats[1], "secret properties of resource unit \"uc_1\" are in clear in the database");
    }
}
