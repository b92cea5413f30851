//! Zones on the emulated device, judged by a model.

mod board;
mod copies;
mod crash_points;
mod extensions;
mod refresh;
mod windows;
mod world;
