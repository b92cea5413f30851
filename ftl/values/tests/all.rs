//! Key-value drives, tested as hosts see them.

mod crash_points;
mod explorer;
mod lists;
mod repair;
mod requests;
mod world;
