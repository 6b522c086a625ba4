//! The trace: which tenant asks when for an engine of which size, and for how long it is used. The same seed makes the same
//! trace.

use std::time::Duration;

/// The CPU of the pool for each tenant.
const CORES_OF_TENANT: usize = 20;
/// The time in which the requests arrive.
const WINDOW: Duration = Duration::from_mins(1);

/// Engines of one size.
pub struct Shape {
    /// Requests of each tenant.
    pub requests: usize,
    pub cores: u32,
    /// For how long the engine is used.
    pub runs: Duration,
}

pub const SHAPES: [Shape; 3] = [
    Shape { requests: 350, cores: 1, runs: Duration::from_millis(200) },
    Shape { requests: 100, cores: 5, runs: Duration::from_millis(500) },
    Shape { requests: 50, cores: 20, runs: Duration::from_secs(1) },
];

#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Counted from the start of the trace.
    pub at: Duration,
    pub tenant: usize,
    /// The index of its shape.
    pub shape: usize,
}

impl Request {
    pub fn cores(&self) -> u32 {
        SHAPES[self.shape].cores
    }

    pub fn runs(&self) -> Duration {
        SHAPES[self.shape].runs
    }

    /// CPU times seconds.
    fn work(&self) -> f64 {
        f64::from(self.cores()) * self.runs().as_secs_f64()
    }
}

pub struct Trace {
    pub tenants: usize,
    /// The CPU of the pool.
    pub cores: usize,
    /// In the order of their arrival.
    pub requests: Vec<Request>,
}

impl Trace {
    /// This many tenants, with this part of the requests of each in the same part of the time.
    pub fn new(seed: u64, tenants: usize, percent: usize) -> Self {
        let mut random = Random(seed);
        let window = WINDOW.mul_f64(percent as f64 / 100.);
        let mut requests = Vec::new();
        for tenant in 0..tenants {
            for (shape, of) in SHAPES.iter().enumerate() {
                let arrives = |_| Request { at: window.mul_f64(random.unit()), tenant, shape };
                requests.extend((0..(of.requests * percent / 100).max(1)).map(arrives));
            }
        }
        requests.sort_by_key(|request| (request.at, request.tenant, request.shape));
        Self { tenants, cores: tenants * CORES_OF_TENANT, requests }
    }

    /// No order of the requests ends before this: what arrives from a moment on takes at least its work at full use of the pool.
    pub fn lower_bound(&self) -> Duration {
        let (mut work, mut bound) = (0., Duration::ZERO);
        for request in self.requests.iter().rev() {
            work += request.work();
            let full = Duration::from_secs_f64(work / self.cores as f64);
            bound = bound.max(request.at + full).max(request.at + request.runs());
        }
        bound
    }
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// At least 0 and below 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
