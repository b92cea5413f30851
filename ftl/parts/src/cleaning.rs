//! Making room: which chunk is collected, and at which pace.

pub mod closing_order;
pub mod throttle;
pub mod victim;
