//! The operations on reservations as every role, on a reservation of every owner.
//!
//! A holder uses its reservation without a further right; an admin acts for it by naming its user. Everything else follows from
//! the rights table: who may start engines for a tenant may reserve for it, and who sees the reservations of a tenant sees
//! each of them.

use std::collections::BTreeMap;

use model::name::PoolName;
use model::rights::{Owner, Role, StatementKind, permits};
use serde_json::{Value, json};

use crate::agents::run;
use crate::cluster::Cluster;
use crate::rest_client::{Reply, Rest};
use crate::rights_matrix::{self, user_of};

const PATH: &str = "/api/v1/reservations";

/// The operations, as the document has them.
pub const OPERATIONS: [(&str, &str); 7] = [
    ("POST", "/api/v1/reservations"),
    ("GET", "/api/v1/reservations"),
    ("GET", "/api/v1/reservations/{reservation}"),
    ("DELETE", "/api/v1/reservations/{reservation}"),
    ("POST", "/api/v1/reservations/{reservation}/confirm"),
    ("POST", "/api/v1/reservations/{reservation}/renew"),
    ("POST", "/api/v1/reservations/{reservation}/release"),
];

/// The users of reservations, with the number of their tenant.
const HOLDERS: [(&str, usize); 3] = [("ann", 1), ("tim", 1), ("bob", 2)];

/// A request for reservations for a tenant, each under a key of its own.
pub struct Requests<'a> {
    pub admin: &'a Rest,
    keys: usize,
}

impl<'a> Requests<'a> {
    pub const fn new(admin: &'a Rest) -> Self {
        Self { admin, keys: 0 }
    }

    /// Requests one millicore for the caller.
    pub async fn send(&mut self, caller: &Rest, tenant: usize, user: Option<&str>) -> Reply {
        self.keys += 1;
        let mut body = json!({
            "tenant": format!("t_{tenant}"), "pool": format!("rp_{tenant}"), "instance": "i-1",
            "resource": {"type": "Cpu", "cpu_m": 1},
        });
        if let Some(user) = user {
            body["user"] = user.into();
        }
        caller.post_as(PATH, &body, Some(&format!("key-{}", self.keys))).await
    }

    /// The id of a reservation of the user that is confirmed.
    pub async fn used(&mut self, tenant: usize, user: &str) -> String {
        let reserved = self.send(self.admin, tenant, Some(user)).await.expect(201);
        let id = reserved.body["id"].as_str().unwrap().to_owned();
        let path = OPERATIONS[4].1.replace("{reservation}", &id);
        self.admin.post(&path, &claim(tenant, Some(user))).await.expect(200);
        id
    }
}

/// What a holder sends with each call about its reservation.
pub fn claim(tenant: usize, user: Option<&str>) -> Value {
    let mut body = json!({"pool": format!("rp_{tenant}"), "instance": "i-1"});
    if let Some(user) = user {
        body["user"] = user.into();
    }
    body
}

/// Opens the pools, as the master does once it has counted the engines.
pub async fn count(cluster: &Cluster, pools: &[&str]) {
    let counted: BTreeMap<PoolName, i64> = pools.iter().map(|pool| (PoolName::new(*pool).unwrap(), 0)).collect();
    cluster.store.admitted(cluster.master.epoch, &counted).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_on_reservations_holds_the_rights_as_every_role() {
    let lists = rights_matrix::role_lists;
    let cluster = Cluster::with_agents(1, |agent| agent.roles = lists(), |proxy| proxy.roles = lists()).await;
    let mut session = cluster.session("admin").await;
    {
        let _settling = cluster.master.keep_settling();
        for statement in rights_matrix::OBJECTS {
            run(&mut session, statement).await;
        }
    }
    count(&cluster, &["rp_1", "rp_2"]).await;
    let admin = Rest::new(&cluster, user_of(Role::Admin));
    let mut requests = Requests::new(&admin);
    for role in Role::ALL {
        let (name, user) = (user_of(role), Rest::new(&cluster, user_of(role)));
        for (tenant, owner) in [(1, Owner::OwnTenant), (2, Owner::OtherTenant)] {
            let reserved = requests.send(&user, tenant, None).await;
            let expected = if permits(role, StatementKind::StartEngine, owner) { 201 } else { 403 };
            assert_eq!(reserved.status, expected, "{role:?} {owner:?} reserves: {}", reserved.text);
        }
        for (holder, tenant) in HOLDERS {
            let owner = if tenant == 1 { Owner::OwnTenant } else { Owner::OtherTenant };
            let what = format!("{role:?} on a reservation of {holder}");
            let is_own = name == holder;
            let sees = is_own || permits(role, StatementKind::ShowReservations, owner);
            let acts = is_own || role == Role::Admin;
            let id = requests.used(tenant, holder).await;
            let path = |operation: usize| OPERATIONS[operation].1.replace("{reservation}", &id);

            let listed = user.get(&format!("{PATH}?tenant=t_{tenant}&limit=1000")).await.expect(200);
            assert_eq!(listed.column("id").contains(&id), sees, "{what}: the list");
            let read = user.get(&path(2)).await;
            assert_eq!(read.status, if sees { 200 } else { 404 }, "{what}: {}", read.text);
            for operation in [4, 5] {
                let as_itself = user.post(&path(operation), &claim(tenant, None)).await;
                let expected = if is_own { 200 } else { 404 };
                assert_eq!(as_itself.status, expected, "{what}: {}: {}", path(operation), as_itself.text);
                let for_holder = user.post(&path(operation), &claim(tenant, Some(holder))).await;
                let expected = if acts { 200 } else { 403 };
                assert_eq!(for_holder.status, expected, "{what}: {}: {}", path(operation), for_holder.text);
            }
            let released = user.post(&path(6), &claim(tenant, Some(holder))).await;
            assert_eq!(released.status, if acts { 200 } else { 403 }, "{what}: {}", released.text);

            let id = requests.used(tenant, holder).await;
            let cancelled = user.send("DELETE", &format!("{PATH}/{id}"), &[], None).await;
            let may_cancel = is_own || permits(role, StatementKind::CancelReservation, Owner::Installation);
            assert_eq!(cancelled.status, if may_cancel { 200 } else { 403 }, "{what}: {}", cancelled.text);
            let charged = cluster.store.reservation(&id).await.unwrap().unwrap().state.is_charged();
            assert_eq!(charged, !may_cancel, "{what}: a refused cancellation changes nothing");
        }
    }
}
