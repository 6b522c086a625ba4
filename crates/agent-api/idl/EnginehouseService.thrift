/**
 * What masters and proxies ask of a metadata agent, and what they ask of an engine agent, beside HiveServer2's own
 * calls and over the same connections. As in HiveServer2 every call takes one struct and answers one.
 *
 * Numbers and short texts are fields. What is a whole model value (a snapshot, a report, a record) travels as the JSON
 * of that value: the vocabulary has one definition, in the program, and grows without a second one here.
 */
namespace rs enginehouse_service

/** The version of the JSON values in this service. A caller refuses an answer of another version. */
const i32 VERSION = 1

/** Why a call had no effect. `kind` is one of deposed, conflict, unavailable, outcome_unknown, refused. */
struct TApiError {
  1: required string kind
  /** Plain text; for `deposed` the JSON of the master's record, for `refused` that of the user's error. */
  2: required string detail
}

/** Every answer: the JSON of the value, or an error. */
struct TApiResp {
  1: required i32 version
  2: optional string value
  3: optional TApiError error
}

struct TMasterReq {}

struct TSnapshotReq {}

struct TProxySnapshotReq {}

struct TOutcomeReq {
  1: required string id
}

struct TAbortReq {
  1: required string abort
}

struct TRaiseEpochReq {
  1: required i64 read
  2: required string holder
}

struct TFinishReq {
  1: required i64 epoch
  2: required string id
  3: required i64 plan
}

struct TStalledReq {
  1: required i64 epoch
  2: required string id
  3: required i64 afterMs
  4: required string reason
}

struct TSupersededReq {
  1: required i64 epoch
  2: required string id
}

struct TObservedReq {
  1: required i64 epoch
  2: required string report
}

struct TNewIncarnationReq {
  1: required i64 epoch
  2: required string renewal
}

/** `renewals` is the JSON of a list. An agent of version 0.1.0 does not know the method. */
struct TNewIncarnationsReq {
  1: required i64 epoch
  2: required string renewals
}

/** `changes` is the JSON of a list. Answers a list of the same length. An agent of version 0.1.0 does not know the method. */
struct TLedgerReq {
  1: required i64 epoch
  2: required string changes
}

/** As Ledger, an agent of version 0.1.0 does not know the method. */
struct TRecordLedgerReq {
  1: required i64 epoch
  2: required string record
}

/** `request` is the JSON of a call about reservations, with its caller. An agent of version 0.1.0 does not know the method. */
struct TReservationsReq {
  1: required string request
}

/** `report` is the JSON of the waiting sessions of a proxy. An agent of version 0.1.0 does not know the method. */
struct TRecordDemandReq {
  1: required string report
}

/** As RecordDemand, an agent of version 0.1.0 does not know the method. */
struct TDemandReq {}

/** `request` is the JSON of the slots to add and remove. An agent of version 0.1.0 does not know the method. */
struct TScaleReq {
  1: required i64 epoch
  2: required string request
}

struct TEngineStatusReq {}

struct TEngineStatusResp {
  1: required string engine
  2: required string uid
  3: required i32 sessions
  4: required i32 running
  5: required bool draining
  /** Since when no session is open and no call opens one. An agent of version 0.1.0 does not report it. */
  6: optional i64 idle_ms
  /** Whether it has agreed to retire, and opens no sessions now. */
  7: optional bool retiring
  /** Sessions whose state cannot be replayed at another engine. An agent of version 0.1.0 does not report it. */
  8: optional i32 stateful_sessions
  /** The sessions that may be open at the same time. An agent of version 0.1.0 does not report it. */
  9: optional i32 seats
  /** The sessions that it has opened since it started. An agent of version 0.1.0 does not report it. */
  10: optional i64 served
}

/** An agent of version 0.1.0 does not know the method. */
struct TRetireReq {
  1: required string uid
  /** The agent agrees only if it has been idle for this long. */
  2: required i64 idle_ms
}

struct TRetireResp {
  1: required bool agreed
}

/*
 * Method of a metadata agent   takes                answers
 *   GetMaster                  TMasterReq           TApiResp
 *   GetSnapshot                TSnapshotReq         TApiResp
 *   GetProxySnapshot           TProxySnapshotReq    TApiResp
 *   GetOutcome                 TOutcomeReq          TApiResp
 *   Abort                      TAbortReq            TApiResp
 *   RaiseEpoch                 TRaiseEpochReq       TApiResp
 *   Finish                     TFinishReq           TApiResp
 *   Stalled                    TStalledReq          TApiResp
 *   Superseded                 TSupersededReq       TApiResp
 *   Observed                   TObservedReq         TApiResp
 *   NewIncarnation             TNewIncarnationReq   TApiResp
 *   NewIncarnations            TNewIncarnationsReq  TApiResp
 *   Ledger                     TLedgerReq           TApiResp
 *   RecordLedger               TRecordLedgerReq     TApiResp
 *   Reservations               TReservationsReq     TApiResp
 *   RecordDemand               TRecordDemandReq     TApiResp
 *   GetDemand                  TDemandReq           TApiResp
 *   Scale                      TScaleReq            TApiResp
 * Method of an engine agent
 *   GetEngineStatus            TEngineStatusReq     TEngineStatusResp
 *   Retire                     TRetireReq           TRetireResp
 */
