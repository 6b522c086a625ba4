//! The target that reads the calls of roles at a metadata agent, and those of proxies at an engine agent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_api::{
    AgentApi, ApiError, ReservationApi, ReservationReply, ReservationRequest, SERVICE_MASTER, SERVICE_PROXY,
    retire_request, serve, serve_reservations,
};
use async_trait::async_trait;
use hs2::{Message, scan};
use model::alteration::{Abort, AlterationProgress, AlterationRecord, RequestId};
use model::demand::Demand;
use model::demand_report::{DemandRecorded, DemandReport};
use model::ledger::{Decided, LedgerRecord, LedgerRecorded, ScopedChange};
use model::number::{Epoch, Generation, Incarnation};
use model::observation::{EngineFacts, Publication, Recorded};
use model::scaling::{LinkScaled, ScaleRequest};
use model::slot::Renewal;
use model::snapshot::{MasterRecord, ProxySnapshot, Snapshot};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Builder;

/// The first line of an input is a method, the rest its arguments: a whole struct, or a text that each of the structs has as a value.
/// A proxy reaches no call that only a master may make, and every value that is read can be sent again.
pub fn agent_api(data: &[u8]) {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let (method, body) = (&data[..end], &data[end + 1..]);
    let text = [&[TEXT, 0, 1][..], &length(body), body, &[NUMBER, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, STOP]].concat();
    let numbered = [
        &[NUMBER, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, TEXT, 0, 2][..],
        &length(body),
        body,
        &[NUMBER, 0, 3, 0, 0, 0, 0, 0, 0, 0, 5, TEXT, 0, 4],
        &length(b"why"),
        b"why",
        &[STOP],
    ]
    .concat();
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    for arguments in [body, &text[..], &numbered[..]] {
        let message = [&CALL[..], &length(method), method, &[0, 0, 0, 1], arguments].concat();
        let Ok(message) = Message::new(message) else { continue };
        runtime.block_on(serve_all(&message));
    }
}

/// The first four bytes of a call in Thrift's strict binary protocol.
const CALL: [u8; 4] = [0x80, 1, 0, 1];
/// The types of fields.
const TEXT: u8 = 11;
const NUMBER: u8 = 10;
const STOP: u8 = 0;
/// The calls of proxies.
const OF_PROXIES: [&str; 4] = ["GetMaster", "GetProxySnapshot", "GetOutcome", "RecordDemand"];

fn length(bytes: &[u8]) -> [u8; 4] {
    (bytes.len() as u32).to_be_bytes()
}

async fn serve_all(message: &Message) {
    let call = message.call();
    for service in [None, Some(SERVICE_PROXY), Some(SERVICE_MASTER)] {
        let reader = Reader::default();
        if let Some(reply) = serve(&reader, service, &call).await {
            scan::whole(&reply).expect("a reply is a message");
        }
        let called = reader.called.load(Ordering::Relaxed);
        assert!(!called || service == Some(SERVICE_MASTER) || OF_PROXIES.contains(&call.name), "{}", call.name);
    }
    if let Some(reply) = serve_reservations(&Reader::default(), &call).await {
        scan::whole(&reply).expect("a reply is a message");
    }
    let _ = retire_request(&call);
}

/// Reads the arguments of each call, and refuses it.
#[derive(Default)]
struct Reader {
    called: AtomicBool,
}

impl Reader {
    fn called<T>(&self) -> Result<T, ApiError> {
        self.called.store(true, Ordering::Relaxed);
        Err(ApiError::Conflict("it was only read".to_owned()))
    }

    /// The same, with a value that is sent as JSON.
    fn read<V: Serialize + DeserializeOwned + PartialEq, T>(&self, value: &V) -> Result<T, ApiError> {
        let json = serde_json::to_string(value).expect("a value that was read can be written");
        let again: V = serde_json::from_str(&json).expect("and is read again");
        assert!(again == *value, "{json}");
        self.called()
    }
}

#[async_trait]
impl AgentApi for Reader {
    async fn master(&self) -> Result<MasterRecord, ApiError> {
        self.called()
    }

    async fn raise_epoch(&self, _: Epoch, _: &str) -> Result<MasterRecord, ApiError> {
        self.called()
    }

    async fn snapshot(&self) -> Result<Snapshot, ApiError> {
        self.called()
    }

    async fn proxy_snapshot(&self) -> Result<ProxySnapshot, ApiError> {
        self.called()
    }

    async fn outcome(&self, _: &RequestId) -> Result<Option<AlterationRecord>, ApiError> {
        self.called()
    }

    async fn abort(&self, abort: &Abort) -> Result<AlterationRecord, ApiError> {
        self.read(abort)
    }

    async fn finish(&self, _: Epoch, _: &RequestId, _: Generation) -> Result<AlterationProgress, ApiError> {
        self.called()
    }

    async fn stalled(&self, _: Epoch, _: &RequestId, _: Duration, _: &str) -> Result<AlterationProgress, ApiError> {
        self.called()
    }

    async fn superseded(&self, _: Epoch, _: &RequestId) -> Result<AlterationProgress, ApiError> {
        self.called()
    }

    async fn record(&self, _: Epoch, _: &EngineFacts) -> Result<Recorded, ApiError> {
        self.called()
    }

    async fn publish(&self, _: Epoch, _: &Publication) -> Result<(), ApiError> {
        self.called()
    }

    async fn new_incarnation(&self, _: Epoch, renewal: &Renewal) -> Result<Incarnation, ApiError> {
        self.read(renewal)
    }

    async fn new_incarnations(
        &self,
        _: Epoch,
        renewals: &[Renewal],
    ) -> Result<Vec<Result<Incarnation, String>>, ApiError> {
        self.read(&renewals.to_vec())
    }

    async fn ledger(&self, _: Epoch, changes: &[ScopedChange]) -> Result<Vec<Decided>, ApiError> {
        self.read(&changes.to_vec())
    }

    async fn record_ledger(&self, _: Epoch, record: &LedgerRecord) -> Result<LedgerRecorded, ApiError> {
        self.read(record)
    }

    async fn record_demand(&self, report: &DemandReport) -> Result<DemandRecorded, ApiError> {
        self.read(report)
    }

    async fn demand(&self) -> Result<Vec<Demand>, ApiError> {
        self.called()
    }

    async fn scale(&self, _: Epoch, request: &ScaleRequest) -> Result<Vec<LinkScaled>, ApiError> {
        self.read(request)
    }
}

#[async_trait]
impl ReservationApi for Reader {
    async fn reservations(&self, request: ReservationRequest) -> Result<ReservationReply, ApiError> {
        self.read(&request)
    }
}
