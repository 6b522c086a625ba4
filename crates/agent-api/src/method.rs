//! Method names, and the encoding of values and errors in a response.

use model::error::UserError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ApiError;
use crate::wire::{TApiError, TApiResp, VERSION};

pub(crate) const MASTER: &str = "GetMaster";
pub(crate) const SNAPSHOT: &str = "GetSnapshot";
pub(crate) const PROXY_SNAPSHOT: &str = "GetProxySnapshot";
pub(crate) const OUTCOME: &str = "GetOutcome";
pub(crate) const ABORT: &str = "Abort";
pub(crate) const RAISE_EPOCH: &str = "RaiseEpoch";
pub(crate) const FINISH: &str = "Finish";
pub(crate) const STALLED: &str = "Stalled";
pub(crate) const SUPERSEDED: &str = "Superseded";
pub(crate) const OBSERVED: &str = "Observed";
pub(crate) const NEW_INCARNATION: &str = "NewIncarnation";
pub(crate) const NEW_INCARNATIONS: &str = "NewIncarnations";
pub(crate) const LEDGER: &str = "Ledger";
pub(crate) const RECORD_LEDGER: &str = "RecordLedger";
pub(crate) const RESERVATIONS: &str = "Reservations";
pub(crate) const RECORD_DEMAND: &str = "RecordDemand";
pub(crate) const DEMAND: &str = "GetDemand";
pub(crate) const SCALE: &str = "Scale";

/// The calls of [`AgentApi`](crate::AgentApi).
pub(crate) const ALL: [&str; 17] = [
    MASTER,
    SNAPSHOT,
    PROXY_SNAPSHOT,
    OUTCOME,
    ABORT,
    RAISE_EPOCH,
    FINISH,
    STALLED,
    SUPERSEDED,
    OBSERVED,
    NEW_INCARNATION,
    NEW_INCARNATIONS,
    LEDGER,
    RECORD_LEDGER,
    RECORD_DEMAND,
    DEMAND,
    SCALE,
];

pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<String, ApiError> {
    serde_json::to_string(value).map_err(|error| defect(format!("could not encode a value: {error}")))
}

pub(crate) fn from_json<T: DeserializeOwned>(json: &str) -> Result<T, ApiError> {
    serde_json::from_str(json).map_err(|error| defect(format!("could not decode a value: {error}")))
}

fn defect(text: String) -> ApiError {
    ApiError::Refused(UserError::internal(text))
}

/// Encodes the response of a call.
pub(crate) fn to_answer<T: Serialize>(outcome: Result<T, ApiError>) -> TApiResp {
    match outcome.and_then(|value| to_json(&value)) {
        Ok(value) => TApiResp { version: VERSION, value: Some(value), error: None },
        Err(error) => {
            let (kind, detail) = match &error {
                ApiError::Deposed(record) => ("deposed", to_json(record).unwrap_or_default()),
                ApiError::Conflict(reason) => ("conflict", reason.clone()),
                ApiError::Unavailable(cause) => ("unavailable", cause.to_string()),
                ApiError::OutcomeUnknown(cause) => ("outcome_unknown", cause.to_string()),
                ApiError::Refused(refused) => ("refused", to_json(refused).unwrap_or_default()),
            };
            let error = Some(TApiError { kind: kind.to_owned(), detail });
            TApiResp { version: VERSION, value: None, error }
        }
    }
}

/// Decodes a response.
pub(crate) fn from_answer<T: DeserializeOwned>(answer: TApiResp) -> Result<T, ApiError> {
    if answer.version != VERSION {
        return Err(defect(format!("the metadata agent speaks version {}, not {VERSION}", answer.version)));
    }
    let Some(error) = answer.error else {
        return from_json(&answer.value.ok_or_else(|| defect("an answer is empty".to_owned()))?);
    };
    Err(match error.kind.as_str() {
        "deposed" => ApiError::Deposed(from_json(&error.detail)?),
        "conflict" => ApiError::Conflict(error.detail),
        "unavailable" => ApiError::Unavailable(error.detail.into()),
        "outcome_unknown" => ApiError::OutcomeUnknown(error.detail.into()),
        _ => ApiError::Refused(from_json(&error.detail)?),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use model::error::ErrorKind;
    use model::number::Epoch;
    use model::snapshot::MasterRecord;

    #[test]
    fn every_error_survives_the_way_to_the_caller() {
        let record = MasterRecord { epoch: Epoch(7), holder: "h".to_owned(), ..MasterRecord::default() };
        let refused = UserError::new(ErrorKind::WrongState, "m").detail("d").hint("h");
        for error in [
            ApiError::Deposed(Box::new(record)),
            ApiError::Conflict("c".to_owned()),
            ApiError::Unavailable("u".into()),
            ApiError::OutcomeUnknown("o".into()),
            ApiError::Refused(refused),
        ] {
            assert_eq!(from_answer::<()>(to_answer::<()>(Err(error.clone()))), Err(error));
        }
    }

    #[test]
    fn an_answer_of_another_version_is_refused() {
        let mut answer = to_answer(Ok(1_i64));
        answer.version += 1;
        assert!(matches!(from_answer::<i64>(answer), Err(ApiError::Refused(_))));
    }
}
