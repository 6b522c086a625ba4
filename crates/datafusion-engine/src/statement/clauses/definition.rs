//! The clauses of DDL statements and INSERT.

use datafusion::sql::parser::CreateExternalTable;
use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, ColumnOptionDef, CreateTable, CreateTableOptions, CreateView, DescribeAlias,
    HiveDistributionStyle, Insert, Statement, TableObject, ViewColumnDef,
};

use super::{Checked, refuse, refused};

/// Checks a statement's own clauses; its queries and expressions are visited separately. The planner rejects the statements
/// that are not listed.
pub fn statement(statement: &Statement) -> Checked {
    match statement {
        Statement::CreateTable(table) => create_table(table),
        Statement::CreateView(view) => create_view(view),
        Statement::Insert(one) => insert(one),
        Statement::Drop { object_type: _, if_exists: _, names, cascade, restrict: _, purge, temporary, table } => {
            refuse(names.len() > 1, "DROP of several objects")?;
            refuse(*cascade, "CASCADE")?;
            refuse(*purge, "PURGE")?;
            refuse(*temporary, "DROP TEMPORARY").map_err(|error| error.hint("Use DROP TABLE or DROP VIEW."))?;
            refuse(table.is_some(), "DROP … ON a table")
        }
        Statement::CreateSchema { schema_name: _, if_not_exists: _, with, options, default_collate_spec, clone } => {
            refuse(with.is_some() || options.is_some(), "an option of CREATE SCHEMA")?;
            refuse(default_collate_spec.is_some(), "COLLATE of CREATE SCHEMA")?;
            refuse(clone.is_some(), "CLONE")
        }
        Statement::CreateDatabase {
            db_name: _,
            if_not_exists: _,
            location,
            managed_location,
            or_replace,
            transient,
            clone,
            data_retention_time_in_days,
            max_data_extension_time_in_days,
            external_volume,
            catalog,
            replace_invalid_characters,
            default_ddl_collation,
            storage_serialization_policy,
            // A comment has no effect on results.
            comment: _,
            default_charset,
            default_collation,
            catalog_sync,
            catalog_sync_namespace_mode,
            catalog_sync_namespace_flatten_delimiter,
            with_tags,
            with_contacts,
        } => {
            refuse(location.is_some() || managed_location.is_some(), "LOCATION of CREATE DATABASE")?;
            refuse(*or_replace, "OR REPLACE of CREATE DATABASE")?;
            refuse(*transient, "TRANSIENT")?;
            refuse(clone.is_some(), "CLONE")?;
            let other = data_retention_time_in_days.is_some()
                || max_data_extension_time_in_days.is_some()
                || external_volume.is_some()
                || catalog.is_some()
                || replace_invalid_characters.is_some()
                || default_ddl_collation.is_some()
                || storage_serialization_policy.is_some()
                || default_charset.is_some()
                || default_collation.is_some()
                || catalog_sync.is_some()
                || catalog_sync_namespace_mode.is_some()
                || catalog_sync_namespace_flatten_delimiter.is_some()
                || with_tags.is_some()
                || with_contacts.is_some();
            refuse(other, "an option of CREATE DATABASE")
        }
        Statement::Explain {
            describe_alias,
            analyze: _,
            verbose: _,
            query_plan,
            estimate,
            statement: _,
            format: _,
            options,
        } => {
            let describes = matches!(describe_alias, DescribeAlias::Describe | DescribeAlias::Desc);
            refuse(describes && (*query_plan || *estimate || options.is_some()), "an option of DESCRIBE")
        }
        _ => Ok(()),
    }
}

fn create_table(table: &CreateTable) -> Checked {
    let CreateTable {
        or_replace: _,
        temporary: _,
        external,
        dynamic,
        global,
        if_not_exists: _,
        transient,
        volatile,
        iceberg,
        snapshot,
        name: _,
        columns,
        constraints: _,
        hive_distribution,
        hive_formats,
        table_options,
        file_format,
        location,
        query: _,
        without_rowid,
        like,
        clone,
        version,
        // A comment has no effect on results.
        comment: _,
        on_commit,
        on_cluster,
        primary_key,
        order_by,
        partition_by,
        cluster_by,
        clustered_by,
        inherits,
        partition_of,
        for_values,
        strict,
        copy_grants,
        enable_schema_evolution,
        change_tracking,
        data_retention_time_in_days,
        max_data_extension_time_in_days,
        default_ddl_collation,
        with_aggregation_policy,
        with_row_access_policy,
        with_storage_lifecycle_policy,
        with_tags,
        external_volume,
        base_location,
        catalog,
        catalog_sync,
        storage_serialization_policy,
        target_lag,
        warehouse,
        refresh_mode,
        initialize,
        require_user,
        diststyle,
        distkey,
        sortkey,
        backup,
    } = table;
    let of_files = file_format.is_some()
        || location.is_some()
        || *external
        || hive_formats.as_ref().is_some_and(|format| {
            format.row_format.is_some()
                || format.serde_properties.is_some()
                || format.storage.is_some()
                || format.location.is_some()
        })
        || !matches!(table_options, CreateTableOptions::None)
        || *iceberg;
    refuse(of_files, "a table of files that is not external").map_err(|error| {
        error.hint("Use CREATE EXTERNAL TABLE … STORED AS PARQUET LOCATION '…', or COPY (…) TO '…'.")
    })?;
    refuse(*hive_distribution != HiveDistributionStyle::NONE || partition_by.is_some(), "PARTITIONED BY of this table")
        .map_err(|error| error.hint("Use CREATE EXTERNAL TABLE … PARTITIONED BY (…)."))?;
    refuse(
        clustered_by.is_some() || cluster_by.is_some() || order_by.is_some(),
        "CLUSTERED BY or ORDER BY of a table",
    )?;
    refuse(global.is_some(), "GLOBAL or LOCAL of CREATE TABLE")?;
    refuse(like.is_some(), "CREATE TABLE … LIKE")?;
    refuse(clone.is_some() || version.is_some(), "CLONE")?;
    refuse(*transient || *volatile || *dynamic || *snapshot, "this kind of table")?;
    refuse(on_commit.is_some(), "ON COMMIT")?;
    refuse(primary_key.is_some(), "PRIMARY KEY after the columns")?;
    refuse(inherits.is_some() || partition_of.is_some() || for_values.is_some(), "INHERITS or PARTITION OF")?;
    let other = *without_rowid
        || *strict
        || *copy_grants
        || *require_user
        || on_cluster.is_some()
        || enable_schema_evolution.is_some()
        || change_tracking.is_some()
        || data_retention_time_in_days.is_some()
        || max_data_extension_time_in_days.is_some()
        || default_ddl_collation.is_some()
        || with_aggregation_policy.is_some()
        || with_row_access_policy.is_some()
        || with_storage_lifecycle_policy.is_some()
        || with_tags.is_some()
        || external_volume.is_some()
        || base_location.is_some()
        || catalog.is_some()
        || catalog_sync.is_some()
        || storage_serialization_policy.is_some()
        || target_lag.is_some()
        || warehouse.is_some()
        || refresh_mode.is_some()
        || initialize.is_some()
        || diststyle.is_some()
        || distkey.is_some()
        || sortkey.is_some()
        || backup.is_some();
    refuse(other, "an option of CREATE TABLE")?;
    columns.iter().try_for_each(column)
}

fn create_view(view: &CreateView) -> Checked {
    let CreateView {
        or_alter,
        or_replace: _,
        materialized,
        secure,
        name: _,
        name_before_not_exists: _,
        columns,
        query: _,
        options,
        cluster_by,
        // A comment has no effect on results.
        comment: _,
        with_no_schema_binding,
        if_not_exists: _,
        temporary: _,
        copy_grants,
        to,
        params,
    } = view;
    refuse(*or_alter, "OR ALTER")?;
    refuse(*materialized, "MATERIALIZED")?;
    refuse(*secure, "SECURE")?;
    refuse(!matches!(options, CreateTableOptions::None), "an option of CREATE VIEW")?;
    refuse(!cluster_by.is_empty(), "CLUSTER BY")?;
    refuse(*with_no_schema_binding, "WITH NO SCHEMA BINDING")?;
    refuse(*copy_grants, "COPY GRANTS")?;
    refuse(to.is_some(), "TO of CREATE VIEW")?;
    refuse(params.is_some(), "ALGORITHM, DEFINER or SQL SECURITY of CREATE VIEW")?;
    columns.iter().try_for_each(|ViewColumnDef { name: _, data_type, options }| {
        refuse(data_type.is_some(), "the type of a view's column")?;
        refuse(options.is_some(), "an option of a view's column")
    })
}

/// Checks the columns of a CREATE EXTERNAL TABLE.
pub fn external_table(table: &CreateExternalTable) -> Checked {
    let CreateExternalTable {
        name: _,
        columns,
        file_type: _,
        locations: _,
        table_partition_cols: _,
        order_exprs: _,
        if_not_exists: _,
        or_replace: _,
        temporary: _,
        unbounded,
        options: _,
        constraints: _,
    } = table;
    refuse(*unbounded, "an unbounded table")?;
    columns.iter().try_for_each(column)
}

fn column(column: &ColumnDef) -> Checked {
    let ColumnDef { name: _, data_type: _, options } = column;
    options.iter().try_for_each(|ColumnOptionDef { name: _, option }| {
        let what = match option {
            ColumnOption::Null
            | ColumnOption::NotNull
            | ColumnOption::Default(_)
            | ColumnOption::PrimaryKey(_)
            | ColumnOption::Unique(_)
            // A comment has no effect on results.
            | ColumnOption::Comment(_) => return Ok(()),
            ColumnOption::ForeignKey(_) => "REFERENCES of a column",
            ColumnOption::Check(_) => "CHECK of a column",
            ColumnOption::Collation(_) | ColumnOption::CharacterSet(_) => "COLLATE of a column",
            ColumnOption::Generated {
                generated_as: _,
                sequence_options: _,
                generation_expr: _,
                generation_expr_mode: _,
                generated_keyword: _,
            }
            | ColumnOption::Materialized(_)
            | ColumnOption::Ephemeral(_)
            | ColumnOption::Alias(_)
            | ColumnOption::Identity(_) => "a generated column",
            ColumnOption::OnUpdate(_)
            | ColumnOption::OnConflict(_)
            | ColumnOption::Options(_)
            | ColumnOption::Policy(_)
            | ColumnOption::Tags(_)
            | ColumnOption::Srid(_)
            | ColumnOption::Invisible
            | ColumnOption::DialectSpecific(_) => "an option of a column",
        };
        Err(refused(what))
    })
}

fn insert(insert: &Insert) -> Checked {
    let Insert {
        insert_token: _,
        optimizer_hints: _,
        or,
        ignore,
        into: _,
        table,
        table_alias,
        columns: _,
        overwrite: _,
        source: _,
        assignments,
        partitioned,
        after_columns,
        has_table_keyword: _,
        on,
        returning,
        output,
        replace_into: _,
        priority,
        insert_alias,
        settings,
        format_clause,
        multi_table_insert_type,
        multi_table_into_clauses,
        multi_table_when_clauses,
        multi_table_else_clause,
    } = insert;
    refuse(!matches!(table, TableObject::TableName(_)), "INSERT into a function or query")?;
    refuse(or.is_some() || *ignore, "INSERT OR … or INSERT IGNORE")?;
    refuse(table_alias.is_some() || insert_alias.is_some(), "an alias in INSERT")?;
    refuse(!assignments.is_empty(), "INSERT … SET")?;
    refuse(partitioned.is_some() || !after_columns.is_empty(), "PARTITION (…) of INSERT")
        .map_err(|error| error.hint("Insert the partition's columns as the last columns."))?;
    refuse(on.is_some(), "ON CONFLICT or ON DUPLICATE KEY")?;
    refuse(returning.is_some() || output.is_some(), "RETURNING or OUTPUT")?;
    refuse(priority.is_some(), "the priority of INSERT")?;
    refuse(settings.is_some(), "SETTINGS")?;
    refuse(format_clause.is_some(), "FORMAT")?;
    let several = multi_table_insert_type.is_some()
        || !multi_table_into_clauses.is_empty()
        || !multi_table_when_clauses.is_empty()
        || multi_table_else_clause.is_some();
    refuse(several, "INSERT into several tables")
}
