//! Questions and answers: what is asked of a drive, how it is measured, and how the answer is shown. What papers asked is in
//! `lab/experiments/`, on top of this.
//!
//! Nothing here reads a clock or draws chance of its own: a seed and a [`openftl_core::Clock`] come as arguments, so the
//! same load runs in virtual time, against the wall clock, or on instant media.
//!
//! | module | noun |
//! |---|---|
//! | [`load`] | what a host does to a drive, step by step, and what it knows of lifetimes |
//! | [`load_spec`] | a load as text, and how it is made |
//! | [`loads`] | models of hosts: files, LSM-trees, file systems, databases, tenants |
//! | [`binding`] | what of that knowledge a drive is told |
//! | [`workload`] | blocks chosen one by one: uniform, popular, in order |
//! | [`trace`] | what real hosts were recorded to do |
//! | [`zipf`] | a distribution in which few are popular |
//! | [`driver`] | keeps a drive busy at a queue depth and checks every block that comes back |
//! | [`outcome`] | what one phase of a run measured |
//! | [`trial`] | a drive under a load: filled, warmed up, measured, read back |
//! | [`page_trial`] | a store of pages under batches |
//! | [`value_trial`] | a key-value drive under a mix of requests |
//! | [`steady`] | brings a drive into its steady state |
//! | [`theory`] | write amplification as the literature computes it |
//! | [`likeness`] | the word that was probably meant |
//! | [`picture`] | bars, strips and sparklines for a terminal |
//! | [`figures`] | tables, plots and bars, and the HTML page around them |

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod binding;
pub mod driver;
pub mod figures;
pub mod likeness;
pub mod load;
pub mod load_spec;
pub mod loads;
pub mod outcome;
pub mod page_trial;
pub mod picture;
pub mod steady;
pub mod theory;
pub mod trace;
pub mod trial;
pub mod value_trial;
pub mod workload;
pub mod zipf;

pub use binding::Binding;
pub use driver::{Driver, Limit, RunError};
pub use load::{Access, Hint, Load, Operation};
pub use load_spec::{LoadError, LoadSpec};
pub use openftl_core::TraceHash;
pub use openftl_segments::BlockDrive;
pub use outcome::Outcome;
pub use trial::{Measured, Trial, TrialError, WarmUp};
pub use workload::{Pattern, Workload, WorkloadConfig};
