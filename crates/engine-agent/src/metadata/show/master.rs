//! SHOW MASTER: who, since when, epoch, last tick, what it waits for.

use hs2::SqlType;
use model::clock::utc;
use model::error::UserError;

use super::freshness::Freshness;
use crate::metadata::answer::{Answer, maybe, number, text};
use crate::metadata::context::Context;

pub(in crate::metadata) async fn show(context: &Context) -> Result<Answer, UserError> {
    context.require_admin()?;
    let master = context.store().master().await.map_err(|error| error.user_error())?;
    let now_ms = context.agent.clock.wall_ms();
    let freshness = Freshness::of(&master, now_ms, context.agent.settings.tick_interval);
    let mut answer = Answer::new(&[
        ("master", SqlType::String),
        ("state", SqlType::String),
        ("since", SqlType::String),
        ("epoch", SqlType::BigInt),
        ("last_tick", SqlType::String),
        ("waits_for", SqlType::String),
    ]);
    if freshness == Freshness::NoMaster {
        context.log.line("no master has been elected yet");
        return Ok(answer);
    }
    answer.row(vec![
        text(master.holder.clone()),
        text(freshness.remark().unwrap_or_else(|| "acting".to_owned())),
        text(utc(master.since_ms)),
        number(master.epoch.get()),
        text(utc(master.last_tick_ms)),
        maybe(master.waits_for),
    ]);
    Ok(answer)
}
