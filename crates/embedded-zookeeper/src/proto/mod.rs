//! The wire protocol: jute records in frames of a four-byte length, all numbers big-endian.
//!
//! Decoding takes one whole frame and checks every length against it, so a hostile frame costs at most its own
//! size. Encoding cannot fail.

pub(crate) mod codes;
pub(crate) mod connect;
pub(crate) mod jute;
pub(crate) mod records;
pub(crate) mod reply;
pub(crate) mod request;

/// The longest frame that is accepted, in bytes: ZooKeeper's default `jute.maxbuffer`.
pub(crate) const FRAME_MAX: usize = 0xf_ffff;
