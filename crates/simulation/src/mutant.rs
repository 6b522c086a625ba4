//! Deliberately broken parts of the world: each leaves out one protection that a known bug or a counterexample of the design
//! requires. A run with a mutant must end with a violation, which shows that the simulation rediscovers the row.

/// What is broken. Each is a row of the table in `docs/simulation.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// The database counts demand whose lease has ended.
    DemandWithoutLease,
    /// A proxy counts a session until it is open, not until it is opened.
    CountedUntilOpen,
    /// The database records a late report of demand.
    ReportsWithoutNumber,
    /// The database does not compare the slots of a link with those of the plan.
    ScaleWithoutExpectation,
    /// A slot is added in one transaction, and its reservation in no other.
    SlotWithoutReservation,
    /// The database removes slots without comparing `MIN_ENGINES`.
    RemovalBelowMinimum,
    /// The master adds slots without comparing `MAX_ENGINES`, and so does the database.
    AddedAboveMaximum,
    /// An engine's agent agrees to retire and goes on opening sessions.
    ConsentWithoutEffect,
    /// An engine's agent agrees to retire although sessions are open.
    ConsentOfBusyEngine,
    /// A first registration leaves no mark.
    NoMark,
    /// Created engines are cancelled as soon as no demand is left.
    CancelledAtOnce,
    /// The master ticks only when it is woken.
    NoTimer,
    /// The database does not compare the master's epoch.
    EpochUnchecked,
    /// An engine is looked up by name in the list that may be outdated.
    OutdatedProbe,
    /// Incarnations are used again.
    NameUsedAgain,
    /// An engine takes the loss of its session for an order to drain.
    LostSessionIsDrain,
    /// An agent opens sessions without a free seat.
    SeatsUnchecked,
    /// A reservation ends with its slot, while its instance still runs.
    ChargeEndsWithSlot,
    /// The end of a reservation returns less than it was charged.
    ChargeLeaks,
    /// An engine is deleted where it should be drained.
    KilledWithoutOrder,
    /// An engine's agent opens the sessions of any owner.
    OwnerUnchecked,
    /// The database does not compare the owner of an added slot with `SHARED_BY`.
    KindUnchecked,
    /// The database adds slots without their owner.
    AddedWithoutOwner,
    /// The demand of all users is that of one.
    DemandOfOneUser,
    /// A machine that is not ready is enough to replace its engines.
    NodeAlone,
    /// A missing registration is enough to take its machine for failed.
    RegistrationAlone,
    /// Engines are replaced although most machines have failed.
    NotSuspended,
    /// A drain keeps the permit, and the engine's agent takes its missing registration for an expired session.
    DrainIsExpiry,
    /// An engine that is not registered is listed as ended.
    AbsenceIsEnd,
    /// The drain of a superseded engine does not check the registration of its successor.
    SuccessorUnchecked,
    /// A drain order is written in a call of its own, before permit and registration are compared with what was seen.
    DrainInCalls,
    /// A permit admits every engine with its name.
    PermitAdmitsAnyUid,
    /// A master takes an alteration without an outcome for one that is over, and sees only alterations with a node.
    LooksBeforeCommit,
    /// COMMIT does not compare the generation of the object, and writes what was computed before.
    BaseUnchecked,
    /// COMMIT does not supersede the open alteration of its object.
    NothingSuperseded,
    /// A master that gets no answer in time takes an alteration for aborted, without asking the database.
    SilenceIsAbort,
    /// The database aborts an alteration that was committed.
    AbortOverwrites,
    /// An agent reports that nothing has changed before it has aborted the alteration.
    AnswerBeforeAbort,
    /// The alter node is deleted whichever alteration it belongs to.
    DeletedByPath,
    /// An alter node without an alteration is not deleted.
    DebrisStays,
    /// A master sees only alterations with a node.
    RowOnlyWithNode,
    /// The alter node stays until the engines of its object are registered.
    ConvergedWaitsForReadiness,
    /// An alteration has converged as soon as it is committed.
    ConvergedTooEarly,
    /// The database does not record why sessions wait.
    ReasonsNotShown,
    /// A master does not see from which generation an engine was created that the database does not know.
    NewerIsOrphan,
    /// Of the ledger only the reservations are restored, not what scopes hold.
    RestoredInParts,
}

impl Mutant {
    pub const ALL: [Self; 46] = [
        Self::DemandWithoutLease,
        Self::CountedUntilOpen,
        Self::ReportsWithoutNumber,
        Self::ScaleWithoutExpectation,
        Self::SlotWithoutReservation,
        Self::RemovalBelowMinimum,
        Self::AddedAboveMaximum,
        Self::ConsentWithoutEffect,
        Self::ConsentOfBusyEngine,
        Self::NoMark,
        Self::CancelledAtOnce,
        Self::NoTimer,
        Self::EpochUnchecked,
        Self::OutdatedProbe,
        Self::NameUsedAgain,
        Self::LostSessionIsDrain,
        Self::SeatsUnchecked,
        Self::ChargeEndsWithSlot,
        Self::ChargeLeaks,
        Self::KilledWithoutOrder,
        Self::OwnerUnchecked,
        Self::KindUnchecked,
        Self::AddedWithoutOwner,
        Self::DemandOfOneUser,
        Self::NodeAlone,
        Self::RegistrationAlone,
        Self::NotSuspended,
        Self::DrainIsExpiry,
        Self::AbsenceIsEnd,
        Self::SuccessorUnchecked,
        Self::DrainInCalls,
        Self::PermitAdmitsAnyUid,
        Self::LooksBeforeCommit,
        Self::BaseUnchecked,
        Self::NothingSuperseded,
        Self::SilenceIsAbort,
        Self::AbortOverwrites,
        Self::AnswerBeforeAbort,
        Self::DeletedByPath,
        Self::DebrisStays,
        Self::RowOnlyWithNode,
        Self::ConvergedWaitsForReadiness,
        Self::ConvergedTooEarly,
        Self::ReasonsNotShown,
        Self::NewerIsOrphan,
        Self::RestoredInParts,
    ];
}
