//! A target: everything that is served at its ports, and the way in for whoever moves the bytes.
//!
//! ```text
//!                    connect                  command: admin queues, and fabrics commands on any
//!   transport ──────────────────▶ Queue ──▶ ┤
//!                                             io: the others ──▶ Io, for the drive
//!        ◀── completion entries ── Queue::complete ◀── Answer
//! ```
//!
//! There is no socket and no clock here. A server has one [`Queue`] a connection, and for each command capsule:
//!
//! 1. [`Queue::begin`];
//! 2. [`Target::command`] or [`Target::io`], and what they ask for;
//! 3. [`Queue::complete`] with the answer.
//!
//! Now and then it looks at [`Target::take_event`] for held commands, and at [`Target::expire`] for hosts that are gone.
//!
//! ```
//! # use openftl_core::Time;
//! # use openftl_nvme::{CommandId, CompletionEntry, Drives, Io, Outcome, Queue, QueueError, SubmissionEntry, Target};
//! # fn start(_: Io) {}
//! /// Serves one command; `None` if its completion comes later.
//! fn serve(
//!     target: &mut Target,
//!     drives: &mut dyn Drives,
//!     now: Time,
//!     queue: &mut Queue,
//!     bytes: &[u8; 64],
//!     data: Option<&[u8]>,
//!     answer_data: &mut Vec<u8>,
//! ) -> Option<CompletionEntry> {
//!     let entry = SubmissionEntry::of(bytes);
//!     let id = CommandId(entry.command_id.get());
//!     match queue.begin(id) {
//!         Ok(()) => {}
//!         Err(QueueError::IdInUse(_)) => return Some(queue.refuse(id)),
//!         Err(QueueError::Overrun { .. }) => panic!("end the connection"),
//!     }
//!     if !queue.is_admin() && !entry.is_fabrics() {
//!         return match target.io(now, queue, entry) {
//!             Ok(io) => {
//!                 start(io);
//!                 None
//!             }
//!             Err(answer) => Some(queue.complete(id, answer)),
//!         };
//!     }
//!     match target.command(now, queue, entry, data, drives, answer_data) {
//!         Outcome::Done(answer) | Outcome::DoneAnd(answer, _) => Some(queue.complete(id, answer)),
//!         Outcome::DonePadded(answer, bytes) => {
//!             answer_data.resize(bytes as usize, 0);
//!             Some(queue.complete(id, answer))
//!         }
//!         Outcome::Held => None,
//!         Outcome::Needs(_bytes) => None, // fetch them, and call `command` again
//!         Outcome::Authentication(_) => None, // the server knows the protocol
//!     }
//! }
//! ```

use crate::command::fabrics::Connect;
use crate::command::{Answer, FabricsCommand, Io, Refusal};
use crate::controller::{Context, Controller, Effect, Event, Outcome};
use crate::discovery::{self, DiscoveryLog, Port, SecureChannel};
use crate::drives::{Drives, NamespaceName};
use crate::health::Health;
use crate::hints::HintState;
use crate::namespace::{Namespace, NamespaceSet};
use crate::queue::{CommandId, ControllerName, QUEUE_ENTRIES_MAX, Queue, SubsystemIndex};
use crate::reserved::Reserved;
use crate::subsystem::{
    Host, HostsAllowed, NQN_BYTES_MAX, NamespaceError, Nqn, Subsystem, SubsystemConfig, SubsystemError,
};
use crate::wire::fabrics::{ANY_CONTROLLER, ConnectData, DISCOVERY_NQN, connect as wire};
use crate::wire::status::Status;
use crate::wire::{CompletionEntry, SubmissionEntry, opcode, text_of};
use openftl_core::Time;
use openftl_parts::words::Handle;
use zerocopy::FromBytes;

/// The fewest entries of a queue: one is always left empty (Base, "Connect Command", SQSIZE).
const QUEUE_ENTRIES_MIN: u32 = 2;

/// How long the keep-alive timer of a discovery controller is if the host wants none, in milliseconds: nobody asks a
/// question for ever (Base, "Discovery Controller Asynchronous Event Configuration" and "Keep Alive").
const DISCOVERY_KEEP_ALIVE_MS: u32 = 120_000;

/// What became of the first command on a connection.
#[derive(Debug)]
pub enum Connection {
    /// The host has to send this many bytes first; then ask again, with them. Nothing has happened.
    Needs(u32),
    /// There is a queue now. Send the completion.
    Made(Queue, CompletionEntry),
    /// There is none. Send the completion, and close the connection.
    Refused(CompletionEntry),
}

/// All that is served.
#[derive(Debug)]
pub struct Target {
    discovery: Subsystem,
    subsystems: Vec<Subsystem>,
    discovery_log: DiscoveryLog,
    /// Queues so far; the serial number of its admin queue names an association.
    queues: u64,
    /// No keep-alive timer ends before.
    keep_alive_due: Time,
}

/// Why a Connect command is refused: IPO and IATTR.
struct Wrong {
    status: Status,
    offset: u16,
    is_in_data: bool,
}

impl Wrong {
    fn entry(status: Status, offset: u16) -> Wrong {
        Wrong { status, offset, is_in_data: false }
    }

    fn data(offset: u16) -> Wrong {
        Wrong { status: Status::CONNECT_INVALID_PARAMETERS, offset, is_in_data: true }
    }
}

impl From<Refusal> for Wrong {
    fn from(refusal: Refusal) -> Wrong {
        Wrong::entry(refusal.status, refusal.location)
    }
}

impl Target {
    /// A target that serves nothing yet. `model` and `firmware` are what its discovery subsystem says of itself.
    #[must_use]
    pub fn new(serial: &str, model: &str, firmware: &str) -> Target {
        let discovery = Subsystem::new(SubsystemConfig {
            nqn: Nqn::new(DISCOVERY_NQN).expect("it is a name"),
            serial: serial.to_owned(),
            model: model.to_owned(),
            firmware: firmware.to_owned(),
            hosts: HostsAllowed::Any,
            requires_authentication: false,
            is_shared: false,
            in_capsule_bytes: 0,
        });
        Target {
            discovery,
            subsystems: Vec::new(),
            discovery_log: DiscoveryLog::new(),
            queues: 0,
            keep_alive_due: Time::NEVER,
        }
    }

    /// Adds a subsystem; the index names it from now on.
    ///
    /// # Errors
    /// If its name is taken, or it cannot say of itself what it should.
    pub fn add_subsystem(&mut self, config: SubsystemConfig) -> Result<usize, SubsystemError> {
        config.validate()?;
        let mut others = self.subsystems.iter().chain(std::iter::once(&self.discovery));
        if others.any(|other| other.config.nqn == config.nqn) {
            return Err(SubsystemError::NameTaken(config.nqn));
        }
        self.subsystems.push(Subsystem::new(config));
        self.discovery_changed();
        Ok(self.subsystems.len() - 1)
    }

    /// Adds a port.
    pub fn add_port(&mut self, port: Port) {
        self.discovery_log.ports.push(port);
        self.discovery_changed();
    }

    /// Says of all ports whether their connections are encrypted.
    pub fn set_secure_channel(&mut self, secure_channel: SecureChannel) {
        self.discovery_log.secure_channel = secure_channel;
        self.discovery_changed();
    }

    /// The subsystems, in the order in which they were added.
    #[must_use]
    pub fn subsystems(&self) -> &[Subsystem] {
        &self.subsystems
    }

    /// Adds a namespace to a subsystem; every controller has it attached and is told.
    ///
    /// # Errors
    /// If its id is impossible or taken.
    pub fn attach(&mut self, subsystem: usize, namespace: Namespace) -> Result<(), NamespaceError> {
        let id = namespace.id;
        let subsystem = &mut self.subsystems[subsystem];
        let slot = subsystem.slot_mut(id)?;
        if slot.is_some() {
            return Err(NamespaceError::Exists(id));
        }
        let hints = namespace.hints();
        *slot = Some(namespace);
        subsystem.hint_states[id as usize - 1] = HintState::new(hints);
        subsystem.withheld.remove(id);
        subsystem.forget_reservation(id);
        for controller in subsystem.controllers_mut() {
            controller.attached.insert(id);
            controller.directives.forget(id);
            controller.namespace_changed(id);
        }
        Ok(())
    }

    /// Takes a namespace away; every controller is told. Commands under way on it are the server's to end.
    ///
    /// # Errors
    /// If there is none of this id.
    pub fn detach(&mut self, subsystem: usize, id: u32) -> Result<Namespace, NamespaceError> {
        let subsystem = &mut self.subsystems[subsystem];
        let namespace = subsystem.slot_mut(id)?.take().ok_or(NamespaceError::Absent(id))?;
        subsystem.forget_reservation(id);
        for controller in subsystem.controllers_mut() {
            controller.attached.remove(id);
            controller.namespace_changed(id);
        }
        Ok(namespace)
    }

    /// Attaches a namespace of the subsystem to every controller, those still to come among them, or detaches it from them:
    /// their hosts are told. It stays in the subsystem, and commands that were taken go on. Returns whether that changes what a
    /// new controller has attached.
    ///
    /// # Errors
    /// If there is no such namespace.
    pub fn set_attached_everywhere(
        &mut self,
        subsystem: usize,
        id: u32,
        is_attached: bool,
    ) -> Result<bool, NamespaceError> {
        let subsystem = &mut self.subsystems[subsystem];
        if subsystem.slot_mut(id)?.is_none() {
            return Err(NamespaceError::Absent(id));
        }
        let is_change = subsystem.offers(id) != is_attached;
        if is_attached {
            subsystem.withheld.remove(id);
        } else {
            subsystem.withheld.insert(id);
        }
        subsystem.controllers_mut().for_each(|controller| controller.set_attached(id, is_attached));
        Ok(is_change)
    }

    /// Attaches a namespace of the subsystem to one controller, or detaches it: the host is told. A new controller has all of
    /// them attached but those of [`Target::set_attached_everywhere`].
    ///
    /// # Errors
    /// If there is no such namespace. A controller that is gone has nothing attached, and that is no error.
    pub fn set_attached(&mut self, name: ControllerName, id: u32, is_attached: bool) -> Result<(), NamespaceError> {
        let subsystem = self.subsystem_mut(name.subsystem);
        if subsystem.slot_mut(id)?.is_none() {
            return Err(NamespaceError::Absent(id));
        }
        if let Some(controller) = subsystem.controller_mut(name) {
            controller.set_attached(id, is_attached);
        }
        Ok(())
    }

    /// The drives of a subsystem are doing so: hosts hear of warnings that are new.
    pub fn health_is(&mut self, subsystem: usize, health: &Health) {
        self.subsystems[subsystem].controllers_mut().for_each(|controller| controller.health_is(health));
    }

    /// A zone of a namespace has changed by itself.
    pub fn zone_changed(&mut self, subsystem: usize, namespace: u32, first: u64) {
        self.subsystems[subsystem].controllers_mut().for_each(|controller| controller.zone_changed(namespace, first));
    }

    /// The device behind an Open-Channel namespace has notifications.
    pub fn chunks_notify(&mut self, subsystem: usize, namespace: u32) {
        for controller in self.subsystems[subsystem].controllers_mut() {
            if controller.attached.contains(namespace) {
                controller.happened(Event::ChunkNotification);
            }
        }
    }

    /// Serves the first command on a connection.
    pub fn connect(&mut self, now: Time, entry: &SubmissionEntry, data: Option<&[u8]>) -> Connection {
        let wrong = match self.parse_connect(now, entry, data) {
            Ok(connection) => return connection,
            Err(wrong) => wrong,
        };
        let result = if wrong.status == Status::CONNECT_INVALID_PARAMETERS {
            u32::from(wrong.offset) | if wrong.is_in_data { wire::IN_DATA } else { 0 }
        } else {
            0
        };
        Connection::Refused(CompletionEntry {
            result: u64::from(result).into(),
            command_id: entry.command_id,
            status: (wrong.status.field() << 1).into(),
            ..CompletionEntry::default()
        })
    }

    fn parse_connect(&mut self, now: Time, entry: &SubmissionEntry, data: Option<&[u8]>) -> Result<Connection, Wrong> {
        let sequence_error = Wrong::entry(Status::COMMAND_SEQUENCE_ERROR, 0);
        if !entry.is_fabrics() {
            return Err(sequence_error);
        }
        let FabricsCommand::Connect(command) = FabricsCommand::parse(entry)? else { return Err(sequence_error) };
        if command.record_format != wire::RECORD_FORMAT {
            return Err(Wrong::entry(Status::CONNECT_INCOMPATIBLE_FORMAT, 40));
        }
        let entries = u32::from(command.last_entry) + 1;
        if !(QUEUE_ENTRIES_MIN..=QUEUE_ENTRIES_MAX).contains(&entries) {
            return Err(Wrong::entry(Status::CONNECT_INVALID_PARAMETERS, 44));
        }
        let Some(data) = data else { return Ok(Connection::Needs(size_of::<ConnectData>() as u32)) };
        let Ok((data, _)) = ConnectData::ref_from_prefix(data) else {
            return Err(Wrong::entry(Status::DATA_SGL_LENGTH_INVALID, 32));
        };
        let index = self.subsystem_named(data)?;
        let host = Host { nqn: host_nqn(data, &self.subsystem(index).config.hosts)?.to_owned(), id: data.host_id };
        if !self.subsystem(index).config.hosts.allows(&host.nqn) {
            return Err(Wrong::entry(Status::CONNECT_INVALID_HOST, 0));
        }
        self.queues += 1;
        let name = if command.queue == 0 {
            self.new_controller(now, index, host, data, &command)?
        } else {
            self.join_controller(index, &host, data, command.queue)?
        };
        let requires_authentication = self.subsystem(index).config.requires_authentication;
        let has_flow_control = command.attributes & wire::WITHOUT_FLOW_CONTROL == 0;
        let id = CommandId(entry.command_id.get());
        let mut queue = Queue::new(name, command.queue, self.queues, entries, has_flow_control, id);
        queue.is_authenticated = !requires_authentication;
        let required = if requires_authentication { wire::AUTHENTICATION_REQUIRED } else { 0 };
        let completion = queue.complete_connect(id, Answer::of(u64::from(u32::from(name.id) | required)));
        Ok(Connection::Made(queue, completion))
    }

    fn subsystem_named(&self, data: &ConnectData) -> Result<SubsystemIndex, Wrong> {
        let nqn = text_of(&data.subsystem_nqn).ok_or(Wrong::data(256))?;
        if nqn == DISCOVERY_NQN {
            return Ok(SubsystemIndex::Discovery);
        }
        let position = self.subsystems.iter().position(|subsystem| subsystem.config.nqn.as_str() == nqn);
        position.map(SubsystemIndex::Nvm).ok_or(Wrong::data(256))
    }

    fn new_controller(
        &mut self,
        now: Time,
        index: SubsystemIndex,
        host: Host,
        data: &ConnectData,
        command: &Connect,
    ) -> Result<ControllerName, Wrong> {
        if data.controller_id.get() != ANY_CONTROLLER {
            return Err(Wrong::data(16));
        }
        let keep_alive_ms = match (index, command.keep_alive_ms) {
            (SubsystemIndex::Discovery, 0) => DISCOVERY_KEEP_ALIVE_MS,
            (_, ms) => ms,
        };
        let association = self.queues;
        let subsystem = self.subsystem_mut(index);
        let id = subsystem.free_id().ok_or(Wrong::entry(Status::CONNECT_CONTROLLER_BUSY, 0))?;
        let name = ControllerName { subsystem: index, id, association };
        let controller = Controller::new(now, name, host, subsystem.offered(), keep_alive_ms);
        let due = controller.keep_alive.next_due();
        subsystem.controllers[usize::from(id) - 1] = Some(controller);
        self.look_at_keep_alive(due);
        Ok(name)
    }

    fn join_controller(
        &mut self,
        index: SubsystemIndex,
        host: &Host,
        data: &ConnectData,
        queue: u16,
    ) -> Result<ControllerName, Wrong> {
        let serial = self.queues;
        let subsystem = self.subsystem_mut(index);
        let slot = usize::from(data.controller_id.get()).checked_sub(1).ok_or(Wrong::data(16))?;
        let Some(Some(controller)) = subsystem.controllers.get_mut(slot) else { return Err(Wrong::data(16)) };
        if controller.host.nqn != host.nqn {
            return Err(Wrong::data(512));
        }
        // Zero stands for no identifier (Base, "Connect Command - Data", HOSTID). Where hosts have to authenticate, that comes
        // after Connect, and until then a name is only claimed: with zero for any identifier, whoever knows the name of a host
        // could take the queues of its controller before that host does.
        let may_be_unnamed = !subsystem.config.requires_authentication && host.id == [0; 16];
        if controller.host.id != host.id && !may_be_unnamed {
            return Err(Wrong::data(0));
        }
        controller.connect_io(queue, serial)?;
        Ok(controller.name)
    }

    /// Serves a command of an admin queue, or a fabrics command of any queue. `data` are what the host sent with it, when
    /// it has sent them; data for the host are put in `out`.
    pub fn command(
        &mut self,
        now: Time,
        queue: &Queue,
        entry: &SubmissionEntry,
        data: Option<&[u8]>,
        drives: &mut dyn Drives,
        out: &mut Vec<u8>,
    ) -> Outcome {
        out.clear();
        let name = queue.controller();
        let is_fabrics = entry.is_fabrics();
        assert!(is_fabrics || queue.is_admin(), "I/O commands have their own way in");
        let discovery = if name.subsystem == SubsystemIndex::Discovery && discovery::is_asked_for(entry) {
            self.discovery_log(name)
        } else {
            Vec::new()
        };
        let index = match name.subsystem {
            SubsystemIndex::Discovery => 0,
            SubsystemIndex::Nvm(index) => index,
        };
        let subsystem = self.subsystem_mut(name.subsystem);
        let controllers: Vec<(u16, NamespaceSet)> = if entry.opcode == opcode::admin::IDENTIFY {
            subsystem.controllers().map(|controller| (controller.name.id, controller.attached)).collect()
        } else {
            Vec::new()
        };
        let Subsystem { config, namespaces, hint_states, controllers: slots, .. } = subsystem;
        let slot = slots.get_mut(usize::from(name.id) - 1).and_then(Option::as_mut);
        let Some(controller) = slot.filter(|controller| controller.name == name) else {
            return Outcome::Done(Answer::from(Status::ABORTED_QUEUE_DELETED));
        };
        let was_ready = controller.is_ready();
        let outcome = if !queue.is_authenticated() && !is_authentication(entry) {
            Err(Status::AUTHENTICATION_REQUIRED.into())
        } else if is_fabrics {
            controller.fabrics(queue, entry, data.is_some())
        } else {
            let mut context = Context {
                now,
                subsystem: index,
                config,
                namespaces,
                hint_states,
                controllers: &controllers,
                discovery: &discovery,
                drives,
            };
            controller.admin(entry, data, &mut context, out)
        };
        let due = controller.keep_alive.next_due();
        let is_enabled = controller.is_ready() && !was_ready;
        let outcome = outcome.unwrap_or_else(|refusal| {
            out.clear();
            controller.record(queue.id(), entry, refusal);
            Outcome::Done(Answer::from(refusal.status.with_more()))
        });
        self.look_at_keep_alive(due);
        let subsystem = self.subsystem_mut(name.subsystem);
        match outcome {
            _ if is_enabled => {
                subsystem.adopt_directives(name);
                // A drive that was without power has forgotten what it is to keep note of.
                for (namespace, state) in subsystem.namespaces.iter().zip(&subsystem.hint_states) {
                    if let Some(namespace) = namespace.as_ref().filter(|one| one.hints().is_data_placement()) {
                        drives
                            .watch_handles(NamespaceName { subsystem: index, id: namespace.id }, state.events.watch());
                    }
                }
            }
            _ if entry.opcode == opcode::admin::DIRECTIVE_SEND => subsystem.share_directives(name),
            Outcome::DoneAnd(_, Effect::CloseIoQueues) => subsystem.release_streams(),
            _ => {}
        }
        outcome
    }

    /// Parses a command of an I/O queue. Nothing is allocated.
    ///
    /// # Errors
    /// The answer to a command that is refused.
    #[inline]
    pub fn io(&mut self, now: Time, queue: &Queue, entry: &SubmissionEntry) -> Result<Io, Answer> {
        assert!(!queue.is_admin(), "admin commands have their own way in");
        let name = queue.controller();
        let subsystem = match name.subsystem {
            SubsystemIndex::Discovery => &mut self.discovery,
            SubsystemIndex::Nvm(index) => &mut self.subsystems[index],
        };
        let slot = subsystem.controllers.get_mut(usize::from(name.id) - 1).and_then(Option::as_mut);
        let Some(controller) = slot.filter(|controller| controller.name == name) else {
            return Err(Answer::from(Status::ABORTED_QUEUE_DELETED));
        };
        let io = if queue.is_authenticated() {
            let reserved = Reserved { held: subsystem.reserved, reservations: &subsystem.reservations };
            controller.io(now, queue, &subsystem.namespaces, &mut subsystem.hint_states, reserved, entry)
        } else {
            Err(Status::AUTHENTICATION_REQUIRED.into())
        };
        io.map_err(|refusal| {
            controller.record(queue.id(), entry, refusal);
            Answer::from(refusal.status.with_more())
        })
    }

    /// A handle of a namespace was updated ([`crate::IoCommand::HandleUpdate`]) before its reclaim unit was full.
    pub fn handle_left(&mut self, now: Time, queue: &Queue, namespace: u32, handle: Handle) {
        let name = queue.controller();
        let subsystem = self.subsystem_mut(name.subsystem);
        let Subsystem { controllers, hint_states, .. } = subsystem;
        let slot = controllers.get(usize::from(name.id) - 1).and_then(Option::as_ref);
        if let Some(controller) = slot.filter(|controller| controller.name == name) {
            controller.not_fully_written(now, namespace, handle, &mut hint_states[namespace as usize - 1]);
        }
    }

    /// A command that was taken has failed later: keeps it in the error log, and says how to answer.
    pub fn failed(&mut self, queue: &Queue, entry: &SubmissionEntry, refusal: Refusal) -> Answer {
        match self.controller_mut(queue.controller()) {
            Some(controller) => {
                controller.record(queue.id(), entry, refusal);
                Answer { status: refusal.status.with_more(), result: refusal.result() }
            }
            None => Answer { status: refusal.status, result: refusal.result() },
        }
    }

    /// The connection of a queue is closed. With that of its admin queue a controller is gone, and its other connections
    /// are to be closed too.
    pub fn disconnected(&mut self, queue: Queue) {
        let name = queue.controller();
        if queue.is_admin() {
            self.remove(name);
        } else if let Some(controller) = self.controller_mut(name) {
            controller.io_queue_closed(&queue);
        }
    }

    /// Whether a queue may go on: its controller lives, and has not been reset since the queue was made.
    #[must_use]
    pub fn is_alive(&self, queue: &Queue) -> bool {
        self.controller(queue).is_some_and(|controller| queue.is_admin() || controller.has_io_queue(queue))
    }

    /// The controller of a queue, if it still lives.
    #[must_use]
    pub fn controller(&self, queue: &Queue) -> Option<&Controller> {
        let name = queue.controller();
        let slot = self.subsystem(name.subsystem).controllers.get(usize::from(name.id) - 1);
        slot.and_then(Option::as_ref).filter(|controller| controller.name == name)
    }

    /// The name of the subsystem that a queue belongs to.
    #[must_use]
    pub fn subsystem_nqn(&self, queue: &Queue) -> &Nqn {
        &self.subsystem(queue.controller().subsystem).config.nqn
    }

    /// The next held command of a controller that ends. Complete it on the controller's admin queue.
    pub fn take_event(&mut self, name: ControllerName) -> Option<(CommandId, Answer)> {
        self.controller_mut(name)?.take_event()
    }

    /// The drive has made everything durable, as [`crate::controller::Effect::Shutdown`] wanted.
    pub fn shutdown_completed(&mut self, name: ControllerName) {
        if let Some(controller) = self.controller_mut(name) {
            controller.shutdown_completed();
        }
    }

    /// When to call [`Target::expire`], if ever.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        (self.keep_alive_due != Time::NEVER).then_some(self.keep_alive_due)
    }

    /// Removes the controllers whose hosts have been silent for too long, and appends their names: their connections are
    /// to be closed.
    pub fn expire(&mut self, now: Time, expired: &mut Vec<ControllerName>) {
        if now < self.keep_alive_due {
            return;
        }
        let before = expired.len();
        let mut due = Time::NEVER;
        for subsystem in std::iter::once(&mut self.discovery).chain(&mut self.subsystems) {
            for controller in subsystem.controllers_mut() {
                if controller.keep_alive.has_expired(now) {
                    expired.push(controller.name);
                } else if let Some(next) = controller.keep_alive.next_due() {
                    due = due.min(next);
                }
            }
        }
        self.keep_alive_due = due;
        expired[before..].iter().for_each(|name| self.remove(*name));
    }

    fn look_at_keep_alive(&mut self, due: Option<Time>) {
        self.keep_alive_due = self.keep_alive_due.min(due.unwrap_or(Time::NEVER));
    }

    fn remove(&mut self, name: ControllerName) {
        if self.controller_mut(name).is_some() {
            let subsystem = self.subsystem_mut(name.subsystem);
            subsystem.controllers[usize::from(name.id) - 1] = None;
            subsystem.release_streams();
        }
    }

    fn subsystem(&self, index: SubsystemIndex) -> &Subsystem {
        match index {
            SubsystemIndex::Discovery => &self.discovery,
            SubsystemIndex::Nvm(index) => &self.subsystems[index],
        }
    }

    fn subsystem_mut(&mut self, index: SubsystemIndex) -> &mut Subsystem {
        match index {
            SubsystemIndex::Discovery => &mut self.discovery,
            SubsystemIndex::Nvm(index) => &mut self.subsystems[index],
        }
    }

    pub(crate) fn nvm_subsystem_mut(&mut self, index: usize) -> &mut Subsystem {
        &mut self.subsystems[index]
    }

    fn controller_mut(&mut self, name: ControllerName) -> Option<&mut Controller> {
        self.subsystem_mut(name.subsystem).controller_mut(name)
    }

    fn discovery_changed(&mut self) {
        self.discovery_log.generation += 1;
        self.discovery.controllers_mut().for_each(|controller| controller.happened(Event::DiscoveryLog));
    }

    /// The discovery log as the host of a controller may see it.
    fn discovery_log(&self, name: ControllerName) -> Vec<Vec<u8>> {
        let controller = self.discovery.controllers().find(|controller| controller.name == name);
        let host = controller.map_or("", |controller| &controller.host.nqn);
        let visible = self.subsystems.iter().filter(|subsystem| subsystem.config.hosts.allows(host));
        self.discovery_log.pieces(visible.map(|subsystem| &subsystem.config.nqn))
    }
}

/// HOSTNQN of a Connect command. Hosts built on SPDK send an empty one unless they are told otherwise; where any host may
/// connect, its name decides nothing.
fn host_nqn<'a>(data: &'a ConnectData, allowed: &HostsAllowed) -> Result<&'a str, Wrong> {
    match text_of(&data.host_nqn) {
        Some("") if *allowed == HostsAllowed::Any => Ok(""),
        Some(nqn) if (1..=NQN_BYTES_MAX).contains(&nqn.len()) => Ok(nqn),
        _ => Err(Wrong::data(512)),
    }
}

/// What a host that has not proved who it is may say.
fn is_authentication(entry: &SubmissionEntry) -> bool {
    let types = [opcode::fabrics::AUTHENTICATION_SEND, opcode::fabrics::AUTHENTICATION_RECEIVE];
    entry.is_fabrics() && types.contains(&entry.fabrics_type())
}
