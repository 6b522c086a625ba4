//! The type `hiveserver2`: any `HiveServer2` server, as a child process of the engine agent.
//!
//! The command is a template in the configuration of the installation ([`section`]), not in the catalog: admins who run control
//! statements must not be able to run programs. The master checks the template and passes it on; the agent fills it, because
//! only the agent knows the port and the folder.

pub mod connector;
pub mod launch;
pub mod section;
mod template;
