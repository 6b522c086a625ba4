//! Result frames: replies to FetchResults with exactly so many bytes, of two numbers and two texts in each row.
//!
//! Backend and driver make the same frame for a size, so the driver knows every byte that it has to receive.

use anyhow::{Context as _, Result, ensure};
use hs2::message::encode_reply;
use hs2::tcli::TFetchResultsResp;
use hs2::{Column, SqlType, Value, rowset, status};

/// The method that has frames as its replies.
pub const METHOD: &str = "FetchResults";
/// The longest frame.
pub const MAX_BYTES: usize = 64 << 20;
/// The same text in each row.
const REGION: &str = "north";
/// A row without the text of its product: two numbers of 8 bytes, and two texts with their lengths.
const ROW_BYTES: usize = 8 + 8 + 4 + 4 + REGION.len();

/// The columns of each frame.
pub fn columns() -> [Column; 4] {
    [
        Column::new("id", SqlType::BigInt),
        Column::new("price", SqlType::Double),
        Column::new("product", SqlType::String),
        Column::new("region", SqlType::String),
    ]
}

/// The frame with so many bytes, without the length before it. An error if no row fits, or above [`MAX_BYTES`].
pub fn of_bytes(bytes: usize) -> Result<Vec<u8>> {
    ensure!(bytes <= MAX_BYTES, "a frame of {bytes} bytes exceeds the limit of {MAX_BYTES}");
    let mut length = end()?.len();
    let mut products: Vec<String> = Vec::new();
    loop {
        let product = product(products.len());
        let with_row = length + ROW_BYTES + product.len();
        if with_row > bytes {
            break;
        }
        length = with_row;
        products.push(product);
    }
    let last = products.last_mut().with_context(|| format!("no row fits into a frame of {bytes} bytes"))?;
    last.push_str(&"x".repeat(bytes - length));
    let frame = encode(products)?;
    ensure!(frame.len() == bytes, "a frame of {bytes} bytes has become one of {}", frame.len());
    Ok(frame)
}

/// The frame with one row.
pub fn of_one_row() -> Result<Vec<u8>> {
    encode(vec![product(0)])
}

/// The frame without rows, which ends a result.
pub fn end() -> Result<Vec<u8>> {
    encode(Vec::new())
}

fn product(row: usize) -> String {
    format!("product {row}")
}

fn encode(products: Vec<String>) -> Result<Vec<u8>> {
    let has_more_rows = Some(!products.is_empty());
    let mut set = rowset::RowSetBuilder::new(&columns(), 0);
    for (row, product) in products.into_iter().enumerate() {
        set.push_row(vec![(row as i64).into(), (row as f64 / 3.0).into(), product.into(), Value::from(REGION)])?;
    }
    let reply = TFetchResultsResp { status: status::success(), has_more_rows, results: Some(set.finish()) };
    Ok(encode_reply(METHOD, 0, &reply))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use hs2::message::decode_reply;

    use super::*;

    #[test]
    fn a_frame_has_the_requested_length() {
        for bytes in [300, 1_000, 1_001, 1_007, 64_000, 359_000] {
            let frame = of_bytes(bytes).unwrap();
            assert_eq!(frame.len(), bytes);
            let reply: TFetchResultsResp = decode_reply(&frame).unwrap();
            let rows = rowset::rows(&reply.results.unwrap()).unwrap();
            assert!(!rows.is_empty() && rows.iter().all(|row| row[3] == Value::from(REGION)), "{bytes}");
        }
        assert!(of_bytes(10).is_err() && of_bytes(MAX_BYTES + 1).is_err());
    }

    #[test]
    fn a_result_ends_with_a_frame_without_rows() {
        let count = |frame: Vec<u8>| {
            let reply: TFetchResultsResp = decode_reply(&frame).unwrap();
            rowset::row_count(&reply.results.unwrap()).unwrap()
        };
        assert_eq!((count(of_one_row().unwrap()), count(end().unwrap())), (1, 0));
    }
}
