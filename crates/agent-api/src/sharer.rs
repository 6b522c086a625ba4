//! Whose session a proxy opens at an engine that is dedicated to an owner: settings of `OpenSession`, beside its user.
//!
//! Only proxies write them: clients cannot set any key with the prefix `enginehouse.`, and the agent accepts sessions of proxies
//! only. The agent removes them, so that no engine sees them. A proxy of an earlier version writes none, and its session counts
//! as that of no owner. Engines without an owner are sent none: their agents may be of an earlier version, which would pass
//! them on.

use std::collections::BTreeMap;

use model::sharing::Sharer;

/// The group of the session's user, as [`model::owner::Owner::Group`] names it.
const GROUP: &str = "enginehouse.session.group";
/// The id of the gateway's session.
const SESSION: &str = "enginehouse.session.id";

/// Adds whose session it is.
pub fn write_sharer(configuration: &mut BTreeMap<String, String>, sharer: &Sharer) {
    configuration.insert(GROUP.to_owned(), sharer.group.clone());
    configuration.insert(SESSION.to_owned(), sharer.session.clone());
}

/// Removes whose session it is, for a session of this user; `None` if the proxy does not state it.
pub fn take_sharer(configuration: &mut BTreeMap<String, String>, user: &str) -> Option<Sharer> {
    let (group, session) = (configuration.remove(GROUP), configuration.remove(SESSION));
    Some(Sharer { user: user.to_owned(), group: group?, session: session? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sharer_is_taken_as_it_was_written_and_leaves_no_trace() {
        let own = BTreeMap::from([("spark.sql.ansi.enabled".to_owned(), "true".to_owned())]);
        let ann = Sharer::new("ann", &["etl".to_owned()], "5e551");
        let mut configuration = own.clone();
        write_sharer(&mut configuration, &ann);
        assert_eq!(take_sharer(&mut configuration, "ann"), Some(ann.clone()));
        assert_eq!(configuration, own);
        assert_eq!(take_sharer(&mut configuration, "ann"), None);
        for key in [GROUP, SESSION] {
            write_sharer(&mut configuration, &ann);
            configuration.remove(key);
            assert_eq!(take_sharer(&mut configuration, "ann"), None, "half of it is none");
            assert_eq!(configuration, own);
        }
    }
}
