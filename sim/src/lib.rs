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
//! | [`world`] | drive, host and model |
//! | [`crash_points`] | every state that a power cut can leave, recovered and judged |

pub mod crash_points;
pub mod history;
pub mod wire;
pub mod world;

pub use world::World;
