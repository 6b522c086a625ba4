//! The handles that a caller may name, and the number of sessions of a user.

use hs2::tcli::{TCancelOperationReq, TCloseSessionReq, TExecuteStatementReq, TGetOperationStatusReq, TOpenSessionReq};
use hs2::{Auth, Client, ClientError, ClientOptions, Session, protocol};
use model::error::ErrorKind;

use crate::agents::run;
use crate::cluster::Cluster;

fn is_unknown<T>(outcome: Result<T, ClientError>) -> bool {
    matches!(outcome, Err(ClientError::Refused(error)) if error.kind == ErrorKind::WrongState)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_of_another_user_or_connection_do_not_exist() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    let session_handle = ann.handle().clone();
    let statement = ann.execute("SELECT 1").await.unwrap();
    let operation_handle = statement.handle().clone();
    for user in ["ann", "bob", "admin"] {
        let mut other = cluster.connect(user).await;
        let request = TExecuteStatementReq {
            session_handle: session_handle.clone(),
            statement: "SELECT 1".to_owned(),
            conf_overlay: None,
            run_async: Some(true),
            query_timeout: None,
        };
        assert!(is_unknown(other.execute_statement(&request).await), "{user}");
        let request = TGetOperationStatusReq { operation_handle: operation_handle.clone(), get_progress_update: None };
        assert!(is_unknown(other.get_operation_status(&request).await), "{user}");
        let request = TCancelOperationReq { operation_handle: operation_handle.clone() };
        assert!(is_unknown(other.cancel_operation(&request).await), "{user}");
        let request = TCloseSessionReq { session_handle: session_handle.clone() };
        assert!(is_unknown(other.close_session(&request).await), "{user}");
    }
    // No handle of the engine leaves the proxy.
    let mut direct = engine.open(&cluster.address(&engine).await, "ann").await;
    let request = TCloseSessionReq { session_handle };
    assert!(is_unknown(direct.client().close_session(&request).await));
    drop(statement);
    run(&mut ann, "SELECT 1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sessions_of_a_user_are_limited() {
    let cluster = Cluster::with(0, |settings| settings.limits.sessions_per_user = 2).await;
    let one = cluster.session("ann").await;
    let _two = cluster.session("ann").await;
    let Err(ClientError::Refused(error)) = cluster.try_session("ann", &[]).await else { panic!("one too many") };
    assert_eq!(error.sqlstate(), "54000");
    let _bob = cluster.session("bob").await;
    one.close().await.unwrap();
    let _third = cluster.session("ann").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sessions_of_a_proxy_are_limited() {
    let cluster = Cluster::with(0, |settings| settings.limits.sessions = 2).await;
    let one = cluster.session("ann").await;
    let _two = cluster.session("bob").await;
    let Err(ClientError::Refused(error)) = cluster.try_session("eve", &[]).await else { panic!("one too many") };
    assert_eq!((error.sqlstate(), error.message.as_str()), ("54000", "the proxy has too many sessions"));
    one.close().await.unwrap();
    let _third = cluster.session("eve").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_thrift_names_its_user_and_impersonation_is_refused() {
    let (cluster, _admin, _engine) = Cluster::with_engine().await;
    let address = cluster.proxy.addr().to_string();
    let client = Client::connect(&ClientOptions::new(&*address, Auth::None)).await.unwrap();
    let mut ann = Session::open_as(client, Some(("ann", "")), &[]).await.unwrap();
    run(&mut ann, "SELECT 1").await;
    // The connection keeps its first user.
    let request = |user: &str| TOpenSessionReq {
        client_protocol: protocol::NEWEST,
        username: Some(user.to_owned()),
        password: None,
        configuration: None,
    };
    ann.client().open_session(&request("ann")).await.unwrap();
    let refused = ann.client().open_session(&request("bob")).await;
    assert!(matches!(refused, Err(ClientError::Refused(error)) if error.sqlstate() == "28000"));
    run(&mut ann, "SELECT 1").await;
    let refused = Client::connect(&ClientOptions::new(&*address, Auth::service("ann", "", "admin"))).await;
    assert!(matches!(refused, Err(ClientError::Unauthenticated(_))));
}
