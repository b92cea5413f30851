//! Zones on the emulated device, judged by a model.

mod board;
mod crash_points;
mod extensions;
mod refresh;
mod windows;
mod world;
