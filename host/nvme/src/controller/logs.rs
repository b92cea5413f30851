//! The log pages of a controller.

use super::directives::has_directives;
use super::errors::ERRORS_MAX;
use super::events::Event;
use super::identify::has_zones;
use super::{Context, Controller, placement};
use crate::command::Refusal;
use crate::command::admin::GetLogPage;
use crate::drives::NamespaceName;
use crate::hints::Hints;
use crate::namespace::{ALL_NAMESPACES, Namespace, NamespaceKind};
use crate::wire::identify::{IDENTIFY_BYTES, csi};
use crate::wire::log::{COMMAND_CHANGES_BLOCKS, COMMAND_SUPPORTED, ErrorEntry, FirmwareLog, LOG_PAGE_SUPPORTED, id};
use crate::wire::opcode::{self, admin, io};
use crate::wire::open_channel::{ChunkInformation, ChunkNotification};
use crate::wire::status::Status;
use crate::wire::{U32, ascii};
use openftl_core::{BLOCK_BYTES, ChunkId, Geometry};
use openftl_media::{ChunkDescriptor, ChunkState, Notification};
use zerocopy::{FromZeros, IntoBytes};

/// The most entries of the chunk notification log.
pub const NOTIFICATIONS_MAX: usize = 256;

/// Every page of an I/O controller.
const PAGES: [u8; 10] = [
    id::SUPPORTED_LOG_PAGES,
    id::ERRORS,
    id::SMART,
    id::FIRMWARE,
    id::CHANGED_NAMESPACES,
    id::EFFECTS,
    id::RESERVATION_NOTIFICATION,
    id::OCP_SMART,
    id::CHUNKS,
    id::CHUNK_NOTIFICATIONS,
];

/// Every page of a discovery controller.
const DISCOVERY_PAGES: [u8; 2] = [id::SUPPORTED_LOG_PAGES, id::DISCOVERY];

/// Every command that an I/O controller has, and what it does to logical blocks.
const ADMIN_COMMANDS: [u8; 8] = [
    admin::GET_LOG_PAGE,
    admin::IDENTIFY,
    admin::ABORT,
    admin::SET_FEATURES,
    admin::GET_FEATURES,
    admin::ASYNCHRONOUS_EVENT_REQUEST,
    admin::KEEP_ALIVE,
    admin::GEOMETRY,
];
/// Of every namespace.
const RESERVATION_COMMANDS: [u8; 4] =
    [io::RESERVATION_REGISTER, io::RESERVATION_REPORT, io::RESERVATION_ACQUIRE, io::RESERVATION_RELEASE];
/// Where a namespace has directives.
const DIRECTIVE_COMMANDS: [u8; 2] = [admin::DIRECTIVE_SEND, admin::DIRECTIVE_RECEIVE];
/// Where a namespace has Flexible Data Placement.
const MANAGEMENT_COMMANDS: [u8; 2] = [io::MANAGEMENT_RECEIVE, io::MANAGEMENT_SEND];
const READING_COMMANDS: [u8; 6] = [io::FLUSH, io::READ, io::COMPARE, io::VERIFY, io::VECTOR_READ, opcode::FABRICS];
const WRITING_COMMANDS: [u8; 8] = [
    io::WRITE,
    io::WRITE_UNCORRECTABLE,
    io::WRITE_ZEROES,
    io::DATASET_MANAGEMENT,
    io::COPY,
    io::VECTOR_RESET,
    io::VECTOR_WRITE,
    io::VECTOR_COPY,
];

/// Commands of a zoned namespace: nothing else may change its blocks.
const ZONED_READING_COMMANDS: [u8; 6] =
    [io::FLUSH, io::READ, io::COMPARE, io::VERIFY, io::ZONE_RECEIVE, opcode::FABRICS];
const ZONED_WRITING_COMMANDS: [u8; 3] = [io::WRITE, io::ZONE_APPEND, io::ZONE_SEND];

/// Commands of a store of pages. What is there changes by one of them alone.
const PAGE_READING_COMMANDS: [u8; 5] = [io::FLUSH, io::PAGE_READ, io::PAGE_CONTROL, io::PAGE_REPORT, opcode::FABRICS];
const PAGE_WRITING_COMMANDS: [u8; 1] = [io::PAGE_WRITE];

/// Commands of a key-value namespace, for which "logical blocks" are its keys and values.
const VALUE_READING_COMMANDS: [u8; 5] =
    [io::FLUSH, io::VALUE_RETRIEVE, io::VALUE_LIST, io::VALUE_EXIST, opcode::FABRICS];
const VALUE_WRITING_COMMANDS: [u8; 2] = [io::VALUE_STORE, io::VALUE_DELETE];

/// The part of a page that the host asked for, cut out of the page as that is written down piece by piece.
pub(super) struct Window<'a> {
    out: &'a mut Vec<u8>,
    /// First byte wanted.
    offset: u64,
    /// Bytes wanted.
    bytes: usize,
    /// Bytes of the page so far.
    position: u64,
}

impl Window<'_> {
    /// Writes the next piece of the page.
    pub(super) fn write(&mut self, piece: &[u8]) {
        let skipped = self.offset.saturating_sub(self.position).min(piece.len() as u64) as usize;
        let room = self.bytes - self.out.len();
        let wanted = &piece[skipped..];
        self.out.extend_from_slice(&wanted[..wanted.len().min(room)]);
        self.position += piece.len() as u64;
    }

    /// Passes over bytes of the page that are not wanted.
    fn skip(&mut self, bytes: u64) {
        assert!(self.position + bytes <= self.offset, "what is passed over is not wanted");
        self.position += bytes;
    }
}

impl Controller {
    /// Appends the part of a log page that the host asked for, up to the page's end.
    pub(super) fn log_page(
        &mut self,
        command: &GetLogPage,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let pages = if self.is_discovery() { &DISCOVERY_PAGES[..] } else { &PAGES[..] };
        let has_placement = placement::placed(context).next().is_some();
        let placement_pages = if has_placement && !self.is_discovery() { &placement::PAGES[..] } else { &[] };
        let zone_pages: &[u8] = if has_zones(context) && !self.is_discovery() { &[id::CHANGED_ZONES] } else { &[] };
        if ![pages, placement_pages, zone_pages].iter().any(|pages| pages.contains(&command.page)) {
            return Err(Status::INVALID_LOG_PAGE.at(40));
        }
        // The one UUID is OCP's, and its page is the one that it can stand beside.
        if command.uuid > 1 || command.uuid == 1 && command.page != id::OCP_SMART {
            return Err(Status::INVALID_FIELD.at(56));
        }
        let bytes = command.bytes as usize;
        let mut window = Window { out, offset: command.offset, bytes, position: 0 };
        match command.page {
            id::SUPPORTED_LOG_PAGES => {
                let mut entries = [U32::new(0); 256];
                let pages = pages.iter().chain(placement_pages).chain(zone_pages);
                pages.for_each(|page| entries[usize::from(*page)] = LOG_PAGE_SUPPORTED.into());
                window.write(entries.as_bytes());
            }
            id::ERRORS => {
                let mut entries = [ErrorEntry::default(); ERRORS_MAX];
                entries.iter_mut().zip(self.errors.newest_first()).for_each(|(entry, error)| *entry = *error);
                window.write(entries.as_bytes());
            }
            id::SMART => {
                // Of the controller; LPA says that namespaces have none of their own.
                if !matches!(command.namespace, 0 | ALL_NAMESPACES) {
                    return Err(Status::INVALID_FIELD.at(4));
                }
                let health = context.drives.health(context.now, context.subsystem);
                window.write(health.smart_log(self.features.temperatures(), self.errors.count()).as_bytes());
            }
            id::FIRMWARE => {
                let mut log = FirmwareLog::new_zeroed();
                log.active = 1;
                log.revisions[0] = ascii(&context.config.firmware);
                window.write(log.as_bytes());
            }
            id::CHANGED_NAMESPACES => {
                let mut ids = [U32::new(0); IDENTIFY_BYTES / 4];
                ids.iter_mut().zip(self.changed.iter()).for_each(|(entry, id)| *entry = id.into());
                window.write(ids.as_bytes());
                if !command.retain_event {
                    self.changed = Default::default();
                }
            }
            id::EFFECTS => {
                let mut entries = [U32::new(0); 1024];
                let directives: &[u8] = if has_directives(context) { &DIRECTIVE_COMMANDS } else { &[] };
                for opcode in ADMIN_COMMANDS.iter().chain(directives).copied().chain([opcode::FABRICS]) {
                    entries[usize::from(opcode)] = COMMAND_SUPPORTED.into();
                }
                let management: &[u8] = if has_placement { &MANAGEMENT_COMMANDS } else { &[] };
                let has_objects = context.namespaces.iter().flatten().any(|one| one.hints() == Hints::Objects);
                let objects: &[u8] = if has_objects { &[io::FLASH_ALLOC, io::FLASH_ALLOC_RANGE] } else { &[] };
                let none = [&[][..], &[]];
                let (reading, writing, more) = match command.command_set {
                    csi::NVM | csi::OPEN_CHANNEL => {
                        (&READING_COMMANDS[..], &WRITING_COMMANDS[..], [management, objects])
                    }
                    csi::ZONED => (&ZONED_READING_COMMANDS[..], &ZONED_WRITING_COMMANDS[..], none),
                    csi::VALUES => (&VALUE_READING_COMMANDS[..], &VALUE_WRITING_COMMANDS[..], none),
                    csi::PAGES => (&PAGE_READING_COMMANDS[..], &PAGE_WRITING_COMMANDS[..], none),
                    _ => return Err(Status::INVALID_FIELD.at(59)),
                };
                let reading = reading.iter().chain(&RESERVATION_COMMANDS);
                for opcode in reading.chain(more.into_iter().flatten()).copied() {
                    entries[256 + usize::from(opcode)] = COMMAND_SUPPORTED.into();
                }
                for opcode in writing.iter().copied() {
                    entries[256 + usize::from(opcode)] = (COMMAND_SUPPORTED | COMMAND_CHANGES_BLOCKS).into();
                }
                window.write(entries.as_bytes());
            }
            id::DISCOVERY => context.discovery.iter().for_each(|piece| window.write(piece)),
            id::OCP_SMART => {
                let health = context.drives.health(context.now, context.subsystem);
                let blocks_in_use = self.blocks_in_use(context);
                window.write(health.ocp_smart_log(blocks_in_use).as_bytes());
            }
            id::CHUNKS => {
                let (namespace, geometry) = self.open_channel(command.namespace, context)?;
                write_chunks(namespace, &geometry, context, &mut window)?;
            }
            id::CHANGED_ZONES => {
                match self.attached(context).get(command.namespace)?.kind {
                    NamespaceKind::Zoned(_) => {}
                    _ => return Err(Status::INVALID_FIELD.at(4)),
                }
                window.write(self.zones_changed.page(command.namespace).as_bytes());
                if !command.retain_event {
                    self.zones_changed.read(command.namespace);
                    self.events.zones_read(command.namespace);
                }
            }
            id::RESERVATION_NOTIFICATION => window.write(self.notifications.page().as_bytes()),
            id::CHUNK_NOTIFICATIONS => self.write_notifications(command.namespace, context, &mut window)?,
            _ => self.placement_page(command, context, &mut window)?,
        }
        if command.offset > window.position {
            return Err(Status::INVALID_FIELD.at(48));
        }
        if !command.retain_event {
            self.events.page_read(command.page);
            if command.page == id::RESERVATION_NOTIFICATION && self.notifications.read() {
                self.happened(Event::ReservationLog);
            }
        }
        Ok(())
    }

    fn blocks_in_use(&self, context: &mut Context<'_>) -> u64 {
        let subsystem = context.subsystem;
        let in_use = |namespace: &Namespace| match namespace.kind {
            NamespaceKind::Block { format, .. } => {
                context.drives.bytes_in_use(NamespaceName { subsystem, id: namespace.id }) >> format.bytes_log2()
            }
            NamespaceKind::OpenChannel(geometry) => geometry.blocks(),
            NamespaceKind::Zoned(_)
            | NamespaceKind::Segments(_)
            | NamespaceKind::Pages(_)
            | NamespaceKind::Values(_) => {
                let name = NamespaceName { subsystem, id: namespace.id };
                context.drives.bytes_in_use(name) / BLOCK_BYTES as u64
            }
        };
        context.namespaces.iter().flatten().map(in_use).sum()
    }

    /// The device behind an attached Open-Channel namespace.
    pub(super) fn open_channel(&self, id: u32, context: &Context<'_>) -> Result<(NamespaceName, Geometry), Refusal> {
        match self.attached(context).get(id)?.kind {
            NamespaceKind::OpenChannel(geometry) => Ok((NamespaceName { subsystem: context.subsystem, id }, geometry)),
            _ => Err(Status::INVALID_FIELD.at(4)),
        }
    }

    /// The last notifications, oldest first; a host knows by their counts which of them are new.
    fn write_notifications(
        &mut self,
        id: u32,
        context: &mut Context<'_>,
        window: &mut Window<'_>,
    ) -> Result<(), Refusal> {
        let (name, _) = self.open_channel(id, context)?;
        let gone = &mut self.notifications_gone[id as usize - 1];
        let mut notifications: Vec<Notification> = Vec::new();
        if context.drives.notifications(context.now, name, *gone, &mut notifications).is_err() {
            return Err(Status::INTERNAL_ERROR.into());
        }
        let last = &notifications[notifications.len().saturating_sub(NOTIFICATIONS_MAX)..];
        if let Some(first) = last.first() {
            *gone = first.count - 1;
        }
        let mut entries = vec![ChunkNotification::new_zeroed(); NOTIFICATIONS_MAX];
        entries.iter_mut().zip(last).for_each(|(entry, notification)| *entry = ChunkNotification::of(id, notification));
        window.write(entries.as_bytes());
        Ok(())
    }
}

/// Writes the chunk descriptors that the window wants, and passes over those before.
fn write_chunks(
    namespace: NamespaceName,
    geometry: &Geometry,
    context: &mut Context<'_>,
    window: &mut Window<'_>,
) -> Result<(), Refusal> {
    let bytes = size_of::<ChunkInformation>() as u64;
    let first = (window.offset / bytes).min(geometry.chunks());
    let end = (window.offset.saturating_add(window.bytes as u64)).div_ceil(bytes).min(geometry.chunks());
    window.skip(first * bytes);
    let Some(chunk) = geometry.chunk_ids().nth(first as usize) else { return Ok(()) };
    let unknown =
        ChunkDescriptor { chunk: ChunkId(0), state: ChunkState::Offline, wear_index: 0, blocks: 0, write_pointer: 0 };
    let mut descriptors = vec![unknown; (end - first) as usize];
    if context.drives.chunk_report(context.now, namespace, chunk, &mut descriptors).is_err() {
        return Err(Status::INTERNAL_ERROR.into());
    }
    for descriptor in &descriptors {
        window.write(ChunkInformation::of(geometry, descriptor).as_bytes());
    }
    Ok(())
}
