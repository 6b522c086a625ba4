//! Checks of the master's lock and last tick, and of the proxies.

use std::time::Duration;

use futures::future::join_all;
use model::clock::utc;
use model::span;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::checks::{LOCK, PROXIES, TICK};
use super::facts::{Coordinated, DATABASE, Facts, elapsed};
use super::report::{Finding, Report};
use super::target::{CONNECT_DEADLINE, Target};

/// Checks the master's lock and its last tick.
pub fn master(target: &Target, facts: &Facts, report: &mut Report) {
    match &facts.coordinated {
        Ok(coordinated) => lock(target, facts, coordinated, report),
        Err(reason) => report.skip(&[LOCK], reason),
    }
    tick(target, facts, report);
}

fn lock(target: &Target, facts: &Facts, coordinated: &Coordinated, report: &mut Report) {
    let path = format!("{}/lock/master", target.configuration.zookeeper.root);
    let Some(first) = coordinated.queue.first() else {
        let none = Finding::problem(
            path,
            "no candidate holds the lock or waits for it: there is no master",
            target.start_a_master(),
        );
        return report.checked(LOCK, "there is no master", vec![none]);
    };
    let candidates = match coordinated.queue.len() {
        1 => "no other candidate waits".to_owned(),
        2 => "1 other candidate waits".to_owned(),
        count => format!("{} other candidates wait", count - 1),
    };
    let who = if first.name.is_empty() { "a candidate without a name" } else { &first.name };
    let summary = format!("held by {who} since {}, {candidates}", utc(first.since_ms));
    let Ok(desired) = &facts.desired else {
        return report.checked(LOCK, summary, Vec::new());
    };
    let master = &desired.snapshot.master;
    let no_spare = (coordinated.queue.len() == 1 && !target.is_standalone()).then(|| {
        Finding::warning(
            "candidates",
            "no other candidate waits: if this master ends, nothing converges until another one is started",
            target.start_a_master(),
        )
        .about_set_up()
    });
    let foreign = (first.holder() != master.holder).then(|| {
        let known = match master.epoch.get() {
            0 => "no master has ever written to the database".to_owned(),
            epoch => format!("the database has epoch {epoch} of {}", master.holder),
        };
        Finding::problem(
            &first.path,
            format!("{who} (session {:#x}) holds the lock and is not the master: {known}", first.session),
            format!(
                "if it is a proxy, see its log: it cannot raise its epoch; if it is another tool, terminate it, or delete its node with ZooKeeper's command line: delete {}",
                first.path
            ),
        )
    });
    let epoch = format!(", epoch {}", master.epoch);
    report.checked(LOCK, summary + &epoch, foreign.into_iter().chain(no_spare).collect());
}

fn tick(target: &Target, facts: &Facts, report: &mut Report) {
    let desired = match &facts.desired {
        Ok(desired) => desired,
        Err(reason) => return report.skip(&[TICK], reason),
    };
    let (master, now_ms) = (&desired.snapshot.master, desired.snapshot.now_ms);
    let mend = || {
        format!(
            "see the log of the proxy that is master, which hangs, is stopped, or is cut off; or {}",
            target.start_a_master()
        )
    };
    if master.epoch.get() == 0 {
        let never = Finding::problem(
            "master",
            "there has never been a master: no statement takes effect",
            target.start_a_master(),
        );
        return report.checked(TICK, "there has never been one", vec![never]);
    }
    if master.last_tick_ms == 0 {
        let none = Finding::problem("master", format!("epoch {} has not finished a tick", master.epoch), mend());
        return report.checked(TICK, "there has never been one", vec![none]);
    }
    let age = elapsed(master.last_tick_ms, now_ms);
    let limit = target.stale_after();
    let stale = (age > limit).then(|| {
        Finding::problem(
            "master",
            format!(
                "its last tick was {} ago, longer than three tick intervals ({}): nothing converges, and SHOW is stale",
                span::age(age),
                span::age(limit)
            ),
            mend(),
        )
    });
    let waits = master.waits_for.as_ref().map(|condition| {
        let mend = "fix that, or see the log of the master";
        Finding::warning("waits for", format!("the master waits for {condition}"), mend)
    });
    let by =
        if desired.read_from == DATABASE { String::new() } else { format!(", as reported by {}", desired.read_from) };
    let summary = format!("{} ago{by}, in epoch {} since {}", span::age(age), master.epoch, utc(master.since_ms));
    report.checked(TICK, summary, stale.into_iter().chain(waits).collect());
}

/// Checks whether the proxies respond: those that are registered for JDBC clients, and the one of the file.
pub async fn listen(target: &Target, registered: &[String], report: &mut Report) {
    let mut addresses = registered.to_vec();
    match &target.no_proxy {
        None => {
            let own = target.configuration.proxy.listen.to_string();
            if !addresses.contains(&own) {
                addresses.push(own);
            }
        }
        Some(why) if addresses.is_empty() => {
            return report.skip(&[PROXIES], &format!("{why}; and no proxy is registered for JDBC clients"));
        }
        Some(_) => {}
    }
    let asked =
        join_all(addresses.iter().map(|address| async move { (address, probe(address, CONNECT_DEADLINE).await) }));
    let start = format!("start it: enginehouse proxy {}", target.argument);
    let findings: Vec<Finding> = asked
        .await
        .into_iter()
        .filter_map(|(address, answer)| {
            let (what, mend) = match answer.err()? {
                Silence::Refused(error) => (format!("it accepts no connections: {error}"), start.clone()),
                Silence::NoReply(how) => (
                    format!("it accepts connections and {how}: its process is stopped or hangs"),
                    format!("kill its process with SIGKILL, and {start}"),
                ),
            };
            Some(Finding::problem(address, what, mend))
        })
        .collect();
    report.checked(PROXIES, format!("{} of {} respond", addresses.len() - findings.len(), addresses.len()), findings);
}

/// Why a proxy does not respond.
#[derive(Debug)]
enum Silence {
    /// It accepts no connection.
    Refused(String),
    /// It accepts connections, as the kernel does for a stopped process, and does not reply.
    NoReply(String),
}

/// Sends a liveness probe, as the kubelet does.
async fn probe(address: &str, deadline: Duration) -> Result<(), Silence> {
    let seconds = deadline.as_secs_f32();
    let late = |_| Silence::Refused(format!("no connection within {seconds} s"));
    let connected = timeout(deadline, TcpStream::connect(address)).await.map_err(late)?;
    let mut stream = connected.map_err(|error| Silence::Refused(error.to_string()))?;
    let asked = async {
        stream
            .write_all(format!("GET /livez HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
            .await?;
        stream.read(&mut [0; 1]).await
    };
    match timeout(deadline, asked).await {
        Ok(Ok(1..)) => Ok(()),
        Ok(Ok(0)) => Err(Silence::NoReply("closes them without a reply".to_owned())),
        Ok(Err(error)) => Err(Silence::NoReply(format!("does not reply: {error}"))),
        Err(_) => Err(Silence::NoReply(format!("has not replied within {seconds} s"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use tokio::net::TcpListener;

    use super::*;

    /// The kernel accepts connections for a stopped process.
    #[tokio::test]
    async fn an_accepting_proxy_that_never_replies_does_not_respond() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let silence = probe(&address, Duration::from_millis(200)).await.unwrap_err();
        assert!(matches!(&silence, Silence::NoReply(how) if how.contains("has not replied within")), "{silence:?}");
        drop(listener);
        let silence = probe(&address, Duration::from_secs(5)).await.unwrap_err();
        assert!(matches!(&silence, Silence::Refused(_)), "{silence:?}");
    }
}
