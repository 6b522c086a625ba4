//! The options of a tenant.

use model::alteration::ObjectKind;
use model::change::{Setting, TenantPatch};
use model::name::{PoolName, UnitName};

use super::options::{Options, printed_list, printed_setting, printed_text, read_list, read_setting, read_text};
use crate::cursor::Cursor;
use crate::error::ParseError;

impl Options for TenantPatch {
    const KIND: ObjectKind = ObjectKind::Tenant;
    const NAMES: &'static [&'static str] =
        &["RESOURCE_POOL_LIST", "USER_LIST", "ADMIN_LIST", "DEFAULT_UNIT", "COMMENT"];

    fn read(&mut self, option: &'static str, cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
        match option {
            "RESOURCE_POOL_LIST" => {
                let pool = |cursor: &mut Cursor<'_>| cursor.list_name("the name of a resource pool", PoolName::new);
                self.pools = Some(read_list(cursor, option, pool)?);
            }
            "USER_LIST" => {
                self.users = Some(read_list(cursor, option, |cursor| cursor.string("the quoted name of a user"))?);
            }
            "ADMIN_LIST" => {
                self.admins = read_setting(cursor, |cursor| {
                    read_list(cursor, option, |cursor| cursor.string("the quoted name of a user"))
                })?;
            }
            "DEFAULT_UNIT" => {
                let unit = |cursor: &mut Cursor<'_>| cursor.list_name("the name of a resource unit", UnitName::new);
                self.default_unit = read_setting(cursor, unit)?;
            }
            _ => self.comment = read_text(cursor)?,
        }
        Ok(())
    }

    fn printed(&self) -> Vec<String> {
        let mut options = Vec::new();
        options.extend(self.pools.as_ref().map(|pools| printed_list("RESOURCE_POOL_LIST", pools)));
        options.extend(self.users.as_ref().map(|users| printed_list("USER_LIST", users)));
        match &self.admins {
            Setting::Keep => {}
            Setting::Reset => options.push("ADMIN_LIST DEFAULT".to_owned()),
            Setting::Set(admins) => options.push(printed_list("ADMIN_LIST", admins)),
        }
        options.extend(printed_setting("DEFAULT_UNIT", &self.default_unit));
        options.extend(printed_text("COMMENT", &self.comment));
        options
    }
}
