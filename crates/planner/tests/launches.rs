//! What a plan says of the engine that it makes.
#![allow(clippy::unwrap_used, clippy::panic)]

mod play;

use std::collections::BTreeMap;

use planner::{Action, Launch};
use play::Play;

fn launched(pool: &[(&str, &str)]) -> Launch {
    let mut play = Play::new();
    let pool: BTreeMap<&str, &str> = pool.iter().copied().chain([("units", "uc_1")]).collect();
    for object in [
        Play::unit("uc_1", &BTreeMap::from([("min", "1")])),
        Play::pool("rp_1", &pool),
        Play::tenant("t_1", &BTreeMap::from([("pools", "rp_1")])),
    ] {
        let change = play.change_to(object);
        play.commit(&change).unwrap();
        let plan = play.world.plan();
        let made = plan.decisions().find_map(|decision| match &decision.action {
            Action::CreateEngine(launch) => Some((**launch).clone()),
            _ => None,
        });
        if let Some(launch) = made {
            return launch;
        }
        play.settle(|_, _| {});
    }
    panic!("no engine is made");
}

#[test]
fn an_engine_is_made_with_what_its_pool_says_of_nodes_image_and_cpu() {
    let launch = launched(&[
        ("nodes", "node-1,node-2"),
        ("labels", "disk:ssd,zone:a"),
        ("overcommit", "200"),
        ("image", "registry:5000/engine:7"),
    ]);
    assert_eq!(launch.nodes.as_deref(), Some(&["node-1".to_owned(), "node-2".to_owned()][..]));
    assert_eq!(launch.node_selector, play::labels("disk:ssd,zone:a"));
    assert_eq!(launch.configuration.cpu_overcommit, Some(200));
    assert_eq!(launch.configuration.image, "registry:5000/engine:7");
    let plain = launched(&[]);
    assert_eq!((plain.nodes, plain.configuration.cpu_overcommit), (None, None));
    assert!(plain.node_selector.is_empty());
    assert_ne!(plain.labels.config, launch.labels.config);
}
