//! Panics as values: what the FTL asserts, and what the world finds wrong, ends a run and not the program.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

/// What a panic said, and where.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Failure {
    /// File and line: two failures at the same place are taken for the same.
    pub place: String,
    /// What it said.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.place)
    }
}

thread_local! {
    /// Of the work under way on this thread: `Some(None)` until it fails.
    static CAUGHT: RefCell<Option<Option<Failure>>> = const { RefCell::new(None) };
}

/// Runs `work`; a panic is its failure, and is not printed. Panics of other threads are printed as ever.
///
/// # Errors
/// The panic.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let otherwise = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !note(panic) {
                otherwise(panic);
            }
        }));
    });
    CAUGHT.set(Some(None));
    let result = catch_unwind(AssertUnwindSafe(work));
    let failure = CAUGHT.take().flatten();
    result.map_err(|_| {
        failure.unwrap_or(Failure { place: "somewhere".to_owned(), message: "unwound without a panic".to_owned() })
    })
}

/// Keeps what a panic says, if this thread is at work here.
fn note(panic: &PanicHookInfo<'_>) -> bool {
    CAUGHT.with_borrow_mut(|caught| {
        let Some(caught) = caught else { return false };
        let place = panic.location().map_or("somewhere".to_owned(), |at| format!("{}:{}", at.file(), at.line()));
        let message = panic.payload_as_str().unwrap_or("no message").to_owned();
        *caught = Some(Failure { place, message });
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_value_with_its_place() {
        let failure = caught(|| panic!("the reason")).unwrap_err();
        assert_eq!(failure.message, "the reason");
        assert!(failure.place.starts_with("sim/src/caught.rs:"), "{}", failure.place);
        assert_eq!(caught(|| 7), Ok(7));
    }
}
