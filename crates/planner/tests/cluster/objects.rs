//! Objects of the catalog from the options that scripts and tests give.

use std::collections::BTreeMap;

use model::alteration::{ObjectKind, ObjectRef};
use model::change::{Change, ObjectPatch, PoolPatch, QuotaPatch, Setting, TenantPatch, UnitPatch};
use model::quota::{Capacity, DeclaredAmount, Principal, TransferLimit};
use model::{PoolName, QuotaName, TenantName, UnitName};

use super::{Cluster, labels, names};

impl Cluster {
    pub fn unit(name: &str, options: &BTreeMap<&str, &str>) -> ObjectPatch {
        let number = |key: &str| options.get(key).map(|text| text.parse().unwrap());
        let patch = UnitPatch {
            driver_cpu: options.get("cpu").map(|text| text.parse().unwrap()),
            driver_memory: options.get("memory").map(|text| text.parse().unwrap()),
            min_engines: number("min"),
            max_engines: number("max"),
            priority: options.get("priority").map(|text| text.parse().unwrap()),
            engine_type: options.get("type").map(|text| text.parse().unwrap()),
            executor_cpu: options.get("executor_cpu").map(|text| text.parse().unwrap()),
            min_executors: number("executors"),
            max_executors: number("executors"),
            start_on_demand: options.get("on_demand").map_or(Setting::Keep, |text| Setting::Set(text.parse().unwrap())),
            sessions_per_engine: options
                .get("sessions")
                .map_or(Setting::Keep, |text| Setting::Set(text.parse().unwrap())),
            spare_engines: number("spare"),
            shared_by: options.get("shared_by").map(|text| text.parse().unwrap()),
            run_as: options.get("run_as").map(|text| text.parse().unwrap()),
            idle_timeout: options.get("idle").map_or(Setting::Keep, |text| Setting::Set(text.parse().unwrap())),
            ..UnitPatch::default()
        };
        ObjectPatch::ResourceUnit(UnitName::new(name).unwrap(), patch)
    }

    pub fn pool(name: &str, options: &BTreeMap<&str, &str>) -> ObjectPatch {
        let patch = PoolPatch {
            units: options.get("units").map(|text| names(text).map(|name| UnitName::new(name).unwrap()).collect()),
            nodes: options.get("nodes").map_or(Setting::Keep, |text| match *text {
                "any" => Setting::Reset,
                "none" => Setting::Set(Vec::new()),
                text => Setting::Set(names(text).map(str::to_owned).collect()),
            }),
            node_selector: options.get("labels").map_or(Setting::Keep, |text| match *text {
                "none" => Setting::Reset,
                text => Setting::Set(labels(text)),
            }),
            cpu_overcommit: options.get("overcommit").map_or(Setting::Keep, |text| Setting::Set(text.parse().unwrap())),
            capacity: options.get("capacity").map_or(Setting::Keep, |text| match *text {
                "default" => Setting::Reset,
                "nodes" => Setting::Set(Capacity::Nodes),
                cpu => Setting::Set(Capacity::Amount(cpus(cpu))),
            }),
            protected: options.get("protected").map_or(Setting::Keep, |text| Setting::Set(cpus(text))),
            reclaim: options.get("reclaim").map_or(Setting::Keep, |text| Setting::Set(text.parse().unwrap())),
            image: options.get("image").map_or(Setting::Keep, |text| Setting::Set((*text).to_owned())),
            ..PoolPatch::default()
        };
        ObjectPatch::ResourcePool(PoolName::new(name).unwrap(), patch)
    }

    pub fn tenant(name: &str, options: &BTreeMap<&str, &str>) -> ObjectPatch {
        let patch = TenantPatch {
            pools: options.get("pools").map(|text| names(text).map(|name| PoolName::new(name).unwrap()).collect()),
            ..TenantPatch::default()
        };
        ObjectPatch::Tenant(TenantName::new(name).unwrap(), patch)
    }

    pub fn quota(name: &str, options: &BTreeMap<&str, &str>) -> ObjectPatch {
        let patch = QuotaPatch {
            tenant: options.get("tenant").map(|name| TenantName::new(*name).unwrap()),
            pool: options.get("pool").map(|name| PoolName::new(*name).unwrap()),
            guarantee: options.get("cpu").map_or(Setting::Keep, |text| Setting::Set(cpus(text))),
            borrow_limit: options.get("borrow").map_or(Setting::Keep, |text| match *text {
                "unlimited" => Setting::Set(TransferLimit::Unlimited),
                cpu => Setting::Set(TransferLimit::Amount(cpus(cpu))),
            }),
            user: options.get("user").map(|name| Principal::Named((*name).to_owned())),
            limit: options.get("limit").map_or(Setting::Keep, |text| Setting::Set(cpus(text))),
            ..QuotaPatch::default()
        };
        ObjectPatch::ResourceQuota(QuotaName::new(name).unwrap(), patch)
    }

    pub fn drop_change(kind: &str, name: &str) -> Change {
        let kind = match kind {
            "tenant" => ObjectKind::Tenant,
            "pool" => ObjectKind::ResourcePool,
            "unit" => ObjectKind::ResourceUnit,
            "quota" => ObjectKind::ResourceQuota,
            other => panic!("no kind {other}"),
        };
        Change::Drop { if_exists: false, object: ObjectRef { kind, name: name.to_owned() } }
    }
}

fn cpus(text: &str) -> DeclaredAmount {
    DeclaredAmount { cpu: Some(text.parse().unwrap()), ..DeclaredAmount::default() }
}
