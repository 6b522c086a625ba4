//! The validation of a configuration: ranges of values, and values that must fit together.
//!
//! Everything that can be checked without external systems is checked here, before a port is bound.

use anyhow::bail;
use model::advertised::Advertised;
use orchestrator::process::MAX_ENGINES_LIMIT;

use super::{Configuration, OrchestratorKind, Span};

/// The highest `proxy.connect_rate`.
const MAX_CONNECT_RATE: u32 = 1_000_000;

impl Configuration {
    /// Validates the configuration.
    pub fn check(&self) -> anyhow::Result<()> {
        self.check_cluster()?;
        self.check_access()?;
        self.check_tls()?;
        self.check_cluster_tls()?;
        self.check_spans()?;
        self.check_numbers()?;
        self.check_ldap()?;
        self.check_jwt()?;
        self.check_kerberos()?;
        self.check_reservations()?;
        self.check_zookeeper()?;
        self.spark.check()?;
        self.hiveserver2.check(&self.metadata_agent.secret_keys)?;
        match self.orchestrator.kind {
            OrchestratorKind::Kubernetes => self.check_kubernetes()?,
            OrchestratorKind::Process => self.check_locations()?,
        }
        self.check_database()?;
        self.check_hosts()?;
        self.check_advertised()
    }

    fn check_cluster(&self) -> anyhow::Result<()> {
        if let Some(secret) = &self.cluster.secret_file {
            bail!(
                "cluster.secret_file is replaced by cluster.keys: each role has keys of its own\nHint: Run enginehouse keys init --cluster {} --from {} and enginehouse keys derive, and set cluster.keys = \"keys\" (docs/upgrade.md).",
                self.cluster.name,
                secret.display()
            );
        }
        Ok(())
    }

    fn check_advertised(&self) -> anyhow::Result<()> {
        let (proxy, agent) = (&self.proxy, &self.metadata_agent);
        for (key, text, listens, registers) in [
            ("proxy.advertise", &proxy.advertise, proxy.listen, proxy.registers()),
            ("metadata_agent.advertise", &agent.advertise, agent.listen, true),
        ] {
            if (registers || !text.is_empty())
                && let Err(error) = Advertised::new(key, text, listens)
            {
                bail!("{}", error.text());
            }
        }
        Ok(())
    }

    fn check_spans(&self) -> anyhow::Result<()> {
        let positive: [(&str, Span); 12] = [
            ("proxy.snapshot_poll", self.proxy.snapshot_poll),
            ("proxy.bind_deadline", self.proxy.bind_deadline),
            ("proxy.demand_lease", self.proxy.demand_lease),
            ("master.tick_interval", self.master.tick_interval),
            ("master.alter_grace", self.master.alter_grace),
            ("master.status_poll", self.master.status_poll),
            ("master.replace_after", self.master.replace_after),
            ("master.node_grace", self.master.node_grace),
            ("metadata_agent.alter_deadline", self.metadata_agent.alter_deadline),
            ("metadata_agent.drain_grace_max", self.metadata_agent.drain_grace_max),
            ("engines.start_deadline", self.engines.start_deadline),
            ("kubernetes.call_deadline", self.kubernetes.call_deadline),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, span)| span.0.is_zero()) {
            bail!("{key} must be greater than 0s");
        }
        if self.metadata_agent.drain_grace.0 > self.metadata_agent.drain_grace_max.0 {
            bail!("metadata_agent.drain_grace is above metadata_agent.drain_grace_max");
        }
        Ok(())
    }

    fn check_hosts(&self) -> anyhow::Result<()> {
        let is_name = |host: &str| {
            !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
        };
        if let Some(host) = self.proxy.hosts.iter().find(|host| *host != "*" && !is_name(host)) {
            bail!(
                "proxy.hosts contains \"{host}\", which is not a host name\nHint: Use names without a port, or \"*\"."
            );
        }
        Ok(())
    }

    fn check_numbers(&self) -> anyhow::Result<()> {
        let positive: [(&str, usize); 19] = [
            ("metadata_agent.max_engines", self.metadata_agent.max_engines),
            ("proxy.max_connections", self.proxy.max_connections),
            ("proxy.max_connections_per_user", self.proxy.max_connections_per_user),
            ("proxy.max_connections_per_address", self.proxy.max_connections_per_address),
            ("proxy.max_unauthenticated", self.proxy.max_unauthenticated),
            ("proxy.max_unauthenticated_per_address", self.proxy.max_unauthenticated_per_address),
            ("proxy.max_sessions_per_user", self.proxy.max_sessions_per_user),
            ("proxy.max_sessions_per_tenant", self.proxy.max_sessions_per_tenant),
            ("proxy.max_statements_per_user", self.proxy.max_statements_per_user),
            ("proxy.max_statements_per_tenant", self.proxy.max_statements_per_tenant),
            ("proxy.max_session_setting_bytes", self.proxy.max_session_setting_bytes),
            ("proxy.max_session_statement_bytes", self.proxy.max_session_statement_bytes),
            ("proxy.max_held_bytes", self.proxy.max_held_bytes),
            ("orchestrator.max_engines", self.orchestrator.max_engines),
            ("orchestrator.min_uid", self.orchestrator.min_uid as usize),
            ("master.surge", self.master.surge as usize),
            ("master.burst", self.master.burst as usize),
            ("kubernetes.max_engines", self.kubernetes.max_engines),
            ("kubernetes.agent_port", usize::from(self.kubernetes.agent_port)),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, number)| *number == 0) {
            bail!("{key} must be at least 1");
        }
        if self.proxy.connect_rate > MAX_CONNECT_RATE {
            bail!("proxy.connect_rate is {}, above {MAX_CONNECT_RATE}\nHint: 0 is no limit.", self.proxy.connect_rate);
        }
        if self.proxy.request_memory_per_user < hs2::Limits::default().frame_bytes {
            bail!(
                "proxy.request_memory_per_user is {}, below the longest request of {} bytes",
                self.proxy.request_memory_per_user,
                hs2::Limits::default().frame_bytes
            );
        }
        if self.proxy.request_memory < self.proxy.request_memory_per_user {
            bail!("proxy.request_memory is below proxy.request_memory_per_user");
        }
        self.engines.catalog()?;
        if self.orchestrator.kind == OrchestratorKind::Process && self.orchestrator.max_engines > MAX_ENGINES_LIMIT {
            bail!(
                "orchestrator.max_engines is {}, above the limit of {MAX_ENGINES_LIMIT} for one state directory",
                self.orchestrator.max_engines
            );
        }
        Ok(())
    }

    /// Checks for engines that are pods, which share no disk with this process.
    fn check_kubernetes(&self) -> anyhow::Result<()> {
        let section = &self.kubernetes;
        if !section.program.is_absolute() {
            bail!(
                "kubernetes.program must be an absolute path in the images of engines, not \"{}\"",
                section.program.display()
            );
        }
        if !["https://", "http://"].iter().any(|scheme| section.api_server.starts_with(scheme)) {
            bail!("kubernetes.api_server must be an address such as https://host:443, not \"{}\"", section.api_server);
        }
        if let Some(location) = self.engines.allowed_locations.iter().find(|location| !location.is_absolute()) {
            bail!("engines.allowed_locations must be absolute paths in a pod, not \"{}\"", location.display());
        }
        // The real namespace is known only inside the cluster.
        let found = if section.namespace.is_empty() { "default" } else { section.namespace.as_str() };
        match self.pods(found).validate() {
            Ok(()) => Ok(()),
            Err(error) => bail!("section [kubernetes]: {error}"),
        }
    }
}

/// A configuration file that is valid, or why it is not.
#[cfg(test)]
pub(super) fn checked(text: &str) -> anyhow::Result<Configuration> {
    let configuration = Configuration::parse(text, &[])?;
    configuration.check()?;
    Ok(configuration)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn refusal(text: &str) -> String {
        checked(text).unwrap_err().to_string()
    }

    #[test]
    fn invalid_values_are_refused_with_the_name_of_their_key() {
        for (text, key) in [
            ("[master]\ntick_interval = \"0s\"", "master.tick_interval"),
            ("[master]\nsurge = 0", "master.surge"),
            ("[master]\nburst = 0", "master.burst"),
            ("[zookeeper]\nsession_timeout = \"100ms\"", "zookeeper.session_timeout"),
            ("[zookeeper]\nconnect = \"zk1\"", "zookeeper.connect"),
            ("[zookeeper]\nconnect = \"zk1:2181/root\"", "zookeeper.connect"),
            ("[zookeeper]\nroot = \"no-slash\"", "zookeeper.root"),
            ("[database]\nurl = \"oracle://x\"", "database.url"),
            ("[proxy]\nmax_connections = 0", "proxy.max_connections"),
            ("[orchestrator]\nmax_engines = 5000", "orchestrator.max_engines"),
            ("[proxy]\nadvertise = \"a b\"", "proxy.advertise"),
            ("[proxy]\nhosts = [\"http://a\"]", "proxy.hosts"),
            ("[proxy]\nmax_connections_per_user = 0", "proxy.max_connections_per_user"),
            ("[proxy]\nmax_unauthenticated_per_address = 0", "proxy.max_unauthenticated_per_address"),
            ("[proxy]\nrequest_memory_per_user = 1000000", "proxy.request_memory_per_user is 1000000"),
            ("[proxy]\nrequest_memory = 20000000", "proxy.request_memory is below"),
            ("[proxy]\nconnect_rate = 1000001", "proxy.connect_rate is 1000001, above 1000000"),
            ("[proxy]\nconnect_rate = -1", "connect_rate"),
            ("[proxy]\nadvertise = \"0.0.0.0\"", "proxy.advertise"),
            ("[metadata_agent]\nlisten = \"0.0.0.0:10020\"", "Set metadata_agent.advertise"),
            ("[metadata_agent]\ndrain_grace = \"2d\"", "metadata_agent.drain_grace"),
            ("[access]\nadmins = [\"\"]", "access.admins"),
            ("[kubernetes]\nmax_engines = 0", "kubernetes.max_engines"),
            ("[orchestrator]\nmin_uid = 0", "orchestrator.min_uid must be at least 1"),
            ("[kubernetes]\nuser_ids = { ann = -1 }", "user_ids"),
            (
                "[orchestrator]\nkind = \"kubernetes\"\n[kubernetes]\nuser_ids = { ann = 20001, bob = 0 }",
                "user \"bob\" has uid 0 in kubernetes.user_ids",
            ),
            (
                "[orchestrator]\nkind = \"kubernetes\"\n[kubernetes]\nuser_ids = { ann = 10001 }",
                "which is that of engine agents",
            ),
            ("[kubernetes]\ncall_deadline = \"0s\"", "kubernetes.call_deadline"),
            ("[orchestrator]\nkind = \"kubernetes\"\n[kubernetes]\nprogram = \"bin/eh\"", "kubernetes.program"),
            ("[orchestrator]\nkind = \"kubernetes\"\n[kubernetes]\napi_server = \"h:1\"", "kubernetes.api_server"),
            ("[orchestrator]\nkind = \"kubernetes\"\n[kubernetes]\nnamespaces = [\"rp_1\"]", "invalid name \"rp_1\""),
            ("[orchestrator]\nkind = \"kubernetes\"\n[cluster]\nname = \"a b\"", "enginehouse.io/cluster"),
            ("[orchestrator]\nkind = \"kubernetes\"\n[engines]\nallowed_locations = [\"t\"]", "allowed_locations"),
        ] {
            assert!(refusal(text).contains(key), "{text}: {}", refusal(text));
        }
    }

    #[test]
    fn authentication_none_off_loopback_needs_insecure() {
        let text = "[proxy]\nlisten = \"0.0.0.0:10009\"\n";
        assert!(refusal(text).contains("insecure = true"));
        checked(&format!("{text}[access]\ninsecure = true\n")).unwrap();
    }

    #[test]
    fn a_discoverable_proxy_needs_an_advertised_address() {
        let text =
            "[access]\ninsecure = true\n[proxy]\nlisten = \"0.0.0.0:10009\"\ndiscovery_namespace = \"hiveserver2\"\n";
        assert!(refusal(text).contains("Set proxy.advertise"), "{}", refusal(text));
        // A master without sessions does not register, even if the shared file enables discovery.
        let hidden = Configuration::parse(&format!("{text}discoverable = false\n"), &[]).unwrap();
        hidden.check().unwrap();
        assert!(!hidden.proxy.registers() && Configuration::parse(text, &[]).unwrap().proxy.registers());
        let without_clients = Configuration::parse(&format!("{text}serves_clients = false\n"), &[]).unwrap();
        assert!(!without_clients.proxy.registers());
        for good in ["db1", "db1:9", "::1", "[::1]:9"] {
            let text = format!("{text}advertise = \"{good}\"\n");
            checked(&text).unwrap();
        }
    }
}
