//! The four-letter words: commands in place of a handshake, answered with text before the connection closes.

use std::fmt::Write as _;

use super::core::Core;

/// The version that monitoring sees: the protocol's, then this server's.
const VERSION: &str = concat!("3.8.0-enginehouse-embedded-", env!("CARGO_PKG_VERSION"));

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    AreYouOk,
    IsReadOnly,
    Monitor,
    Server,
    Stat,
}

/// The command of four bytes, if they are one. No command is a valid frame length.
pub(crate) fn parse(bytes: [u8; 4]) -> Option<Word> {
    match &bytes {
        b"ruok" => Some(Word::AreYouOk),
        b"isro" => Some(Word::IsReadOnly),
        b"mntr" => Some(Word::Monitor),
        b"srvr" => Some(Word::Server),
        b"stat" => Some(Word::Stat),
        _ => None,
    }
}

/// The answer.
pub(crate) fn answer(word: Word, core: &Core) -> String {
    match word {
        Word::AreYouOk => "imok".to_owned(),
        Word::IsReadOnly => "rw".to_owned(),
        Word::Monitor => monitor(core),
        Word::Server => format!("Zookeeper version: {VERSION}\n{}", server(core)),
        Word::Stat => {
            let mut text = format!("Zookeeper version: {VERSION}\nClients:\n");
            for (peer, queued, received, sent) in core.links() {
                let _ = writeln!(text, " /{peer}[1](queued={queued},recved={received},sent={sent})");
            }
            text + "\n" + &server(core)
        }
    }
}

/// In milliseconds.
struct Latency {
    min: u128,
    avg: f64,
    max: u128,
}

fn latency(core: &Core) -> Latency {
    let traffic = &core.traffic;
    let count = traffic.received.max(1) as f64;
    Latency {
        min: traffic.latency_min.as_millis(),
        avg: traffic.latency_sum.as_secs_f64() * 1_000.0 / count,
        max: traffic.latency_max.as_millis(),
    }
}

fn outstanding(core: &Core) -> usize {
    core.links().map(|(_, queued, _, _)| queued).sum()
}

fn server(core: &Core) -> String {
    let counts = core.state.counts();
    let Latency { min, avg, max } = latency(core);
    format!(
        "Latency min/avg/max: {min}/{avg:.4}/{max}\nReceived: {}\nSent: {}\nConnections: {}\n\
         Outstanding: {}\nZxid: {:#x}\nMode: standalone\nNode count: {}\n",
        core.traffic.received,
        core.traffic.sent,
        core.links().count(),
        outstanding(core),
        counts.zxid,
        counts.nodes,
    )
}

fn monitor(core: &Core) -> String {
    let counts = core.state.counts();
    let Latency { min, avg, max } = latency(core);
    format!(
        "zk_version\t{VERSION}\nzk_server_state\tstandalone\nzk_avg_latency\t{avg:.4}\nzk_min_latency\t{min}\n\
         zk_max_latency\t{max}\nzk_packets_received\t{}\nzk_packets_sent\t{}\nzk_num_alive_connections\t{}\n\
         zk_outstanding_requests\t{}\nzk_znode_count\t{}\nzk_watch_count\t{}\nzk_ephemerals_count\t{}\n\
         zk_approximate_data_size\t{}\nzk_global_sessions\t{}\n",
        core.traffic.received,
        core.traffic.sent,
        core.links().count(),
        outstanding(core),
        counts.nodes,
        counts.watches,
        counts.ephemerals,
        counts.size,
        counts.sessions,
    )
}
