//! One controller: what one host has made of a subsystem, from its Connect until it leaves.
//!
//! ```text
//!   Connect (admin) ─▶ properties: enable ─▶ admin commands ─▶ Connect (I/O) ─▶ I/O ─▶ shutdown ─▶ connections close
//! ```
//!
//! | module | part |
//! |---|---|
//! | [`properties`] | enable, shutdown, reset |
//! | [`features`] | what the host has set |
//! | [`events`] | requests that wait for something to happen |
//! | [`errors`] | the last refusals and failures |
//! | `directives` | what it has enabled to be said with writes |
//! | `identify`, `logs` | what the controller tells |
//! | `placement` | Flexible Data Placement |
//! | `zones` | zones that changed by themselves |
//! | `notifications` | what has become of reservations |
//! | [`keep_alive`] | whether the host is still there |

mod directives;
pub mod errors;
pub mod events;
pub mod features;
mod identify;
pub mod keep_alive;
mod logs;
mod notifications;
mod placement;
pub mod properties;
mod zones;

pub use events::Event;
pub use logs::NOTIFICATIONS_MAX;

use crate::command::admin::GetFeature;
use crate::command::{AdminCommand, Answer, FabricsCommand, Io, IoCommand, Refusal, Transfer, ValueCommand};
use crate::drives::{Drives, NamespaceName};
use crate::health::Health;
use crate::hints::HintState;
use crate::namespace::{Attached, NAMESPACES_MAX, Namespace, NamespaceKind, NamespaceSet};
use crate::queue::{CommandId, ControllerName, Queue, SubsystemIndex};
use crate::reserved::Reserved;
use crate::subsystem::{Host, SubsystemConfig};
use crate::wire::SubmissionEntry;
use crate::wire::log::warning;
use crate::wire::open_channel::GeometryData;
use crate::wire::reservation::Notification;
use crate::wire::status::Status;
use directives::{Directives, says_directive};
use errors::ErrorLog;
use events::Events;
use features::{Changed, Features, IO_QUEUES_MAX, Surroundings};
use keep_alive::KeepAlive;
use notifications::Notifications;
use openftl_core::{Nanos, Time};
use openftl_parts::words::Handle;
use properties::{Change, Properties};
use zerocopy::IntoBytes;
use zones::ZonesChanged;

/// What became of a command on an admin queue, or of a fabrics command on any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The host has to send this many bytes first; then ask again, with them. Nothing has happened.
    Needs(u32),
    /// The command is held, and ends when something happens ([`crate::Target::take_event`]).
    Held,
    /// The command has ended; its data are in the buffer.
    Done(Answer),
    /// The command has ended; its data are so many bytes, those in the buffer and zeroes behind them. A page of a few bytes that is
    /// asked for in a megabyte takes no megabyte of memory.
    DonePadded(Answer, u32),
    /// The command has ended, and more is to be done.
    DoneAnd(Answer, Effect),
    /// A message of the authentication protocol: the caller, who knows it, ends the command.
    Authentication(Authentication),
}

/// What is to be done beside completing a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The controller was reset: close the connections of its I/O queues.
    CloseIoQueues,
    /// The host leaves: make everything durable, then say [`crate::Target::shutdown_completed`].
    Shutdown,
    /// The host deletes this queue: close its connection when the completion is sent.
    CloseQueue,
}

/// A message of the authentication protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Authentication {
    /// The data begin with the host's message.
    Message {
        /// TL.
        bytes: u32,
    },
    /// The host wants our message, of at most this many bytes.
    Wanted {
        /// AL.
        bytes: u32,
    },
}

/// What a controller sees of its subsystem while it answers a command.
pub(crate) struct Context<'a> {
    pub now: Time,
    pub subsystem: usize,
    pub config: &'a SubsystemConfig,
    pub namespaces: &'a [Option<Namespace>],
    /// Of each namespace at its id less one.
    pub hint_states: &'a mut [HintState],
    /// Every controller of the subsystem, in the order of their ids, with the namespaces that it has attached.
    pub controllers: &'a [(u16, NamespaceSet)],
    /// The discovery log as this host may see it, in pieces.
    pub discovery: &'a [Vec<u8>],
    pub drives: &'a mut dyn Drives,
}

/// One controller: some 8 KiB, whatever its host does.
#[derive(Debug)]
pub struct Controller {
    pub(crate) name: ControllerName,
    pub(crate) host: Host,
    pub(crate) attached: NamespaceSet,
    pub(crate) directives: Directives,
    pub(crate) keep_alive: KeepAlive,
    properties: Properties,
    features: Box<Features>,
    events: Events,
    errors: ErrorLog,
    /// Attached, detached or changed since the host last read which.
    changed: NamespaceSet,
    /// I/O queues: the serial number of each, at its id less one; 0 where there is none.
    io_queues: Box<[u64; IO_QUEUES_MAX as usize]>,
    /// No chunk notification up to this count is in the log any more, of each namespace at its id less one.
    notifications_gone: Box<[u64; NAMESPACES_MAX as usize]>,
    /// Zones that have changed by themselves since the host last read which.
    zones_changed: ZonesChanged,
    /// What has become of reservations since the host last read it.
    notifications: Notifications,
    /// Warnings that the host was told of.
    warned: u8,
}

impl Controller {
    pub(crate) fn new(
        now: Time,
        name: ControllerName,
        host: Host,
        attached: NamespaceSet,
        keep_alive_ms: u32,
    ) -> Controller {
        Controller {
            name,
            host,
            attached,
            directives: Directives::default(),
            keep_alive: KeepAlive::new(now, keep_alive_ms),
            properties: Properties::default(),
            features: Box::default(),
            events: Events::default(),
            errors: ErrorLog::default(),
            changed: NamespaceSet::default(),
            io_queues: Box::new([0; IO_QUEUES_MAX as usize]),
            notifications_gone: Box::new([0; NAMESPACES_MAX as usize]),
            zones_changed: ZonesChanged::default(),
            notifications: Notifications::default(),
            warned: 0,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> ControllerName {
        self.name
    }

    /// Whose it is.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// KATO as its host set it; 0 is none.
    #[must_use]
    pub fn keep_alive_ms(&self) -> u32 {
        self.keep_alive.ms()
    }

    /// Whether it is enabled.
    pub(crate) fn is_ready(&self) -> bool {
        self.properties.is_ready()
    }

    /// Whether it only tells of other subsystems.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.name.subsystem == SubsystemIndex::Discovery
    }

    pub(crate) fn attached<'a>(&self, context: &Context<'a>) -> Attached<'a> {
        Attached { all: context.namespaces, set: self.attached }
    }

    /// Makes I/O queue `id`, with a serial number that no other queue ever has.
    pub(crate) fn connect_io(&mut self, id: u16, serial: u64) -> Result<(), Refusal> {
        if !self.properties.is_ready() || self.properties.is_admin_only() || self.is_discovery() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.into());
        }
        if id > self.features.io_queues() {
            return Err(Status::CONNECT_INVALID_PARAMETERS.at(42));
        }
        let slot = &mut self.io_queues[usize::from(id) - 1];
        if *slot != 0 {
            return Err(Status::COMMAND_SEQUENCE_ERROR.at(42));
        }
        *slot = serial;
        Ok(())
    }

    /// An I/O queue is deleted, or its connection closed. Another queue may have its id already.
    pub(crate) fn io_queue_closed(&mut self, queue: &Queue) {
        if self.has_io_queue(queue) {
            self.io_queues[usize::from(queue.id()) - 1] = 0;
        }
    }

    /// Whether an I/O queue is still one: a reset deletes them all.
    #[inline]
    pub(crate) fn has_io_queue(&self, queue: &Queue) -> bool {
        self.io_queues[usize::from(queue.id()) - 1] == queue.serial
    }

    /// Parses an I/O command.
    #[inline]
    pub(crate) fn io(
        &mut self,
        now: Time,
        queue: &Queue,
        namespaces: &[Option<Namespace>],
        hint_states: &mut [HintState],
        reserved: Reserved<'_>,
        entry: &SubmissionEntry,
    ) -> Result<Io, Refusal> {
        self.keep_alive.seen();
        if !self.properties.is_ready() || !self.has_io_queue(queue) {
            return Err(Status::COMMAND_SEQUENCE_ERROR.into());
        }
        let attached = Attached { all: namespaces, set: self.attached };
        let mut io = Io::parse(entry, attached, self.features.is_write_through())?;
        if !reserved.held.is_empty() {
            reserved.expect_access(&io, self.host.id, self.attached)?;
        }
        if let IoCommand::Value(ValueCommand::Delete { needs_key, .. }) = &mut io.command {
            *needs_key = self.features.delete_needs_key(io.namespace);
        }
        if !says_directive(entry) || !io.command.takes_directives() {
            return Ok(io);
        }
        let (handle, is_taken_over) = self.handle(now, entry, attached.get(io.namespace)?, hint_states)?;
        let renewed = if is_taken_over { handle } else { Handle::NONE };
        Ok(Io { command: io.command.under(handle), renewed, ..io })
    }

    /// A host has left the reclaim unit of a handle before it was full.
    pub(crate) fn not_fully_written(&self, now: Time, namespace: u32, handle: Handle, state: &mut HintState) {
        state.events.not_fully_written(handle, namespace, self.features.timestamp(now));
    }

    /// A command failed, or was refused.
    pub(crate) fn record(&mut self, queue: u16, entry: &SubmissionEntry, refusal: Refusal) {
        self.errors.record(queue, entry, refusal);
    }

    /// Serves a fabrics command on either kind of queue.
    pub(crate) fn fabrics(
        &mut self,
        queue: &Queue,
        entry: &SubmissionEntry,
        has_data: bool,
    ) -> Result<Outcome, Refusal> {
        self.keep_alive.seen();
        Ok(match FabricsCommand::parse(entry)? {
            // The queue is connected already.
            FabricsCommand::Connect(_) => return Err(Status::COMMAND_SEQUENCE_ERROR.at(4)),
            FabricsCommand::PropertyGet { .. } | FabricsCommand::PropertySet { .. } if !queue.is_admin() => {
                return Err(Status::INVALID_FIELD.at(4));
            }
            FabricsCommand::PropertyGet { offset, bytes } => {
                Outcome::Done(Answer::of(self.properties.get(offset, bytes)?))
            }
            FabricsCommand::PropertySet { offset, bytes, value } => {
                let done = Answer::of(0);
                match self.properties.set(offset, bytes, value)? {
                    Change::None | Change::Enabled => Outcome::Done(done),
                    Change::Reset => {
                        self.reset();
                        Outcome::DoneAnd(done, Effect::CloseIoQueues)
                    }
                    Change::ShutdownBegun => {
                        self.events.reset();
                        Outcome::DoneAnd(done, Effect::Shutdown)
                    }
                }
            }
            // "Disconnect Command": of I/O queues only.
            FabricsCommand::Disconnect if queue.is_admin() => return Err(Status::DISCONNECT_INVALID_QUEUE.at(4)),
            FabricsCommand::Disconnect => {
                self.io_queue_closed(queue);
                Outcome::DoneAnd(Answer::of(0), Effect::CloseQueue)
            }
            FabricsCommand::AuthenticationSend { bytes } if !has_data => Outcome::Needs(bytes),
            FabricsCommand::AuthenticationSend { bytes } => Outcome::Authentication(Authentication::Message { bytes }),
            FabricsCommand::AuthenticationReceive { bytes } => {
                Outcome::Authentication(Authentication::Wanted { bytes })
            }
        })
    }

    /// Serves an admin command. Data for the host are appended to `out`.
    pub(crate) fn admin(
        &mut self,
        entry: &SubmissionEntry,
        data: Option<&[u8]>,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Refusal> {
        self.keep_alive.seen();
        if !self.properties.is_ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.into());
        }
        let command = AdminCommand::parse(entry)?;
        let data = match (command.transfer(), data) {
            (Transfer::ToController(bytes), None) => return Ok(Outcome::Needs(bytes)),
            (Transfer::ToController(bytes), Some(data)) => {
                data.get(..bytes as usize).ok_or(Status::DATA_SGL_LENGTH_INVALID.at(32))?
            }
            (Transfer::None | Transfer::ToHost(_), _) => &[],
        };
        let is_for_drives =
            matches!(command, AdminCommand::Abort { .. } | AdminCommand::Geometry { .. } | AdminCommand::Directive(_));
        if self.is_discovery() && is_for_drives {
            return Err(Status::INVALID_OPCODE.at(0));
        }
        let result = match command {
            AdminCommand::Identify(command) => {
                self.identify(&command, context, out)?;
                0
            }
            AdminCommand::GetLogPage(command) => {
                self.log_page(&command, context, out)?;
                return Ok(Outcome::DonePadded(Answer::of(0), command.bytes));
            }
            AdminCommand::GetFeature(command) if placement::FEATURES.contains(&command.feature) => {
                self.get_placement_feature(&command, context, out)?
            }
            AdminCommand::GetFeature(command) => self.get_feature(&command, context, out)?,
            AdminCommand::SetFeature(command) if placement::FEATURES.contains(&command.feature) => {
                self.set_placement_feature(&command, data, context)?
            }
            AdminCommand::SetFeature(command) => {
                let around = self.surroundings(context);
                let (result, changed) = self.features.set(&command, data, around)?;
                self.act_on(changed, context);
                result
            }
            AdminCommand::EventRequest => {
                self.events.hold(CommandId(entry.command_id.get()))?;
                return Ok(Outcome::Held);
            }
            AdminCommand::KeepAlive => {
                self.keep_alive.restart(context.now);
                0
            }
            AdminCommand::Abort { queue, command } => {
                // Nothing but held requests waits here for long. Bit 0: the command was not aborted.
                let is_aborted = queue == 0 && self.events.abort(command);
                u64::from(!is_aborted)
            }
            AdminCommand::Directive(command) => self.directive(&command, context, out)?,
            AdminCommand::Geometry { namespace } => {
                let (_, geometry) = self.open_channel(namespace, context)?;
                out.extend_from_slice(GeometryData::from(&geometry).as_bytes());
                0
            }
        };
        Ok(Outcome::Done(Answer::of(result)))
    }

    fn get_feature(&self, command: &GetFeature, context: &Context<'_>, out: &mut Vec<u8>) -> Result<u64, Refusal> {
        self.features.get(command, self.surroundings(context), out)
    }

    fn surroundings<'a>(&self, context: &Context<'a>) -> Surroundings<'a> {
        Surroundings {
            now: context.now,
            namespaces: self.attached(context),
            host_id: self.host.id,
            keep_alive_ms: self.keep_alive.ms(),
            has_io_queues: self.io_queues.iter().any(|serial| *serial != 0),
            is_discovery: self.is_discovery(),
        }
    }

    fn act_on(&mut self, changed: Changed, context: &mut Context<'_>) {
        match changed {
            Changed::Nothing => {}
            Changed::KeepAlive(ms) => self.keep_alive = KeepAlive::new(context.now, ms),
            Changed::Temperatures => {
                let health = context.drives.health(context.now, context.subsystem);
                let warnings = health.warnings(self.features.temperatures()) & warning::TEMPERATURE;
                self.warn(warnings | self.warned & !warning::TEMPERATURE);
            }
            Changed::DeallocatedError { namespace, is_error } => {
                let subsystem = context.subsystem;
                for named in self.attached(context).iter() {
                    let is_meant = named.id == namespace || namespace == crate::namespace::ALL_NAMESPACES;
                    if is_meant && matches!(named.kind, NamespaceKind::OpenChannel(_)) {
                        context.drives.set_dulbe(NamespaceName { subsystem, id: named.id }, is_error);
                    }
                }
            }
        }
    }

    fn reset(&mut self) {
        *self.features = Features::default();
        self.directives.reset();
        self.events.reset();
        self.changed = NamespaceSet::default();
        self.io_queues.fill(0);
        self.zones_changed = ZonesChanged::default();
        self.notifications = Notifications::default();
        self.warned = 0;
    }

    /// The drive has made everything durable.
    pub(crate) fn shutdown_completed(&mut self) {
        self.properties.shutdown_completed();
    }

    /// Something has happened.
    pub(crate) fn happened(&mut self, event: Event) {
        self.events.happened(event, self.features.events());
    }

    /// The zone that begins at block `first` has changed by itself.
    pub(crate) fn zone_changed(&mut self, namespace: u32, first: u64) {
        if self.attached.contains(namespace) {
            self.zones_changed.add(namespace, first);
            self.events.zones_changed(namespace, self.features.events());
        }
    }

    /// Something has become of a registration or reservation of its host.
    pub(crate) fn notify(&mut self, namespace: u32, notification: Notification) {
        if self.attached.contains(namespace) && !self.features.masks(namespace, notification) {
            self.notifications.add(namespace, notification);
            self.happened(Event::ReservationLog);
        }
    }

    /// Attaches a namespace of the subsystem, or detaches it.
    pub(crate) fn set_attached(&mut self, id: u32, is_attached: bool) {
        if self.attached.contains(id) == is_attached {
            return;
        }
        if is_attached {
            self.attached.insert(id);
        } else {
            self.attached.remove(id);
        }
        self.namespace_changed(id);
    }

    /// A namespace was attached, detached or changed.
    pub(crate) fn namespace_changed(&mut self, id: u32) {
        self.changed.insert(id);
        self.happened(Event::NamespaceAttribute);
    }

    /// The drives are doing so: warnings that are new are events.
    pub(crate) fn health_is(&mut self, health: &Health) {
        self.warn(health.warnings(self.features.temperatures()));
    }

    /// The host is told of warnings that are new.
    fn warn(&mut self, warnings: u8) {
        let new = warnings & !self.warned;
        self.warned = warnings;
        for (bits, event) in [
            (warning::SPARE, Event::Spare),
            (warning::TEMPERATURE, Event::Temperature),
            (warning::RELIABILITY | warning::READ_ONLY, Event::Reliability),
        ] {
            if new & bits != 0 {
                self.happened(event);
            }
        }
    }

    /// The next held command that ends.
    pub(crate) fn take_event(&mut self) -> Option<(CommandId, Answer)> {
        self.events.take()
    }
}

/// A keep-alive time in the device's units.
pub(crate) fn keep_alive_span(ms: u32) -> Nanos {
    let granularity = u64::from(identify::KEEP_ALIVE_UNITS) * 100;
    Nanos::from_millis(u64::from(ms).next_multiple_of(granularity))
}
