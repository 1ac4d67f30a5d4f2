//! Integration tests: a module per subject, on real clusters.

#[path = "../support/mod.rs"]
mod support;

mod address;
mod adversity;
mod attached;
mod changes;
mod cli;
mod cli_watch;
mod come_and_go;
mod cut_off;
mod doctor;
mod doctor_load;
mod emit;
mod enqueue;
mod epoch;
mod hosts;
mod idle_cost;
mod instance;
mod key_text;
mod lab;
mod mark;
mod migrate;
mod partition;
mod partition_rows;
mod password_file;
mod poll_only;
mod pooler;
mod readme;
mod reference;
mod replication;
mod retention;
mod retention_load;
mod rights;
mod rolling;
mod snapshot;
mod tls;
mod uninstall;
mod watch;
mod watch_check;
mod watch_function;
mod watch_install;
mod watch_shapes;
