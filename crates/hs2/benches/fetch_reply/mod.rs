//! The reply that both benchmarks relay: a `FetchResults` with numbers and texts, about 45 bytes in each row.

use hs2::message::encode_reply;
use hs2::tcli::TFetchResultsResp;
use hs2::{Column, SqlType, Value, rowset, status};

pub fn encode(seqid: i32, rows: i64) -> Vec<u8> {
    let columns = [
        Column::new("id", SqlType::BigInt),
        Column::new("price", SqlType::Double),
        Column::new("product", SqlType::String),
        Column::new("region", SqlType::String),
    ];
    let mut set = rowset::RowSetBuilder::new(&columns, 0);
    for n in 0..rows {
        let row = vec![n.into(), (n as f64 / 3.0).into(), format!("product {n}").into(), Value::from("north")];
        set.push_row(row).unwrap();
    }
    let results = Some(set.finish());
    let answer = TFetchResultsResp { status: status::success(), has_more_rows: Some(false), results };
    encode_reply("FetchResults", seqid, &answer)
}
