//! The effective configuration of an engine, its canonical form and its hash.
//!
//! It follows from unit, pool, tenant name and the defaults of the installation. Engines with equal hashes were
//! launched from the same text. The canonical form is JSON with sorted keys and no spaces. Every field is present
//! except an overcommit that is not set, sharing by the tenant and running as the service, so that engines from before these
//! options keep their hash. Quantities are in
//! canonical form (`1G`, never `1024M`), so equal configurations have equal hashes. `MIN_ENGINES`, `MAX_ENGINES`,
//! the options of engines on demand, comments, users and nodes are not part of it: changing them restarts nothing.

use std::collections::BTreeMap;

use md5::Md5;
use serde::{Deserialize, Serialize};
use sha2::Digest;

use crate::catalog::{Catalog, PoolSpec, UnitSpec, is_default};
use crate::engine_name::{dns_label, hex, hex_prefix};
use crate::engine_type::EngineType;
use crate::error::UserError;
use crate::fingerprint::SecretProperties;
use crate::instance::InstanceKind;
use crate::name::{PoolName, TenantName};
use crate::on_demand::{IdleTimeout, OnDemandDefaults};
use crate::owner::SharedBy;
use crate::quantity::{Cpu, Memory};
use crate::run_as::RunAs;
use crate::secret::SecretKeys;
use crate::slot::SlotKey;
use crate::statement_timeout;

/// The namespace template of pools that name none.
pub const DEFAULT_NAMESPACE: &str = "{pool}--{tenant}";
/// The hex digits of a configuration's hash.
pub const HASH_DIGITS: usize = 16;

/// The installation's defaults for what the catalog leaves open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Defaults {
    /// The engine type of a unit that names none.
    pub engine_type: EngineType,
    /// The image of each engine type, for pools that name none.
    pub images: BTreeMap<EngineType, String>,
    /// What engines run in.
    pub instances: InstanceKind,
    /// No part of any configuration.
    pub on_demand: OnDemandDefaults,
    /// The engine types that the installation cannot launch, with the error for a unit of that type.
    pub refused_types: BTreeMap<EngineType, UserError>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            engine_type: EngineType::Datafusion,
            images: BTreeMap::new(),
            instances: InstanceKind::default(),
            on_demand: OnDemandDefaults::default(),
            refused_types: BTreeMap::new(),
        }
    }
}

impl Defaults {
    /// The image of engines of this type in the pool.
    pub fn image<'a>(&'a self, pool: &'a PoolSpec, engine_type: EngineType) -> Option<&'a str> {
        pool.image.as_ref().or_else(|| self.images.get(&engine_type)).map(String::as_str)
    }
}

impl UnitSpec {
    /// Whether sessions that wait start engines of the unit.
    pub fn starts_on_demand(&self, defaults: &Defaults) -> bool {
        self.start_on_demand.unwrap_or(defaults.on_demand.start_on_demand)
    }

    /// When an idle engine on demand is released.
    pub fn idle_timeout(&self, defaults: &Defaults) -> IdleTimeout {
        self.idle_timeout.unwrap_or(defaults.on_demand.idle_timeout)
    }
}

/// The whole effective configuration of one engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// The CPU that may be requested for each 100 that exist; `None` is 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_overcommit: Option<u32>,
    pub driver_cpu: Cpu,
    pub driver_memory: Memory,
    pub engine_type: EngineType,
    pub executor_cpu: Cpu,
    pub executor_memory: Memory,
    /// Empty where the orchestrator needs none.
    pub image: String,
    pub max_executors: u32,
    /// The executors that an idle engine keeps.
    pub min_executors: u32,
    pub namespace: String,
    /// Engine properties.
    pub properties: BTreeMap<String, String>,
    /// As whom the engine runs. Absent from the canonical form if that is the service, for the same reason as `shared_by`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub run_as: RunAs,
    /// The keys of secret properties, with a fingerprint of their values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretProperties>,
    /// Who shares the engine. Absent from the canonical form if that is the tenant, so that engines from before the option keep
    /// their hash.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shared_by: SharedBy,
}

impl Configuration {
    /// The configuration of the slot's engine; `None` if the catalog lacks its unit or pool.
    pub fn from_slot(catalog: &Catalog, key: &SlotKey, defaults: &Defaults) -> Option<Self> {
        Some(Self::new(&key.tenant, &key.pool, catalog.pool(&key.pool)?, catalog.unit(&key.unit)?, defaults))
    }

    /// The configuration that follows from tenant, pool and unit.
    pub fn new(tenant: &TenantName, pool: &PoolName, of_pool: &PoolSpec, unit: &UnitSpec, defaults: &Defaults) -> Self {
        Self {
            // An explicit default equals an absent one: 100 percent is none.
            cpu_overcommit: of_pool.cpu_overcommit.filter(|percent| *percent != 100),
            driver_cpu: unit.driver_cpu,
            driver_memory: unit.driver_memory,
            engine_type: unit.engine_type,
            executor_cpu: unit.executor_cpu,
            executor_memory: unit.executor_memory,
            image: defaults.image(of_pool, unit.engine_type).unwrap_or_default().to_owned(),
            max_executors: unit.max_executors,
            min_executors: unit.min_executors,
            namespace: namespace(of_pool.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE), tenant, pool),
            properties: engine_properties(unit),
            run_as: unit.run_as,
            secrets: unit.secrets.clone(),
            shared_by: unit.shared_by,
        }
    }

    /// JSON with sorted keys and no spaces. Secret values are masked; the field with their common fingerprint is
    /// present only if there are any.
    pub fn canonical(&self) -> String {
        let shown = Self { properties: self.masked_properties(), ..self.clone() };
        // serde_json's map is sorted, and no value here can fail to become JSON.
        let Ok(mut value) = serde_json::to_value(shown) else { return String::new() };
        if let (Some(secrets), Some(fields)) = (&self.secrets, value.as_object_mut()) {
            fields.insert("secrets".to_owned(), secrets.fingerprint.clone().into());
        }
        value.to_string()
    }

    /// The configuration as programs before schema version 6 hashed it, with secret values in clear; `None` if there
    /// are none. Only engines created by such a program carry labels of it; they need not be replaced.
    pub fn unmasked(&self) -> Option<Self> {
        self.secrets.is_some().then(|| Self { secrets: None, ..self.clone() })
    }

    /// Whether an engine with this hash was created from this configuration, by this program or one before version 6.
    pub fn has_hash(&self, hash: &str) -> bool {
        self.hash() == hash || self.unmasked().is_some_and(|unmasked| unmasked.hash() == hash)
    }

    fn masked_properties(&self) -> BTreeMap<String, String> {
        let Some(secrets) = &self.secrets else { return self.properties.clone() };
        SecretKeys::new(Vec::new()).mask_also(&self.properties, |key| secrets.keys.contains(key))
    }

    /// The first 16 hex digits of the SHA-256 of the canonical form: label `enginehouse.io/config`.
    pub fn hash(&self) -> String {
        hex_prefix(self.canonical().as_bytes(), HASH_DIGITS)
    }

    /// Label `unit_configs`: `<driver cpu>_<driver memory>_<executor cpu>_<executor memory>`, such as `1_1G_2_2G`.
    pub fn sizes(&self) -> String {
        format!("{}_{}_{}_{}", self.driver_cpu, self.driver_memory, self.executor_cpu, self.executor_memory)
    }

    /// Label `unit_properties`: the MD5, in hex, of the properties with secret values masked, as JSON with sorted keys and
    /// no spaces.
    pub fn properties_digest(&self) -> String {
        let json = serde_json::to_string(&self.masked_properties()).unwrap_or_default();
        hex(&Md5::digest(json.as_bytes()))
    }
}

/// The properties passed to the engine: all except Enginehouse's own, whose change replaces no engine.
fn engine_properties(unit: &UnitSpec) -> BTreeMap<String, String> {
    let given = unit.properties.iter().filter(|(key, _)| !statement_timeout::is_ours(key));
    given.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Fills a namespace template: `{pool}` and `{tenant}` become the names, mapped and cut like engine names.
pub fn namespace(template: &str, tenant: &TenantName, pool: &PoolName) -> String {
    let filled = template.replace("{pool}", pool.as_str()).replace("{tenant}", tenant.as_str());
    let label = dns_label(&filled, usize::MAX);
    if label.len() <= 63 {
        return label;
    }
    // Two long names with the same prefix must not share a namespace.
    format!("{}-{}", dns_label(&filled, 56), hex_prefix(filled.as_bytes(), 6))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::on_demand::MAX_SESSIONS_PER_ENGINE;

    fn configuration() -> Configuration {
        Configuration {
            cpu_overcommit: None,
            driver_cpu: Cpu::ONE,
            driver_memory: Memory::GIB,
            engine_type: EngineType::Datafusion,
            executor_cpu: "2".parse().unwrap(),
            executor_memory: "2048M".parse().unwrap(),
            image: String::new(),
            max_executors: 2,
            min_executors: 0,
            namespace: "rp-1--t-1".to_owned(),
            properties: BTreeMap::new(),
            run_as: RunAs::Service,
            secrets: None,
            shared_by: SharedBy::Tenant,
        }
    }

    /// Compares every digest that a label could be of a value, if it were not keyed.
    #[test]
    fn labels_resist_a_dictionary_attack_on_secrets() {
        use crate::fingerprint::FingerprintKey;
        let labels_of = |value: &str, key: &FingerprintKey| {
            let mut labelled = configuration();
            labelled.properties =
                [("a", "1"), ("db.password", value)].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
            let unit = crate::name::UnitName::new("uc_1").unwrap();
            labelled.secrets = SecretProperties::new(&unit, None, &labelled.properties, &SecretKeys::default(), key);
            (labelled.properties_digest(), labelled.hash(), labelled.canonical())
        };
        let key = FingerprintKey::new;
        let (ours, other) = (key("0123456789abcdef"), key("fedcba9876543210"));
        let found = labels_of("hunter2", &ours);
        assert!(!found.2.contains("hunter2"), "{}", found.2);
        for guess in ["hunter2", "swordfish", "letmein", ""] {
            let guessed = labels_of(guess, &other);
            assert_eq!(guessed.0, found.0, "the digest of the properties is the same whatever the secret is");
            assert_ne!(guessed.1, found.1, "without the key no guess is confirmed");
            assert_eq!(labels_of(guess, &ours).1 == found.1, guess == "hunter2", "a change of the secret is seen");
        }
    }

    #[test]
    fn the_canonical_form_has_sorted_keys_and_no_spaces() {
        assert_eq!(
            configuration().canonical(),
            r#"{"driver_cpu":"1","driver_memory":"1G","engine_type":"datafusion","executor_cpu":"2","executor_memory":"2G","image":"","max_executors":2,"min_executors":0,"namespace":"rp-1--t-1","properties":{}}"#
        );
    }

    #[test]
    fn an_overcommit_is_part_of_it_only_where_it_changes_something() {
        let unit = crate::change::UnitPatch::default().create(&Defaults::default()).unwrap();
        let of = |cpu_overcommit| {
            let pool = PoolSpec { cpu_overcommit, ..PoolSpec::default() };
            let (tenant, name) = (TenantName::new("t_1").unwrap(), PoolName::new("rp_1").unwrap());
            Configuration::new(&tenant, &name, &pool, &unit, &Defaults::default())
        };
        assert_eq!(of(None), of(Some(100)));
        assert!(!of(None).canonical().contains("overcommit"));
        assert!(of(Some(200)).canonical().starts_with(r#"{"cpu_overcommit":200,"driver_cpu""#));
        assert_ne!(of(None).hash(), of(Some(200)).hash());
    }

    #[test]
    fn sharing_is_part_of_it_unless_the_tenant_shares() {
        let (tenant, pool) = (TenantName::new("t_1").unwrap(), PoolName::new("rp_1").unwrap());
        let unit = crate::change::UnitPatch::default().create(&Defaults::default()).unwrap();
        let of = |shared_by| {
            let unit = UnitSpec { shared_by, ..unit.clone() };
            Configuration::new(&tenant, &pool, &PoolSpec::default(), &unit, &Defaults::default())
        };
        let kinds = [SharedBy::Tenant, SharedBy::Group, SharedBy::User, SharedBy::Session];
        assert!(!of(SharedBy::Tenant).canonical().contains("shared_by"));
        assert!(of(SharedBy::User).canonical().contains(r#""shared_by":"user""#));
        let hashes: std::collections::BTreeSet<String> = kinds.map(|kind| of(kind).hash()).into();
        assert_eq!(hashes.len(), kinds.len());
        for kind in kinds {
            let written = serde_json::to_string(&of(kind)).unwrap();
            assert_eq!(serde_json::from_str::<Configuration>(&written).unwrap(), of(kind));
        }
        // An engine of an earlier version: its configuration was hashed without the field.
        assert_eq!(configuration().hash(), "a14a4ebfccdb5f30");
    }

    #[test]
    fn run_as_is_part_of_it_unless_it_is_the_service() {
        let (tenant, pool) = (TenantName::new("t_1").unwrap(), PoolName::new("rp_1").unwrap());
        let unit = crate::change::UnitPatch::default().create(&Defaults::default()).unwrap();
        let of = |run_as| {
            let unit = UnitSpec { shared_by: SharedBy::User, run_as, ..unit.clone() };
            Configuration::new(&tenant, &pool, &PoolSpec::default(), &unit, &Defaults::default())
        };
        let (service, owner) = (of(RunAs::Service), of(RunAs::Owner));
        assert!(!service.canonical().contains("run_as"), "{}", service.canonical());
        assert!(owner.canonical().ends_with(r#""run_as":"owner","shared_by":"user"}"#), "{}", owner.canonical());
        assert_ne!(service.hash(), owner.hash());
        for configuration in [service, owner] {
            let written = serde_json::to_string(&configuration).unwrap();
            assert_eq!(serde_json::from_str::<Configuration>(&written).unwrap(), configuration);
        }
    }

    #[test]
    fn a_unit_without_options_on_demand_is_stored_as_before_and_follows_the_defaults() {
        let mut spec = crate::change::UnitPatch::default().create(&Defaults::default()).unwrap();
        let old = r#"{"engine_type":"datafusion","driver_cpu":"1","driver_memory":"1G","executor_cpu":"1","executor_memory":"1G","min_executors":0,"max_executors":2,"min_engines":0,"max_engines":10,"properties":{},"comment":null}"#;
        assert_eq!(serde_json::to_string(&spec).unwrap(), old);
        assert_eq!(serde_json::from_str::<UnitSpec>(old).unwrap(), spec);
        let mut defaults = Defaults::default();
        assert!(spec.starts_on_demand(&defaults));
        assert_eq!(
            (spec.seats(), spec.idle_timeout(&defaults).to_string()),
            (MAX_SESSIONS_PER_ENGINE, "5m".to_owned())
        );
        defaults.on_demand.start_on_demand = false;
        defaults.on_demand.idle_timeout = IdleTimeout::Never;
        assert!(!spec.starts_on_demand(&defaults));
        assert_eq!(spec.idle_timeout(&defaults), IdleTimeout::Never);
        let minute = IdleTimeout::After(std::time::Duration::from_mins(1));
        spec.start_on_demand = Some(true);
        spec.sessions_per_engine = Some(10);
        spec.spare_engines = 1;
        spec.idle_timeout = Some(minute);
        assert!(spec.starts_on_demand(&defaults));
        assert_eq!((spec.seats(), spec.idle_timeout(&defaults)), (10, minute));
        let stored = serde_json::to_string(&spec).unwrap();
        let options = r#""start_on_demand":true,"sessions_per_engine":10,"spare_engines":1,"idle_timeout":"1m""#;
        assert!(stored.contains(options), "{stored}");
        assert_eq!(serde_json::from_str::<UnitSpec>(&stored).unwrap(), spec);
    }

    #[test]
    fn no_properties_have_the_digest_of_an_empty_object() {
        assert_eq!(configuration().properties_digest(), "99914b932bd37a50b983c5e7c90ae93b");
        assert_eq!(configuration().sizes(), "1_1G_2_2G");
    }

    #[test]
    fn any_field_that_changes_changes_the_hash() {
        let base = configuration();
        assert_eq!(base.hash().len(), HASH_DIGITS);
        let mut other = base.clone();
        other.properties.insert("k".to_owned(), "v".to_owned());
        assert_ne!(base.hash(), other.hash());
        other = base.clone();
        other.max_executors = 3;
        assert_ne!(base.hash(), other.hash());
    }

    #[test]
    fn namespaces_are_dns_labels_and_long_ones_stay_apart() {
        let tenant = TenantName::new("t_1").unwrap();
        let pool = PoolName::new("rp_1").unwrap();
        assert_eq!(namespace(DEFAULT_NAMESPACE, &tenant, &pool), "rp-1--t-1");
        let long = |last: char| TenantName::new(format!("{}{last}", "a".repeat(62))).unwrap();
        let (one, other) =
            (namespace(DEFAULT_NAMESPACE, &long('x'), &pool), namespace(DEFAULT_NAMESPACE, &long('y'), &pool));
        assert!(one.len() <= 63 && one != other, "{one} {other}");
    }
}
