//! Statements, objects and texts for the properties.
#![allow(clippy::unwrap_used, clippy::panic)]

mod quotas;
mod units;

use std::time::Duration;

use ddl::{AuditScope, EngineScope, Grace, HistoryScope, MAX_LIMIT, QuotaFilter, ReservationFilter, Statement};
use model::alteration::{ObjectKind, ObjectRef};
use model::catalog::{Catalog, PoolSpec, TenantSpec, Versioned};
use model::change::{Change, Object, ObjectPatch, PoolPatch, PropertiesPatch, Setting, TenantPatch, UnitPatch};
use model::engine_type::EngineType;
use model::name::{PoolName, QuotaName, TenantName, UnitName};
use model::quantity::{Cpu, MAX_CPU_MILLIS, MAX_MEMORY_BYTES, Memory};
use model::resource::Kind;
use model::{EngineName, Generation, span};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

pub use units::unit_with_secret;

/// Names, keywords of the language among them.
fn name() -> impl Strategy<Value = String> {
    let keyword = select(vec![
        "pool", "unit", "if", "set", "wait", "for", "like", "tenant", "comment", "null", "limit", "user", "quota",
        "all", "nowait",
    ]);
    prop_oneof![
        3 => "[a-z][a-z0-9_]{0,8}".prop_filter("ends well", |name| !name.ends_with('_')),
        2 => "[a-z][a-z0-9_.-]{0,60}[a-z0-9]",
        1 => keyword.prop_map(str::to_owned),
    ]
}

fn tenant() -> impl Strategy<Value = TenantName> {
    name().prop_map(|name| TenantName::new(name).unwrap())
}

fn pool() -> impl Strategy<Value = PoolName> {
    name().prop_map(|name| PoolName::new(name).unwrap())
}

fn unit() -> impl Strategy<Value = UnitName> {
    name().prop_map(|name| UnitName::new(name).unwrap())
}

fn quota() -> impl Strategy<Value = QuotaName> {
    name().prop_map(|name| QuotaName::new(name).unwrap())
}

fn engine() -> impl Strategy<Value = EngineName> {
    "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?".prop_map(|name| EngineName::new(name).unwrap())
}

/// Any text that a string can hold, with many quotes and comments.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["\\PC{0,12}", "['\"`\\\\;/*(),=a-]{0,12}"]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => "[a-z]{1,6}(\\.[a-z]{1,6}){0,3}",
        1 => select(vec!["db.password", "my-Token", "aws_access_key_id"]).prop_map(str::to_owned),
        1 => text().prop_filter("a key is not empty", |key| !key.is_empty()),
    ]
}

fn setting<T: std::fmt::Debug + Clone>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Setting<T>> {
    prop_oneof![Just(None), option::of(value).prop_map(Some)].prop_map(|value| match value {
        None => Setting::Keep,
        Some(None) => Setting::Reset,
        Some(Some(value)) => Setting::Set(value),
    })
}

fn time() -> impl Strategy<Value = Duration> {
    let max_ms = u64::try_from(span::MAX_SPAN.as_millis()).unwrap();
    prop_oneof![(0..=max_ms), (0..=max_ms / 60_000).prop_map(|minutes| minutes * 60_000)]
        .prop_map(Duration::from_millis)
}

fn wait() -> impl Strategy<Value = Option<Duration>> {
    option::of(time())
}

fn cpu() -> impl Strategy<Value = Cpu> {
    prop_oneof![(1..=MAX_CPU_MILLIS), (1..=MAX_CPU_MILLIS / 1000).prop_map(|cores| cores * 1000)]
        .prop_map(|millis| Cpu::from_millis(millis).unwrap())
}

fn memory() -> impl Strategy<Value = Memory> {
    prop_oneof![(1..=MAX_MEMORY_BYTES), (1..=1024_u64).prop_map(|gib| gib << 30)]
        .prop_map(|bytes| Memory::from_bytes(bytes).unwrap())
}

fn engine_type() -> impl Strategy<Value = EngineType> {
    select(EngineType::ALL.to_vec())
}

fn properties() -> impl Strategy<Value = PropertiesPatch> {
    (any::<bool>(), btree_map(key(), option::of(text()), 0..4)).prop_map(|(reset, set)| PropertiesPatch { reset, set })
}

/// Boxed, like all larger strategies: they would take too much of a test's stack.
fn pool_patch() -> BoxedStrategy<PoolPatch> {
    let nodes = (setting(text()), setting(vec(text(), 0..4)), setting(btree_map(text(), text(), 1..4)));
    let rest = (setting(any::<u32>()), setting(text()), setting(text()), setting(text()));
    let capacity = (
        setting(quotas::capacity()),
        setting(quotas::amount()),
        setting(select(Kind::ALL.to_vec())),
        setting(quotas::reclaim()),
    );
    let patch = (option::of(vec(unit(), 0..4)), nodes.boxed(), rest.boxed(), capacity.boxed()).prop_map(
        |(
            units,
            (namespace, nodes, node_selector),
            (cpu_overcommit, queue_prefix, image, comment),
            (capacity, protected, resource_kind, reclaim),
        )| PoolPatch {
            units,
            namespace,
            nodes,
            node_selector,
            cpu_overcommit,
            queue_prefix,
            image,
            capacity,
            protected,
            resource_kind,
            reclaim,
            comment,
        },
    );
    patch.boxed()
}

fn tenant_patch() -> impl Strategy<Value = TenantPatch> {
    let lists = (option::of(vec(pool(), 0..4)), option::of(vec(text(), 0..4)), setting(vec(text(), 0..4)));
    (lists, setting(unit()), setting(text())).prop_map(|((pools, users, admins), default_unit, comment)| TenantPatch {
        pools,
        users,
        admins,
        default_unit,
        comment,
    })
}

fn patch() -> BoxedStrategy<ObjectPatch> {
    let patch = prop_oneof![
        (unit(), units::patch()).prop_map(|(name, patch)| ObjectPatch::ResourceUnit(name, patch)),
        (pool(), pool_patch()).prop_map(|(name, patch)| ObjectPatch::ResourcePool(name, patch)),
        (tenant(), tenant_patch()).prop_map(|(name, patch)| ObjectPatch::Tenant(name, patch)),
        (quota(), quotas::patch()).prop_map(|(name, patch)| ObjectPatch::ResourceQuota(name, patch)),
    ];
    patch.boxed()
}

fn says_something(patch: &ObjectPatch) -> bool {
    match patch {
        ObjectPatch::ResourceUnit(_, patch) => *patch != UnitPatch::default(),
        ObjectPatch::ResourcePool(_, patch) => *patch != PoolPatch::default(),
        ObjectPatch::Tenant(_, patch) => *patch != TenantPatch::default(),
        ObjectPatch::ResourceQuota(_, patch) => *patch != model::change::QuotaPatch::default(),
    }
}

fn reference() -> impl Strategy<Value = ObjectRef> {
    (select(ObjectKind::ALL.to_vec()), name()).prop_map(|(kind, name)| ObjectRef { kind, name })
}

fn change() -> BoxedStrategy<Change> {
    let change = prop_oneof![
        (any::<bool>(), patch()).prop_map(|(if_not_exists, object)| Change::Create { if_not_exists, object }),
        (any::<bool>(), patch().prop_filter("an ALTER has an option", says_something))
            .prop_map(|(if_exists, object)| Change::Alter { if_exists, object }),
        (any::<bool>(), reference()).prop_map(|(if_exists, object)| Change::Drop { if_exists, object }),
    ];
    change.boxed()
}

fn grace() -> impl Strategy<Value = Grace> {
    prop_oneof![Just(Grace::Default), Just(Grace::Force), time().prop_map(Grace::Within)]
}

/// IN PLACE and the grace period of a RESTART: FORCE excludes IN PLACE.
fn replacing() -> impl Strategy<Value = (bool, Grace)> {
    (any::<bool>(), grace()).prop_map(|(in_place, grace)| (in_place && grace != Grace::Force, grace))
}

/// A change, and whether it is IN PLACE, which only some can be.
fn change_in_place() -> impl Strategy<Value = (Change, bool)> {
    (change(), any::<bool>()).prop_map(|(change, in_place)| {
        let replaces = matches!(
            &change,
            Change::Alter { object: ObjectPatch::ResourceUnit(..) | ObjectPatch::ResourcePool(..), .. }
        );
        (change, in_place && replaces)
    })
}

fn audit_scope() -> impl Strategy<Value = AuditScope> {
    prop_oneof![Just(AuditScope::All), text().prop_map(AuditScope::User), tenant().prop_map(AuditScope::Tenant)]
}

fn quota_filter() -> impl Strategy<Value = QuotaFilter> {
    prop_oneof![
        tenant().prop_map(QuotaFilter::Tenant),
        pool().prop_map(QuotaFilter::Pool),
        text().prop_map(QuotaFilter::User),
        text().prop_map(QuotaFilter::Creator),
    ]
}

fn reservation_filter() -> impl Strategy<Value = ReservationFilter> {
    prop_oneof![
        tenant().prop_map(ReservationFilter::Tenant),
        pool().prop_map(ReservationFilter::Pool),
        text().prop_map(ReservationFilter::User),
    ]
}

fn history_scope() -> impl Strategy<Value = HistoryScope> {
    prop_oneof![
        tenant().prop_map(HistoryScope::Tenant),
        (tenant(), pool()).prop_map(|(tenant, pool)| HistoryScope::Pool(tenant, pool)),
        (tenant(), pool(), unit()).prop_map(|(tenant, pool, unit)| HistoryScope::Unit(tenant, pool, unit)),
    ]
}

/// Any statement of the control language.
pub fn statement() -> impl Strategy<Value = Statement> {
    let scope = prop_oneof![
        tenant().prop_map(EngineScope::Tenant),
        (tenant(), pool()).prop_map(|(tenant, pool)| EngineScope::Pool(tenant, pool)),
        (tenant(), pool(), unit()).prop_map(|(tenant, pool, unit)| EngineScope::Unit(tenant, pool, unit)),
    ];
    prop_oneof![
        1 => scope.prop_map(Statement::ShowEngines),
        1 => (tenant(), pool(), unit(), any::<bool>(), wait())
            .prop_map(|(tenant, pool, unit, nowait, wait)| Statement::StartEngine { tenant, pool, unit, nowait, wait }),
        1 => (pool(), engine(), replacing(), wait()).prop_map(|(pool, engine, (in_place, grace), wait)| {
            Statement::RestartEngine { pool, engine, in_place, grace, wait }
        }),
        1 => (pool(), engine(), grace(), wait())
            .prop_map(|(pool, engine, grace, wait)| Statement::StopEngine { pool, engine, grace, wait }),
        1 => (pool(), engine()).prop_map(|(pool, engine)| Statement::DescribeEngine { pool, engine }),
        1 => (reference(), option::of(text())).prop_map(|(it, like)| Statement::ShowObjects { kind: it.kind, like }),
        1 => (quota_filter(), option::of(text())).prop_map(|(of, like)| Statement::ShowQuotas { of, like }),
        1 => unit().prop_map(|unit| Statement::ShowPoolsOfUnit { unit }),
        1 => pool().prop_map(|pool| Statement::ShowTenantsOfPool { pool }),
        1 => reference().prop_map(Statement::Describe),
        1 => reference().prop_map(Statement::ShowCreate),
        4 => (change_in_place(), wait())
            .prop_map(|((change, in_place), wait)| Statement::Change { change, in_place, wait }),
        2 => change_in_place().prop_map(|(change, in_place)| Statement::Explain { change, in_place }),
        1 => (tenant(), pool(), unit())
            .prop_map(|(tenant, pool, unit)| Statement::ExplainStart { tenant, pool, unit }),
        1 => (pool(), engine(), any::<bool>())
            .prop_map(|(pool, engine, in_place)| Statement::ExplainRestart { pool, engine, in_place }),
        1 => (option::of(reservation_filter()), any::<bool>(), option::of(1..=MAX_LIMIT))
            .prop_map(|(of, all, limit)| Statement::ShowReservations { of, all, limit }),
        1 => (option::of(tenant()), option::of(1..=MAX_LIMIT))
            .prop_map(|(tenant, limit)| Statement::ShowDemand { tenant, limit }),
        1 => (history_scope(), option::of(1..=MAX_LIMIT))
            .prop_map(|(scope, limit)| Statement::ShowEngineHistory { scope, limit }),
        1 => text().prop_map(|id| Statement::DescribeReservation { id }),
        1 => text().prop_map(|id| Statement::CancelReservation { id }),
        1 => option::of(1..=MAX_LIMIT).prop_map(|limit| Statement::ShowAlterations { limit }),
        1 => (audit_scope(), option::of(time()), option::of(1..=MAX_LIMIT))
            .prop_map(|(scope, since, limit)| Statement::ShowAudit { scope, since, limit }),
        1 => Just(Statement::ShowMaster),
    ]
}

/// White space and comments that stand for one blank.
pub fn gap() -> impl Strategy<Value = String> {
    let piece = select(vec![" ", "\t", "\r\n", "/* ' \" ` */", "/* a /* b */ ; */", " -- don't\n", "\u{a0}", "/**/"]);
    vec(piece, 1..4).prop_map(|pieces| pieces.concat())
}

/// Words and symbols of the language in any order.
pub fn word_salad() -> impl Strategy<Value = String> {
    let words = "show engines tenants resource pool pools unit units tenant create alter drop explain describe desc start \
                 restart stop engine if not exists set wait within force in place like limit alterations master for properties \
                 reset null default comment min_engines driver_memory driver_cpu unit_list node_list \
                 node_selector queue_prefix cpu_overcommit user_list quota quotas user creator guarantee borrow_limit weight capacity nodes none unlimited cpu memory priority \
                 charge reservation reservations demand cancel all nowait t_1 1G 500m \
                 'x' 'it''s' \"q\" `b` ( ) , ; = - . -- /* */ 5 0.5 '5m' use \u{e9} \n";
    let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
    let heads = vec![
        "",
        "create tenant ",
        "create resource quota q ",
        "alter resource unit u ",
        "stop engine p 'e' ",
        "restart engine p 'e' ",
        "start engine t p u ",
        "explain start engine t p u ",
        "show reservations ",
        "show demand ",
        "show engine history ",
        "show ",
        "desc ",
    ];
    (select(heads), vec(select(words), 0..14)).prop_map(|(head, words)| head.to_owned() + &words.join(" "))
}

/// The units and pools that the generated pools and tenants may list.
pub fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for n in 0..4 {
        let unit = units::with([("k".to_owned(), "v".to_owned())].into());
        let versioned = Versioned { spec: unit, generation: Generation(1) };
        catalog.units.insert(UnitName::new(format!("known-{n}")).unwrap(), versioned);
        let versioned = Versioned { spec: PoolSpec::default(), generation: Generation(1) };
        catalog.pools.insert(PoolName::new(format!("known-{n}")).unwrap(), versioned);
        let versioned = Versioned { spec: TenantSpec::default(), generation: Generation(1) };
        catalog.tenants.insert(TenantName::new(format!("known-{n}")).unwrap(), versioned);
    }
    catalog
}

fn known() -> impl Strategy<Value = Vec<String>> {
    proptest::sample::subsequence((0..4).map(|n| format!("known-{n}")).collect::<Vec<_>>(), 0..=4).prop_shuffle()
}

fn pool_spec() -> impl Strategy<Value = PoolSpec> {
    let nodes = option::of(proptest::sample::subsequence(vec!["node-1", "it's", "n.example"], 0..=3));
    let namespace = option::of(select(vec!["my-namespace", "{pool}--{tenant}", "x-{tenant}"]));
    let image = option::of(select(vec!["registry:5000/engine:1", "it's", "größe@sha256:0f"]));
    let labels = btree_map(select(vec!["zone", "example.org/disk"]), select(vec!["", "a", "SSD_1.x"]), 0..3);
    let queue = option::of(select(vec!["etl", "it's.größe"]));
    let rest = (labels, option::of(100..=1_000_u32), queue, option::of(text()));
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Special).collect();
    let admission = (quotas::capacity_with_part(), option::of(select(kinds)), option::of(quotas::reclaim()));
    (known(), namespace, nodes, image, rest, admission).prop_map(|(units, namespace, nodes, image, rest, admission)| {
        let (labels, cpu_overcommit, queue_prefix, comment) = rest;
        let ((capacity, protected), resource_kind, reclaim) = admission;
        PoolSpec {
            units: units.into_iter().map(|unit| UnitName::new(unit).unwrap()).collect(),
            namespace: namespace.map(str::to_owned),
            nodes: nodes.map(|nodes| nodes.into_iter().map(str::to_owned).collect()),
            node_selector: labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            cpu_overcommit,
            queue_prefix: queue_prefix.map(str::to_owned),
            image: image.map(str::to_owned),
            capacity,
            protected,
            resource_kind,
            reclaim,
            comment,
        }
    })
}

fn tenant_spec() -> impl Strategy<Value = TenantSpec> {
    let users = || proptest::sample::subsequence(vec!["alice", "Bob", "o'neil", "größe", "@analysts"], 0..=5);
    let lists = (known(), users(), option::of(users()));
    let names = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect();
    let default_unit = option::of(select(vec!["known-0", "known-3"]));
    (lists, default_unit, option::of(text())).prop_map(move |((pools, users, admins), default_unit, comment)| {
        TenantSpec {
            pools: pools.into_iter().map(|pool| PoolName::new(pool).unwrap()).collect(),
            users: names(users),
            admins: admins.map(names),
            default_unit: default_unit.map(|unit| UnitName::new(unit).unwrap()),
            comment,
        }
    })
}

/// An object that [`catalog`] may be extended by.
pub fn object() -> impl Strategy<Value = Object> {
    prop_oneof![
        (unit(), units::spec()).prop_map(|(name, spec)| Object::ResourceUnit { name, spec }).boxed(),
        (pool(), pool_spec()).prop_map(|(name, spec)| Object::ResourcePool { name, spec }).boxed(),
        (tenant(), tenant_spec()).prop_map(|(name, spec)| Object::Tenant { name, spec }).boxed(),
        (quota(), quotas::spec()).prop_map(|(name, spec)| Object::ResourceQuota { name, spec }),
    ]
}
