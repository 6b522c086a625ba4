//! A value that may be replaced while the process runs: keys whose file was replaced.

use std::sync::Arc;

use tokio::sync::watch;

/// The current value. Clones see the same one; a holder of an older value has what was current when it looked.
#[derive(Debug)]
pub struct Current<T>(watch::Receiver<Arc<T>>);

impl<T> Clone for Current<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Send + Sync + 'static> Current<T> {
    /// What follows from the value, and again from each that replaces it.
    pub fn map<U: Send + Sync + 'static>(&self, derive: impl Fn(&T) -> U + Send + 'static) -> watch::Receiver<Arc<U>> {
        let mut source = self.0.clone();
        let first = Arc::clone(&source.borrow_and_update());
        let (sender, derived) = watch::channel(Arc::new(derive(&first)));
        if source.has_changed().is_ok() {
            tokio::spawn(async move {
                loop {
                    tokio::select! {
                        changed = source.changed() => if changed.is_err() { return },
                        () = sender.closed() => return,
                    }
                    let next = Arc::clone(&source.borrow_and_update());
                    sender.send_replace(Arc::new(derive(&next)));
                }
            });
        }
        derived
    }
}

impl<T> Current<T> {
    /// A value that stays.
    pub fn fixed(value: T) -> Self {
        Self::new(value).1
    }

    /// A value, and the sender of those that replace it.
    pub fn new(value: T) -> (watch::Sender<Arc<T>>, Self) {
        let (sender, receiver) = watch::channel(Arc::new(value));
        (sender, Self(receiver))
    }

    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.borrow())
    }

    /// Waits for a value that this clone has not seen; `false` if none will come.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn what_is_derived_follows_the_value() {
        let (sender, value) = Current::new(1);
        let mut doubled = value.map(|value| 2 * value);
        assert_eq!(**doubled.borrow(), 2);
        sender.send(Arc::new(4)).unwrap();
        doubled.changed().await.unwrap();
        assert_eq!((*value.get(), **doubled.borrow()), (4, 8));
        drop(sender);
        assert!(doubled.changed().await.is_err());
        assert_eq!(**doubled.borrow(), 8, "the last value stays");
        assert_eq!(**Current::fixed(3).map(|value| value + 1).borrow(), 4);
    }
}
