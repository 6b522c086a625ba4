//! Engines that retire: their slot is given another engine only if their agent agrees.

use model::TenantName;
use model::ledger::reclaim_reason;
use planner::{Action, Chain, Decision, Plan, Stage};
use tokio_util::sync::CancellationToken;

use super::fake::{Fake, settings};
use crate::create_backoff::CreateBackoff;
use crate::execute::{Executed, Executor};

/// Runs a plan that retires the only engine.
async fn retire(fake: &Fake) -> Executed {
    let (plan, nodes) = {
        let state = fake.state();
        let slot = state.simulation.desired.snapshot.slots[0].clone();
        let decision = Decision {
            engine: Some(slot.engine()),
            slot: Some(slot.key.clone()),
            reason: "tenant \"t_2\" is within its guarantee".to_owned(),
            action: Action::Retire {
                uid: state.simulation.observed.instances[0].uid.clone(),
                observed: slot.incarnation,
                reclaimed_for: TenantName::new("t_2").unwrap(),
            },
        };
        let chains = vec![Chain { stage: Stage::Renew, decisions: vec![decision] }];
        (Plan { chains, ..Plan::default() }, state.zookeeper.clone())
    };
    let executor = Executor::new(&settings(), CancellationToken::new());
    executor.execute_plan(fake, model::Epoch(1), &nodes, &plan, &CreateBackoff::default()).await
}

#[tokio::test]
async fn an_engine_whose_agent_agrees_is_replaced_and_condemned() {
    let fake = Fake::with_engines_wanted(1);
    fake.settle(&mut fake.reconciler(1)).await;
    let old = fake.present(0);
    let executed = retire(&fake).await;
    assert_eq!((executed.applied, executed.stop), (1, None));
    assert_ne!(fake.present(0), old);
    let state = fake.state();
    let record = state.simulation.desired.snapshot.engines.iter().find(|record| record.name == old).unwrap();
    assert_eq!(record.end_reason, Some(reclaim_reason(&TenantName::new("t_2").unwrap())));
}

#[tokio::test]
async fn an_engine_whose_agent_declines_stays() {
    let fake = Fake::with_engines_wanted(1);
    fake.settle(&mut fake.reconciler(1)).await;
    let old = fake.present(0);
    fake.state().declines = true;
    let executed = retire(&fake).await;
    assert_eq!((executed.applied, executed.stop), (0, None), "no progress, so no tick follows at once");
    assert_eq!(fake.present(0), old);
    assert!(fake.state().simulation.desired.snapshot.engines.iter().all(|record| record.end_reason.is_none()));
}
