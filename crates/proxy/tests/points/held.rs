//! A failpoint at which the first to pass is held.

use std::sync::Arc;

use model::failpoint::fail;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Mutex as Turn, MutexGuard};

use crate::fixture::{WAIT, eventually};

static TURN: Turn<()> = Turn::const_new(());

/// The turn of a test: failpoints are the process's.
pub async fn alone() -> MutexGuard<'static, ()> {
    TURN.lock().await
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    arrived: bool,
    open: bool,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock();
        if state.arrived {
            return;
        }
        state.arrived = true;
        // What else this thread had to do goes to another one.
        tokio::task::block_in_place(|| {
            self.changed.wait_while_for(&mut state, |state| !state.open, WAIT);
        });
    }
}

/// The first to pass the point is held until this is dropped; the others pass.
pub struct Held {
    point: &'static str,
    gate: Arc<Gate>,
}

impl Held {
    pub fn at(point: &'static str) -> Self {
        let gate = Arc::<Gate>::default();
        let passed = Arc::clone(&gate);
        fail::cfg_callback(point, move || passed.pass()).unwrap();
        Self { point, gate }
    }

    /// Waits until a task is held.
    pub async fn reached(&self) {
        let arrived = async || self.gate.state.lock().arrived.then_some(());
        eventually(self.point, arrived).await;
    }

    pub fn go_on(self) {
        drop(self);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        fail::remove(self.point);
        self.gate.state.lock().open = true;
        self.gate.changed.notify_all();
    }
}
