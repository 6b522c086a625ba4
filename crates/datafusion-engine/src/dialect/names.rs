//! Case-insensitive matching of column names, as in Spark.
//!
//! DataFusion converts unquoted names to lower case and compares exactly. So before planning, each name in a statement that
//! matches a column of its tables in another case is replaced by the column's spelling. A name that the statement itself
//! defines, as after AS, has one spelling throughout the statement: the first one.
//!
//! If two tables of a statement spell a column differently, one of them is read with the other's spelling. Columns of one
//! table that differ in case alone need their exact spelling; any other spelling is refused with 42702.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::common::{Column, ResolvedTableReference};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlanBuilder};
use datafusion::sql::parser::{CopyToStatement, CreateExternalTable, ExplainStatement, Statement};
use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, ExceptSelectItem, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName,
    ObjectNamePart, Query, Select, SelectItem, TableAlias, TableFactor, TableObject, Value, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::Location;
use model::error::{ErrorKind, UserError};

use super::rewrite::visit;
use crate::catalog::prefetched::Tables;

/// An error, boxed because a tree is traversed recursively and each stack frame contains several of them.
type BoxedError = Box<UserError>;

/// Replaces names in the statement, and tables whose columns are spelled differently.
pub fn match_case(statement: &mut Statement, tables: &mut Tables) -> Result<()> {
    let target = insert_target(statement);
    let mut names = Names::default();
    let mut collected = Collected::default();
    let _ = visit(statement, &mut collected);
    names.relations = collected.relations;
    names.add_tables(tables, target.as_deref())?;
    for name in collected.given {
        names.columns.entry(name.to_lowercase()).or_insert(name);
    }
    if let ControlFlow::Break(error) = visit(statement, &mut names) {
        return Err(DataFusionError::External(error));
    }
    match statement {
        Statement::CopyTo(CopyToStatement { partitioned_by, .. }) => {
            for column in partitioned_by {
                if let Some(spelling) = names.columns.get(&column.to_lowercase()) {
                    column.clone_from(spelling);
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Keeps the case of the columns of a CREATE EXTERNAL TABLE, because they have to match those in its files.
pub fn keep_case(table: &mut CreateExternalTable) {
    let mut names = Names::default();
    for column in &mut table.columns {
        column.name.quote_style.get_or_insert('`');
        names.columns.insert(column.name.value.to_lowercase(), column.name.value.clone());
    }
    for part in &mut table.table_partition_cols {
        if let Some(spelling) = names.columns.get(&part.to_lowercase()) {
            part.clone_from(spelling);
        }
    }
    for order in table.order_exprs.iter_mut().flatten() {
        let _ = order.visit(&mut names);
    }
    let _ = table.constraints.visit(&mut names);
}

/// The last part of the target's name of an INSERT; the target's columns keep their spelling.
fn insert_target(statement: &Statement) -> Option<String> {
    match statement {
        Statement::Statement(statement) => match statement.as_ref() {
            ast::Statement::Insert(insert) => match &insert.table {
                TableObject::TableName(name) => last_part(name),
                _ => None,
            },
            _ => None,
        },
        Statement::Explain(ExplainStatement { statement, .. }) => insert_target(statement),
        _ => None,
    }
}

fn last_part(name: &ObjectName) -> Option<String> {
    Some(name.0.last()?.as_ident()?.value.to_lowercase())
}

/// The names that a statement itself defines.
#[derive(Default)]
struct Collected {
    /// Tables, their aliases and common table expressions, in lower case.
    relations: HashSet<String>,
    /// Columns, with their first spelling.
    given: Vec<String>,
}

impl Collected {
    fn alias(&mut self, alias: &TableAlias) {
        self.relations.insert(alias.name.value.to_lowercase());
        self.given.extend(alias.columns.iter().map(|column| column.name.value.clone()));
    }
}

impl VisitorMut for Collected {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
        self.relations.extend(last_part(relation));
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.alias(&cte.alias);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                self.given.push(alias.value.clone());
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let Some(alias) = alias_of(table) {
            self.alias(alias);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &mut ast::Statement) -> ControlFlow<()> {
        if let ast::Statement::CreateView(view) = statement {
            self.given.extend(view.columns.iter().map(|column| column.name.value.clone()));
        }
        ControlFlow::Continue(())
    }
}

fn alias_of(table: &mut TableFactor) -> Option<&mut TableAlias> {
    match table {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => alias.as_mut(),
        _ => None,
    }
}

/// The spellings of names.
#[derive(Default)]
struct Names {
    relations: HashSet<String>,
    /// Lower case to the planned spelling.
    columns: HashMap<String, String>,
    /// Lower case to the spellings of two columns of one table.
    ambiguous: HashMap<String, BTreeSet<String>>,
    /// Fields of structs, lower case to spellings.
    fields: HashMap<String, BTreeSet<String>>,
    /// Positions of names that are already replaced and are visited again as parts of an expression.
    done: HashSet<Location>,
}

impl Names {
    fn add_tables(&mut self, tables: &mut Tables, target: Option<&str>) -> Result<()> {
        // In a fixed order, with the target of an INSERT first: the first spelling is planned.
        let mut order: Vec<ResolvedTableReference> = tables.keys().cloned().collect();
        order.sort_by_key(|name| (target != Some(name.table.to_lowercase().as_str()), name.to_string()));
        for name in order {
            let Some(table) = tables.get(&name).map(Arc::clone) else { continue };
            let schema = table.schema();
            let mut own: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
            for field in schema.fields() {
                own.entry(field.name().to_lowercase()).or_default().insert(field.name());
                self.add_fields(field.data_type());
            }
            let mut differs = false;
            for (lower, spellings) in own {
                let mut spellings = spellings.into_iter();
                match (spellings.next(), spellings.next()) {
                    (Some(one), None) => {
                        differs |= self.columns.entry(lower).or_insert_with(|| one.to_owned()) != one;
                    }
                    (Some(one), Some(two)) => {
                        self.ambiguous
                            .entry(lower)
                            .or_default()
                            .extend([one, two].into_iter().chain(spellings).map(str::to_owned));
                    }
                    (None, _) => {}
                }
            }
            if differs && target != Some(name.table.to_lowercase().as_str()) {
                let renamed = self.renamed(&name, table)?;
                tables.insert(name, renamed);
            }
        }
        Ok(())
    }

    fn add_fields(&mut self, data_type: &DataType) {
        match data_type {
            DataType::Struct(fields) => {
                for field in fields {
                    self.fields.entry(field.name().to_lowercase()).or_default().insert(field.name().clone());
                    self.add_fields(field.data_type());
                }
            }
            DataType::List(field)
            | DataType::LargeList(field)
            | DataType::FixedSizeList(field, _)
            | DataType::ListView(field)
            | DataType::LargeListView(field)
            | DataType::Map(field, _) => self.add_fields(field.data_type()),
            _ => {}
        }
    }

    /// The table with its columns in the planned spellings.
    fn renamed(&self, name: &ResolvedTableReference, table: Arc<dyn TableProvider>) -> Result<Arc<dyn TableProvider>> {
        let schema = table.schema();
        let scan = LogicalPlanBuilder::scan(name.table.as_ref(), provider_as_source(table), None)?;
        let columns: Vec<_> = scan.schema().iter().map(|(relation, field)| Column::from((relation, field))).collect();
        let columns = columns.into_iter().zip(schema.fields()).map(|(column, field)| {
            let column = PlanExpr::Column(column);
            match self.columns.get(&field.name().to_lowercase()) {
                Some(spelling) if spelling != field.name() => column.alias(spelling),
                _ => column,
            }
        });
        let plan = scan.project(columns.collect::<Vec<_>>())?.build()?;
        Ok(Arc::new(ViewTable::new(plan, None)))
    }

    fn column(&self, ident: &mut Ident) -> ControlFlow<BoxedError> {
        let lower = ident.value.to_lowercase();
        if let Some(spellings) = self.ambiguous.get(&lower) {
            if spellings.contains(&ident.value) {
                ident.quote_style = Some('`');
                return ControlFlow::Continue(());
            }
            if !spellings.contains(&lower) || ident.quote_style.is_some() {
                let spellings: Vec<_> = spellings.iter().map(String::as_str).collect();
                let error = UserError::new(
                    ErrorKind::UndefinedColumn,
                    format!("column reference \"{}\" is ambiguous", ident.value),
                )
                .detail(format!("The table has the columns {}.", spellings.join(", ")))
                .hint("Write the name exactly as in the table.")
                .with_sqlstate("42702");
                return ControlFlow::Break(Box::new(error));
            }
            return ControlFlow::Continue(());
        }
        if let Some(spelling) = self.columns.get(&lower) {
            spell(ident, spelling);
        }
        ControlFlow::Continue(())
    }

    fn field(&self, ident: &mut Ident) {
        if let Some(spellings) = self.fields.get(&ident.value.to_lowercase())
            && !spellings.contains(&ident.value)
            && let Some(spelling) = spellings.first()
            && spellings.len() == 1
        {
            spell(ident, spelling);
        } else if self.fields.get(&ident.value.to_lowercase()).is_some_and(|them| them.contains(&ident.value)) {
            ident.quote_style = Some('`');
        }
    }

    /// `column`, `table.column`, `schema.table.column` and so on, optionally followed by fields of a struct.
    fn compound(&self, parts: &mut [Ident]) -> ControlFlow<BoxedError> {
        let is_relation = |at: usize| parts.len() > at + 1 && self.relations.contains(&parts[at].value.to_lowercase());
        let column = (0..3).find(|at| is_relation(*at)).map_or(0, |at| at + 1);
        for (at, part) in parts.iter_mut().enumerate().skip(column) {
            if at == column {
                self.column(part)?;
            } else {
                self.field(part);
            }
        }
        ControlFlow::Continue(())
    }

    /// `a.b[1].c`: the leading names belong to a column, later ones are fields.
    fn access(&mut self, root: &mut Expr, chain: &mut [AccessExpr]) -> ControlFlow<BoxedError> {
        let is_name = |access: &AccessExpr| matches!(access, AccessExpr::Dot(Expr::Identifier(_)));
        let mut fields = chain;
        if let Expr::Identifier(first) = root {
            let (leading, rest) = fields.split_at_mut(fields.iter().take_while(|access| is_name(access)).count());
            let mut names = vec![first];
            for access in leading {
                if let AccessExpr::Dot(Expr::Identifier(next)) = access {
                    names.push(next);
                }
            }
            self.done_with(names)?;
            fields = rest;
        }
        for access in fields {
            let AccessExpr::Dot(field) = access else { continue };
            let Expr::Identifier(ident) = field else { continue };
            self.field(ident);
            // The planner accepts the name of such a field only as a string.
            let name = if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() };
            *field = Expr::Value(Value::SingleQuotedString(name).into());
        }
        ControlFlow::Continue(())
    }

    fn done_with(&mut self, names: Vec<&mut Ident>) -> ControlFlow<BoxedError> {
        let mut parts: Vec<Ident> = names.iter().map(|name| Ident::clone(name)).collect();
        self.compound(&mut parts)?;
        for (name, part) in names.into_iter().zip(parts) {
            if part.span.start.line > 0 {
                self.done.insert(part.span.start);
            }
            *name = part;
        }
        ControlFlow::Continue(())
    }

    fn object(&self, name: &mut ObjectName) -> ControlFlow<BoxedError> {
        match name.0.last_mut() {
            Some(ObjectNamePart::Identifier(ident)) => self.column(ident),
            _ => ControlFlow::Continue(()),
        }
    }

    fn wildcard(&self, options: &mut WildcardAdditionalOptions) -> ControlFlow<BoxedError> {
        match &mut options.opt_exclude {
            Some(ExcludeSelectItem::Single(name)) => self.object(name)?,
            Some(ExcludeSelectItem::Multiple(names)) => names.iter_mut().try_for_each(|name| self.object(name))?,
            None => {}
        }
        if let Some(ExceptSelectItem { first_element, additional_elements }) = &mut options.opt_except {
            self.column(first_element)?;
            additional_elements.iter_mut().try_for_each(|name| self.column(name))?;
        }
        if let Some(replace) = &mut options.opt_replace {
            replace.items.iter_mut().try_for_each(|item| self.column(&mut item.column_name))?;
        }
        ControlFlow::Continue(())
    }
}

fn spell(ident: &mut Ident, spelling: &str) {
    spelling.clone_into(&mut ident.value);
    ident.quote_style = Some('`');
}

impl VisitorMut for Names {
    type Break = BoxedError;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<BoxedError> {
        match expr {
            Expr::Identifier(ident) if self.done.contains(&ident.span.start) => ControlFlow::Continue(()),
            Expr::Identifier(ident) => self.column(ident),
            Expr::CompoundIdentifier(parts) => self.compound(parts),
            Expr::CompoundFieldAccess { root, access_chain } => self.access(root, access_chain),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<BoxedError> {
        for item in &mut select.projection {
            match item {
                SelectItem::ExprWithAlias { alias, .. } => self.column(alias)?,
                SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => self.wildcard(options)?,
                SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAliases { .. } => {}
            }
        }
        for join in select.from.iter_mut().flat_map(|item| &mut item.joins) {
            if let Some(JoinConstraint::Using(columns)) = constraint(&mut join.join_operator) {
                columns.iter_mut().try_for_each(|column| self.object(column))?;
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<BoxedError> {
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            cte.alias.columns.iter_mut().try_for_each(|column| self.column(&mut column.name))?;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<BoxedError> {
        match alias_of(table) {
            Some(alias) => alias.columns.iter_mut().try_for_each(|column| self.column(&mut column.name)),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_statement(&mut self, statement: &mut ast::Statement) -> ControlFlow<BoxedError> {
        match statement {
            ast::Statement::Insert(insert) => insert.columns.iter_mut().try_for_each(|column| self.object(column)),
            ast::Statement::CreateView(view) => {
                view.columns.iter_mut().try_for_each(|column| self.column(&mut column.name))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn constraint(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::LeftSemi(constraint)
        | JoinOperator::RightSemi(constraint)
        | JoinOperator::LeftAnti(constraint)
        | JoinOperator::RightAnti(constraint) => Some(constraint),
        _ => None,
    }
}
