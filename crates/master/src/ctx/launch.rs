//! The launcher: how the process that runs the master starts engines.

use std::collections::BTreeMap;

use model::charge::Charge;
use model::configuration::Configuration;
use model::engine_labels::EngineLabels;
use model::engine_name::EngineName;
use model::error::{ErrorKind, UserError};
use model::number::{Epoch, Generation, Incarnation};
use model::run_as::RunAs;
use model::sealing;
use model::slot::SlotKey;
use orchestrator::Spec;

/// The engine to launch.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    pub engine: &'a EngineName,
    pub slot: &'a SlotKey,
    pub incarnation: Incarnation,
    pub labels: &'a EngineLabels,
    pub configuration: &'a Configuration,
    pub charge: &'a Charge,
    /// The nodes that it may run on; `None` means any.
    pub nodes: Option<&'a [String]>,
    /// Labels that its node must also have.
    pub node_selector: &'a BTreeMap<String, String>,
    /// The generation of the plan.
    pub generation: Generation,
    /// The master's epoch.
    pub epoch: Epoch,
    /// The user that it runs as; `None`: the account of the service, or, with `RUN_AS 'owner'`, no known one.
    pub user: Option<&'a str>,
}

/// Creates specs: command line, files, environment, grace and log of an engine agent with its engine.
pub trait Launcher: Send + Sync + 'static {
    /// The spec of one engine. The master overwrites what the plan determines: name, labels, generation, nodes with their
    /// labels, charge, namespace and image. It refuses a spec that does not run as the launch's user.
    fn spec(&self, launch: &Launch<'_>) -> Result<Spec, UserError>;
}

/// The launcher's spec, with what the plan determines.
pub(super) fn complete(launcher: &dyn Launcher, launch: &Launch<'_>) -> Result<Spec, UserError> {
    let configuration = launch.configuration;
    // An agent of an earlier version does not know sealed values and sends them as they are.
    if let Some(error) = sealing::closed(&launch.slot.unit, &configuration.properties) {
        return Err(error);
    }
    let mut spec = launcher.spec(launch)?;
    refuse_other_user(launch, &spec)?;
    spec.name = launch.engine.clone();
    spec.labels.extend(launch.labels.encode());
    spec.generation = launch.generation;
    spec.locality.clone_from(&configuration.namespace);
    spec.image.clone_from(&configuration.image);
    spec.charge = *launch.charge;
    spec.nodes = launch.nodes.map(<[String]>::to_vec);
    spec.options.node_labels.clone_from(launch.node_selector);
    Ok(spec)
}

/// The last check before an engine starts: it runs as its owner exactly if its configuration says so, and never as the account of
/// the service because no user is known.
fn refuse_other_user(launch: &Launch<'_>, spec: &Spec) -> Result<(), UserError> {
    let user = spec.run_as.as_ref().map(|run_as| run_as.user.as_str());
    let is_as_configured = match launch.configuration.run_as {
        RunAs::Service => user.is_none(),
        RunAs::Owner => user.is_some() && user == launch.user,
    };
    if is_as_configured {
        return Ok(());
    }
    let of = user.map_or_else(|| "the account of the service".to_owned(), |user| format!("user \"{user}\""));
    Err(UserError::new(ErrorKind::NotSupported, format!("engine \"{}\" would run as {of}", launch.engine)).detail(
        match launch.user {
            Some(user) => format!("RUN_AS '{}' of its unit requires user \"{user}\".", launch.configuration.run_as),
            None => format!("RUN_AS is '{}', and its slot names no user.", launch.configuration.run_as),
        },
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::catalog::PoolSpec;
    use model::change::UnitPatch;
    use model::configuration::Defaults;
    use model::instance::InstanceKind;
    use model::name::{PoolName, TenantName, UnitName};

    use super::*;

    /// A launcher whose engines run as this user, whatever is asked of it.
    struct As(Option<&'static str>);

    impl Launcher for As {
        fn spec(&self, launch: &Launch<'_>) -> Result<Spec, UserError> {
            let run_as = self.0.map(|user| orchestrator::RunAs { user: user.to_owned(), folders: Vec::new() });
            Ok(Spec { run_as, ..Spec::new(launch.engine.clone(), vec!["/bin/true".to_owned()]) })
        }
    }

    /// What comes of an engine of unit `uc_1` with this configuration, which the launcher starts as this user.
    fn completed(
        changed: impl FnOnce(Configuration) -> Configuration,
        user: Option<&str>,
        starts_as: Option<&'static str>,
    ) -> Result<Spec, UserError> {
        let slot = SlotKey {
            tenant: TenantName::new("t_1").unwrap(),
            pool: PoolName::new("rp_1").unwrap(),
            unit: UnitName::new("uc_1").unwrap(),
            ordinal: 0,
        };
        let unit = UnitPatch::default().create(&Defaults::default()).unwrap();
        let configuration =
            Configuration::new(&slot.tenant, &slot.pool, &PoolSpec::default(), &unit, &Defaults::default());
        let configuration = changed(configuration);
        let labels = EngineLabels::new("eh", &slot, Incarnation(1), &configuration);
        let launch = Launch {
            engine: &labels.name,
            slot: &slot,
            incarnation: Incarnation(1),
            labels: &labels,
            configuration: &configuration,
            charge: &Charge::new(&configuration, InstanceKind::Process),
            nodes: None,
            node_selector: &BTreeMap::new(),
            generation: Generation(1),
            epoch: Epoch(1),
            user,
        };
        complete(&As(starts_as), &launch)
    }

    #[test]
    fn no_engine_starts_as_another_user_than_that_of_its_slot() {
        for (run_as, user, starts_as, is_started) in [
            (RunAs::Service, None, None, true),
            (RunAs::Service, None, Some("ann"), false),
            (RunAs::Service, Some("ann"), Some("ann"), false),
            (RunAs::Owner, Some("ann"), Some("ann"), true),
            (RunAs::Owner, Some("ann"), Some("bob"), false),
            (RunAs::Owner, Some("ann"), None, false),
            (RunAs::Owner, None, None, false),
            (RunAs::Owner, None, Some("ann"), false),
        ] {
            let spec = completed(|configuration| Configuration { run_as, ..configuration }, user, starts_as);
            assert_eq!(spec.is_ok(), is_started, "{run_as} {user:?} {starts_as:?}");
            if let Err(error) = spec {
                assert!(error.sqlstate() == "0A000" && error.detail.is_some(), "{error:?}");
            }
        }
    }

    #[test]
    fn no_engine_starts_with_a_value_that_is_sealed() {
        let with = |value: &str| {
            let properties =
                [("a", "1"), ("db.password", value)].map(|(key, value)| (key.to_owned(), value.to_owned()));
            completed(|configuration| Configuration { properties: properties.into(), ..configuration }, None, None)
        };
        assert!(with("hunter2").is_ok());
        let error = with("sealed:1:1:AAAA").unwrap_err();
        assert_eq!(error.message, "property \"db.password\" of resource unit \"uc_1\" cannot be opened");
        assert!(error.text().contains("generation 1"), "{}", error.text());
        assert!(with("sealed:2:later").is_err());
    }
}
