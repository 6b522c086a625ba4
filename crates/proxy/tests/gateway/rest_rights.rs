//! Every operation of REST as every role, and as a user without any. The expectation is the rights table.

use std::collections::BTreeSet;

use model::rights::{Owner, Role, StatementKind, permits};
use serde_json::{Value, json};

use crate::agents::run;
use crate::cluster::Cluster;
use crate::holder_rights;
use crate::registrations;
use crate::rest_client::{Reply, Rest};
use crate::rights_matrix::{self, Engines};

/// A user without a role.
const STRANGER: &str = "eve";

/// One operation on an object of a tenant, and the kind of its statement; `None` if it is no statement.
struct Operation {
    method: &'static str,
    /// As the document has it.
    path: &'static str,
    kind: Option<StatementKind>,
    /// The path and the body of a request about the tenant with this number.
    request: fn(usize, &Engines) -> (String, Value),
}

fn get(path: &'static str, kind: StatementKind) -> Operation {
    // Replaces the names; an operation with a query has a request of its own.
    Operation { method: "GET", path, kind: Some(kind), request: |_, _| (String::new(), Value::Null) }
}

fn operations() -> Vec<Operation> {
    use StatementKind as S;
    vec![
        Operation { kind: None, ..get("/api/v1/openapi.json", S::ShowMaster) },
        get("/api/v1/tenants", S::ShowObjects),
        get("/api/v1/pools", S::ShowObjects),
        get("/api/v1/units", S::ShowObjects),
        get("/api/v1/quotas", S::ShowQuotas),
        get("/api/v1/tenants/{tenant}", S::Describe),
        get("/api/v1/pools/{pool}", S::Describe),
        get("/api/v1/units/{unit}", S::Describe),
        get("/api/v1/quotas/{quota}", S::Describe),
        get("/api/v1/tenants/{tenant}/definition", S::ShowCreate),
        get("/api/v1/pools/{pool}/definition", S::ShowCreate),
        get("/api/v1/units/{unit}/definition", S::ShowCreate),
        get("/api/v1/quotas/{quota}/definition", S::ShowCreate),
        get("/api/v1/pools/{pool}/tenants", S::ShowObjectFor),
        get("/api/v1/units/{unit}/pools", S::ShowObjectFor),
        get("/api/v1/alterations", S::ShowAlterations),
        get("/api/v1/audit", S::ShowAudit),
        get("/api/v1/master", S::ShowMaster),
        get("/api/v1/engines/{pool}/{engine}", S::DescribeEngine),
        Operation {
            request: |tenant, _| (format!("/api/v1/engines?tenant=t_{tenant}"), Value::Null),
            ..get("/api/v1/engines", S::ShowEngines)
        },
        Operation {
            request: |tenant, _| (format!("/api/v1/engines/history?tenant=t_{tenant}"), Value::Null),
            ..get("/api/v1/engines/history", S::ShowEngines)
        },
        Operation {
            request: |tenant, _| (format!("/api/v1/demand?tenant=t_{tenant}"), Value::Null),
            ..get("/api/v1/demand", S::ShowDemand)
        },
        Operation {
            method: "POST",
            request: |number, _| {
                let body = json!({
                    "tenant": format!("t_{number}"), "pool": format!("rp_{number}"), "unit": format!("uc_{number}"),
                });
                ("/api/v1/engines".to_owned(), body)
            },
            ..get("/api/v1/engines", S::StartEngine)
        },
        Operation {
            method: "POST",
            request: |number, engines| {
                (format!("/api/v1/engines/rp_{number}/{}/restart", engines.kept(number)), json!({}))
            },
            ..get("/api/v1/engines/{pool}/{engine}/restart", S::RestartEngine)
        },
        Operation {
            method: "POST",
            request: |number, engines| {
                (format!("/api/v1/engines/rp_{number}/{}/stop", engines.stopped(number)), json!({}))
            },
            ..get("/api/v1/engines/{pool}/{engine}/stop", S::StopEngine)
        },
    ]
}

impl Operation {
    async fn call(&self, user: &Rest, tenant: usize, engines: &Engines) -> Reply {
        let (path, body) = (self.request)(tenant, engines);
        let names = [
            ("{tenant}", format!("t_{tenant}")),
            ("{pool}", format!("rp_{tenant}")),
            ("{unit}", format!("uc_{tenant}")),
            ("{quota}", format!("q_{tenant}")),
            ("{engine}", engines.kept(tenant).to_owned()),
        ];
        let filled = || names.iter().fold(self.path.to_owned(), |path, (name, value)| path.replace(name, value));
        let path = if path.is_empty() { filled() } else { path };
        match self.method {
            "POST" => user.post(&path, &body).await,
            _ => user.get(&path).await,
        }
    }

    /// Whether the response shows the object or the effect.
    fn is_permitted(&self, reply: &Reply, tenant: usize) -> bool {
        let shown = format!("_{tenant}");
        match reply.status {
            // Every role may list; what differs is whether the list has the tenant.
            200 if matches!(self.kind, Some(StatementKind::ShowObjects | StatementKind::ShowQuotas)) => {
                reply.rows().iter().any(|row| {
                    ["tenant", "pool", "unit", "quota"]
                        .iter()
                        .any(|name| row[name].as_str().is_some_and(|v| v.ends_with(&shown)))
                })
            }
            200 | 202 => true,
            403 => {
                assert_eq!(reply.sqlstate(), "42501");
                false
            }
            _ => panic!("{} {}: {reply:?}", self.method, self.path),
        }
    }
}

/// The documented operations as method and path.
async fn documented(user: &Rest) -> BTreeSet<(String, String)> {
    let document = user.get("/api/v1/openapi.json").await.expect(200);
    let paths = document.body["paths"].as_object().unwrap().clone();
    let methods = |(path, item): (String, Value)| {
        let methods: Vec<String> = item.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
        methods.into_iter().map(move |method| (method, path.clone()))
    };
    paths.into_iter().flat_map(methods).collect()
}

async fn cluster() -> (Cluster, Engines) {
    let lists = rights_matrix::role_lists;
    let cluster = Cluster::with_agents(1, |agent| agent.roles = lists(), |proxy| proxy.roles = lists()).await;
    let mut admin = cluster.session("admin").await;
    {
        let _settling = cluster.master.keep_settling();
        for statement in rights_matrix::OBJECTS {
            run(&mut admin, statement).await;
        }
    }
    let engines = Engines::start(&mut admin).await;
    (cluster, engines)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_holds_the_rights_table_as_every_role() {
    let (cluster, engines) = cluster().await;
    let operations = operations();
    let mut called: BTreeSet<(String, String)> =
        operations.iter().map(|operation| (operation.method.to_owned(), operation.path.to_owned())).collect();
    called.insert(("POST".to_owned(), "/api/v1/statements".to_owned()));
    // Their rights depend on the reservation, or on `access.resource_providers`, and not on the kind of a statement.
    for (method, path) in holder_rights::OPERATIONS.into_iter().chain(registrations::OPERATIONS) {
        called.insert((method.to_owned(), path.to_owned()));
    }
    assert_eq!(called, documented(&Rest::new(&cluster, STRANGER)).await, "each documented operation is called");
    for role in Role::ALL {
        let user = Rest::new(&cluster, rights_matrix::user_of(role));
        for operation in &operations {
            let owners = operation.kind.map_or(&[Owner::Installation][..], StatementKind::owners);
            for owner in owners {
                let tenant = if *owner == Owner::OtherTenant { 2 } else { 1 };
                let reply = operation.call(&user, tenant, &engines).await;
                let expected = operation.kind.is_none_or(|kind| permits(role, kind, *owner));
                let what = format!("{role:?} {owner:?} {} {}", operation.method, operation.path);
                assert_eq!(operation.is_permitted(&reply, tenant), expected, "{what}: {}", reply.text);
            }
        }
        // Every cell as text.
        for case in rights_matrix::cases().into_iter().filter(|case| case.role == role) {
            let reply = user.run(&case.statement(&engines)).await;
            let permitted = match (case.kind, reply.status) {
                (StatementKind::Query, _) => {
                    assert_eq!((reply.status, reply.sqlstate()), (422, "0A000"), "{case:?}");
                    continue;
                }
                (StatementKind::ShowObjects, 200) => reply.column("tenant").contains(&format!("t_{}", case.tenant())),
                (StatementKind::ShowQuotas, 200) => reply.column("quota").contains(&format!("q_{}", case.tenant())),
                // The right is checked before the reservation is looked up, and none has this id.
                (StatementKind::CancelReservation, 404) => reply.sqlstate() == "42704",
                (_, 200) => true,
                (_, 403) => false,
                _ => panic!("{case:?}: {reply:?}"),
            };
            assert_eq!(permitted, case.is_permitted(), "{case:?}: {}", reply.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_learns_nothing_over_rest() {
    let (cluster, engines) = cluster().await;
    let eve = Rest::new(&cluster, STRANGER);
    for operation in operations() {
        let reply = operation.call(&eve, 1, &engines).await;
        let expected = operation.kind.is_none();
        assert_eq!(operation.is_permitted(&reply, 1), expected, "{} {}", operation.method, operation.path);
    }
    for case in rights_matrix::cases().into_iter().filter(|case| case.role == Role::User) {
        let reply = eve.run(&case.statement(&engines)).await;
        let is_list = matches!(case.kind, StatementKind::ShowObjects | StatementKind::ShowQuotas);
        assert!(if is_list { reply.rows().is_empty() } else { reply.status >= 400 }, "{case:?}: {reply:?}");
    }
    let engine = engines.kept(1);
    let body = |tenant: &str| json!({"tenant": tenant, "pool": "rp_1", "unit": "uc_1"});
    // The same request about what exists and about what does not: the same bytes but for the name.
    for (there, not_there) in [
        ("/api/v1/tenants/t_1".to_owned(), "/api/v1/tenants/t_9".to_owned()),
        ("/api/v1/pools/rp_1/definition".to_owned(), "/api/v1/pools/rp_9/definition".to_owned()),
        ("/api/v1/units/uc_1/pools".to_owned(), "/api/v1/units/uc_9/pools".to_owned()),
        ("/api/v1/engines?tenant=t_1".to_owned(), "/api/v1/engines?tenant=t_9".to_owned()),
        (format!("/api/v1/engines/rp_1/{engine}"), "/api/v1/engines/rp_1/nothing".to_owned()),
    ] {
        let (one, other) = (eve.get(&there).await, eve.get(&not_there).await);
        let words = |text: &str| text.replace("_9", "_1").replace("nothing", engine);
        assert_eq!((one.status, words(&one.text)), (other.status, words(&other.text)), "{there}");
    }
    let one = eve.post("/api/v1/engines", &body("t_1")).await;
    let other = eve.post("/api/v1/engines", &body("t_9")).await;
    assert_eq!((one.status, one.text.as_str()), (403, other.text.replace("t_9", "t_1").as_str()));
    let stop = async |engine: &str| eve.post(&format!("/api/v1/engines/rp_1/{engine}/stop"), &json!({})).await;
    let (one, other) = (stop(engine).await, stop("nothing").await);
    assert_eq!((one.status, one.text.as_str()), (403, other.text.replace("nothing", engine).as_str()));
}
