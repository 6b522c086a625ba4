//! The options of a resource quota, and SHOW QUOTAS of one tenant, pool, user or creator.

use std::fmt;

use model::alteration::ObjectKind;
use model::change::{QuotaPatch, Setting};
use model::name::{PoolName, TenantName};
use model::quota::{Principal, TransferLimit};

use super::Statement;
use super::amounts::{printed_amount, printed_amount_setting, read_amount};
use super::like::{read_like, write_like};
use super::options::{Options, printed_text, read_setting, read_text};
use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::quote::{quoted_name, quoted_string};

const USER: &str = "the name of a user such as 'alice'";
const CREATOR: &str = "the name of a creator such as 'IDE'";

/// Whose quotas SHOW QUOTAS lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuotaFilter {
    Tenant(TenantName),
    /// The quotas of tenants on the pool.
    Pool(PoolName),
    /// The quota that applies to the user: its own, else that of DEFAULT.
    User(String),
    /// The quota that applies to the creator: its own, else that of DEFAULT.
    Creator(String),
}

impl Options for QuotaPatch {
    const KIND: ObjectKind = ObjectKind::ResourceQuota;
    const NAMES: &'static [&'static str] =
        &["TENANT", "POOL", "USER", "CREATOR", "GUARANTEE", "BORROW_LIMIT", "LEND_LIMIT", "WEIGHT", "LIMIT", "COMMENT"];

    fn read(&mut self, option: &'static str, cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
        match option {
            "TENANT" => self.tenant = Some(cursor.tenant()?),
            "POOL" => self.pool = Some(cursor.pool()?),
            "USER" => self.user = Some(read_principal(cursor, USER)?),
            "CREATOR" => self.creator = Some(read_principal(cursor, CREATOR)?),
            "GUARANTEE" => self.guarantee = read_setting(cursor, |cursor| read_amount(cursor, option))?,
            "BORROW_LIMIT" => self.borrow_limit = read_setting(cursor, |cursor| read_transfer(cursor, option))?,
            "LEND_LIMIT" => self.lend_limit = read_setting(cursor, |cursor| read_transfer(cursor, option))?,
            "WEIGHT" => self.weight = read_setting(cursor, |cursor| cursor.number(option))?,
            "LIMIT" => self.limit = read_setting(cursor, |cursor| read_amount(cursor, option))?,
            _ => self.comment = read_text(cursor)?,
        }
        Ok(())
    }

    fn printed(&self) -> Vec<String> {
        let mut options = Vec::new();
        options.extend(self.tenant.as_ref().map(|tenant| format!("TENANT {}", quoted_name(tenant.as_str()))));
        options.extend(self.pool.as_ref().map(|pool| format!("POOL {}", quoted_name(pool.as_str()))));
        options.extend(self.user.as_ref().map(|user| printed_principal("USER", user)));
        options.extend(self.creator.as_ref().map(|creator| printed_principal("CREATOR", creator)));
        options.extend(printed_amount_setting("GUARANTEE", &self.guarantee));
        options.extend(printed_transfer("BORROW_LIMIT", &self.borrow_limit));
        options.extend(printed_transfer("LEND_LIMIT", &self.lend_limit));
        match &self.weight {
            Setting::Keep => {}
            Setting::Reset => options.push("WEIGHT DEFAULT".to_owned()),
            Setting::Set(weight) => options.push(format!("WEIGHT {weight}")),
        }
        options.extend(printed_amount_setting("LIMIT", &self.limit));
        options.extend(printed_text("COMMENT", &self.comment));
        options
    }
}

fn read_principal(cursor: &mut Cursor<'_>, what: &'static str) -> Result<Principal, ParseError> {
    if cursor.eat("DEFAULT") { Ok(Principal::Default) } else { cursor.string(what).map(Principal::Named) }
}

fn printed_principal(option: &str, principal: &Principal) -> String {
    match principal {
        Principal::Named(name) => format!("{option} {}", quoted_string(name)),
        Principal::Default => format!("{option} DEFAULT"),
    }
}

/// Parses NONE, UNLIMITED or an amount.
fn read_transfer(cursor: &mut Cursor<'_>, option: &'static str) -> Result<TransferLimit, ParseError> {
    if cursor.eat("NONE") {
        Ok(TransferLimit::None)
    } else if cursor.eat("UNLIMITED") {
        Ok(TransferLimit::Unlimited)
    } else {
        read_amount(cursor, option).map(TransferLimit::Amount)
    }
}

fn printed_transfer(option: &str, setting: &Setting<TransferLimit>) -> Option<String> {
    match setting {
        Setting::Keep => None,
        Setting::Reset => Some(format!("{option} DEFAULT")),
        Setting::Set(TransferLimit::None) => Some(format!("{option} NONE")),
        Setting::Set(TransferLimit::Unlimited) => Some(format!("{option} UNLIMITED")),
        Setting::Set(TransferLimit::Amount(amount)) => Some(format!("{option} {}", printed_amount(amount))),
    }
}

/// Parses `[TENANT t_1 | POOL rp_1 | USER 'alice' | CREATOR 'IDE'] [LIKE …]`.
pub(super) fn show(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let of = if cursor.eat("TENANT") {
        Some(QuotaFilter::Tenant(cursor.tenant()?))
    } else if cursor.eat("POOL") {
        Some(QuotaFilter::Pool(cursor.pool()?))
    } else if cursor.eat("USER") {
        Some(QuotaFilter::User(cursor.string(USER)?))
    } else if cursor.eat("CREATOR") {
        Some(QuotaFilter::Creator(cursor.string(CREATOR)?))
    } else {
        None
    };
    let like = read_like(cursor)?;
    Ok(match of {
        None => Statement::ShowObjects { kind: ObjectKind::ResourceQuota, like },
        Some(of) => Statement::ShowQuotas { of, like },
    })
}

pub(super) fn write_show(f: &mut fmt::Formatter<'_>, of: &QuotaFilter, like: Option<&str>) -> fmt::Result {
    f.write_str("SHOW QUOTAS ")?;
    match of {
        QuotaFilter::Tenant(tenant) => write!(f, "TENANT {}", quoted_name(tenant.as_str()))?,
        QuotaFilter::Pool(pool) => write!(f, "POOL {}", quoted_name(pool.as_str()))?,
        QuotaFilter::User(user) => write!(f, "USER {}", quoted_string(user))?,
        QuotaFilter::Creator(creator) => write!(f, "CREATOR {}", quoted_string(creator))?,
    }
    write_like(f, like)
}
