//! The options of a resource pool.

use model::alteration::ObjectKind;
use model::change::{PoolPatch, Setting};
use model::name::UnitName;

use super::options::{Options, printed_list, printed_text, read_list, read_setting, read_text};
use crate::cursor::Cursor;
use crate::error::ParseError;

impl Options for PoolPatch {
    const KIND: ObjectKind = ObjectKind::ResourcePool;
    const NAMES: &'static [&'static str] = &["UNIT_LIST", "NAMESPACE", "NODE_LIST", "IMAGE", "COMMENT"];

    fn read(&mut self, option: &'static str, cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
        match option {
            "UNIT_LIST" => {
                let unit = |cursor: &mut Cursor<'_>| cursor.list_name("the name of a resource unit", UnitName::new);
                self.units = Some(read_list(cursor, option, unit)?);
            }
            "NAMESPACE" => self.namespace = read_text(cursor)?,
            "NODE_LIST" => {
                self.nodes = read_setting(cursor, |cursor| {
                    read_list(cursor, option, |cursor| cursor.string("the quoted name of a node"))
                })?;
            }
            "IMAGE" => self.image = read_text(cursor)?,
            _ => self.comment = read_text(cursor)?,
        }
        Ok(())
    }

    fn printed(&self) -> Vec<String> {
        let mut options = Vec::new();
        options.extend(self.units.as_ref().map(|units| printed_list("UNIT_LIST", units)));
        options.extend(printed_text("NAMESPACE", &self.namespace));
        match &self.nodes {
            Setting::Keep => {}
            Setting::Reset => options.push("NODE_LIST DEFAULT".to_owned()),
            Setting::Set(nodes) => options.push(printed_list("NODE_LIST", nodes)),
        }
        options.extend(printed_text("IMAGE", &self.image));
        options.extend(printed_text("COMMENT", &self.comment));
        options
    }
}
