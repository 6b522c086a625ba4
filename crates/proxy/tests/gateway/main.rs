//! The proxy with real metadata agents, engine agents with DataFusion, and an embedded ZooKeeper. The tests are the clients
//! and run the steps of the master.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../engine-agent/tests/fixture/agents.rs"]
mod agents;
#[path = "../../../engine-agent/tests/fixture/engines.rs"]
mod engines;
#[path = "../../../engine-agent/tests/fixture/mod.rs"]
mod fixture;
#[path = "../../../engine-agent/tests/fixture/rights_matrix.rs"]
mod rights_matrix;

mod binding;
mod budgets;
mod cluster;
mod control;
mod cookies;
mod demand;
mod drains;
mod failed_logins;
mod faults;
mod handles;
mod holder_clients;
mod holder_rights;
mod holders;
mod http;
mod idle;
mod impersonation;
mod leaving;
mod limits;
mod owners;
mod queues;
mod registrations;
mod rest;
mod rest_client;
mod rest_faults;
mod rest_pages;
mod rest_rights;
mod rights;
mod seats;
mod session_age;
mod timeouts;
mod tokens;
mod types;
mod usage;
mod without_clients;
