//! Checks of the metadata agents: registration, response of each, versions.

use std::time::{Duration, Instant};

use agent_api::{AgentApi as _, AgentClient, Caller, MetadataAgentEndpoint};
use coordination::{Agent, Session};
use futures::future::join_all;
use hs2::Client;
use hs2::tcli::{TGetInfoReq, TGetInfoType, TGetInfoValue};
use model::span;

use super::checks::{ANSWERS, REGISTERED, VERSIONS};
use super::report::{Finding, Report};
use super::target::{CONNECT_DEADLINE, Target, bounded};

/// An agent with the time of its response and its version.
struct Contact {
    agent: Agent,
    response: Result<Duration, String>,
    version: Result<String, String>,
}

/// Checks the agents; returns those that respond, the fastest first.
pub async fn check(target: &Target, session: Result<&Session, &String>, report: &mut Report) -> Vec<Agent> {
    let agents = match session {
        Ok(session) => bounded("reading the agents", coordination::agents::list(session)).await,
        Err(_) => Err("agents are registered in ZooKeeper only, and there is no session with it".to_owned()),
    };
    let agents = match agents {
        Ok(agents) => agents,
        Err(reason) => {
            report.skip(&[REGISTERED, ANSWERS, VERSIONS], &reason);
            return Vec::new();
        }
    };
    if agents.is_empty() {
        let mend = format!("start one: enginehouse metadata-agent {}", target.argument);
        let none = Finding::problem(
            "metadata agents",
            "no metadata agent is registered: control statements fail, and no alteration is decided",
            mend,
        );
        report.checked(REGISTERED, "none", vec![none]);
        report.skip(&[ANSWERS, VERSIONS], "no metadata agent is registered");
        return Vec::new();
    }
    let addresses: Vec<&str> = agents.iter().map(|agent| agent.address.as_str()).collect();
    let no_spare = (agents.len() == 1 && !target.is_standalone()).then(|| {
        Finding::warning(
            "metadata agents",
            "there is one metadata agent: if it ends, control statements fail until another one is started",
            format!("start a second one: enginehouse metadata-agent {}", target.argument),
        )
    });
    report.checked(REGISTERED, format!("{}: {}", agents.len(), addresses.join(", ")), no_spare.into_iter().collect());
    let caller = match target.keys.caller() {
        Ok(caller) => caller,
        Err(reason) => {
            report.skip(&[ANSWERS, VERSIONS], &format!("agents accept proxies and masters only: {reason}"));
            return Vec::new();
        }
    };
    let mut contacts = join_all(agents.into_iter().map(|agent| contact(caller.clone(), agent))).await;
    answers(target, &contacts, report);
    versions(&contacts, report);
    contacts.sort_by_key(|contact| contact.response.clone().unwrap_or(Duration::MAX));
    contacts.into_iter().filter(|contact| contact.response.is_ok()).map(|contact| contact.agent).collect()
}

/// A client of the agent's API.
pub fn client(caller: Caller, agent: &Agent, deadline: Duration) -> AgentClient {
    AgentClient::new(endpoint(agent), caller, deadline)
}

fn endpoint(agent: &Agent) -> MetadataAgentEndpoint {
    MetadataAgentEndpoint { address: agent.address.clone(), keys: agent.keys.clone(), tls: agent.tls }
}

async fn contact(caller: Caller, agent: Agent) -> Contact {
    let client = client(caller.clone(), &agent, CONNECT_DEADLINE);
    let began = Instant::now();
    let response = bounded("the agent's answer", client.master()).await.map(|_| began.elapsed());
    let version = bounded("the agent's version", version(&caller, &agent)).await;
    Contact { agent, response, version }
}

async fn version(caller: &Caller, agent: &Agent) -> Result<String, hs2::ClientError> {
    let mut options = caller.metadata_agent(&endpoint(agent), "")?;
    (options.connect_deadline, options.call_deadline) = (CONNECT_DEADLINE, CONNECT_DEADLINE);
    let mut session = hs2::Session::open(Client::connect(&options).await?, &[]).await?;
    let request = TGetInfoReq { session_handle: session.handle().clone(), info_type: TGetInfoType::CLI_DBMS_VER };
    let answer = session.client().get_info(&request).await?;
    session.close().await?;
    Ok(match answer.info_value {
        TGetInfoValue::StringValue(version) => version,
        other => format!("{other:?}"),
    })
}

fn answers(target: &Target, contacts: &[Contact], report: &mut Report) {
    let mut summary = Vec::new();
    let mut findings = Vec::new();
    for contact in contacts {
        match &contact.response {
            Ok(took) => summary.push(format!("{} in {}", contact.agent.address, span::age(*took))),
            Err(reason) => findings.push(Finding::problem(
                &contact.agent.address,
                format!("agent {} is registered and does not respond: {reason}", contact.agent.id),
                format!(
                    "see its log: the process or its database hangs; restart it: enginehouse metadata-agent {}",
                    target.argument
                ),
            )),
        }
    }
    let summary = if summary.is_empty() { "none responds".to_owned() } else { summary.join(", ") };
    report.checked(ANSWERS, summary, findings);
}

fn versions(contacts: &[Contact], report: &mut Report) {
    let own = env!("CARGO_PKG_VERSION");
    let known: Vec<(&Contact, &String)> =
        contacts.iter().filter_map(|contact| Some((contact, contact.version.as_ref().ok()?))).collect();
    if known.is_empty() {
        return report.skip(&[VERSIONS], "no agent reported its version");
    }
    let findings = known.iter().filter(|(_, version)| *version != own).map(|(contact, version)| {
        Finding::warning(
            &contact.agent.address,
            format!("it runs version {version}, and this program is version {own}"),
            "run one version everywhere after an upgrade",
        )
    });
    report.checked(
        VERSIONS,
        format!(
            "{own} here, {} of {} agents run the same",
            known.iter().filter(|(_, version)| *version == own).count(),
            contacts.len()
        ),
        findings.collect(),
    );
}
