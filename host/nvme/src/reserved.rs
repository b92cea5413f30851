//! The reservations of a subsystem's namespaces: commands change them, and other commands are refused because of them.

use crate::command::reservation::{Access, Keys, ReservationCommand};
use crate::command::{Io, Refusal};
use crate::controller::Controller;
use crate::namespace::{ALL_NAMESPACES, NAMESPACES_MAX, NamespaceSet};
use crate::queue::{Queue, SubsystemIndex};
use crate::reservation::{Change, HostId, Reservation};
use crate::subsystem::Subsystem;
use crate::target::Target;
use crate::wire::reservation::{RegisteredController, ReportHead};
use crate::wire::status::Status;
use zerocopy::{FromZeros, IntoBytes};

/// What a command on an I/O queue is checked against.
#[derive(Clone, Copy)]
pub(crate) struct Reserved<'a> {
    /// Namespaces whose reservation is held: mostly none, which is all that a command costs then.
    pub held: NamespaceSet,
    /// Of each namespace, at its id less one.
    pub reservations: &'a [Reservation],
}

impl Reserved<'_> {
    /// Whether a host, which has these namespaces attached, may do this now.
    ///
    /// # Errors
    /// If it may not.
    #[cold]
    pub fn expect_access(&self, io: &Io, host: HostId, attached: NamespaceSet) -> Result<(), Refusal> {
        let access = io.command.access();
        if access == Access::None {
            return Ok(());
        }
        let is_meant = |id: &u32| io.namespace == *id || io.namespace == ALL_NAMESPACES && attached.contains(*id);
        let is_allowed = |id: u32| self.reservations[id as usize - 1].allows(host, access);
        if self.held.iter().filter(is_meant).all(is_allowed) {
            Ok(())
        } else {
            Err(Status::RESERVATION_CONFLICT.into())
        }
    }
}

impl Subsystem {
    /// A namespace is attached or gone: whatever is there begins without a reservation.
    pub(crate) fn forget_reservation(&mut self, id: u32) {
        self.reservations[id as usize - 1] = Reservation::default();
        self.reserved.remove(id);
    }

    /// Tells hosts what has become of their registrations and reservations.
    fn notify(&mut self, id: u32, change: &Change) {
        for (host, notification) in &change.notifications {
            for controller in self.controllers_mut().filter(|controller| controller.host.id == *host) {
                controller.notify(id, *notification);
            }
        }
    }
}

impl Target {
    /// The drives have lost their power: no reservation and no registration is kept (PTPL).
    pub fn forget_reservations(&mut self) {
        for index in 0..self.subsystems().len() {
            let subsystem = self.nvm_subsystem_mut(index);
            (1..=NAMESPACES_MAX).for_each(|id| subsystem.forget_reservation(id));
        }
    }

    /// The reservation of a namespace.
    #[must_use]
    pub fn reservation(&self, subsystem: usize, namespace: u32) -> Option<&Reservation> {
        self.subsystems().get(subsystem)?.reservations.get((namespace as usize).checked_sub(1)?)
    }

    /// Carries out a command about the reservation of a namespace, with the data that the host sent for it. Returns the hosts whose
    /// commands under way on the namespace have to end before this one does: those that it preempts and aborts.
    ///
    /// # Errors
    /// How the command ends that is refused.
    pub fn reserve(
        &mut self,
        queue: &Queue,
        namespace: u32,
        command: ReservationCommand,
        data: &[u8],
    ) -> Result<Vec<HostId>, Refusal> {
        let host = self.controller(queue).map(|controller| controller.host.id);
        let host = host.ok_or(Status::ABORTED_QUEUE_DELETED)?;
        let SubsystemIndex::Nvm(index) = queue.controller().subsystem else {
            unreachable!("a discovery controller has no namespaces")
        };
        let subsystem = self.nvm_subsystem_mut(index);
        let keys = Keys::of(command, data)?;
        let reservation = &mut subsystem.reservations[namespace as usize - 1];
        if matches!(command, ReservationCommand::Register { .. }) {
            let controllers = &subsystem.controllers;
            reservation.make_room_for(host, |one| controllers.iter().flatten().any(|other| other.host.id == one));
        }
        let change = reservation.carry_out(host, command, keys)?;
        if reservation.held().is_some() {
            subsystem.reserved.insert(namespace);
        } else {
            subsystem.reserved.remove(namespace);
        }
        subsystem.notify(namespace, &change);
        Ok(if command.aborts() { change.preempted } else { Vec::new() })
    }

    /// The data of a report on the reservation of a namespace. A host without a controller is there, too.
    #[must_use]
    pub fn reservation_report(&self, queue: &Queue, namespace: u32) -> Vec<u8> {
        let SubsystemIndex::Nvm(index) = queue.controller().subsystem else { return Vec::new() };
        let subsystem = &self.subsystems()[index];
        let reservation = &subsystem.reservations[namespace as usize - 1];
        let mut registered = Vec::new();
        for registrant in reservation.registrants() {
            let of_host = |controller: &&Controller| controller.host.id == registrant.host;
            let mut ids: Vec<u16> =
                subsystem.controllers().filter(of_host).map(|controller| controller.name.id).collect();
            if ids.is_empty() {
                ids.push(RegisteredController::NONE);
            }
            let status = if reservation.is_holder(registrant.host) { RegisteredController::HOLDER } else { 0 };
            registered.extend(ids.into_iter().map(|id| RegisteredController {
                controller: id.into(),
                status,
                key: registrant.key.into(),
                host: registrant.host,
                ..RegisteredController::new_zeroed()
            }));
        }
        let head = ReportHead {
            generation: reservation.generation().into(),
            kind: reservation.held().map_or(0, |kind| kind.code()),
            controllers: (registered.len() as u16).into(),
            ..ReportHead::new_zeroed()
        };
        [head.as_bytes(), registered.as_bytes()].concat()
    }
}
