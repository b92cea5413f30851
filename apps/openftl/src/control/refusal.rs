//! A refusal tells an operator why a request was not carried out, and what to do.

use crate::failure::Failure;
use openftl_control::{Refusal, RefusalKind};

pub(super) fn not_now(what: impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::NotNow, what)
}

pub(super) fn out_of_range(what: impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::OutOfRange, what)
}

pub(super) fn refusal(failure: &Failure) -> Refusal {
    let refusal = Refusal::new(RefusalKind::Failed, failure.what());
    match failure.what_to_do() {
        Some(fix) => refusal.fix(fix),
        None => refusal,
    }
}

pub(super) fn store_refusal(error: impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::Failed, error)
}
