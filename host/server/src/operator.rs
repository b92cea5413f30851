//! Whoever operates the drives while they are served: switches the power, asks how they are.
//!
//! The server's thread owns the drives, so it gives the operator its turn; nothing is locked. An operator that is not
//! called costs a server's turn one comparison.

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use openftl_core::Time;

use crate::Served;

/// Whoever operates the drives while they are served.
pub trait Operator<T> {
    /// What becomes readable when the operator is called, and stays so until its turn.
    fn event(&self) -> Option<BorrowedFd<'_>>;

    /// When it wants a turn though nobody has called.
    fn next_due(&self) -> Option<Time>;

    /// Its turn: each time that the drives have worked and before their replies are sent. `Break` interrupts the service
    /// at this very moment.
    fn turn(&mut self, now: Time, called: bool, drives: &mut Drives<'_, '_, T>) -> ControlFlow<()>;
}

/// The drives that are served, in the order of their exports; none while clients are turned away.
pub struct Drives<'s, 'a, T> {
    pub(crate) served: &'s mut [Served<'a, T>],
}

impl<T> Drives<'_, '_, T> {
    /// The drive of an export.
    pub fn get_mut(&mut self, export: usize) -> Option<&mut T> {
        self.served.get_mut(export).map(|served| &mut *served.target)
    }
}

/// Nobody.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoOperator;

impl<T> Operator<T> for NoOperator {
    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_due(&self) -> Option<Time> {
        None
    }

    fn turn(&mut self, _now: Time, _called: bool, _drives: &mut Drives<'_, '_, T>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
