//! The log on the emulated device, in virtual time: what it holds, every power cut, and drawn histories.

mod crash_points;
mod example;
mod explorer;
mod guide;
mod world;
