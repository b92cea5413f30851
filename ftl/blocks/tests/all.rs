//! The tests of the FTL as one program: each file by itself would be built with all of an FTL in it.

mod care;
mod checkpoint_interval;
mod collection;
mod damage;
mod documents;
mod faults;
mod large;
mod life;
mod machine_crash;
mod metadata;
mod model;
mod paged;
mod placement;
mod refusals;
mod repair;
mod requests;
mod room;
mod stale;
mod stalls;
mod trims;
mod uncorrectable;
mod wear;
