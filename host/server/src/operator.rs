//! Whoever operates the drives while they are served: switches the power, asks how they are.
//!
//! The server's thread owns the drives, so it gives the operator its turn; nothing is locked. An operator that is not
//! called costs a server's turn a few comparisons.

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use openftl_core::Time;
use openftl_pages::PageFtl;
use openftl_values::{ValueDone, ValueFtl};
use openftl_zones::ZoneFtl;

use crate::ServedDrive;
use crate::fabric::Fabric;
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

    /// The drive of an export came to a standstill in this state, and takes no more writes. Requests that waited for it have
    /// ended with errors.
    fn came_to_standstill(&mut self, _export: usize, _state: &str) {}
}

impl<T: ServedDrive, O: Operator<T> + ?Sized> Operator<T> for &mut O {
    fn event(&self) -> Option<BorrowedFd<'_>> {
        (**self).event()
    }

    fn next_due(&self) -> Option<Time> {
        (**self).next_due()
    }

    fn turn(&mut self, now: Time, called: bool, drives: &mut Drives<'_, '_, T>) -> ControlFlow<()> {
        (**self).turn(now, called, drives)
    }

    fn came_to_standstill(&mut self, export: usize, state: &str) {
        (**self).came_to_standstill(export, state);
    }
}

/// The drives that are served, in the order of their exports; none while clients are turned away.
pub struct Drives<'s, 'a, T: ServedDrive> {
    pub(crate) served: &'s mut [Served<'a, T>],
    pub(crate) fabric: Option<&'s mut Fabric>,
}

/// Why the namespace of a drive cannot be attached or detached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AttachError {
    /// There is no target, or nothing behind the namespace.
    #[error("it is no namespace that NVMe hosts reach")]
    NotReached,
    /// Nothing would change.
    #[error("it is so already")]
    Already,
}

impl<T: ServedDrive> Drives<'_, '_, T> {
    /// Whether there are none, and no devices either: clients are turned away.
    pub fn is_empty(&self) -> bool {
        self.served.is_empty()
    }

    /// The drive of an export; a device is none.
    pub fn get_mut(&mut self, export: usize) -> Option<&mut T> {
        self.served.get_mut(export)?.target_mut()
    }

    /// Has NVMe hosts see the namespace of a drive or device from now on, or see it no longer: all of them are told. What was
    /// taken of their commands goes on, and other protocols know nothing of it.
    ///
    /// # Errors
    /// If there is no such namespace, or nothing would change.
    pub fn set_attached(&mut self, export: usize, is_attached: bool) -> Result<(), AttachError> {
        let is_served = export < self.served.len();
        let fabric = self.fabric.as_mut().filter(|_| is_served).ok_or(AttachError::NotReached)?;
        if fabric.set_attached(export, is_attached)? { Ok(()) } else { Err(AttachError::Already) }
    }

    /// Whether NVMe hosts see the namespace of a drive or device.
    pub fn is_attached(&self, export: usize) -> bool {
        self.fabric.as_ref().is_some_and(|fabric| fabric.is_attached(export))
    }

    /// The zoned drive in this place; they come behind the other drives.
    pub fn zones_mut(&mut self, export: usize) -> Option<&mut ZoneFtl<T::Device>> {
        self.served.get_mut(export)?.zones_mut()
    }

    /// The store of pages in this place.
    pub fn pages_mut(&mut self, export: usize) -> Option<&mut PageFtl<T::Device>> {
        self.served.get_mut(export)?.pages_mut()
    }

    /// The key-value drive in this place, and the ends of what the operator has asked of it, with tags from
    /// [`OPERATOR_TAGS`](crate::OPERATOR_TAGS) on.
    pub fn values_mut(&mut self, export: usize) -> Option<(&mut ValueFtl<T::Device>, &mut Vec<ValueDone>)> {
        self.served.get_mut(export)?.values_mut()
    }

    /// The device in this place; devices come behind all drives.
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
