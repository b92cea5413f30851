//! A controller as hosts meet it: whole sessions, every refusal, and a storm of random commands.

mod association;
mod data_placement;
mod discovery;
mod events;
mod features;
mod harness;
mod identify;
mod io;
mod logs;
mod pages;
mod reservations;
mod segments;
mod storm;
mod streams;
mod values;
mod zoned;
