//! A shared row: a value that many readings hold and hardly any of them changes. Copy on write.
//!
//! Cloning it copies no content. Two clones of one row are equal without being compared, so a reading of thousands of rows of which
//! few have changed is compared with the last one in no time. A holder that changes its clone gets a copy of its own first: nothing
//! that another one has read ever changes.

use std::borrow::Borrow;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A row of a reading. Written and read as its content.
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Whether both are clones of one row that neither holder has changed since.
    pub fn is_same(one: &Self, other: &Self) -> bool {
        Arc::ptr_eq(&one.0, &other.0)
    }
}

impl<T: Clone> Shared<T> {
    /// The content: a copy, if there are other clones.
    pub fn into_inner(this: Self) -> T {
        Arc::unwrap_or_clone(this.0)
    }
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        T::default().into()
    }
}

impl<T> From<T> for Shared<T> {
    fn from(content: T) -> Self {
        Self(Arc::new(content))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T> AsRef<T> for Shared<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T> Borrow<T> for Shared<T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: Eq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Self::is_same(self, other) || **self == **other
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_change_of_one_clone_is_not_seen_by_another() {
        let mut one = Shared::from("a".to_owned());
        let other = one.clone();
        assert!(Shared::is_same(&one, &other));
        one.push('b');
        assert_eq!((&**one, &**other), ("ab", "a"));
        assert!(!Shared::is_same(&one, &other) && one != other);
        other.clone().clear();
        assert_eq!(&**other, "a");
    }

    #[test]
    fn rows_are_equal_by_content_and_written_as_their_content() {
        let (one, other) = (Shared::from(vec![1, 2]), Shared::from(vec![1, 2]));
        assert!(one == other && !Shared::is_same(&one, &other));
        let written = serde_json::to_string(&one).unwrap();
        assert_eq!(written, "[1,2]");
        assert_eq!(serde_json::from_str::<Shared<Vec<i32>>>(&written).unwrap(), one);
        assert_eq!((format!("{one:?}"), Shared::into_inner(one)), ("[1, 2]".to_owned(), vec![1, 2]));
    }
}
