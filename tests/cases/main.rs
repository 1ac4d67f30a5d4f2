//! Failures that people reported in public, each as steps and a right answer; named after their case.

#[path = "../support/mod.rs"]
mod support;

mod c01_lost_across_a_reconnect;
mod c02_listen_before_catch_up;
mod c03_half_open;
mod c04_server_restart;
mod c05_start_up_window;
mod c08_out_of_order_commit;
mod c10_slow_transaction;
mod c11_wake_before_visible;
mod c14_wake_is_not_an_item;
mod c20_notification_limit;
mod c21_bytes_not_characters;
mod c23_names_as_they_are;
mod c24_value_the_event_cannot_hold;
mod c25_ambiguous_keys;
mod c27_attach_and_detach;
mod c27_partitions;
mod c28_truncate;
mod c29_key_changes;
mod c31_restore;
mod c32_rights_of_the_writer;
mod c34_installer_blocks_writers;
mod c36_replicated_rows;
mod c40_promoted_standby;
mod c45_overtaken_fill;
mod c47_cut_off;
mod c48_old_events;
mod c61_injection;
