//! Stores of pages, tested as hosts see them.

mod crash_points;
mod explorer;
mod index_on_media;
mod machine_crash;
mod recoveries;
mod repair;
mod requests;
