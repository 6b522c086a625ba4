//! The scope of a list of engines: a tenant, and in it one of its resource pools or units.

use model::error::{ErrorKind, UserError};
use model::name::{PoolName, TenantName, UnitName};

/// The names of a request; a unit is one of a pool.
pub(super) enum LinkScope {
    Tenant(TenantName),
    Pool(TenantName, PoolName),
    Unit(TenantName, PoolName, UnitName),
}

impl LinkScope {
    pub(super) fn new(tenant: String, pool: Option<String>, unit: Option<String>) -> Result<Self, UserError> {
        let tenant = TenantName::new(tenant)?;
        let pool = pool.map(PoolName::new).transpose()?;
        let unit = unit.map(UnitName::new).transpose()?;
        match (pool, unit) {
            (None, None) => Ok(Self::Tenant(tenant)),
            (Some(pool), None) => Ok(Self::Pool(tenant, pool)),
            (Some(pool), Some(unit)) => Ok(Self::Unit(tenant, pool, unit)),
            (None, Some(_)) => Err(UserError::new(ErrorKind::InvalidValue, "unit without pool")
                .hint("Name the resource pool too: ?tenant=t_1&pool=rp_1&unit=uc_1.")),
        }
    }
}
