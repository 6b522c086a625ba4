//! Processor time, and how it spreads.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time of this thread.
fn spent() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

pub fn time_of<T>(work: impl FnOnce() -> T) -> Duration {
    let begin = spent();
    // Not measured: freeing the result.
    let made = black_box(work());
    let time = spent().saturating_sub(begin);
    drop(made);
    time
}

/// How many times everything is measured.
pub const ROUNDS: usize = 31;

/// Prints the peer, and what of it the measured took.
pub fn print_peer(what: &str, reads: Vec<Duration>, measured: &[Duration]) {
    let in_a_reading = reads.iter().zip(measured).map(|(read, measured)| read.as_secs_f64() / measured.as_secs_f64());
    let (least, middle, most) = spread(in_a_reading.collect());
    println!("  {what} in one reading: {least:.2} {middle:.2} {most:.2}");
    let (least, middle, most) = spread(reads);
    println!("  the peer, reading the snapshot's JSON: {least:.2?} {middle:.2?} {most:.2?}");
}

/// Prints what took how long, and whether all of it was within the target.
pub fn print_time(what: &str, times: &[Duration], target: Duration) {
    let (least, middle, most) = spread(times.to_vec());
    let met = if most <= target { "met" } else { "missed" };
    println!("  {what}: {least:.2?} {middle:.2?} {most:.2?}; target {target:?}: {met}");
}

/// Prints what took how long as a part of the last.
pub fn print_part(what: &str, times: Vec<Duration>) {
    let (least, middle, most) = spread(times);
    println!("  of it, {what}: {least:.2?} {middle:.2?} {most:.2?}");
}

/// Least, middle and most.
pub fn spread<T: PartialOrd + Copy>(mut all: Vec<T>) -> (T, T, T) {
    all.sort_by(|one, other| one.partial_cmp(other).unwrap());
    (all[0], all[all.len() / 2], all[all.len() - 1])
}
