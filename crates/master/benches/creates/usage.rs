//! What a part of a run has cost beside time: processor time of this process and of the machine, and requests by what the
//! API server has counted.

use std::collections::BTreeMap;
use std::ops::Sub;

/// Ticks of Linux's accounts in a second, the same on every machine.
const TICKS: f64 = 100.;
/// The API server's own count of answered requests.
const COUNTER: &str = "apiserver_request_total{";
/// And of its processor time, without etcd's.
const SECONDS: &str = "process_cpu_seconds_total ";

/// The accounts at one moment, or what they have grown by.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    /// Seconds of processors, used by all processes.
    pub machine: f64,
    /// Seconds of processors, used by this process.
    pub ours: f64,
    /// Seconds of processors, used by the API server.
    pub server: f64,
    /// Requests, by verb and resource.
    pub requests: BTreeMap<String, u64>,
}

impl Usage {
    pub async fn now(client: &kube::Client) -> Self {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let metrics = client.request_text(request).await.unwrap();
        let mut requests = BTreeMap::new();
        for line in metrics.lines().filter_map(|line| line.strip_prefix(COUNTER)) {
            let (labels, count) = line.rsplit_once(' ').unwrap();
            let label = |name: &str| {
                let (_, rest) = labels.split_once(&format!("{name}=\"")).unwrap();
                rest.split('"').next().unwrap().to_owned()
            };
            let what = format!("{} {}", label("verb"), label("resource"));
            *requests.entry(what).or_default() += count.parse::<f64>().unwrap() as u64;
        }
        let server = metrics.lines().find_map(|line| line.strip_prefix(SECONDS)).unwrap().trim().parse().unwrap();
        Self { machine: machine(), ours: ours(), server, requests }
    }

    /// Requests of that kind.
    pub fn of(&self, what: &str) -> u64 {
        self.requests.get(what).copied().unwrap_or(0)
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let grown = self.requests.iter().map(|(what, count)| (what.clone(), count - before.of(what)));
        let requests = grown.filter(|(_, count)| *count > 0).collect();
        Self {
            machine: self.machine - before.machine,
            ours: self.ours - before.ours,
            server: self.server - before.server,
            requests,
        }
    }
}

/// All processors but for what they were idle, or waited for a disk.
fn machine() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let fields: Vec<f64> =
        stat.lines().next().unwrap().split_whitespace().skip(1).map(|field| field.parse().unwrap()).collect();
    let idle = fields[3] + fields[4];
    // The last two are of guests, and counted among the first.
    (fields[..8].iter().sum::<f64>() - idle) / TICKS
}

fn ours() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / TICKS
}
