//! Whoever operates the drives while they are served: switches the power, asks how they are.
//!
//! The server's thread owns the drives, so it gives the operator its turn; nothing is locked. An operator that is not
//! called costs a server's turn one comparison.

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use openftl_core::Time;

use crate::ServedDrive;
use crate::served::Served;

/// Whoever operates the drives while they are served.
pub trait Operator<T: ServedDrive> {
    /// What becomes readable when the operator is called, and stays so until its turn.
    fn event(&self) -> Option<BorrowedFd<'_>>;

    /// When it wants a turn though nobody has called.
    fn next_due(&self) -> Option<Time>;

    /// Its turn: each time that the drives have worked and before their replies are sent. `Break` interrupts the service
    /// at this very moment.
    fn turn(&mut self, now: Time, called: bool, drives: &mut Drives<'_, '_, T>) -> ControlFlow<()>;
}

/// The drives that are served, in the order of their exports; none while clients are turned away.
pub struct Drives<'s, 'a, T: ServedDrive> {
    pub(crate) served: &'s mut [Served<'a, T>],
}

impl<T: ServedDrive> Drives<'_, '_, T> {
    /// The drive of an export; a device is none.
    pub fn get_mut(&mut self, export: usize) -> Option<&mut T> {
        self.served.get_mut(export)?.target_mut()
    }

    /// The device in this place; devices come behind the drives.
    pub fn device_mut(&mut self, export: usize) -> Option<&mut T::Device> {
        self.served.get_mut(export)?.media_mut()
    }
}

/// Nobody.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoOperator;

impl<T: ServedDrive> Operator<T> for NoOperator {
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
