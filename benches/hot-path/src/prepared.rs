//! A prepared message: encoded once, sent many times with another sequence number.

/// The bytes before the name of the method: the version with the kind of message, and the length of the name.
const BEFORE_NAME_BYTES: usize = 8;
/// The length before a message on a connection with SASL.
pub const LENGTH_BYTES: usize = 4;
const SEQID_BYTES: usize = 4;

/// A message whose sequence number is replaced in place.
#[derive(Debug, Clone)]
pub struct Prepared {
    bytes: Vec<u8>,
    seqid_at: usize,
}

impl Prepared {
    /// A message of a method, without its length.
    pub fn new(method: &str, message: Vec<u8>) -> Self {
        Self { bytes: message, seqid_at: BEFORE_NAME_BYTES + method.len() }
    }

    /// The same behind its length.
    pub fn framed(method: &str, message: &[u8]) -> Self {
        let bytes = [&(message.len() as u32).to_be_bytes(), message].concat();
        Self { bytes, seqid_at: LENGTH_BYTES + BEFORE_NAME_BYTES + method.len() }
    }

    /// The bytes with this sequence number.
    pub fn with_seqid(&mut self, seqid: i32) -> &[u8] {
        self.bytes[self.seqid_at..self.seqid_at + SEQID_BYTES].copy_from_slice(&seqid.to_be_bytes());
        &self.bytes
    }

    /// Whether `bytes` have the length of this message, its head and this sequence number. The rest is not compared.
    pub fn has_head(&self, bytes: &[u8], seqid: i32) -> bool {
        bytes.len() == self.bytes.len()
            && bytes[..self.seqid_at] == self.bytes[..self.seqid_at]
            && bytes[self.seqid_at..self.seqid_at + SEQID_BYTES] == seqid.to_be_bytes()
    }

    /// Whether `bytes` are this message with this sequence number.
    pub fn is(&self, bytes: &[u8], seqid: i32) -> bool {
        let behind = self.seqid_at + SEQID_BYTES;
        self.has_head(bytes, seqid) && bytes[behind..] == self.bytes[behind..]
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use hs2::Handle;
    use hs2::message::{Message, encode_call};
    use hs2::tcli::{TGetOperationStatusReq, TOperationType};

    use super::*;

    fn call(seqid: i32) -> Vec<u8> {
        let operation_handle =
            Handle { guid: [1; 16], secret: [2; 16] }.operation(TOperationType::EXECUTE_STATEMENT, true);
        let request = TGetOperationStatusReq { operation_handle, get_progress_update: None };
        encode_call("GetOperationStatus", seqid, &request).unwrap()
    }

    #[test]
    fn only_the_sequence_number_is_replaced() {
        let mut plain = Prepared::new("GetOperationStatus", call(1));
        assert_eq!(plain.with_seqid(-7), call(-7));
        assert_eq!(Message::new(plain.with_seqid(9).to_vec()).unwrap().seqid(), 9);
        let mut framed = Prepared::framed("GetOperationStatus", &call(1));
        assert_eq!(framed.with_seqid(70_000)[LENGTH_BYTES..], call(70_000));
        assert_eq!(framed.with_seqid(1)[..LENGTH_BYTES], (call(1).len() as u32).to_be_bytes());
    }

    #[test]
    fn another_message_is_recognized() {
        let prepared = Prepared::new("GetOperationStatus", call(1));
        assert!(prepared.is(&call(5), 5) && prepared.has_head(&call(5), 5));
        assert!(!prepared.is(&call(5), 6) && !prepared.has_head(&call(5), 6));
        assert!(!prepared.has_head(&call(5)[1..], 5) && !prepared.has_head(b"", 5));
        let mut other = call(5);
        *other.last_mut().unwrap() ^= 1;
        assert!(!prepared.is(&other, 5));
    }
}
