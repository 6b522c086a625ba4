//! The registry as an engine's agent uses it: its permit, its drain order and its registration.
//!
//! An engine registers in a multi that checks the version of its permit, so it never registers below the permit of another
//! uid. The same multi creates the mark `answered`. The mark outlives the session: a registration that has gone is not mistaken
//! for one that never existed.
//!
//! With a stale reading an engine may conclude only this (`engines.md`): the drain order is the only order to drain, and a
//! missing permit is a reason to read again.

use model::EngineName;

use crate::document;
use crate::drains::{self, DrainOrderNode};
use crate::error::Error;
use crate::failpoints;
use crate::permits::{self, PermitNode};
use crate::registration::{MAX_REGISTRATION_BYTES, Registration};
use crate::session::Session;
use crate::transaction::Transaction;
use crate::watches::{Target, Watches};

/// The nodes that the master wrote for an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNodes {
    pub permit: Option<PermitNode>,
    pub drain: Option<DrainOrderNode>,
}

/// Reads the engine's permit and drain order, after a sync. The drain order is read last: the multi of a drain creates it and
/// deletes the permit, so a drain in between never looks like *neither*.
pub async fn read_own(session: &Session, engine: &EngineName) -> Result<OwnNodes, Error> {
    session.sync().await?;
    let permit = permits::read(session, engine).await?;
    let drain = drains::read(session, engine).await?;
    Ok(OwnNodes { permit, drain })
}

/// Registers the engine below its permit as it was read.
///
/// Idempotent within a session. [`Error::StillHeld`]: an earlier session still owns the registration; retry.
/// [`Error::NoNode`] or [`Error::BadVersion`]: the permit has changed; call [`read_own`] again. [`Error::Refused`]: the permit
/// has another uid. [`Error::TooLarge`]: no process would read it.
pub async fn register(session: &Session, permit: &PermitNode, registration: &Registration) -> Result<(), Error> {
    let (layout, access) = (session.layout(), session.access());
    let (permit_path, path) = (layout.permit(&permit.engine), layout.registration(&permit.engine));
    let mark = layout.answered(&permit.engine);
    if permit.uid() != Some(registration.uid.as_str()) {
        return Err(Error::Refused { path: permit_path, cause: "the permit is not for this uid".into() });
    }
    let data = document::write(&path, registration)?;
    if data.len() > MAX_REGISTRATION_BYTES {
        return Err(Error::TooLarge { bytes: data.len(), limit: MAX_REGISTRATION_BYTES });
    }
    model::failpoint!(failpoints::ENGINE_BEFORE_REGISTER);
    let registers = |marked: bool| {
        let (data, registration) = (data.clone(), access.registration());
        let transaction = Transaction::new(session)
            .check_version(permit_path.clone(), permit.version)
            .create_ephemeral(path.clone(), data, registration);
        let transaction = if marked {
            transaction.check(mark.clone())
        } else {
            transaction.create(mark.clone(), Vec::new(), access.answered(&permit.engine))
        };
        transaction.commit()
    };
    let created = match registers(permit.answered).await {
        // An earlier attempt of our own created it after the permit was read.
        Err(Error::NodeExists { path }) if path == mark => registers(true).await,
        other => other,
    };
    match created {
        Err(Error::NodeExists { path }) => session.owned(path).await?,
        other => other?,
    }
    model::failpoint!(failpoints::ENGINE_REGISTERED);
    Ok(())
}

/// Wake-ups for the permit, drain order and registration of one engine.
pub struct OwnWatch {
    watches: Watches,
    targets: Vec<Target>,
}

pub fn watch_own(session: &Session, engine: &EngineName) -> OwnWatch {
    let layout = session.layout();
    let targets = [layout.permit(engine), layout.drain(engine), layout.registration(engine)].map(Target::Node).to_vec();
    OwnWatch { watches: Watches::new(session), targets }
}

impl OwnWatch {
    /// Arms the watches that are not armed. Call it before [`read_own`], so that no change is missed between reading and waiting.
    pub async fn arm(&mut self) -> Result<(), Error> {
        self.watches.arm(self.targets.clone()).await.map(drop)
    }

    /// Waits until something may have changed; arms the watches if necessary. It never returns if no watch can be armed or watch
    /// events are disabled, so callers also need a timer. Cancel-safe.
    pub async fn next(&mut self) {
        if let Err(error) = self.arm().await {
            tracing::debug!(%error, "could not watch the engine's nodes");
        }
        self.watches.next().await;
    }
}
