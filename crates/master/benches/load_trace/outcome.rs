//! What became of a trace: when it ended, how the pool was used, and what each tenant received.

use std::time::Duration;

use super::schedule::{Request, SHAPES, Trace};

/// The steps in which the use of the pool is printed.
const STEP: Duration = Duration::from_secs(5);

/// A request with its times, all counted from the start of the trace.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    pub request: Request,
    /// When its engine was ready.
    pub began: Duration,
    /// When it had been used for its time.
    pub ended: Duration,
    /// The time in which its instance existed.
    pub instance: (Duration, Duration),
}

pub struct Outcome<'a> {
    pub trace: &'a Trace,
    pub served: Vec<Served>,
}

impl Outcome<'_> {
    /// When the last request had been served.
    pub fn end(&self) -> Duration {
        self.served.iter().map(|served| served.ended).max().unwrap_or_default()
    }

    /// The most CPU that instances had at once.
    pub fn most_cores(&self) -> i64 {
        let spans = self.served.iter().map(|served| (served.instance, i64::from(served.request.cores())));
        most(spans)
    }

    pub fn print(&self, what: &str) {
        let (end, bound) = (self.end(), self.trace.lower_bound());
        println!("{what}: {:.1} s, {:.2} lower bounds", end.as_secs_f64(), end.as_secs_f64() / bound.as_secs_f64());
        let whole = self.trace.cores as f64 * end.as_secs_f64();
        let part = |span: fn(&Served) -> (Duration, Duration)| {
            let used = self.served.iter().map(|served| {
                let (from, until) = span(served);
                until.saturating_sub(from).as_secs_f64() * f64::from(served.request.cores())
            });
            100. * used.sum::<f64>() / whole
        };
        println!(
            "  of the pool's CPU used: {:.0} %; by instances, also while they start and end: {:.0} %",
            part(|served| (served.began, served.ended)),
            part(|served| served.instance)
        );
        let queue = most(self.served.iter().map(|served| ((served.request.at, served.began), 1)));
        println!("  the most requests that waited at once: {queue}");
        self.print_steps(end);
        self.print_tenants();
        for (shape, of) in SHAPES.iter().enumerate() {
            let waits = self.served.iter().filter(|served| served.request.shape == shape);
            let waits = waits.map(|served| served.began.saturating_sub(served.request.at).as_secs_f64());
            let (least, middle, most) = spread(waits);
            println!("  seconds that a request of {} CPU waited: {least:.2} {middle:.2} {most:.2}", of.cores);
        }
    }

    /// The share of the CPU in use, and the requests that wait at the end of each step.
    fn print_steps(&self, end: Duration) {
        let (mut used, mut waiting) = (Vec::new(), Vec::new());
        let mut from = Duration::ZERO;
        while from < end {
            let until = from + STEP;
            let cores = self.served.iter().map(|served| {
                let within = served.ended.min(until).saturating_sub(served.began.max(from));
                within.as_secs_f64() * f64::from(served.request.cores())
            });
            let whole = self.trace.cores as f64 * until.min(end).saturating_sub(from).as_secs_f64();
            used.push(format!("{:.0}", 100. * cores.sum::<f64>() / whole));
            let waits = |served: &&Served| served.request.at <= until && served.began > until;
            waiting.push(self.served.iter().filter(waits).count().to_string());
            from = until;
        }
        println!("  percent of the CPU in use, in steps of {STEP:?}: {}", used.join(" "));
        println!("  requests that wait at the end of each: {}", waiting.join(" "));
    }

    fn print_tenants(&self) {
        let ends = (0..self.trace.tenants).map(|tenant| {
            let of_tenant = self.served.iter().filter(|served| served.request.tenant == tenant);
            of_tenant.map(|served| served.ended).max().unwrap_or_default().as_secs_f64()
        });
        let (least, middle, most) = spread(ends);
        println!("  seconds until a tenant had been served: {least:.1} {middle:.1} {most:.1}");
        let half = self.end() / 2;
        let received = (0..self.trace.tenants).map(|tenant| {
            let of_tenant = self.served.iter().filter(|served| served.request.tenant == tenant && served.ended <= half);
            of_tenant.map(|served| f64::from(served.request.cores()) * served.request.runs().as_secs_f64()).sum::<f64>()
        });
        let (least, middle, most) = spread(received);
        println!("  CPU seconds that a tenant had used after half of the time: {least:.0} {middle:.0} {most:.0}");
    }
}

/// The highest sum of the amounts of spans at one moment. A span that ends when another begins does not overlap it.
fn most(spans: impl Iterator<Item = ((Duration, Duration), i64)>) -> i64 {
    let mut steps: Vec<(Duration, i64)> =
        spans.flat_map(|((from, until), amount)| [(from, amount), (until, -amount)]).collect();
    steps.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, step) in steps {
        now += step;
        most = most.max(now);
    }
    most
}

/// Least, middle and most.
pub fn spread(all: impl IntoIterator<Item = f64>) -> (f64, f64, f64) {
    let mut all: Vec<f64> = all.into_iter().collect();
    all.sort_by(f64::total_cmp);
    all.first().map_or((0., 0., 0.), |least| (*least, all[all.len() / 2], all[all.len() - 1]))
}
