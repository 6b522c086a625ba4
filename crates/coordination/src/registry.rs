//! The registry from an engine's side: its permit, its drain fact, its registration.
//!
//! The registration is the ephemeral node `live` below the permit, written once. An engine registers in a multi with
//! a check that its permit is as it read it, so the permit of another uid admits nobody. The same multi leaves the
//! mark `answered`, which stays when the session ends: a registration that came and went is not mistaken for one that
//! never was. What an engine with a stale
//! reading may conclude is in `engines.md`: the fact is the only order to drain; a permit that vanished is a reason
//! to look again.

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

/// How an engine stands with the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNodes {
    /// Its permit.
    pub permit: Option<PermitNode>,
    /// Its order to drain.
    pub drain: Option<DrainOrderNode>,
}

/// The engine's permit and drain fact, after a sync. The fact is read last: after a drain's multi the permit is gone
/// and the fact is there, so *neither* never stands for a drain that was seen halfway.
pub async fn read_own(session: &Session, engine: &EngineName) -> Result<OwnNodes, Error> {
    session.sync().await?;
    let permit = permits::read(session, engine).await?;
    let drain = drains::read(session, engine).await?;
    Ok(OwnNodes { permit, drain })
}

/// Registers the engine below its permit as it was read.
///
/// A success too if the session is registered already. [`Error::StillHeld`]: a dead session's registration still
/// stands, ask again until it is gone. [`Error::NoNode`] or [`Error::BadVersion`]: the permit has changed, look at
/// [`read_own`] again. [`Error::Refused`]: the permit is another uid's. [`Error::TooLarge`]: nobody would read it.
pub async fn register(session: &Session, permit: &PermitNode, registration: &Registration) -> Result<(), Error> {
    let (layout, access) = (session.layout(), session.access());
    let (permit_path, path) = (layout.permit(&permit.engine), layout.registration(&permit.engine));
    let mark = layout.answered(&permit.engine);
    if permit.uid() != Some(registration.uid.as_str()) {
        return Err(Error::Refused { path: permit_path, reason: "the permit is not for this uid".to_owned() });
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
        // It was left since the permit was read, by an earlier try of our own.
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

/// Wake-ups about one engine's permit, fact and registration; for the engine's own agent.
pub struct OwnWatch {
    watches: Watches,
    targets: Vec<Target>,
}

/// Begins to watch an engine's own nodes.
pub fn watch_own(session: &Session, engine: &EngineName) -> OwnWatch {
    let layout = session.layout();
    let targets = [layout.permit(engine), layout.drain(engine), layout.registration(engine)].map(Target::Node).to_vec();
    OwnWatch { watches: Watches::new(session), targets }
}

impl OwnWatch {
    /// Arms what is not armed. Called before [`read_own`], nothing is missed between reading and waiting.
    pub async fn arm(&mut self) -> Result<(), Error> {
        self.watches.arm(self.targets.clone()).await.map(drop)
    }

    /// Waits until something may have changed; arms what nobody has armed. Without events, or while nothing can be
    /// armed, it waits for ever, so it is always used beside a timer. Safe to be cancelled.
    pub async fn next(&mut self) {
        if let Err(error) = self.arm().await {
            tracing::debug!(%error, "an engine's nodes can't be watched now");
        }
        self.watches.next().await;
    }
}
