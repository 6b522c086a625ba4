//! The suite against ZooKeeper itself, the oracle: a failure here is an error of the suite.
//!
//! Needs `EH_TEST_ZOOKEEPER=host:port`, a server with `4lw.commands.whitelist=*` in its configuration.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, clippy::missing_panics_doc)]

mod suite;

use std::net::SocketAddr;

fn real() -> SocketAddr {
    let text = std::env::var("EH_TEST_ZOOKEEPER").expect("EH_TEST_ZOOKEEPER is not set");
    std::net::ToSocketAddrs::to_socket_addrs(&text).unwrap().next().expect("EH_TEST_ZOOKEEPER names no address")
}

macro_rules! on_real {
    ($($module:ident::$name:ident;)*) => {
        $(
            #[tokio::test]
            #[ignore = "needs EH_TEST_ZOOKEEPER"]
            async fn $name() {
                suite::$module::$name(suite::Target::new(real(), stringify!($name)).await).await;
            }
        )*
    };
}

for_each_behaviour!(on_real);
