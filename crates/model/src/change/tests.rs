//! The rules of CREATE, ALTER and DROP, and of the slots that follow.
#![allow(clippy::unwrap_used, clippy::panic)]

mod engine_types;
mod on_demand;
mod owners;
mod quotas;

use super::pool::MAX_IMAGE_BYTES;
use super::*;
use crate::desired::derive;
use crate::name::{PoolName, TenantName, UnitName};
use crate::number::Incarnation;
use crate::slot::{Origin, Replacement, Slot, SlotKey};

fn unit_name(text: &str) -> UnitName {
    UnitName::new(text).unwrap()
}

fn unit(name: &str, patch: UnitPatch) -> ObjectPatch {
    ObjectPatch::ResourceUnit(unit_name(name), patch)
}

fn pool(name: &str, units: &[&str]) -> ObjectPatch {
    let units = Some(units.iter().map(|unit| unit_name(unit)).collect());
    ObjectPatch::ResourcePool(PoolName::new(name).unwrap(), PoolPatch { units, ..PoolPatch::default() })
}

fn tenant(name: &str, pools: &[&str]) -> ObjectPatch {
    let pools = Some(pools.iter().map(|pool| PoolName::new(*pool).unwrap()).collect());
    ObjectPatch::Tenant(TenantName::new(name).unwrap(), TenantPatch { pools, ..TenantPatch::default() })
}

fn create(object: ObjectPatch) -> Change {
    Change::Create { if_not_exists: false, object }
}

fn alter(object: ObjectPatch) -> Change {
    Change::Alter { if_exists: false, object }
}

fn drop_of(kind: ObjectKind, name: &str) -> Change {
    Change::Drop { if_exists: false, object: ObjectRef { kind, name: name.to_owned() } }
}

fn applied(catalog: &Catalog, change: &Change) -> Catalog {
    match change.apply(catalog, &Rules::default()).unwrap() {
        Applied::Object { after, .. } => catalog.with(&change.object(), after.as_ref(), catalog.generation.next()),
        Applied::Nothing { note } => panic!("{note}"),
    }
}

fn minimum(min: u32, max: u32) -> UnitPatch {
    UnitPatch { min_engines: Some(min), max_engines: Some(max), ..UnitPatch::default() }
}

fn world(changes: &[Change]) -> Catalog {
    changes.iter().fold(Catalog::default(), |catalog, change| applied(&catalog, change))
}

fn founding() -> Catalog {
    world(&[create(unit("uc_1", minimum(1, 4))), create(pool("rp_1", &["uc_1"])), create(tenant("t_1", &["rp_1"]))])
}

fn rows(of: &[(u32, Origin)]) -> Vec<Slot> {
    of.iter()
        .map(|(ordinal, origin)| Slot {
            key: SlotKey {
                tenant: TenantName::new("t_1").unwrap(),
                pool: PoolName::new("rp_1").unwrap(),
                unit: unit_name("uc_1"),
                ordinal: *ordinal,
            },
            incarnation: Incarnation(i64::from(*ordinal) + 1),
            origin: *origin,
            failures: 0,
            replacement: Replacement::StandIn,
            born: Incarnation(i64::from(*ordinal) + 1),
            started_for: None,
            owner: None,
            asked_at_ms: 0,
        })
        .collect()
}

fn changed(before: &Catalog, after: &Catalog, slots: &[Slot]) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let changes = derive(before, after, slots, &Defaults::default());
    (
        changes.delete.iter().map(|(key, _)| key.ordinal).collect(),
        changes.add.iter().map(|key| key.ordinal).collect(),
        changes.renew.iter().map(|key| key.ordinal).collect(),
    )
}

#[test]
fn a_raised_minimum_adds_rows_at_the_lowest_free_ordinals() {
    let before = founding();
    let after = applied(&before, &alter(unit("uc_1", minimum(3, 4))));
    assert_eq!(changed(&before, &after, &rows(&[(1, Origin::Start)])), (vec![], vec![0, 2], vec![]));
}

#[test]
fn a_lowered_minimum_deletes_its_highest_rows_and_no_started_ones() {
    let before = world(&[
        create(unit("uc_1", minimum(3, 4))),
        create(pool("rp_1", &["uc_1"])),
        create(tenant("t_1", &["rp_1"])),
    ]);
    let after = applied(&before, &alter(unit("uc_1", minimum(1, 4))));
    let slots = rows(&[(0, Origin::Minimum), (1, Origin::Minimum), (2, Origin::Minimum), (3, Origin::Start)]);
    assert_eq!(changed(&before, &after, &slots), (vec![1, 2], vec![], vec![]));
}

#[test]
fn a_lowered_maximum_takes_started_rows_first() {
    let before = founding();
    let after = applied(&before, &alter(unit("uc_1", minimum(1, 2))));
    let slots = rows(&[(0, Origin::Start), (1, Origin::Start), (2, Origin::Minimum), (3, Origin::Start)]);
    assert_eq!(changed(&before, &after, &slots), (vec![1, 3], vec![], vec![]));
}

#[test]
fn only_a_changed_configuration_renews_rows() {
    let before = founding();
    let memory = UnitPatch { driver_memory: Some("2G".parse().unwrap()), ..UnitPatch::default() };
    let after = applied(&before, &alter(unit("uc_1", memory)));
    assert_eq!(changed(&before, &after, &rows(&[(0, Origin::Minimum)])), (vec![], vec![], vec![0]));
    let comment = UnitPatch { comment: Setting::Set("x".to_owned()), max_engines: Some(9), ..UnitPatch::default() };
    let after = applied(&before, &alter(unit("uc_1", comment)));
    assert_eq!(changed(&before, &after, &rows(&[(0, Origin::Minimum)])), (vec![], vec![], vec![]));
}

#[test]
fn a_removed_link_deletes_its_rows_and_gives_the_reason() {
    let before = founding();
    let after = applied(&before, &alter(tenant("t_1", &[])));
    let changes = derive(&before, &after, &rows(&[(0, Origin::Minimum)]), &Defaults::default());
    assert_eq!(changes.delete[0].1.reason, "tenant \"t_1\" no longer uses resource pool \"rp_1\"");
}

#[test]
fn a_listed_object_cannot_be_dropped_and_the_error_names_the_owner() {
    let catalog = founding();
    for (kind, name, by) in
        [(ObjectKind::ResourceUnit, "uc_1", "\"rp_1\""), (ObjectKind::ResourcePool, "rp_1", "\"t_1\"")]
    {
        let error = drop_of(kind, name).apply(&catalog, &Rules::default()).unwrap_err();
        assert_eq!(error.sqlstate(), "2BP01");
        assert!(error.detail.unwrap().contains(by));
    }
    assert!(applied(&catalog, &drop_of(ObjectKind::Tenant, "t_1")).tenants.is_empty());
}

#[test]
fn a_node_can_be_in_one_pool_only() {
    let nodes = |name: &str| {
        let patch = PoolPatch { nodes: Setting::Set(vec!["node-1".to_owned()]), ..PoolPatch::default() };
        create(ObjectPatch::ResourcePool(PoolName::new(name).unwrap(), patch))
    };
    let error = nodes("rp_2").apply(&world(&[nodes("rp_1")]), &Rules::default()).unwrap_err();
    assert!(error.message.contains("\"node-1\"") && error.message.contains("\"rp_1\""), "{error}");
}

fn labels(of: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    of.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect()
}

fn named(name: &str, patch: PoolPatch) -> ObjectPatch {
    ObjectPatch::ResourcePool(PoolName::new(name).unwrap(), patch)
}

#[test]
fn selectors_that_include_each_other_are_refused_and_others_are_not() {
    let selected = |name: &str, of: &[(&str, &str)]| {
        named(name, PoolPatch { node_selector: Setting::Set(labels(of)), ..PoolPatch::default() })
    };
    let before = world(&[create(selected("rp_1", &[("zone", "a"), ("disk", "ssd")]))]);
    let try_in = |object: ObjectPatch| create(object).apply(&before, &Rules::default());
    for same in [&[("zone", "a"), ("disk", "ssd")][..], &[("zone", "a")], &[("zone", "a"), ("disk", "ssd"), ("x", "")]]
    {
        let error = try_in(selected("rp_2", same)).unwrap_err();
        assert_eq!(error.sqlstate(), "55000");
        assert!(error.message.contains("\"rp_1\"") && error.detail.unwrap().contains("disk=ssd, zone=a"));
    }
    for other in [&[("zone", "b"), ("disk", "ssd")][..], &[("zone", "b")], &[("rack", "1")]] {
        try_in(selected("rp_2", other)).unwrap();
    }
    // A list narrows the labels, and the owner may repeat its own.
    let listed = PoolPatch {
        nodes: Setting::Set(vec!["node-1".to_owned()]),
        node_selector: Setting::Set(labels(&[("zone", "a")])),
        ..PoolPatch::default()
    };
    try_in(named("rp_2", listed)).unwrap();
    alter(selected("rp_1", &[("zone", "a")])).apply(&before, &Rules::default()).unwrap();
}

#[test]
fn a_queue_belongs_to_one_pool_and_a_longer_one_may_belong_to_another() {
    let queue = |name: &str, prefix: &str| {
        named(name, PoolPatch { queue_prefix: Setting::Set(prefix.to_owned()), ..PoolPatch::default() })
    };
    let before = world(&[create(queue("rp_1", "etl"))]);
    let try_in = |object: ObjectPatch| create(object).apply(&before, &Rules::default());
    let error = try_in(queue("rp_2", "etl")).unwrap_err();
    assert_eq!(error.message, "queue prefix \"etl\" belongs to resource pool \"rp_1\"");
    try_in(queue("rp_2", "etl.daily")).unwrap();
    alter(queue("rp_1", "etl")).apply(&before, &Rules::default()).unwrap();
    for bad in ["", ".", "etl.", ".etl", "a..b", "a b", "a\n", &"q".repeat(MAX_QUEUE_BYTES + 1)] {
        assert_eq!(try_in(queue("rp_2", bad)).unwrap_err().sqlstate(), "22023", "{bad}");
    }
}

#[test]
fn an_overcommit_has_a_range_and_a_label_a_form() {
    let percent = |percent: u32| {
        let patch = PoolPatch { cpu_overcommit: Setting::Set(percent), ..PoolPatch::default() };
        create(named("rp_1", patch)).apply(&Catalog::default(), &Rules::default())
    };
    for fits in [100, 200, 1_000] {
        percent(fits).unwrap();
    }
    for bad in [0, 99, 1_001, u32::MAX] {
        let error = percent(bad).unwrap_err();
        assert_eq!(error.sqlstate(), "22023");
        assert_eq!(error.detail.as_deref(), Some("It is a percentage from 100 to 1000."));
    }
    let label = |label: &str, value: &str| {
        let patch = PoolPatch { node_selector: Setting::Set(labels(&[(label, value)])), ..PoolPatch::default() };
        create(named("rp_1", patch)).apply(&Catalog::default(), &Rules::default())
    };
    for (key, value) in [("zone", ""), ("a.b/C_d", "1.x-Y"), (&*"k".repeat(63), &*"v".repeat(63))] {
        label(key, value).unwrap();
    }
    let long = "k".repeat(64);
    for (key, value) in [
        ("", "a"),
        ("-a", "b"),
        ("a/", "b"),
        ("/a", "b"),
        ("A/a", "b"),
        ("a/b/c", "d"),
        ("a", "b c"),
        ("a", "-"),
        (&*long, ""),
    ] {
        let error = label(key, value).unwrap_err();
        assert_eq!(error.sqlstate(), "22023", "{key}={value}");
        assert!(error.message.contains("resource pool \"rp_1\"") && error.hint.is_some(), "{error}");
    }
    let many = (0..33).map(|n| (format!("k{n}"), String::new())).collect();
    let patch = PoolPatch { node_selector: Setting::Set(many), ..PoolPatch::default() };
    let error = create(named("rp_1", patch)).apply(&Catalog::default(), &Rules::default()).unwrap_err();
    assert_eq!(error.sqlstate(), "54000");
}

#[test]
fn a_reset_option_equals_an_absent_one() {
    let all = PoolPatch {
        node_selector: Setting::Set(labels(&[("zone", "a")])),
        cpu_overcommit: Setting::Set(200),
        queue_prefix: Setting::Set("etl".to_owned()),
        ..PoolPatch::default()
    };
    let none = PoolPatch {
        node_selector: Setting::Reset,
        cpu_overcommit: Setting::Reset,
        queue_prefix: Setting::Reset,
        ..PoolPatch::default()
    };
    let set = world(&[create(named("rp_1", all))]);
    let rp_1 = PoolName::new("rp_1").unwrap();
    assert_eq!(set.pool(&rp_1).unwrap().cpu_overcommit, Some(200));
    let reset = applied(&set, &alter(named("rp_1", none)));
    assert_eq!(*reset.pool(&rp_1).unwrap(), crate::catalog::PoolSpec::default());
}

#[test]
fn empty_and_invalid_names_are_refused_with_their_object() {
    let refused = |object: ObjectPatch| create(object).apply(&Catalog::default(), &Rules::default()).unwrap_err();
    let pool = |patch: PoolPatch| ObjectPatch::ResourcePool(PoolName::new("rp_1").unwrap(), patch);
    let image = |text: &str| pool(PoolPatch { image: Setting::Set(text.to_owned()), ..PoolPatch::default() });
    let namespace = PoolPatch { namespace: Setting::Set(String::new()), ..PoolPatch::default() };
    let nodes = PoolPatch { nodes: Setting::Set(vec![" ".to_owned()]), ..PoolPatch::default() };
    let users = TenantPatch { users: Some(vec![String::new()]), ..TenantPatch::default() };
    let properties = PropertiesPatch { reset: false, set: [(String::new(), Some("v".to_owned()))].into() };
    let properties = UnitPatch { properties, ..UnitPatch::default() };
    for (object, named) in [
        (image(""), "resource pool \"rp_1\""),
        (image(" "), "resource pool \"rp_1\""),
        (image("engine:1\n"), "resource pool \"rp_1\""),
        (image(&"i".repeat(MAX_IMAGE_BYTES + 1)), "resource pool \"rp_1\""),
        (pool(namespace), "resource pool \"rp_1\""),
        (pool(nodes), "resource pool \"rp_1\""),
        (ObjectPatch::Tenant(TenantName::new("t_1").unwrap(), users), "tenant \"t_1\""),
        (unit("uc_1", properties), "resource unit \"uc_1\""),
    ] {
        let error = refused(object);
        assert_eq!(error.sqlstate(), "22023", "{error}");
        assert!(error.message.contains(named) && error.message.len() < 500, "{error}");
        assert!(error.detail.is_some(), "{error}");
    }
    assert!(refused(image("")).hint.unwrap().contains("IMAGE DEFAULT"));
    assert!(create(image("registry:5000/engine@sha256:0f")).apply(&Catalog::default(), &Rules::default()).is_ok());
}

#[test]
fn unknown_pools_and_units_and_impossible_ranges_are_refused() {
    let empty = Catalog::default();
    let refused = |change: Change| change.apply(&empty, &Rules::default()).unwrap_err();
    assert_eq!(refused(create(pool("rp_1", &["uc_9"]))).sqlstate(), "42704");
    assert_eq!(refused(create(tenant("t_1", &["rp_9"]))).sqlstate(), "42704");
    assert_eq!(refused(create(unit("uc_1", minimum(3, 2)))).sqlstate(), "22023");
    assert_eq!(refused(alter(unit("uc_1", minimum(1, 2)))).sqlstate(), "42704");
}

#[test]
fn a_masked_secret_is_kept_on_alter_and_refused_on_create() {
    let with = |value: &str| UnitPatch {
        properties: PropertiesPatch { reset: false, set: [("db.password".to_owned(), Some(value.to_owned()))].into() },
        ..UnitPatch::default()
    };
    let refused = create(unit("uc_1", with("******"))).apply(&Catalog::default(), &Rules::default()).unwrap_err();
    assert_eq!(refused.sqlstate(), "22023");
    let before = world(&[create(unit("uc_1", with("s3cret")))]);
    let after = applied(&before, &alter(unit("uc_1", with("******"))));
    assert_eq!(after.unit(&unit_name("uc_1")).unwrap().properties["db.password"], "s3cret");
    let (object, _) = Object::find(&after, &create(unit("uc_1", UnitPatch::default())).object()).unwrap().unwrap();
    let Object::ResourceUnit { spec, .. } = object.masked(&SecretKeys::default()) else { panic!("a unit") };
    assert_eq!(spec.properties["db.password"], "******");
}
