//! The slots of a unit whose engines are shared by others than before.

use super::*;
use crate::owner::{Owner, SharedBy};
use crate::slot::StartedFor;

fn shared_by(shared_by: SharedBy) -> UnitPatch {
    UnitPatch { shared_by: Some(shared_by), ..minimum(0, 4) }
}

#[allow(clippy::unnecessary_wraps)] // As slots and permits have it.
fn user(name: &str) -> Option<Owner> {
    Some(Owner::User(name.to_owned()))
}

/// Rows at the ordinals 0, 1 and so on: the owner, and the user that the row was started for.
fn owned(origin: Origin, of: &[(Option<Owner>, Option<&str>)]) -> Vec<Slot> {
    let ordinals: Vec<(u32, Origin)> = (0..of.len()).map(|ordinal| (ordinal as u32, origin)).collect();
    let mut slots = rows(&ordinals);
    for (slot, (owner, user)) in slots.iter_mut().zip(of) {
        slot.owner.clone_from(owner);
        let started_for = |user: &&str| StartedFor { user: (*user).to_owned(), creator: "IDE".to_owned() };
        slot.started_for = user.as_ref().map(started_for);
    }
    slots
}

/// What becomes of each row: deleted, or the owner that it has then with whether it is renewed.
fn after(from: SharedBy, to: SharedBy, slots: &[Slot]) -> Vec<Option<(Option<Owner>, bool)>> {
    let before = applied(&founding(), &alter(unit("uc_1", shared_by(from))));
    let after = applied(&before, &alter(unit("uc_1", shared_by(to))));
    let changes = derive(&before, &after, slots, &Defaults::default());
    assert!(changes.add.is_empty());
    assert!(changes.owners.keys().all(|key| changes.renew.contains(key)), "an owner changes only with an incarnation");
    let reason = format!("SHARED_BY is now '{to}'");
    assert!(changes.delete.iter().all(|(_, of_row)| of_row.reason == reason), "{:?}", changes.delete);
    let of = |slot: &Slot| {
        let is_deleted = changes.delete.iter().any(|(key, _)| *key == slot.key);
        let owner = changes.owners.get(&slot.key).unwrap_or(&slot.owner).clone();
        (!is_deleted).then(|| (owner, changes.renew.contains(&slot.key)))
    };
    let result = slots.iter().map(of).collect();
    // A second derivation from the result changes nothing.
    let mut new: Vec<Slot> = slots.to_vec();
    new.retain(|slot| changes.delete.iter().all(|(key, _)| *key != slot.key));
    for slot in &mut new {
        if let Some(owner) = changes.owners.get(&slot.key) {
            slot.owner.clone_from(owner);
        }
    }
    assert_eq!(derive(&after, &after, &new, &Defaults::default()), crate::desired::SlotChanges::default());
    result
}

#[test]
fn a_started_row_is_owned_by_the_user_that_it_was_started_for() {
    let slots = owned(Origin::Start, &[(None, Some("ann")), (None, Some("bob")), (None, None)]);
    let renewed = |name: &str| Some((user(name), true));
    assert_eq!(after(SharedBy::Tenant, SharedBy::User, &slots), [renewed("ann"), renewed("bob"), None]);
    let slots = owned(Origin::Start, &[(Some(Owner::Group("etl".to_owned())), Some("ann"))]);
    assert_eq!(after(SharedBy::Group, SharedBy::User, &slots), [renewed("ann")]);
}

#[test]
fn a_started_row_loses_its_owner_if_the_tenant_shares_it() {
    let slots = owned(Origin::Start, &[(user("ann"), Some("ann")), (user("bob"), Some("bob"))]);
    assert_eq!(after(SharedBy::User, SharedBy::Tenant, &slots), [Some((None, true)), Some((None, true))]);
}

#[test]
fn a_row_whose_owner_is_not_known_is_deleted() {
    for to in [SharedBy::Group, SharedBy::Session] {
        let slots = owned(Origin::Start, &[(user("ann"), Some("ann"))]);
        assert_eq!(after(SharedBy::User, to, &slots), [None], "{to}");
        assert_eq!(after(SharedBy::Tenant, to, &owned(Origin::Start, &[(None, Some("ann"))])), [None], "{to}");
    }
}

#[test]
fn rows_that_follow_demand_are_deleted_when_others_share_the_unit() {
    for (from, owner) in [
        (SharedBy::Tenant, None),
        (SharedBy::Group, Some(Owner::Group("etl".to_owned()))),
        (SharedBy::User, user("ann")),
        (SharedBy::Session, Some(Owner::Session("s-1".to_owned()))),
    ] {
        for to in [SharedBy::Tenant, SharedBy::Group, SharedBy::User, SharedBy::Session] {
            let slots = owned(Origin::Demand, &[(owner.clone(), Some("ann"))]);
            let stays = (from == to).then(|| (owner.clone(), false));
            assert_eq!(after(from, to, &slots), [stays], "{from} to {to}");
        }
    }
}
