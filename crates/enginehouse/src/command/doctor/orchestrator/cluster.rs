//! Checks of a cluster: whether the API server responds, our permissions, foreign pods.
//!
//! The doctor uses the credentials of its user. A permission that it lacks is one that masters lack only if it runs as they
//! do: with their kubeconfig, or in their pod.

use orchestrator::Listing;

use super::{counted, room};
use crate::command::doctor::checks::{
    API_SERVER, CAPACITY, Check, DISK, ENTRIES, EPOCHS, FOREIGN, RIGHTS, STATE_DIRECTORY,
};
use crate::command::doctor::report::{Finding, Report, count as plural};
use crate::command::doctor::target::Target;

/// Checks of a state directory, which a cluster does not have.
const OF_DIRECTORIES: [Check; 3] = [STATE_DIRECTORY, DISK, EPOCHS];

pub(super) fn check(target: &Target, listing: &Listing, missing: &[String], report: &mut Report) {
    report.leave_out(&OF_DIRECTORIES);
    report.checked(API_SERVER, "it responds, and pods can be read", Vec::new());
    let most = target.configuration.kubernetes.max_engines;
    room(listing.engines.len() + listing.unreadable.len(), most, "kubernetes.max_engines", Vec::new(), report);
    let unreadable = listing.unreadable.iter().map(|engine| {
        let mend = "a pod: inspect it with kubectl, its labels or its status have been changed; a namespace: grant the missing permission, or remove it from kubernetes.namespaces";
        Finding::problem(&engine.name, format!("it cannot be read: {}", engine.reason), mend)
    });
    report.checked(ENTRIES, counted(listing), unreadable.collect());
    let rights = missing.iter().map(|right| {
        let mend = "grant it to the service account of the masters, as deploy/kubernetes does";
        Finding::problem(right, "the user of this doctor lacks the permission, and masters need it", mend)
    });
    let summary =
        if missing.is_empty() { "all permissions of a master are granted" } else { "permissions are missing" };
    report.checked(RIGHTS, summary, rights.collect());
    let foreign = listing.foreign.iter().map(|pod| {
        let subject = format!("{}/{}", pod.namespace, pod.name);
        let mend = format!(
            "masters never touch it: find its creator, then kubectl delete pod --namespace {} {}",
            pod.namespace, pod.name
        );
        Finding::warning(subject, format!("{} (uid {})", pod.reason, pod.uid), mend)
    });
    report.checked(FOREIGN, plural(listing.foreign.len(), "foreign pod"), foreign.collect());
}

pub(super) fn unreachable(reason: &str, report: &mut Report) {
    report.leave_out(&OF_DIRECTORIES);
    let mend = "correct section [kubernetes], or check the API server; engines continue meanwhile";
    let finding = Finding::problem("the API server", reason, mend);
    report.checked(API_SERVER, "the engines cannot be read", vec![finding]);
    report.skip(&[CAPACITY, ENTRIES, RIGHTS, FOREIGN], "the engines cannot be read");
}
