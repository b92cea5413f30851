//! Segments on the emulated device: AMF I/O against a model, and the example that says what they are for.

mod example;
mod model;
