//! Sample data: taxi rides whose values are a function of a seed, so that any result can be recomputed.
//!
//! # The formula
//!
//! All arithmetic is on unsigned 64-bit integers and wraps. For seed `s`, ride `id` (1, 2, …, rows) and field `k`:
//!
//! ```text
//! GOLDEN     = 0x9E3779B97F4A7C15
//! mix(z)     : z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
//!              z = (z ^ (z >> 27)) * 0x94D049BB133111EB
//!              z ^ (z >> 31)
//! x(k)       = mix(s + (id * 8 + k) * GOLDEN)
//!
//! city       = CITIES[x(0) % 8]         Amsterdam, Berlin, Cairo, Delhi, Lima, Oslo, Quito, Tokyo
//! started_at = 2025-01-01 00:00:00 + x(1) % 31536000 seconds
//! distance   = 5 + x(2) % 300           tenths of a kilometre: distance_km = distance / 10, DECIMAL(6,1)
//! passengers = 1 + x(3) % 4
//! fare       = 250 + 12 * distance + x(4) % 500      cents: fare = cents / 100, DECIMAL(8,2)
//! paid_by    = x(5) % 5: 0 no value (NULL), 1 and 2 "card", 3 "cash", 4 "app"
//! ```
//!
//! Decimals and integers only: sums are exact in every language.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{Decimal128Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::properties::WriterProperties;

/// The cities, in the order of the formula.
pub const CITIES: [&str; 8] = ["Amsterdam", "Berlin", "Cairo", "Delhi", "Lima", "Oslo", "Quito", "Tokyo"];
/// 2025-01-01 00:00:00 UTC, in seconds since 1970.
pub const FIRST_SECOND: i64 = 1_735_689_600;
/// The most rows that are written.
pub const ROWS_MAX: u64 = 1_000_000_000;

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const SECONDS_OF_YEAR: u64 = 31_536_000;
/// The rows of one batch.
const BATCH_ROWS: u64 = 8_192;
/// The rows of one row group.
const GROUP_ROWS: usize = 131_072;

/// One ride, in whole units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ride {
    /// Starts at 1.
    pub id: u64,
    /// One of [`CITIES`].
    pub city: &'static str,
    /// Seconds since 1970.
    pub started_at_s: i64,
    /// Tenths of a kilometre.
    pub distance_tenths: u32,
    /// 1 to 4.
    pub passengers: i32,
    /// Cents.
    pub fare_cents: u32,
    /// How it was paid, if known.
    pub paid_by: Option<&'static str>,
}

/// An error of writing sample data.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// More than [`ROWS_MAX`] rows, or none.
    #[error("{0} is not a valid number of rows; it must be from 1 to {ROWS_MAX}")]
    Rows(u64),
    #[error("could not write {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The ride with this number, by the formula above.
pub fn ride(seed: u64, id: u64) -> Ride {
    let x = |field: u64| mix(seed.wrapping_add(id.wrapping_mul(8).wrapping_add(field).wrapping_mul(GOLDEN)));
    let distance = 5 + x(2) % 300;
    Ride {
        id,
        city: CITIES[(x(0) % 8) as usize],
        started_at_s: FIRST_SECOND + (x(1) % SECONDS_OF_YEAR) as i64,
        distance_tenths: distance as u32,
        passengers: 1 + (x(3) % 4) as i32,
        fare_cents: (250 + 12 * distance + x(4) % 500) as u32,
        paid_by: match x(5) % 5 {
            0 => None,
            1 | 2 => Some("card"),
            3 => Some("cash"),
            _ => Some("app"),
        },
    }
}

/// The columns of the file.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("city", DataType::Utf8, false),
        Field::new("started_at", DataType::Timestamp(TimeUnit::Microsecond, None), false),
        Field::new("distance_km", DataType::Decimal128(6, 1), false),
        Field::new("passengers", DataType::Int32, false),
        Field::new("fare", DataType::Decimal128(8, 2), false),
        Field::new("paid_by", DataType::Utf8, true),
    ]))
}

fn batch(seed: u64, first: u64, last: u64) -> Result<RecordBatch, ArrowError> {
    let rides: Vec<_> = (first..=last).map(|id| ride(seed, id)).collect();
    let distances = rides.iter().map(|ride| i128::from(ride.distance_tenths));
    let fares = rides.iter().map(|ride| i128::from(ride.fare_cents));
    RecordBatch::try_new(
        schema(),
        vec![
            Arc::new(Int64Array::from_iter_values(rides.iter().map(|ride| ride.id as i64))),
            Arc::new(StringArray::from_iter_values(rides.iter().map(|ride| ride.city))),
            Arc::new(TimestampMicrosecondArray::from_iter_values(
                rides.iter().map(|ride| ride.started_at_s * 1_000_000),
            )),
            Arc::new(Decimal128Array::from_iter_values(distances).with_precision_and_scale(6, 1)?),
            Arc::new(Int32Array::from_iter_values(rides.iter().map(|ride| ride.passengers))),
            Arc::new(Decimal128Array::from_iter_values(fares).with_precision_and_scale(8, 2)?),
            Arc::new(rides.iter().map(|ride| ride.paid_by).collect::<StringArray>()),
        ],
    )
}

/// Writes rides 1 to `rows` as one Parquet file, atomically.
pub fn write_rides(path: &Path, seed: u64, rows: u64) -> Result<(), SampleError> {
    if rows == 0 || rows > ROWS_MAX {
        return Err(SampleError::Rows(rows));
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| SampleError::File { path, source }
    };
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed(dir))?;
    }
    // A listing of `*.parquet` does not include it before it is complete.
    let pending = path.with_extension(format!("{}.pending", std::process::id()));
    let file = File::create(&pending).map_err(failed(&pending))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .build();
    let written = write(file, properties, seed, rows);
    let moved = written.and_then(|()| fs::rename(&pending, path).map_err(failed(path)));
    if moved.is_err() {
        let _ = fs::remove_file(&pending);
    }
    moved
}

fn write(file: File, properties: WriterProperties, seed: u64, rows: u64) -> Result<(), SampleError> {
    let mut writer = ArrowWriter::try_new(file, schema(), Some(properties))?;
    let mut first = 1;
    while first <= rows {
        let last = rows.min(first + BATCH_ROWS - 1);
        writer.write(&batch(seed, first, last)?)?;
        first = last + 1;
    }
    writer.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    /// The expected values were computed from the documented formula in another language.
    #[test]
    fn the_formula_is_what_the_text_says() {
        assert_eq!(mix(GOLDEN), 0xE220_A839_7B1D_CDAF);
        let ride = ride(42, 1);
        assert_eq!((ride.city, ride.started_at_s, ride.distance_tenths), ("Lima", 1_740_203_605, 79));
        assert_eq!((ride.passengers, ride.fare_cents, ride.paid_by), (4, 1344, Some("cash")));
    }

    #[test]
    fn the_same_seed_makes_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("a.parquet"), dir.path().join("b.parquet"));
        write_rides(&first, 7, 10_000).unwrap();
        write_rides(&second, 7, 10_000).unwrap();
        assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert!(matches!(write_rides(&first, 7, 0), Err(SampleError::Rows(0))));
    }
}
