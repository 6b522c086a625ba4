//! An operation at the engine: a statement that was accepted, with its state and its result.

use hs2::Handle;
use hs2::tcli::{TOperationHandle, TOperationState, TOperationType};

/// An operation at the engine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    /// The engine's handle.
    pub(super) backend: Handle,
    /// The type in the engine's handle: Spark finds an operation only by handle and type.
    pub(super) kind: TOperationType,
    /// The engine still runs it.
    pub(super) running: bool,
    /// Its result has not been fetched to its end.
    pub(super) result_waits: bool,
}

impl Operation {
    /// The handle as the engine itself encoded it.
    pub(super) fn at_engine(&self) -> TOperationHandle {
        self.backend.operation(self.kind, true)
    }

    /// Applies a state that the engine reported.
    pub(super) fn set_state(&mut self, state: TOperationState, has_result_set: Option<bool>) {
        match state {
            TOperationState::FINISHED_STATE => {
                self.running = false;
                self.result_waits &= has_result_set != Some(false);
            }
            TOperationState::ERROR_STATE
            | TOperationState::CANCELED_STATE
            | TOperationState::CLOSED_STATE
            | TOperationState::TIMEDOUT_STATE => self.end(),
            _ => {}
        }
    }

    /// Marks it as finished.
    pub(super) fn end(&mut self) {
        self.running = false;
        self.result_waits = false;
    }
}
