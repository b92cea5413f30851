//! The world in a box: the production FTL on the emulated device in virtual time, and a model that judges it.
//!
//! Everything follows from a seed: the device, the drive, the requests, the faults, the power cuts. Nothing here reads a
//! clock, starts a thread or draws chance of its own.
//!
//! ```text
//!            steps                       commands
//!   run ───▶ world ───────▶ FTL ───────▶ wire ───────▶ emulated device
//!              │    requests              │ cut here       │ faults injected there
//!              ▼                          ▼                ▼
//!            history: what may the host find, after all of that?
//! ```
//!
//! | module | noun |
//! |---|---|
//! | [`history`] | the reference model: knows nothing of the FTL |
//! | [`wire`] | what can be cut at every event |
//! | [`mod@drive`] | what a world needs of a drive |
//! | [`world`] | drive, host and model |
//! | [`table_world`] | the same with tables beside the log area |
//! | [`zone_world`], [`zone_model`] | a zoned drive and its host, and what that may find |
//! | [`page_world`] | the same with a store of pages |
//! | [`file_model`], [`mod@portrait`] | the reference model of a file system, and all of any file system as one number |
//! | [`file_steps`], [`file_world`] | what is asked of a file system, and one in lock step with the model |
//! | [`file_play`] | a file system that histories of the explorer are played on |
//! | `block_host`, `table_host`, `zone_host` | what their hosts do |
//! | `block_requests`, `table_requests`, `zone_requests` | how they ask for it |
//! | `block_contents`, `table_contents` | what blocks and notes say of themselves |
//! | [`alfs`] | ALFS as a file system under test |
//! | [`mod@rig`] | a drive with its device and its clock, whatever it is for |
//! | [`stage`] | a world that crash points are found of |
//! | [`liveness`] | what a drive owes besides the truth: an answer |
//! | [`fate`] | what a power cut leaves beyond a prefix in time |
//! | [`crash_points`] | every state that a power cut can leave, recovered and judged: one loop for all kinds |
//! | [`block_crash_points`], [`zone_crash_points`] | how blocks and tables are judged then, and zones |
//! | [`played_crash_points`], [`file_crash_points`] | how drives of any kind are, and a file system on segments |
//! | [`damage`] | metadata of them that are damaged |
//! | [`mod@devices`] | small devices that differ in what a power cut may leave |
//! | [`played`] | what a run needs of any of them |
//! | [`step`], [`fault`] | what may happen, and what may go wrong |
//! | [`swarm`] | a run, drawn from a seed |
//! | [`mod@explore`] | a run, played and judged |
//! | [`mod@shrink`] | a run that fails, made short |
//! | [`mod@caught`] | panics as values |

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod alfs;
mod block_contents;
pub mod block_crash_points;
mod block_host;
mod block_requests;
pub mod caught;
pub mod crash_points;
pub mod damage;
pub mod devices;
pub mod drive;
pub mod explore;
pub mod fate;
pub mod fault;
mod file_bytes;
pub mod file_crash_points;
pub mod file_model;
pub mod file_play;
mod file_refusals;
mod file_replies;
pub mod file_steps;
pub mod file_world;
pub mod history;
pub mod liveness;
pub mod page_world;
pub mod played;
pub mod played_crash_points;
pub mod portrait;
pub mod rig;
pub mod shrink;
pub mod stage;
pub mod step;
pub mod swarm;
mod table_contents;
mod table_host;
mod table_requests;
pub mod table_world;
pub mod wire;
pub mod world;
pub mod zone_crash_points;
mod zone_host;
pub mod zone_model;
mod zone_requests;
pub mod zone_world;

pub use block_crash_points::BlockCrashPoints;
pub use caught::Failure;
pub use explore::{Explored, Tally, explore, explore_in};
pub use fault::FaultKind;
pub use file_bytes::FileBytes;
pub use file_crash_points::{FileCrashPoints, FileStage, Mounts};
pub use file_model::{FileLimits, FileModel};
pub use file_replies::Leniency;
pub use file_steps::{FileAct, FileStep, FileSteps, FileWeights};
pub use file_world::FileWorld;
pub use portrait::Portrait;
pub use shrink::{Shrunk, shrink};
pub use swarm::{Drives, Run};
pub use table_world::TableWorld;
pub use world::World;
pub use zone_crash_points::ZoneCrashPoints;
pub use zone_world::ZoneWorld;
