//! The cluster, where engines are pods: whether it answers, what we may do there, what is there that is not ours.
//!
//! The doctor asks as whoever runs it. A right that it lacks is one that masters lack only if it runs as they do: with their
//! kubeconfig, or in their pod.

use orchestrator::Listing;

use super::{counted, room};
use crate::command::doctor::checks::{
    API_SERVER, Check, DISK, ENTRIES, EPOCHS, FOREIGN, RIGHTS, ROOM, STATE_DIRECTORY,
};
use crate::command::doctor::report::{Finding, Report, count as plural};
use crate::command::doctor::target::Target;

/// What is about a directory of this machine.
const OF_DIRECTORIES: [Check; 3] = [STATE_DIRECTORY, DISK, EPOCHS];

pub(super) fn look(target: &Target, listing: &Listing, missing: &[String], report: &mut Report) {
    report.leave_out(&OF_DIRECTORIES);
    report.checked(API_SERVER, "it answers, and pods can be read", Vec::new());
    let most = target.configuration.kubernetes.max_engines;
    room(listing.engines.len() + listing.unreadable.len(), most, "kubernetes.max_engines", Vec::new(), report);
    let unreadable = listing.unreadable.iter().map(|it| {
        let mend = "a pod: look at it with kubectl, its labels or its status are not what anybody here wrote; a namespace: grant \
                    what is missing there, or take it out of kubernetes.namespaces";
        Finding::problem(&it.name, format!("it can't be read: {}", it.reason), mend)
    });
    report.checked(ENTRIES, counted(listing), unreadable.collect());
    let rights = missing.iter().map(|right| {
        let mend = "grant it to the service account of the masters, as deploy/kubernetes does";
        Finding::problem(right, "whoever runs this may not do it, and a master has to", mend)
    });
    let summary = if missing.is_empty() { "all that a master needs are granted" } else { "some are missing" };
    report.checked(RIGHTS, summary, rights.collect());
    let foreign = listing.foreign.iter().map(|it| {
        let subject = format!("{}/{}", it.namespace, it.name);
        let mend = format!(
            "nobody here touches it: find out who made it, and kubectl delete pod --namespace {} {}",
            it.namespace, it.name
        );
        Finding::warning(subject, format!("{} (uid {})", it.reason, it.uid), mend)
    });
    report.checked(FOREIGN, plural(listing.foreign.len(), "foreign pod"), foreign.collect());
}

pub(super) fn unreachable(reason: &str, report: &mut Report) {
    report.leave_out(&OF_DIRECTORIES);
    let mend = "correct section [kubernetes], or look at the API server; engines run on meanwhile";
    let finding = Finding::problem("the API server", reason, mend);
    report.checked(API_SERVER, "the engines can't be read", vec![finding]);
    report.skip(&[ROOM, ENTRIES, RIGHTS, FOREIGN], "the engines can't be read");
}
