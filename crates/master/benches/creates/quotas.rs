//! The same engines with and without a capacity and quotas, in rounds of three turns: the master without limits, the master
//! with limits that all engines fit into, and the bare client. Their order rotates from round to round.

use std::path::Path;

use model::change::{Change, ObjectPatch, PoolPatch, QuotaPatch, Setting};
use model::quota::{Capacity, DeclaredAmount, TransferLimit};
use model::{Epoch, PoolName, QuotaName, TenantName};

use super::{CLUSTER, CREATES, Turn, bare_makes, master_makes};
use crate::installation::spread;
use crate::{bare, objects};

/// Whether a capacity and a quota limit the engines.
#[derive(Debug, Clone, Copy)]
pub enum Limited {
    No,
    Yes,
}

impl Limited {
    /// What sets the limits: those of the pool, and a guarantee of some components, so that each grant changes what the pool
    /// has shared and unguaranteed.
    pub fn changes(self) -> Vec<Change> {
        if matches!(self, Self::No) {
            return Vec::new();
        }
        let amount = |cpu: &str, memory: Option<&str>, engines: &str| DeclaredAmount {
            cpu: Some(cpu.parse().unwrap()),
            memory: memory.map(|memory| memory.parse().unwrap()),
            engines: Some(engines.parse().unwrap()),
            ..DeclaredAmount::default()
        };
        let capacity = Setting::Set(Capacity::Amount(amount("100000", Some("1000T"), "10000")));
        let pool = PoolName::new("rp_1").unwrap();
        let quota = QuotaPatch {
            tenant: Some(TenantName::new("t_1").unwrap()),
            pool: Some(pool.clone()),
            guarantee: Setting::Set(amount("100", None, "500")),
            borrow_limit: Setting::Set(TransferLimit::Unlimited),
            ..QuotaPatch::default()
        };
        let pool = ObjectPatch::ResourcePool(pool, PoolPatch { capacity, ..PoolPatch::default() });
        let quota = ObjectPatch::ResourceQuota(QuotaName::new("q_1").unwrap(), quota);
        vec![Change::Alter { if_exists: false, object: pool }, Change::Create { if_not_exists: false, object: quota }]
    }
}

pub async fn measure_quotas(kubeconfig: &Path, at_once: usize, rounds: usize) {
    let client = bare(kubeconfig).await;
    println!("{CREATES} engines by one ALTER, with and without quotas, {at_once} creates at once; pods in a second");
    let (_, specs) = master_makes(kubeconfig, &client, at_once, Limited::Yes).await;
    let pods: Vec<_> = specs.iter().map(|spec| objects(spec, CLUSTER, Epoch(2))).collect();
    bare_makes(kubeconfig, &client, &pods, at_once).await;
    let mut turns: Vec<[Turn; 3]> = Vec::new();
    for round in 0..rounds {
        let mut of_round: [Option<Turn>; 3] = [None, None, None];
        for turn in 0..3 {
            let which = (round + turn) % 3;
            of_round[which] = Some(match which {
                0 => master_makes(kubeconfig, &client, at_once, Limited::No).await.0,
                1 => master_makes(kubeconfig, &client, at_once, Limited::Yes).await.0,
                _ => bare_makes(kubeconfig, &client, &pods, at_once).await,
            });
        }
        let of_round = of_round.map(Option::unwrap);
        let [without, with, bare] = of_round.each_ref().map(|turn| turn.whole);
        println!(
            "  round {round}: without quotas {without:.1}, with quotas {with:.1}, bare client {bare:.1}; with in percent of \
             without: {:.1}",
            100. * with / without
        );
        turns.push(of_round);
    }
    let print = |what: &str, of: &dyn Fn(&[Turn; 3]) -> f64| {
        let (least, middle, most) = spread(turns.iter().map(of));
        println!("{what}: {least:.2} {middle:.2} {most:.2}");
    };
    print("without quotas, from the committed ALTER on", &|turns| turns[0].whole);
    print("with quotas, from the committed ALTER on", &|turns| turns[1].whole);
    print("the bare client", &|turns| turns[2].whole);
    print("without quotas, in percent of the bare client", &|turns| 100. * turns[0].whole / turns[2].whole);
    print("with quotas, in percent of the bare client", &|turns| 100. * turns[1].whole / turns[2].whole);
    print("with quotas, in percent of without", &|turns| 100. * turns[1].whole / turns[0].whole);
    print("the same, processor time of the process", &|turns| 100. * turns[1].cost.ours / turns[0].cost.ours);
}
