//! The suite against the embedded server: one server per behaviour.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, clippy::missing_panics_doc)]

mod suite;

use embedded_zookeeper::{Config, Server};

macro_rules! on_embedded {
    ($($module:ident::$name:ident;)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let server = Server::start(Config::default()).await.unwrap();
                suite::$module::$name(suite::Target::new(server.addr(), stringify!($name)).await).await;
                server.shutdown().await;
            }
        )*
    };
}

for_each_behaviour!(on_embedded);
