//! Tests of the program from outside: start, statements, kills, hostile input. One binary, so that it is linked once.

mod byte_budgets;
mod children;
mod command_line;
mod configuration_check;
mod doctor;
mod full_disk;
mod hostile_input;
mod hostile_statements;
mod hung_engines;
mod installation;
mod key_files;
mod killed_at_points;
mod passwd;
mod real_postgres;
mod refused_impersonations;
mod role_starts;
mod sql_client;
mod standalone_life;
mod standalone_settings;
mod tls;
