//! `cluster.tls`: TLS between roles.

use agent_api::ClusterTls;
use anyhow::bail;

use super::{Configuration, OrchestratorKind, TlsMode};

/// How to resolve plain connections between machines.
const TLS_HINT: &str =
    "Hint: Set cluster.tls = \"required\" for all roles, or access.insecure = true if this network is trusted.";

impl Configuration {
    /// TLS between roles.
    pub fn cluster_tls(&self) -> ClusterTls {
        match self.cluster.tls {
            TlsMode::Off => ClusterTls::Off { anywhere: self.access.insecure },
            TlsMode::Optional => ClusterTls::Optional,
            TlsMode::Required => ClusterTls::Required,
        }
    }

    /// Without TLS, agents may listen on loopback addresses only. Callers compare the addresses that they connect to.
    pub(super) fn check_cluster_tls(&self) -> anyhow::Result<()> {
        if self.cluster.tls != TlsMode::Off || self.access.insecure {
            return Ok(());
        }
        let listen = self.metadata_agent.listen;
        if !listen.ip().is_loopback() {
            bail!(
                "cluster.tls is \"off\", which requires loopback addresses, but metadata_agent.listen is {listen}\n{TLS_HINT}"
            );
        }
        if self.orchestrator.kind == OrchestratorKind::Kubernetes {
            bail!("cluster.tls is \"off\", which requires loopback addresses, and engines are pods\n{TLS_HINT}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::configuration::check::checked;

    #[test]
    fn plain_text_between_roles_stays_on_loopback_unless_the_network_is_trusted() {
        let off = "[cluster]\ntls = \"off\"\n";
        let insecure = "[access]\ninsecure = true\n";
        let elsewhere = "[metadata_agent]\nlisten = \"0.0.0.0:10010\"\nadvertise = \"agents.example\"\n";
        let pods = "[orchestrator]\nkind = \"kubernetes\"\n";
        assert_eq!(checked(off).unwrap().cluster_tls(), ClusterTls::Off { anywhere: false });
        let error = format!("{:#}", checked(&format!("{off}{elsewhere}")).unwrap_err());
        assert!(error.contains("metadata_agent.listen is 0.0.0.0:10010\nHint: Set cluster.tls"), "{error}");
        let error = format!("{:#}", checked(&format!("{off}{pods}")).unwrap_err());
        assert!(error.contains("engines are pods"), "{error}");
        let trusted = checked(&format!("{off}{elsewhere}{insecure}")).unwrap();
        assert_eq!(trusted.cluster_tls(), ClusterTls::Off { anywhere: true });
        for mode in ["optional", "required"] {
            checked(&format!("[cluster]\ntls = \"{mode}\"\n{elsewhere}")).unwrap();
        }
        assert_eq!(checked("").unwrap().cluster_tls(), ClusterTls::Required);
    }
}
