//! Who reaches an agent, by which keys, and inside TLS.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code, reason = "shared with the tests of the calls")]
mod agent;

use std::time::Duration;

use agent::{Agent, caller, keys};
use agent_api::{AgentApi as _, AgentClient, ApiErrorKind, Caller, ClusterTls, EngineEndpoint, MetadataAgentEndpoint};
use hs2::Client;
use keys::{AllKeys, KeyGeneration, Role};
use model::cause::chain;
use model::engine_name::EngineName;
use model::signed_tls_key::SignedTlsKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The generations of keys that an installation of version 0.1.0 has after its migration.
const BOTH: [KeyGeneration; 2] = [KeyGeneration(0), KeyGeneration(1)];

#[tokio::test]
async fn without_the_key_nothing_is_answered() {
    let agent = Agent::start().await;
    let client = |keys: &AllKeys, role| AgentClient::new(agent.endpoint(), caller(keys, role), Duration::from_secs(10));
    let strangers = keys(2, KeyGeneration(1), &[KeyGeneration(1)]);
    let unencrypted = MetadataAgentEndpoint { tls: None, ..agent.endpoint() };
    let unencrypted = AgentClient::new(unencrypted, caller(&strangers, Role::Master), Duration::from_secs(10));
    for (stranger, expected) in [
        (client(&strangers, Role::Master), "the server does not have the expected key"),
        (unencrypted, "a metadata agent accepts only proxies and masters"),
        (client(&agent.keys, Role::MetadataAgent), "a metadata agent accepts only proxies and masters"),
    ] {
        let error = stranger.snapshot().await.unwrap_err();
        assert_eq!(error.kind(), ApiErrorKind::Unavailable, "another agent may accept it");
        assert!(chain(&error).to_string().contains(expected), "{error}");
    }
    let later = keys(1, KeyGeneration(2), &[KeyGeneration(2)]);
    let error = client(&later, Role::Master).snapshot().await.unwrap_err();
    assert!(chain(&error).to_string().contains("It accepts 1; this process has 2."), "{error}");
    agent.stop().await;
}

/// While an installation of version 0.1.0 is upgraded, and when its generation 0 has been retired.
#[tokio::test]
async fn roles_of_both_versions_call_agents_of_both_versions() {
    let (zero, one) = (KeyGeneration(0), KeyGeneration(1));
    let agent = Agent::start().await;
    let store = agent.store.clone();
    agent.stop().await;
    let client = |agent: &Agent, endpoint: MetadataAgentEndpoint, in_use, accepted: &[KeyGeneration]| {
        let keys = keys(1, in_use, accepted);
        AgentClient::new(
            MetadataAgentEndpoint { address: agent.address.clone(), ..endpoint },
            caller(&keys, Role::Master),
            Duration::from_secs(10),
        )
    };
    for (accepted_by_agent, callers) in [
        (&BOTH[..], &[(zero, &[zero][..]), (zero, &BOTH), (one, &BOTH), (one, &[one])][..]),
        (&[one], &[(zero, &BOTH), (one, &BOTH), (one, &[one])]),
        (&[zero], &[(zero, &[zero]), (zero, &BOTH), (one, &BOTH)]),
    ] {
        let keys = keys(1, accepted_by_agent[0], accepted_by_agent);
        let agent = Agent::start_with("127.0.0.1:0", store.clone(), keys).await;
        let mut endpoint = agent.endpoint();
        if accepted_by_agent == [zero] {
            // An agent of version 0.1.0 states nothing.
            endpoint.keys.clear();
        }
        for (in_use, accepted) in callers {
            let outcome = client(&agent, endpoint.clone(), *in_use, accepted).master().await;
            assert!(outcome.is_ok(), "{in_use} {accepted:?} at {accepted_by_agent:?}: {outcome:?}");
        }
        agent.stop().await;
    }
    let agent = Agent::start_with("127.0.0.1:0", store, keys(1, one, &[one])).await;
    let old = MetadataAgentEndpoint { keys: vec![zero], ..agent.endpoint() };
    assert!(client(&agent, old, zero, &[zero]).master().await.is_err(), "generation 0 is retired");
    agent.stop().await;
}

/// A caller that requires TLS sends nothing in plain text, whatever is registered.
#[tokio::test]
async fn a_caller_that_requires_tls_reaches_agents_inside_tls_only() {
    let agent = Agent::start().await;
    let call = async |endpoint: MetadataAgentEndpoint, tls| {
        let caller = Caller::new(agent.keys.proxy.clone(), tls);
        let outcome = AgentClient::new(endpoint, caller, Duration::from_secs(10)).master().await;
        outcome.map(drop).map_err(|error| chain(&error).to_string())
    };
    let plain = MetadataAgentEndpoint { tls: None, ..agent.endpoint() };
    for tls in [ClusterTls::Off { anywhere: false }, ClusterTls::Optional, ClusterTls::Required] {
        call(agent.endpoint(), tls).await.unwrap();
    }
    call(plain.clone(), ClusterTls::Optional).await.unwrap();
    let error = call(plain.clone(), ClusterTls::Required).await.unwrap_err();
    assert!(error.contains("the metadata agent does not offer TLS"), "{error}");
    let elsewhere = MetadataAgentEndpoint { address: "192.0.2.1:1".to_owned(), ..plain };
    let error = call(elsewhere, ClusterTls::Off { anywhere: false }).await.unwrap_err();
    assert!(error.contains("the metadata agent is on another machine, 192.0.2.1:1"), "{error}");
    agent.stop().await;
}

/// D8 of the attacks, with TLS: an engine may register any address, and what is there must have the engine's key.
#[tokio::test]
async fn what_an_engine_registers_as_its_address_learns_nothing() {
    let keys = keys(1, KeyGeneration(1), &[KeyGeneration(1)]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let engine = EngineName::new("e-1").unwrap();
    let master = keys.master.get();
    let signed = master.engine(&engine).tls.unwrap().signed;
    let endpoint = EngineEndpoint {
        uid: "uid-1".to_owned(),
        address: listener.local_addr().unwrap().to_string(),
        keys: master.accepted(),
        tls: Some(signed.clone()),
    };
    let caller = Caller::new(keys.proxy.clone(), ClusterTls::Required);
    let options = caller.engine(&engine, &endpoint, "a-user-of-the-tenant").unwrap();
    let connecting = tokio::spawn(async move { Client::connect(&options).await.map(drop) });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut heard = vec![0; 4096];
    let length = stream.read(&mut heard).await.unwrap();
    // A server that speaks no TLS.
    stream.write_all(&[2, 0, 0, 0, 32]).await.unwrap();
    assert!(connecting.await.unwrap().is_err());
    stream.read_to_end(&mut heard).await.unwrap();
    assert!(length > 5 && heard[0] == 0x16, "{heard:?}");
    for word in ["user-of-the-tenant", "uid-1", "e-1", "ENGINEHOUSE"] {
        assert!(!heard.windows(word.len()).any(|part| part == word.as_bytes()), "{word} was sent");
    }

    // A key that no master has signed for this engine is not used, and neither is plain text.
    let other = EngineName::new("e-2").unwrap();
    for signed in [
        SignedTlsKey { key: master.engine(&other).tls.unwrap().signed.key, ..signed.clone() },
        master.engine(&other).tls.unwrap().signed,
        SignedTlsKey { generation: KeyGeneration(7), ..signed },
    ] {
        for tls in [ClusterTls::Required, ClusterTls::Optional] {
            let caller = Caller::new(keys.proxy.clone(), tls);
            let refused = caller.engine(&engine, &EngineEndpoint { tls: Some(signed.clone()), ..endpoint.clone() }, "");
            let error = refused.map(drop).unwrap_err().to_string();
            assert!(error.starts_with("the TLS key of engine \"e-1\" is not known here"), "{error}");
        }
    }
}
