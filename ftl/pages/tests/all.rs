//! Stores of pages, tested as hosts see them.

mod crash_points;
mod explorer;
mod machine_crash;
mod repair;
mod requests;
