//! Transactions: the statements of each job, and what each statement does.

use super::data::{A, Data, POOL, Scope, USER};
use super::decide::Next;
use super::parameters::Job;
use super::state::{
    Answer, CATALOG, Decision, Inserted, MASTER, Orphan, Owner, Part, Progress, State, Statement, Transaction, lock_of,
};
use super::{Isolation, Ledger};

impl Ledger {
    /// The scopes that a job locks, in lock order.
    fn locks(job: Job) -> Vec<usize> {
        match job {
            Job::Reserve { request, .. } | Job::End { request, .. } | Job::Adopt { request, .. } => request.scopes(),
            Job::Transfer { to, .. } => to.scopes(),
            Job::AlterGuarantee(_) => vec![A, POOL],
            Job::AlterUser(_) => vec![USER],
            Job::Audit { scope, .. } => vec![scope],
        }
    }

    /// The statements of a job, or of the transaction that inserts the row of its user.
    pub(super) fn program(&self, job: Job, inserting: bool) -> Vec<Statement> {
        let removed = self.without;
        if inserting {
            let catalog = (!removed.catalog_lock).then_some(Statement::LockCatalog);
            let rest = [Statement::ReadUser, Statement::Write(Part::All), Statement::Commit(Part::All)];
            return catalog.into_iter().chain(rest).collect();
        }
        if let Job::Transfer { from, to, epoch } = job
            && removed.transfer
        {
            let epoch = Some(epoch);
            let end = self.program(Job::End { request: from, epoch }, false);
            return [end, self.program(Job::Reserve { request: to, epoch }, false)].concat();
        }
        let mut program = Vec::new();
        if job.epoch().is_some() {
            let check = if removed.epoch_in_transaction { Statement::ReadEpoch } else { Statement::LockMaster };
            program.push(check);
        }
        let mut locks: Vec<Statement> = Self::locks(job).into_iter().map(Statement::Lock).collect();
        if matches!(job, Job::AlterGuarantee(_) | Job::AlterUser(_)) {
            program.extend([Statement::LockCatalog, Statement::ReadCatalog]);
            if removed.lock_order {
                locks.reverse();
            }
        }
        if removed.locks_before_select || removed.shared_from_lock {
            program.push(Statement::SelectEarly);
        }
        let decide = [Statement::Decide(job)];
        if removed.judged_under_lock || removed.read_under_lock {
            program.extend(decide.into_iter().chain(locks));
        } else {
            program.extend(locks.into_iter().chain(decide));
        }
        let parts: &[Part] = if removed.one_transaction { &[Part::Scopes, Part::Reservations] } else { &[Part::All] };
        program.extend(parts.iter().flat_map(|part| [Statement::Write(*part), Statement::Commit(*part)]));
        program
    }

    /// The next statement of a job.
    pub(super) fn next_statement(&self, state: &State, job: usize) -> Option<Statement> {
        match &state.progress[job] {
            Progress::Idle if self.jobs[job].epoch().is_some_and(|epoch| epoch > state.data.epoch) => None,
            Progress::Idle => self.program(self.jobs[job], false).first().copied(),
            Progress::Running { inserting, at, .. } => self.program(self.jobs[job], *inserting).get(*at).copied(),
            Progress::Ended(_) => None,
        }
    }

    /// What a transaction reads.
    fn view(state: &State, transaction: &Transaction) -> Data {
        let Some(snapshot) = &transaction.snapshot else { return state.data.clone() };
        let mut view = (**snapshot).clone();
        for (scope, row) in view.scopes.iter_mut().enumerate() {
            if transaction.changed & lock_of(scope) != 0 {
                *row = state.data.scopes[scope];
            }
        }
        view
    }

    /// The first SELECT determines what the later ones read.
    fn select(&self, state: &State, transaction: &mut Transaction) {
        if self.isolation == Isolation::RepeatableRead {
            transaction.snapshot.get_or_insert_with(|| Box::new(state.data.clone()));
        }
    }

    /// The transaction that the job waits for.
    pub(super) fn waits_for(&self, state: &State, job: usize) -> Option<Owner> {
        let statement = self.next_statement(state, job)?;
        let wanted = Self::wanted(state, job, statement);
        let inserts = self.inserts(state, job, statement);
        state.open().find_map(|(owner, transaction)| {
            let conflicts = transaction.inserted && inserts.is_some() && inserts == transaction.decision.inserts();
            (owner != Owner::Job(job) && (transaction.locks & wanted != 0 || conflicts)).then_some(owner)
        })
    }

    /// The locks that a statement needs and its transaction does not hold.
    fn wanted(state: &State, job: usize, statement: Statement) -> u8 {
        match (statement, &state.progress[job]) {
            (Statement::LockMaster, _) => MASTER,
            (Statement::LockCatalog, _) => CATALOG,
            (Statement::Lock(scope), _) if state.data.scopes[scope].is_some() => lock_of(scope),
            (Statement::Write(Part::All | Part::Scopes), Progress::Running { transaction, .. }) => {
                let written = transaction.decision.scopes.iter().enumerate().filter(|(_, row)| row.is_some());
                written.map(|(scope, _)| lock_of(scope)).sum::<u8>() & !transaction.locks
            }
            _ => 0,
        }
    }

    /// The row that a statement inserts.
    fn inserts(&self, state: &State, job: usize, statement: Statement) -> Option<Inserted> {
        let Progress::Running { transaction, .. } = &state.progress[job] else { return None };
        let writes = matches!(statement, Statement::Write(Part::All | Part::Reservations));
        transaction.decision.inserts().filter(|_| writes && !self.without.request_key)
    }

    /// Runs the next statement of a job; returns false if it waits or there is none.
    pub(super) fn run(&self, state: &mut State, job: usize) -> bool {
        let Some(statement) = self.next_statement(state, job) else { return false };
        if self.waits_for(state, job).is_some() {
            return false;
        }
        let wanted = Self::wanted(state, job, statement);
        let (inserting, at, mut transaction) = match std::mem::replace(&mut state.progress[job], Progress::Idle) {
            Progress::Running { inserting, at, transaction } => (inserting, at, transaction),
            _ => (false, 0, Transaction::default()),
        };
        transaction.locks |= wanted;
        let mut ended = None;
        match statement {
            Statement::LockMaster | Statement::ReadEpoch => {
                if self.jobs[job].epoch() != Some(state.data.epoch) {
                    ended = Some(Answer::Deposed);
                }
            }
            Statement::LockCatalog => {}
            Statement::ReadCatalog => self.select(state, &mut transaction),
            Statement::SelectEarly => {
                let view = Self::view(state, &transaction);
                self.select(state, &mut transaction);
                if self.without.shared_from_lock {
                    let tenant = self.jobs[job].request().and_then(|request| view.scopes[request.tenant]);
                    transaction.tenant_held = tenant.map(|row| row.held);
                }
            }
            Statement::Lock(_) => {
                if !self.without.version {
                    transaction.changed |= wanted;
                }
            }
            Statement::Decide(change) => {
                self.select(state, &mut transaction);
                let view = Self::view(state, &transaction);
                let next = self.decide(change, &view, &transaction, &mut state.history.audit_found);
                transaction.snapshot = None;
                match next {
                    Next::Writes(decision) => transaction.decision = decision,
                    Next::Ends(Answer::Done) if matches!(change, Job::End { .. }) && change != self.jobs[job] => {
                        // The end of a transfer in two transactions has nothing to write: the reservation follows.
                        let transaction = Transaction::default();
                        state.progress[job] = Progress::Running { inserting, at: at + 3, transaction };
                        return true;
                    }
                    Next::Ends(answer) => ended = Some(answer),
                    Next::Inserts => {
                        let transaction = Transaction::default();
                        state.progress[job] = Progress::Running { inserting: true, at: 0, transaction };
                        return true;
                    }
                }
            }
            Statement::ReadUser => {
                self.select(state, &mut transaction);
                let view = Self::view(state, &transaction);
                transaction.snapshot = None;
                if view.scopes[USER].is_some() {
                    state.progress[job] = Progress::Idle;
                    return true;
                }
                transaction.decision.user = Some(Scope::new(view.user_limit));
            }
            Statement::Write(part) => {
                if !self.write(state, &mut transaction, part) {
                    // A concurrent transaction has inserted the same row: it is repeated.
                    state.progress[job] = Progress::Idle;
                    return true;
                }
            }
            Statement::Commit(part) => {
                self.commit(state, job, part, &transaction);
                if inserting {
                    state.progress[job] = Progress::Idle;
                    return true;
                }
                let decision = if part == Part::Scopes { transaction.decision } else { Decision::default() };
                transaction = Transaction { decision, ..Transaction::default() };
                if at + 1 == self.program(self.jobs[job], inserting).len() {
                    ended = Some(Answer::Done);
                }
            }
        }
        state.progress[job] = match ended {
            Some(answer) => Progress::Ended(answer),
            None => Progress::Running { inserting, at: at + 1, transaction },
        };
        true
    }

    /// Writes a part; false if a row that is to be inserted is there.
    fn write(&self, state: &State, transaction: &mut Transaction, part: Part) -> bool {
        let decision = &mut transaction.decision;
        if self.without.judged_under_lock
            && part != Part::Reservations
            && let Some((request, effect)) = decision.effect()
        {
            // held = held + x
            let mut newest = state.data.clone();
            newest.charge(request, effect);
            for (scope, row) in newest.scopes.into_iter().enumerate() {
                decision.scopes[scope] = row.filter(|_| row != state.data.scopes[scope]);
            }
        }
        if part == Part::Scopes {
            return true;
        }
        transaction.inserted = decision.inserts().is_some();
        if decision.user.is_some() {
            return state.data.scopes[USER].is_none();
        }
        let Some((request, _)) = decision.granted else { return true };
        self.without.request_key || state.data.of_key(request.key).is_none()
    }

    /// COMMIT: the writes become visible and the locks are released.
    pub(super) fn commit(&self, state: &mut State, job: usize, part: Part, transaction: &Transaction) {
        let decision = &transaction.decision;
        let data = &mut state.data;
        let epoch = self.jobs[job].epoch();
        state.history.deposed_wrote |= epoch.is_some_and(|epoch| epoch != data.epoch);
        if part != Part::Reservations {
            for (scope, row) in decision.scopes.iter().enumerate() {
                data.scopes[scope] = row.or(data.scopes[scope]);
            }
        }
        if let Some(user) = decision.user {
            data.scopes[USER] = Some(user);
        }
        if let Some((user_limit, guarantee)) = decision.catalog {
            (data.user_limit, data.guarantee) = (user_limit, guarantee);
        }
        if part == Part::Scopes {
            return;
        }
        for reservation in &decision.reservations {
            let again = data.of_key(reservation.request.key).is_some_and(|row| row.charged && reservation.charged);
            if again && self.without.request_key {
                data.insert(*reservation);
            } else {
                data.put(*reservation);
            }
        }
        if let Some((request, effect)) = decision.effect() {
            state.history.over_granted |= data.exceeds(request, effect);
        }
    }

    /// The reply to COMMIT is lost: the transaction continues without its caller, which repeats it.
    pub(super) fn orphan(&self, state: &mut State, job: usize) -> bool {
        let Some(Statement::Commit(part)) = self.next_statement(state, job) else { return false };
        if state.orphans[job].is_some() {
            return false;
        }
        let Progress::Running { transaction, .. } = std::mem::replace(&mut state.progress[job], Progress::Idle) else {
            return false;
        };
        state.orphans[job] = Some(Orphan { part, transaction });
        true
    }
}
