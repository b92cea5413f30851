//! What the NVMe connections of a server share: controllers, and the drives behind their namespaces.
//!
//! There is one subsystem; namespace n is the server's drive n − 1.

use openftl_core::{ChunkId, Time};
use openftl_media::{ChunkDescriptor, Media, MediaError, Notification};
use openftl_nbd::protocol::Reserved;
use openftl_nvme::command::Access;
use openftl_nvme::controller::Effect;
use openftl_nvme::queue::ControllerName;
use openftl_nvme::reservation::NO_HOST_ID;
use openftl_nvme::wire::fabrics::ConnectData;
use openftl_nvme::wire::text_of;
use openftl_nvme::{
    Drives, Health, HostId, Namespace, NamespaceName, Outcome, PlacementCounts, Queue, SubmissionEntry, Target,
};
use openftl_nvme_auth::PskIdentity;
use openftl_nvme_tcp::target::Slot;
use openftl_parts::target::{HandleEvent, HandleWatch};
use zerocopy::FromBytes;

use crate::authentication::Authority;
use crate::operator::AttachError;
use crate::secure::Secure;
use crate::served::Served;
use crate::served_drive::{ServedDrive, health_of};
use crate::ticket::{Ticket, What};

/// The host and the subsystem that the data of a Connect command name.
pub(crate) fn names_of(data: &[u8]) -> Option<(&str, &str)> {
    let (data, _) = ConnectData::ref_from_prefix(data).ok()?;
    Some((text_of(&data.host_nqn)?, text_of(&data.subsystem_nqn)?))
}

/// The one subsystem.
const SUBSYSTEM: usize = 0;

/// Controllers of NVMe hosts.
pub(crate) struct Fabric {
    pub target: Target,
    /// What is to be done to other connections, or to the drives.
    pub effects: Vec<(ControllerName, Effect)>,
    /// Controllers whose hosts have fallen silent.
    pub expired: Vec<ControllerName>,
    /// An admin queue is gone: others may have lost their controller.
    pub is_disturbed: bool,
    /// Where the data of an answer are made, one at a time.
    pub answer: Vec<u8>,
    /// Bytes in the heap that are booked for commands, of all connections.
    pub heap_bytes: usize,
    /// Steps of authentications that this turn still has time for.
    pub authentication_steps_left: u32,
    /// What hosts are authenticated with, where they have to be.
    pub authority: Option<Authority>,
    /// What makes connections secure, where they are.
    pub secure: Option<Secure>,
    /// Preemptions that have not ended.
    pub fences: Vec<Fence>,
    shutdowns: Vec<Shutdown>,
    /// Something has happened of which hosts may want to hear.
    pub is_restless: bool,
    /// The count of the last chunk notification of each of those that are served.
    noticed: Vec<u64>,
    notifications: Vec<Notification>,
}

/// A command that has preempted hosts, and ends when what they have under way on a namespace has ended.
pub(crate) struct Fence {
    /// Whose it is.
    pub connection: u32,
    pub generation: u32,
    pub command: Slot,
    pub namespace: u32,
    pub hosts: Vec<HostId>,
}

/// A controller whose host leaves as soon as every drive is flushed.
struct Shutdown {
    controller: ControllerName,
    /// Drives, from the first one on, whose flush has not begun.
    to_flush: usize,
    /// Flushes under way.
    flushing: usize,
}

impl Fabric {
    pub fn new(target: Target) -> Fabric {
        Fabric {
            target,
            effects: Vec::new(),
            expired: Vec::new(),
            is_disturbed: false,
            answer: Vec::new(),
            heap_bytes: 0,
            authentication_steps_left: 0,
            authority: None,
            secure: None,
            fences: Vec::new(),
            shutdowns: Vec::new(),
            is_restless: false,
            noticed: Vec::new(),
            notifications: Vec::new(),
        }
    }

    /// Whether who has shown `shown` may connect as these data of a Connect command say. Where they cannot be understood, that
    /// is for the command itself to say.
    pub fn admits(&self, shown: Option<&PskIdentity>, data: &[u8]) -> bool {
        let Some(secure) = &self.secure else { return true };
        names_of(data).is_none_or(|(host, subsystem)| secure.admits(shown, host, subsystem))
    }

    /// Looks what drives and devices have to say, and has the controllers tell their hosts.
    pub fn look<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>]) {
        self.is_restless = false;
        self.noticed.resize(served.len(), 0);
        for (export, served) in served.iter_mut().enumerate() {
            let is_zoned = served.is_zoned();
            if let Some(drive) = served.zones_mut().filter(|_| is_zoned) {
                let size = drive.layout().size;
                for zone in drive.take_changed() {
                    self.target.zone_changed(SUBSYSTEM, export as u32 + 1, u64::from(zone) * size);
                }
            }
            let Some(device) = served.media_mut() else { continue };
            // A device that does not answer has nothing to say.
            let _ = device.notifications(now, self.noticed[export], &mut self.notifications);
            if let Some(last) = self.notifications.last() {
                self.noticed[export] = last.count;
                self.target.chunks_notify(SUBSYSTEM, export as u32 + 1);
            }
            self.notifications.clear();
        }
        // The rest of their health takes a walk over all chunks, and nothing else of it is a warning.
        let is_read_only = served.iter().any(Served::is_read_only);
        self.target.health_is(SUBSYSTEM, &Health { is_read_only, ..Health::default() });
    }

    /// What hosts have reserved of a drive for themselves: a client that is no NVMe host can neither register nor be a holder.
    pub fn reserved(&self, export: usize) -> Reserved {
        let Some(reservation) = self.target.reservation(SUBSYSTEM, export as u32 + 1) else { return Reserved::Nothing };
        let allows = |access| reservation.allows(NO_HOST_ID, access);
        match (allows(Access::Write), allows(Access::Read)) {
            (true, _) => Reserved::Nothing,
            (false, true) => Reserved::Writes,
            (false, false) => Reserved::Everything,
        }
    }

    /// The drives have lost their power, and with it what they knew of reservations.
    pub fn power_lost(&mut self) {
        self.target.forget_reservations();
        self.fences.clear();
    }

    /// A host wants to leave.
    pub fn begin_shutdown(&mut self, controller: ControllerName, drives: usize) {
        self.shutdowns.push(Shutdown { controller, to_flush: drives, flushing: 0 });
    }

    /// Begins the flushes that hosts wait for, as far as there are places for them.
    pub fn flush_for_shutdowns<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>]) {
        for shutdown in &mut self.shutdowns {
            let ticket = Ticket { slot: u32::MAX, generation: u32::MAX, what: What::Shutdown(shutdown.controller) };
            while let Some(drive) = shutdown.to_flush.checked_sub(1) {
                let Some(id) = served[drive].flush(ticket) else { break };
                served[drive].start(now, id);
                shutdown.to_flush = drive;
                shutdown.flushing += 1;
            }
        }
    }

    /// A drive was flushed for a controller that is being shut down. If it could not be, the shutdown never completes: the
    /// host is not told that its data are safe.
    pub fn flushed(&mut self, controller: ControllerName, is_success: bool) {
        let Some(index) = self.shutdowns.iter().position(|shutdown| shutdown.controller == controller) else { return };
        let shutdown = &mut self.shutdowns[index];
        shutdown.flushing -= 1;
        let is_flushed = shutdown.to_flush + shutdown.flushing == 0;
        if is_success && is_flushed {
            self.target.shutdown_completed(controller);
        }
        if !is_success || is_flushed {
            self.shutdowns.swap_remove(index);
        }
    }

    /// The drive behind a namespace. A flush of all namespaces is one of the first.
    pub fn export(&self, namespace: u32) -> usize {
        if namespace == openftl_nvme::namespace::ALL_NAMESPACES { 0 } else { namespace as usize - 1 }
    }

    /// Attaches the namespace of a drive or device for all hosts, or detaches it. Returns whether that is a change.
    pub fn set_attached(&mut self, export: usize, is_attached: bool) -> Result<bool, AttachError> {
        let changed = self.target.set_attached_everywhere(SUBSYSTEM, export as u32 + 1, is_attached);
        self.is_restless = true;
        changed.map_err(|_| AttachError::NotReached)
    }

    pub fn is_attached(&self, export: usize) -> bool {
        self.target.subsystems()[SUBSYSTEM].offers(export as u32 + 1)
    }

    /// Whether a controller of a host is still there.
    pub fn has_controller(&self, name: ControllerName) -> bool {
        self.target.subsystems()[SUBSYSTEM].controllers().any(|controller| controller.name() == name)
    }

    pub fn namespace(&self, id: u32) -> &Namespace {
        self.find_namespace(id).expect("it is attached")
    }

    /// The same; a command may name all namespaces.
    pub fn find_namespace(&self, id: u32) -> Option<&Namespace> {
        self.target.subsystems()[SUBSYSTEM].namespace(id)
    }

    pub fn command<T: ServedDrive>(
        &mut self,
        now: Time,
        queue: &Queue,
        entry: &SubmissionEntry,
        data: Option<&[u8]>,
        served: &mut [Served<'_, T>],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        self.target.command(now, queue, entry, data, &mut Behind(served), answer)
    }
}

/// The drives as a controller asks for them.
struct Behind<'t, 's, T: ServedDrive>(&'t mut [Served<'s, T>]);

impl<T: ServedDrive> Behind<'_, '_, T> {
    fn device(&mut self, namespace: NamespaceName) -> Result<&mut T::Device, MediaError> {
        self.0[namespace.id as usize - 1].media_mut().ok_or_else(not_open_channel)
    }
}

/// Nobody asks a block namespace for chunks.
fn not_open_channel() -> MediaError {
    MediaError::Unavailable("the namespace is no Open-Channel one".to_owned())
}

impl<T: ServedDrive> Drives for Behind<'_, '_, T> {
    fn health(&mut self, now: Time, _: usize) -> Health {
        let health = |served: &mut Served<'_, T>| match served.target_mut() {
            Some(drive) => Some(drive.health(now)),
            None => served.block().map(health_of),
        };
        self.0.iter_mut().filter_map(health).reduce(Health::with).unwrap_or_default()
    }

    fn bytes_in_use(&mut self, namespace: NamespaceName) -> u64 {
        let served = &mut self.0[namespace.id as usize - 1];
        match served.target_mut() {
            Some(drive) => drive.bytes_in_use(),
            None => served.bytes_in_use(),
        }
    }

    fn placement_counts(&mut self, namespace: NamespaceName) -> PlacementCounts {
        let drive = self.0[namespace.id as usize - 1].target_mut();
        drive.map_or_else(PlacementCounts::default, ServedDrive::placement_counts)
    }

    fn watch_handles(&mut self, namespace: NamespaceName, watch: HandleWatch) {
        if let Some(drive) = self.0[namespace.id as usize - 1].target_mut() {
            drive.watch_handles(watch);
        }
    }

    fn handle_events(&mut self, namespace: NamespaceName, events: &mut Vec<HandleEvent>) {
        if let Some(drive) = self.0[namespace.id as usize - 1].target_mut() {
            drive.handle_events(events);
        }
    }

    fn chunk_report(
        &mut self,
        now: Time,
        namespace: NamespaceName,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError> {
        self.device(namespace)?.chunk_report(now, first, descriptors)
    }

    fn notifications(
        &mut self,
        now: Time,
        namespace: NamespaceName,
        after: u64,
        notifications: &mut Vec<Notification>,
    ) -> Result<(), MediaError> {
        self.device(namespace)?.notifications(now, after, notifications)
    }

    fn set_dulbe(&mut self, namespace: NamespaceName, dulbe: bool) {
        if let Ok(device) = self.device(namespace) {
            device.set_dulbe(dulbe);
        }
    }
}
