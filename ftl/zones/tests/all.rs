//! Zones on the emulated device, judged by a model.

mod crash_points;
mod world;
