//! Quotas, and the capacities of pools.

use std::collections::BTreeMap;

use model::change::QuotaPatch;
use model::name::{PoolName, TenantName};
use model::quota::{
    Capacity, Count, CpuAmount, DeclaredAmount, MemoryAmount, Principal, PrincipalQuota, QuotaScope, QuotaSpec,
    Reclaim, TenantQuota, TransferLimit,
};
use model::resource::MAX_AMOUNT;
use proptest::collection::btree_map;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{pool, setting, tenant, text};

fn cpu() -> impl Strategy<Value = CpuAmount> {
    prop_oneof![0..=MAX_AMOUNT, (0..=MAX_AMOUNT / 1_000).prop_map(|cores| cores * 1_000)]
        .prop_map(|millis| CpuAmount::from_millis(millis).unwrap())
}

fn memory() -> impl Strategy<Value = MemoryAmount> {
    prop_oneof![0..=MAX_AMOUNT, (0..=MAX_AMOUNT >> 30).prop_map(|gib| gib << 30)]
        .prop_map(|bytes| MemoryAmount::from_bytes(bytes).unwrap())
}

fn count() -> impl Strategy<Value = Count> {
    prop_oneof![0..=MAX_AMOUNT, 0..100_i64].prop_map(|count| Count::new(count).unwrap())
}

/// An amount with these names of custom amounts.
fn amount_of(names: impl Strategy<Value = String>) -> impl Strategy<Value = DeclaredAmount> {
    let parts = (option::of(cpu()), option::of(memory()), option::of(count()), btree_map(names, count(), 0..3));
    parts
        .prop_map(|(cpu, memory, engines, custom)| DeclaredAmount { cpu, memory, engines, custom })
        .prop_filter("an amount has a component", |amount| !amount.is_empty())
}

/// Any amount that can be written, also one that the catalog refuses.
pub fn amount() -> impl Strategy<Value = DeclaredAmount> {
    amount_of(text())
}

/// An amount that may be a limit.
fn limit() -> impl Strategy<Value = DeclaredAmount> {
    amount_of(select(vec!["nvidia.com/gpu", "it's", "größe"]).prop_map(str::to_owned))
}

/// An amount that may be guaranteed.
fn guarantee() -> impl Strategy<Value = DeclaredAmount> {
    limit()
        .prop_map(|amount| DeclaredAmount { custom: BTreeMap::new(), ..amount })
        .prop_filter("an amount has a component", |amount| !amount.is_empty())
}

pub fn capacity() -> impl Strategy<Value = Capacity> {
    prop_oneof![Just(Capacity::Nodes), Just(Capacity::Registered), amount().prop_map(Capacity::Amount)]
}

/// A capacity that local processes may have, with a part of it.
pub fn capacity_with_part() -> impl Strategy<Value = (Option<Capacity>, DeclaredAmount)> {
    let part = |amount: &DeclaredAmount| DeclaredAmount {
        cpu: amount.cpu,
        memory: amount.memory,
        ..DeclaredAmount::default()
    };
    prop_oneof![
        Just((None, DeclaredAmount::default())),
        guarantee().prop_map(move |amount| (Some(Capacity::Registered), part(&amount))),
        limit().prop_map(move |amount| (Some(Capacity::Amount(amount.clone())), part(&amount))),
    ]
}

pub fn reclaim() -> impl Strategy<Value = Reclaim> {
    select(vec![Reclaim::None, Reclaim::Idle])
}

fn transfer(amount: impl Strategy<Value = DeclaredAmount>) -> impl Strategy<Value = TransferLimit> {
    prop_oneof![Just(TransferLimit::None), Just(TransferLimit::Unlimited), amount.prop_map(TransferLimit::Amount)]
}

fn principal(name: impl Strategy<Value = String>) -> impl Strategy<Value = Principal> {
    prop_oneof![Just(Principal::Default), name.prop_map(Principal::Named)]
}

/// Boxed: it would take too much of a test's stack.
pub fn patch() -> BoxedStrategy<QuotaPatch> {
    let subject =
        (option::of(tenant()), option::of(pool()), option::of(principal(text())), option::of(principal(text())));
    let limits = (
        setting(amount()),
        setting(transfer(amount())),
        setting(transfer(amount())),
        setting(any::<u32>()),
        setting(amount()),
    );
    (subject.boxed(), limits.boxed(), setting(text()))
        .prop_map(|((tenant, pool, user, creator), (guarantee, borrow_limit, lend_limit, weight, limit), comment)| {
            QuotaPatch { tenant, pool, user, creator, guarantee, borrow_limit, lend_limit, weight, limit, comment }
        })
        .boxed()
}

/// A quota that the catalog of the tests accepts.
pub fn spec() -> BoxedStrategy<QuotaSpec> {
    let known = || select(vec!["known-0", "known-3"]);
    let empty = || Just(DeclaredAmount::default());
    let guaranteed = prop_oneof![1 => empty(), 3 => guarantee()];
    let of_tenant = (known(), known(), guaranteed, transfer(guarantee()), transfer(guarantee()), 0..=10_000_u32);
    let of_tenant = of_tenant.prop_map(|(tenant, pool, guarantee, borrow_limit, lend_limit, weight)| {
        QuotaScope::Tenant(TenantQuota {
            tenant: TenantName::new(tenant).unwrap(),
            pool: PoolName::new(pool).unwrap(),
            guarantee,
            borrow_limit,
            lend_limit,
            weight,
        })
    });
    let of_principal = || {
        let name = principal(select(vec!["alice", "o'neil", "größe", "DEFAULT"]).prop_map(str::to_owned));
        (name, prop_oneof![1 => empty(), 3 => limit()]).prop_map(|(name, limit)| PrincipalQuota { name, limit })
    };
    let scope = prop_oneof![
        of_tenant.boxed(),
        of_principal().prop_map(QuotaScope::User).boxed(),
        of_principal().prop_map(QuotaScope::Creator).boxed(),
    ];
    (scope, option::of(text())).prop_map(|(scope, comment)| QuotaSpec { scope, comment }).boxed()
}
