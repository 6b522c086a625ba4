//! Retiring an idle engine: its agent must agree to open no more sessions before its slot is given another engine.
//!
//! The agent is asked with the idle time that it last reported. It compares under its session lock, so it refuses if any
//! session was opened since the load that the decision was derived from. Its consent ends only by time, which is longer than
//! the deadline of an effect: if the database then rejects the renewal, or this master stops in between, the engine accepts
//! sessions again. A consent that a deposed master obtains costs no more than that.

use agent_api::RetireRequest;
use model::end::{EndClass, EndWord, GivenUp};
use model::engine_name::EngineName;
use model::ledger::reclaim_reason;
use model::name::TenantName;
use model::number::Incarnation;
use model::slot::{Renewal, Replacement, SlotKey};

use super::apply::{permit, unfit};
use super::live::LiveCtx;
use super::loads::endpoint;
use super::{Applied, Expected, Failure};

impl LiveCtx {
    /// Asks the agent, at the address that it is registered with, and renews the slot if it agrees.
    pub(super) async fn retire(
        &self,
        (engine, uid): (&EngineName, &str),
        (slot, observed): (SlotKey, Incarnation),
        reclaimed_for: &TenantName,
        expected: &Expected<'_>,
    ) -> Result<Applied, Failure> {
        if !self.agrees_to_retire((engine, uid), expected).await? {
            return Ok(Applied::Declined);
        }
        // A retired engine has not failed.
        let renewal = Renewal {
            slot,
            observed,
            failures: 0,
            replacement: Replacement::StandIn,
            condemn: Some(reclaim_reason(reclaimed_for)),
            ends: Some(GivenUp { class: EndClass::of(EndWord::Reclaimed), reason: reclaim_reason(reclaimed_for) }),
        };
        self.draw_incarnation(renewal, expected).await
    }

    /// Asks the agent, at the address that it is registered with.
    pub(super) async fn agrees_to_retire(
        &self,
        (engine, uid): (&EngineName, &str),
        expected: &Expected<'_>,
    ) -> Result<bool, Failure> {
        let registration = permit(expected, engine).and_then(|permit| permit.registration.as_ref());
        let registration = registration.and_then(|node| node.content.as_ref().ok()).filter(|live| live.uid == uid);
        let endpoint = endpoint(registration.ok_or_else(|| unfit("an engine that is not registered"))?);
        // An agent that reports none does not know the call: it is never retired.
        let Some(idle) = self.statuses().idle(engine) else { return Ok(false) };
        let request = RetireRequest { uid: uid.to_owned(), idle };
        self.statuses().retire(engine, &endpoint, &request).await
    }
}
