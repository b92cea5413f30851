//! What judges file systems judges itself: honest doubles pass, and each dishonest one is caught.

mod crashes;
mod double;
mod lock_step;
