//! Failures that others reported in public, each as a test named after its case.

#[path = "../support/mod.rs"]
mod support;

mod c20_notification_limit;
mod c24_value_the_event_cannot_hold;
mod c28_truncate;
mod c32_rights_of_the_writer;
mod c34_installer_blocks_writers;
