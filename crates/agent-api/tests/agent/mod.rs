//! A metadata agent reduced to what this crate serves: a real server over a real store.

#![allow(clippy::unwrap_used, clippy::panic, clippy::wildcard_imports)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_api::{
    AgentApi, AgentClient, ApiError, Audience, Caller, ClusterTls, ENGINE_STATUS, EngineStatus, MetadataAgentEndpoint,
    answer_engine_status, authenticate, authenticate_password, serve,
};
use async_trait::async_trait;
use hs2::service::not_supported;
use hs2::tcli::*;
use hs2::{Call, Context, Credentials, Limits, Method, Principal, Server, Service, ServiceProof};
use keys::{AllKeys, Callers, ClusterSecret, KeyGeneration, Role, Root, SecretKey};
use metadata::{CommitRequest, Error, Store, StoreSettings};
use model::alteration::{Abort, AlterationProgress, AlterationRecord, RequestId};
use model::change::{Change, Object, ObjectPatch, PoolPatch, Rules, TenantPatch, UnitPatch};
use model::clock::{Clock as _, SystemClock};
use model::demand::Demand;
use model::demand_report::{DemandRecorded, DemandReport};
use model::error::UserError;
use model::ledger::{Decided, LedgerRecord, LedgerRecorded, ScopedChange};
use model::number::{Epoch, Generation, Incarnation};
use model::observation::{EngineFacts, Publication, Recorded};
use model::scaling::{LinkScaled, ScaleRequest};
use model::slot::{Renewal, Replacement};
use model::snapshot::{MasterRecord, ProxySnapshot, Snapshot};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Keys of an installation whose root key is made from the byte.
pub fn keys(byte: u8, in_use: KeyGeneration, accepted: &[KeyGeneration]) -> AllKeys {
    let root = Root::new("eh", SecretKey::new([byte; 32]));
    let root = root.with_cluster_secret(ClusterSecret::new([byte; 32]).unwrap());
    root.all_roles(in_use, accepted, |user, password| format!("{user}:{password}")).unwrap()
}

/// A role with keys.
pub fn caller(keys: &AllKeys, role: Role) -> Caller {
    match role {
        Role::Proxy => Caller::new(keys.proxy.clone(), ClusterTls::Optional),
        Role::Master => Caller::new(keys.master.clone(), ClusterTls::Optional),
        Role::MetadataAgent => Caller::new(keys.metadata_agent.clone(), ClusterTls::Optional),
    }
}

pub struct Agent {
    pub address: String,
    pub keys: AllKeys,
    pub store: Store,
    mute: Arc<watch::Sender<bool>>,
    unknown: Arc<Mutex<Option<&'static str>>>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

struct Served {
    api: Api,
    callers: Callers,
    mute: watch::Receiver<bool>,
    unknown: Arc<Mutex<Option<&'static str>>>,
}

struct Api(Store);

fn api_error(error: Error) -> ApiError {
    match error {
        Error::Deposed(record) => ApiError::Deposed(record),
        Error::Conflict(what) => ApiError::Conflict(what),
        Error::Unavailable(cause) => ApiError::Unavailable(cause),
        Error::OutcomeUnknown(cause) => ApiError::OutcomeUnknown(cause),
        other => ApiError::Refused(other.user_error()),
    }
}

#[async_trait]
impl AgentApi for Api {
    async fn master(&self) -> Result<MasterRecord, ApiError> {
        self.0.master().await.map_err(api_error)
    }
    async fn raise_epoch(&self, read: Epoch, holder: &str) -> Result<MasterRecord, ApiError> {
        self.0.raise_epoch(read, holder).await.map_err(api_error)
    }
    async fn snapshot(&self) -> Result<Snapshot, ApiError> {
        self.0.snapshot().await.map_err(api_error)
    }
    async fn proxy_snapshot(&self) -> Result<ProxySnapshot, ApiError> {
        self.0.proxy_snapshot().await.map_err(api_error)
    }
    async fn outcome(&self, id: &RequestId) -> Result<Option<AlterationRecord>, ApiError> {
        self.0.outcome(id).await.map_err(api_error)
    }
    async fn abort(&self, abort: &Abort) -> Result<AlterationRecord, ApiError> {
        self.0.abort(abort).await.map_err(api_error)
    }
    async fn finish(&self, epoch: Epoch, id: &RequestId, plan: Generation) -> Result<AlterationProgress, ApiError> {
        self.0.finish(epoch, id, plan).await.map_err(api_error)
    }
    async fn stalled(
        &self,
        epoch: Epoch,
        id: &RequestId,
        after: Duration,
        reason: &str,
    ) -> Result<AlterationProgress, ApiError> {
        self.0.stalled(epoch, id, after, reason).await.map_err(api_error)
    }
    async fn superseded(&self, epoch: Epoch, id: &RequestId) -> Result<AlterationProgress, ApiError> {
        self.0.superseded(epoch, id).await.map_err(api_error)
    }
    async fn record(&self, epoch: Epoch, facts: &EngineFacts) -> Result<Recorded, ApiError> {
        self.0.record(epoch, facts).await.map_err(api_error)
    }

    async fn publish(&self, epoch: Epoch, publication: &Publication) -> Result<(), ApiError> {
        self.0.publish(epoch, publication).await.map_err(api_error)
    }
    async fn new_incarnation(&self, epoch: Epoch, renewal: &Renewal) -> Result<Incarnation, ApiError> {
        self.0.new_incarnation(epoch, renewal).await.map_err(api_error)
    }
    async fn new_incarnations(
        &self,
        epoch: Epoch,
        renewals: &[Renewal],
    ) -> Result<Vec<Result<Incarnation, String>>, ApiError> {
        self.0.new_incarnations(epoch, renewals).await.map_err(api_error)
    }
    async fn ledger(&self, epoch: Epoch, changes: &[ScopedChange]) -> Result<Vec<Decided>, ApiError> {
        self.0.ledger(epoch, changes).await.map_err(api_error)
    }
    async fn record_ledger(&self, epoch: Epoch, record: &LedgerRecord) -> Result<LedgerRecorded, ApiError> {
        self.0.record_ledger(epoch, record).await.map_err(api_error)
    }
    async fn record_demand(&self, report: &DemandReport) -> Result<DemandRecorded, ApiError> {
        self.0.record_demand(report).await.map_err(api_error)
    }
    async fn demand(&self) -> Result<Vec<Demand>, ApiError> {
        self.0.demand().await.map_err(api_error)
    }
    async fn scale(&self, epoch: Epoch, request: &ScaleRequest) -> Result<Vec<LinkScaled>, ApiError> {
        self.0.scale(epoch, request).await.map_err(api_error)
    }
}

macro_rules! no_sessions {
    ($($call:ident($request:ty) -> $answer:ty = $method:ident;)*) => {
        #[async_trait]
        impl Service for Served {
            async fn authenticate(&self, _: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
                authenticate_password(&self.callers, Audience::MetadataAgent, credentials)
            }

            fn accepts_services(&self) -> bool {
                true
            }

            async fn authenticate_service(&self, _: SocketAddr, proof: &ServiceProof) -> Result<Principal, UserError> {
                authenticate(&self.callers, Audience::MetadataAgent, proof)
            }

            async fn extension(&self, cx: &Context, call: &Call<'_>) -> Option<Vec<u8>> {
                // A mute agent reads calls and never answers them.
                let mut mute = self.mute.clone();
                mute.wait_for(|mute| !mute).await.ok()?;
                if call.name == ENGINE_STATUS {
                    let status = EngineStatus {
                        engine: "e-1".to_owned(),
                        uid: "u-1".to_owned(),
                        sessions: 3,
                        running: 2,
                        draining: true,
                        idle: Some(Duration::from_secs(5)),
                        retiring: true,
                        stateful: Some(1),
                        seats: Some(10),
                        served: Some(7),
                    };
                    return Some(answer_engine_status(call, &status));
                }
                if self.unknown.lock().is_some_and(|unknown| unknown == call.name) {
                    return None;
                }
                serve(&self.api, cx.principal.service.as_deref(), call).await
            }

            $(async fn $call(&self, _: &Context, _: $request) -> Result<$answer, UserError> {
                Err(not_supported(Method::$method))
            })*
        }
    };
}

no_sessions! {
    open_session(TOpenSessionReq) -> TOpenSessionResp = OpenSession;
    close_session(TCloseSessionReq) -> TCloseSessionResp = CloseSession;
    get_info(TGetInfoReq) -> TGetInfoResp = GetInfo;
    execute_statement(TExecuteStatementReq) -> TExecuteStatementResp = ExecuteStatement;
    get_operation_status(TGetOperationStatusReq) -> TGetOperationStatusResp = GetOperationStatus;
    cancel_operation(TCancelOperationReq) -> TCancelOperationResp = CancelOperation;
    close_operation(TCloseOperationReq) -> TCloseOperationResp = CloseOperation;
    get_result_set_metadata(TGetResultSetMetadataReq) -> TGetResultSetMetadataResp = GetResultSetMetadata;
    fetch_results(TFetchResultsReq) -> TFetchResultsResp = FetchResults;
}

impl Agent {
    pub async fn start() -> Self {
        // Kept until the process ends: the store has the file open.
        let folder = tempfile::tempdir().unwrap().keep();
        let settings = StoreSettings::sqlite(&folder.join("metadata.db"));
        Store::migrate(&settings).await.unwrap();
        let store = Store::open(&settings, Rules::default(), SystemClock::shared()).await.unwrap();
        Self::start_at("127.0.0.1:0", store).await
    }

    pub async fn start_at(address: &str, store: Store) -> Self {
        Self::start_with(address, store, keys(1, KeyGeneration(1), &[KeyGeneration(1)])).await
    }

    pub async fn start_with(address: &str, store: Store, keys: AllKeys) -> Self {
        let callers = keys.metadata_agent.get().callers();
        let (sender, mute) = watch::channel(false);
        let server = Server::bind(address.parse::<SocketAddr>().unwrap(), Limits::default()).await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        let agent_keys = keys.metadata_agent.clone();
        let tls = ClusterTls::Optional.server(move || agent_keys.get().tls().map(|(_, seed)| seed)).unwrap();
        let server = server.with_tls(tls.unwrap());
        let stop = CancellationToken::new();
        let unknown = Arc::default();
        let served = Arc::new(Served { api: Api(store.for_masters()), callers, mute, unknown: Arc::clone(&unknown) });
        let running = tokio::spawn(server.serve(served, stop.clone()));
        Self { address, keys, store, mute: Arc::new(sender), unknown, stop, running }
    }

    pub fn client(&self, role: Role) -> AgentClient {
        AgentClient::new(self.endpoint(), caller(&self.keys, role), Duration::from_secs(10))
    }

    /// As it would be registered.
    pub fn endpoint(&self) -> MetadataAgentEndpoint {
        MetadataAgentEndpoint {
            address: self.address.clone(),
            keys: self.keys.metadata_agent.get().accepted(),
            tls: self.keys.metadata_agent.get().tls().map(|(generation, _)| generation),
        }
    }

    pub fn mute(&self, mute: bool) {
        self.mute.send_replace(mute);
    }

    /// A call that it does not know, as an agent of an earlier version.
    pub fn knows_no(&self, call: Option<&'static str>) {
        *self.unknown.lock() = call;
    }

    pub async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(20), self.running).await.unwrap().unwrap();
    }
}

pub fn id(text: &str) -> RequestId {
    RequestId::new(text).unwrap()
}

pub fn unit(name: &str, min: u32) -> Change {
    let patch = UnitPatch { min_engines: Some(min), ..UnitPatch::default() };
    Change::Create {
        if_not_exists: false,
        object: ObjectPatch::ResourceUnit(model::UnitName::new(name).unwrap(), patch),
    }
}

/// Commits a change; it stays converging.
pub async fn commit(store: &Store, text: &str, change: Change) -> AlterationRecord {
    let found = Object::find(&store.catalog().await.unwrap(), &change.object()).unwrap();
    let request = CommitRequest {
        id: id(text),
        base: Some(found.map_or(Generation(0), |(_, generation)| generation)),
        statement: format!("{} {}", change.verb(), change.object()),
        change,
        requested_by: "ann".to_owned(),
        source: model::alteration::Source::default(),
        requested_at_ms: 5,
        agent: "agent-1".to_owned(),
        replacement: Replacement::StandIn,
        grace: Duration::from_mins(1),
        deadline: SystemClock.boottime() + Duration::from_mins(1),
    };
    store.commit(&request).await.unwrap().record
}

/// A pool with unit `uc_1` and a tenant that uses it.
pub async fn founded(store: &Store) {
    let epoch = store.master().await.unwrap().epoch;
    let units = Some(vec![model::UnitName::new("uc_1").unwrap()]);
    let pool = model::PoolName::new("rp_1").unwrap();
    let tenant = TenantPatch { pools: Some(vec![pool.clone()]), ..TenantPatch::default() };
    let pool = ObjectPatch::ResourcePool(pool, PoolPatch { units, ..PoolPatch::default() });
    let tenant = ObjectPatch::Tenant(model::TenantName::new("t_1").unwrap(), tenant);
    for (text, object) in [("f-1", pool), ("f-2", tenant)] {
        let record = commit(store, text, Change::Create { if_not_exists: false, object }).await;
        store.finish(epoch, &record.id, record.generation).await.unwrap();
    }
}
