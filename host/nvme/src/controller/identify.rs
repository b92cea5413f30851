//! What a controller and its namespaces say of themselves.

use super::directives::has_directives;
use super::errors::ERRORS_MAX;
use super::events::EVENT_REQUESTS_MAX;
use super::features::{CRITICAL_KELVINS, WARNING_KELVINS};
use super::{Context, Controller, placement};
use crate::command::Refusal;
use crate::command::admin::Identify;
use crate::command::io::{COPY_BYTES_MAX, COPY_SOURCES_MAX};
use crate::drives::NamespaceName;
use crate::namespace::{
    ALL_NAMESPACES, BlockFormat, NAMESPACES_MAX, Namespace, NamespaceKind, SegmentShape, TRANSFER_BYTES_MAX,
    ValueShape, ZonedShape,
};
use crate::queue::QUEUE_ENTRIES_MAX;
use crate::wire::identify::{
    IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, IndependentNamespace, LbaFormat, NAMESPACE_READY,
    NamespaceDescriptorHead, OCP_UUID, UuidEntry, cns, controller, csi, namespace as bits,
};
use crate::wire::pages::PagesNamespace;
use crate::wire::status::Status;
use crate::wire::values::{ValuesController, ValuesNamespace};
use crate::wire::zoned::ZonedNamespace;
use crate::wire::{CompletionEntry, SubmissionEntry, U64, U128, ascii, zero_ended};
use openftl_core::BLOCK_BYTES;
use openftl_zones::layout::EXTENSION_UNIT_BYTES;
use zerocopy::{FromZeros, IntoBytes};

/// ACL + 1: Abort commands end at once, so that no limit is ever reached.
const ABORTS_MAX: u8 = 4;

/// KAS, in units of 100 ms.
pub(super) const KEEP_ALIVE_UNITS: u16 = 1;

/// The unit of capsule sizes, in bytes.
const CAPSULE_UNIT: u32 = 16;

impl Controller {
    /// Appends the data structure that the host asked for.
    pub(super) fn identify(
        &self,
        command: &Identify,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let Identify { structure, namespace: id, command_set, .. } = *command;
        if self.is_discovery() && structure != cns::CONTROLLER {
            return Err(Status::INVALID_FIELD.at(40));
        }
        let attached = self.attached(context);
        match structure {
            cns::CONTROLLER => out.extend_from_slice(self.describe(context).as_bytes()),
            cns::NAMESPACE => {
                if id == ALL_NAMESPACES {
                    // What all namespaces have in common, without Namespace Management: nothing.
                    return Err(Status::INVALID_NAMESPACE.at(4));
                }
                let namespace = or_zeroes(attached.get(id))?;
                expect_blocks(namespace)?;
                append_namespace(namespace, context, out);
            }
            cns::ALLOCATED_NAMESPACE => {
                let namespace = allocated(context, id)?;
                expect_blocks(namespace)?;
                append_namespace(namespace, context, out);
            }
            cns::COMMAND_SET_NAMESPACE | cns::COMMAND_SET_ALLOCATED_NAMESPACE => {
                check_command_set(command_set)?;
                let namespace = match structure {
                    cns::COMMAND_SET_NAMESPACE => or_zeroes(attached.get(id))?,
                    _ => allocated(context, id)?,
                };
                // A zoned namespace has the NVM command set besides its own.
                let has_set = |one: &Namespace| {
                    let set = one.command_set();
                    set == command_set || set == csi::ZONED && command_set == csi::NVM
                };
                if namespace.is_some_and(|namespace| !has_set(namespace)) {
                    return Err(Status::INVALID_FIELD.at(47));
                }
                match (namespace.map(|one| one.kind), command_set) {
                    (Some(NamespaceKind::Zoned(shape)), csi::ZONED) => {
                        out.extend_from_slice(zoned_namespace(&shape).as_bytes());
                    }
                    (Some(NamespaceKind::Pages(shape)), _) => {
                        out.extend_from_slice(PagesNamespace::of(&shape).as_bytes());
                    }
                    (Some(NamespaceKind::Values(shape)), _) => {
                        let namespace = namespace.expect("it has a kind");
                        out.extend_from_slice(values_namespace(namespace, &shape, context).as_bytes());
                    }
                    // Storage tags, protection formats, large granularities: there are none, so all fields are zero.
                    _ => {}
                }
            }
            cns::COMMAND_SET_CONTROLLER => {
                // VSL, WZSL, WUSL, DMRL, DMRSL, DMSL: zero, no limits but those of the commands themselves. And ZASL: zero, that of MDTS.
                check_command_set(command_set)?;
                if command_set == csi::VALUES {
                    out.extend_from_slice(ValuesController::new().as_bytes());
                }
            }
            cns::COMMAND_SET_FORMAT => {
                // Of key-value namespaces alone, which have one format each.
                if command_set != csi::VALUES {
                    return Err(Status::INVALID_FIELD.at(47));
                }
                if command.specific != 0 {
                    return Err(Status::INVALID_FIELD.at(44));
                }
                let shape = context.namespaces.iter().flatten().find_map(|one| match one.kind {
                    NamespaceKind::Values(shape) => Some(shape),
                    _ => None,
                });
                if let Some(shape) = shape {
                    out.extend_from_slice(ValuesNamespace::format_of(&shape).as_bytes());
                }
            }
            cns::INDEPENDENT_NAMESPACE => {
                if let Some(namespace) = or_zeroes(attached.get(id))? {
                    out.extend_from_slice(independent(namespace, context).as_bytes());
                }
            }
            cns::NAMESPACE_DESCRIPTORS => {
                let namespace = attached.get(id).map_err(|_| Status::INVALID_NAMESPACE.at(4))?;
                append_descriptors(namespace, out);
            }
            cns::ACTIVE_NAMESPACES | cns::COMMAND_SET_ACTIVE_NAMESPACES => {
                check_list(structure == cns::COMMAND_SET_ACTIVE_NAMESPACES, command_set, id)?;
                let of_set = |namespace: &&Namespace| {
                    structure == cns::ACTIVE_NAMESPACES || namespace.command_set() == command_set
                };
                append_ids(attached.iter().filter(of_set), id, out);
            }
            cns::ALLOCATED_NAMESPACES | cns::COMMAND_SET_ALLOCATED_NAMESPACES => {
                check_list(structure == cns::COMMAND_SET_ALLOCATED_NAMESPACES, command_set, id)?;
                let of_set = |namespace: &&Namespace| {
                    structure == cns::ALLOCATED_NAMESPACES || namespace.command_set() == command_set
                };
                append_ids(context.namespaces.iter().flatten().filter(of_set), id, out);
            }
            cns::CONTROLLERS | cns::ATTACHED_CONTROLLERS => {
                if structure == cns::ATTACHED_CONTROLLERS {
                    allocated(context, id)?;
                }
                let ids: Vec<u16> = context
                    .controllers
                    .iter()
                    .filter(|(_, set)| structure == cns::CONTROLLERS || set.contains(id))
                    .map(|(controller, _)| *controller)
                    .filter(|controller| *controller >= command.controller)
                    .take((IDENTIFY_BYTES - 2) / 2)
                    .collect();
                out.extend_from_slice(&(ids.len() as u16).to_le_bytes());
                ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
            }
            cns::ENDURANCE_GROUPS => {
                let groups: Vec<u16> = placement::placed(context).map(placement::endurance_group).collect();
                if groups.is_empty() {
                    return Err(Status::INVALID_FIELD.at(40));
                }
                // CNS Specific Identifier, bits 15 to 0 of dword 11: groups from there on.
                let groups: Vec<u16> = groups.into_iter().filter(|group| *group >= command.specific).collect();
                out.extend_from_slice(&(groups.len() as u16).to_le_bytes());
                groups.iter().for_each(|group| out.extend_from_slice(&group.to_le_bytes()));
            }
            cns::UUIDS => {
                let none = UuidEntry::new_zeroed();
                let ocp = UuidEntry { uuid: OCP_UUID, ..none };
                out.extend_from_slice([none, ocp].as_bytes());
            }
            cns::COMMAND_SETS => {
                // One combination: all that there are. Vectors of bits, by command set.
                let sets = [csi::NVM, csi::VALUES, csi::ZONED, csi::OPEN_CHANNEL, csi::PAGES];
                let combination = U64::new(sets.into_iter().map(|set| 1 << set).sum());
                out.extend_from_slice(combination.as_bytes());
            }
            _ => return Err(Status::INVALID_FIELD.at(40)),
        }
        out.resize(IDENTIFY_BYTES, 0);
        Ok(())
    }

    fn describe(&self, context: &Context<'_>) -> IdentifyController {
        let mut data = IdentifyController::new_zeroed();
        let config = context.config;
        data.serial = ascii(&config.serial);
        data.model = ascii(&config.model);
        data.firmware = ascii(&config.firmware);
        data.transfer_pages_max_log2 = (TRANSFER_BYTES_MAX / 4096).ilog2() as u8;
        data.controller_id = self.name.id.into();
        data.version = super::properties::VERSION.into();
        data.event_requests_max = EVENT_REQUESTS_MAX as u8 - 1;
        data.log_page_attributes = controller::LONG_LOG_PAGES;
        data.error_entries_max = ERRORS_MAX as u8 - 1;
        data.keep_alive_granularity = KEEP_ALIVE_UNITS.into();
        data.submission_entry_log2 = 0x66;
        data.completion_entry_log2 = 0x44;
        data.commands_max = (QUEUE_ENTRIES_MAX as u16).into();
        data.subsystem_nqn = zero_ended(config.nqn.as_str());
        data.sgl_support =
            (controller::SGL | controller::SGL_LONGER | controller::SGL_OFFSET | controller::SGL_TRANSPORT).into();
        data.command_capsule_units =
            ((size_of::<SubmissionEntry>() as u32 + config.in_capsule_bytes) / CAPSULE_UNIT).into();
        data.response_capsule_units = (size_of::<CompletionEntry>() as u32 / CAPSULE_UNIT).into();
        data.sgl_descriptors_max = 1;
        if self.is_discovery() {
            data.controller_type = controller::TYPE_DISCOVERY;
            data.discovery_controller_type = controller::DIRECT_DISCOVERY;
            data.optional_events = controller::DISCOVERY_NOTICES.into();
            data.attributes = (controller::LONG_HOST_ID | controller::TRAFFIC_KEEPS_ALIVE).into();
            return data;
        }
        data.controller_type = controller::TYPE_IO;
        data.sharing = if config.is_shared { controller::SEVERAL_CONTROLLERS } else { 0 };
        let has_zones = has_zones(context);
        let zone_notices = if has_zones { controller::ZONE_NOTICES } else { 0 };
        data.optional_events = (controller::NAMESPACE_NOTICES | zone_notices).into();
        data.attributes = (controller::LONG_HOST_ID
            | controller::TRAFFIC_KEEPS_ALIVE
            | controller::UUID_LIST
            | controller::METADATA_NOT_COUNTED)
            .into();
        if let Some(last) = placement::placed(context).last() {
            data.attributes =
                (data.attributes.get() | controller::ENDURANCE_GROUPS | controller::DATA_PLACEMENT).into();
            data.endurance_group_max = placement::endurance_group(last).into();
        }
        if has_directives(context) {
            data.optional_admin_commands = controller::DIRECTIVES.into();
        }
        data.aborts_max = ABORTS_MAX - 1;
        data.firmware_updates = controller::ONE_FIRMWARE_SLOT;
        data.log_page_attributes |= controller::EFFECTS_LOG;
        data.warning_temperature = WARNING_KELVINS.into();
        data.critical_temperature = CRITICAL_KELVINS.into();
        data.total_capacity = U128::new(context.namespaces.iter().flatten().map(capacity_bytes).sum());
        data.namespace_id_max = NAMESPACES_MAX.into();
        data.namespaces_allowed_max = NAMESPACES_MAX.into();
        data.optional_io_commands = (controller::COMPARE
            | controller::WRITE_UNCORRECTABLE
            | controller::DATASET_MANAGEMENT
            | controller::WRITE_ZEROES
            | controller::SELECT_FEATURES
            | controller::RESERVATIONS
            | controller::TIMESTAMP
            | controller::VERIFY
            | controller::COPY)
            .into();
        data.copy_formats = controller::COPY_FORMAT_0.into();
        data.volatile_write_cache = controller::WRITE_CACHE_AND_FLUSH_OF_ALL;
        // Blocks of either format: the fewer bytes count. Namespaces say it better.
        let atomic = BlockFormat::FourKib.atomic_blocks() as u16 - 1;
        data.atomic_write_normal = atomic.into();
        // Of what is written to a zone a power cut may leave a part.
        data.atomic_write_power_fail = if tears_writes(context) { 0 } else { atomic }.into();
        data.atomic_compare_and_write = atomic.into();
        data.fused_operations = controller::COMPARE_AND_WRITE.into();
        data.optional_fabrics_commands = controller::DISCONNECT.into();
        data
    }
}

impl Namespace {
    /// CSI.
    #[must_use]
    pub fn command_set(&self) -> u8 {
        match self.kind {
            NamespaceKind::Block { .. } | NamespaceKind::Segments(_) => csi::NVM,
            NamespaceKind::OpenChannel(_) => csi::OPEN_CHANNEL,
            NamespaceKind::Zoned(_) => csi::ZONED,
            NamespaceKind::Pages(_) => csi::PAGES,
            NamespaceKind::Values(_) => csi::VALUES,
        }
    }
}

/// Whether a namespace of the subsystem is zoned.
pub(super) fn has_zones(context: &Context<'_>) -> bool {
    context.namespaces.iter().flatten().any(|one| matches!(one.kind, NamespaceKind::Zoned(_)))
}

/// Whether a power cut may leave the beginning of a write to a namespace of the subsystem.
fn tears_writes(context: &Context<'_>) -> bool {
    let tears = |kind| matches!(kind, NamespaceKind::Zoned(_) | NamespaceKind::Segments(_));
    context.namespaces.iter().flatten().any(|one| tears(one.kind))
}

/// The namespace whose data structure is wanted: of an id that has none it is all zeroes, and what is no id has none.
fn or_zeroes(found: Result<&Namespace, Refusal>) -> Result<Option<&Namespace>, Refusal> {
    match found {
        Ok(namespace) => Ok(Some(namespace)),
        Err(refusal) if refusal.status == Status::INVALID_FIELD => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// The namespace `id` of the subsystem, attached or not.
fn allocated<'a>(context: &Context<'a>, id: u32) -> Result<Option<&'a Namespace>, Refusal> {
    if !(1..=NAMESPACES_MAX).contains(&id) {
        return Err(Status::INVALID_NAMESPACE.at(4));
    }
    Ok(context.namespaces[id as usize - 1].as_ref())
}

fn check_command_set(command_set: u8) -> Result<(), Refusal> {
    if matches!(command_set, csi::NVM | csi::VALUES | csi::ZONED | csi::OPEN_CHANNEL | csi::PAGES) {
        Ok(())
    } else {
        Err(Status::INVALID_FIELD.at(47))
    }
}

/// A list is of the ids above `after`.
fn check_list(is_of_command_set: bool, command_set: u8, after: u32) -> Result<(), Refusal> {
    if is_of_command_set {
        check_command_set(command_set)?;
    }
    if after >= ALL_NAMESPACES - 1 { Err(Status::INVALID_NAMESPACE.at(4)) } else { Ok(()) }
}

fn append_ids<'a>(namespaces: impl Iterator<Item = &'a Namespace>, after: u32, out: &mut Vec<u8>) {
    namespaces
        .filter(|namespace| namespace.id > after)
        .for_each(|namespace| out.extend_from_slice(&namespace.id.to_le_bytes()));
}

fn append_descriptors(namespace: &Namespace, out: &mut Vec<u8>) {
    let mut append = |kind, value: &[u8]| {
        let head = NamespaceDescriptorHead { kind, length: value.len() as u8, reserved: 0.into() };
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(value);
    };
    append(NamespaceDescriptorHead::UUID, &namespace.uuid);
    append(NamespaceDescriptorHead::COMMAND_SET, &[namespace.command_set()]);
}

fn capacity_bytes(namespace: &Namespace) -> u128 {
    match namespace.kind {
        NamespaceKind::Block { bytes, .. } => u128::from(bytes),
        NamespaceKind::OpenChannel(geometry) => u128::from(geometry.bytes()),
        NamespaceKind::Zoned(shape) => u128::from(shape.capacity_bytes()),
        NamespaceKind::Segments(shape) => u128::from(shape.blocks()) * BLOCK_BYTES as u128,
        NamespaceKind::Pages(shape) => u128::from(shape.capacity_bytes),
        NamespaceKind::Values(shape) => u128::from(shape.capacity_bytes),
    }
}

fn attributes(context: &mut Context<'_>) -> u8 {
    let health = context.drives.health(context.now, context.subsystem);
    if health.is_read_only { bits::WRITE_PROTECTED } else { 0 }
}

fn independent(namespace: &Namespace, context: &mut Context<'_>) -> IndependentNamespace {
    let mut data = IndependentNamespace::new_zeroed();
    data.features = features(namespace);
    data.sharing = bits::SHARED;
    data.reservations = bits::RESERVATIONS;
    data.attributes = attributes(context);
    data.set_and_endurance_group[1] = placement::endurance_group(namespace).into();
    data.status = NAMESPACE_READY;
    data
}

fn features(namespace: &Namespace) -> u8 {
    match namespace.kind {
        NamespaceKind::Block { .. } => bits::ATOMIC_FIELDS | bits::PREFERRED_FIELDS,
        NamespaceKind::OpenChannel(_) => bits::DEALLOCATED_ERROR,
        NamespaceKind::Zoned(_) => bits::ATOMIC_FIELDS,
        NamespaceKind::Segments(_) => bits::ATOMIC_FIELDS | bits::PREFERRED_FIELDS,
        // What is atomic is a batch, of any length, or a Store.
        NamespaceKind::Pages(_) | NamespaceKind::Values(_) => 0,
    }
}

fn append_namespace(namespace: Option<&Namespace>, context: &mut Context<'_>, out: &mut Vec<u8>) {
    let Some(namespace) = namespace else { return };
    let mut data = IdentifyNamespace::new_zeroed();
    data.size = namespace.blocks().into();
    data.features = features(namespace);
    data.sharing = bits::SHARED;
    data.reservations = bits::RESERVATIONS;
    data.attributes = attributes(context);
    data.capacity_bytes = U128::new(capacity_bytes(namespace));
    data.set_and_endurance_group[1] = placement::endurance_group(namespace).into();
    match namespace.kind {
        NamespaceKind::Block { format, bytes, .. } => {
            let name = NamespaceName { subsystem: context.subsystem, id: namespace.id };
            let in_use = context.drives.bytes_in_use(name).min(bytes);
            data.capacity = namespace.blocks().into();
            data.utilization = (in_use >> format.bytes_log2()).into();
            data.deallocation = bits::READS_ZEROES | bits::ZEROES_DEALLOCATE;
            let blocks = |bytes: u32| bytes / format.bytes();
            let atomic = format.atomic_blocks() as u16 - 1;
            data.atomic_write_normal = atomic.into();
            data.atomic_write_power_fail = atomic.into();
            data.atomic_compare_and_write = atomic.into();
            // Whole blocks of the drive need no reading before they are written, and are all that is deallocated.
            let drive_block = blocks(BLOCK_BYTES as u32) as u16 - 1;
            data.preferred_write_granularity = drive_block.into();
            data.preferred_write_alignment = drive_block.into();
            data.preferred_deallocate_granularity = drive_block.into();
            data.preferred_deallocate_alignment = drive_block.into();
            data.optimal_write_size = (blocks(TRANSFER_BYTES_MAX) as u16 - 1).into();
            let copied = blocks(COPY_BYTES_MAX as u32);
            data.copy_source_blocks_max = (copied as u16).into();
            data.copy_blocks_max = copied.into();
            data.copy_sources_max = COPY_SOURCES_MAX as u8 - 1;
            let formats = [BlockFormat::FourKib, BlockFormat::Bytes512];
            data.formats = formats.len() as u8 - 1;
            data.format = formats.iter().position(|one| *one == format).expect("every format is listed") as u8;
            for (entry, format) in data.lba_formats.iter_mut().zip(formats) {
                let relative_performance = if format == BlockFormat::FourKib { 0 } else { 2 };
                let block_bytes_log2 = format.bytes_log2();
                *entry = LbaFormat { metadata_bytes: 0.into(), block_bytes_log2, relative_performance };
            }
        }
        NamespaceKind::OpenChannel(geometry) => {
            // NSZE counts the gaps of the address space; what exists is all in use, for nothing here knows what is not.
            data.capacity = geometry.blocks().into();
            data.utilization = geometry.blocks().into();
            data.format = bits::EXTENDED_BLOCK;
            data.metadata_capabilities = bits::METADATA_EXTENDED;
            data.lba_formats[0] = LbaFormat {
                metadata_bytes: (geometry.oob_bytes as u16).into(),
                block_bytes_log2: namespace.block_bytes_log2(),
                relative_performance: 0,
            };
        }
        NamespaceKind::Zoned(shape) => {
            // NSZE counts what lies between the capacity of a zone and the next one; nothing else does.
            let name = NamespaceName { subsystem: context.subsystem, id: namespace.id };
            let in_use = context.drives.bytes_in_use(name).min(shape.capacity_bytes());
            data.capacity = (shape.capacity_bytes() / BLOCK_BYTES as u64).into();
            data.utilization = (in_use / BLOCK_BYTES as u64).into();
            data.deallocation = bits::READS_ZEROES;
            let longest = (TRANSFER_BYTES_MAX as usize / BLOCK_BYTES - 1) as u16;
            data.atomic_write_normal = longest.into();
            data.lba_formats[0].block_bytes_log2 = namespace.block_bytes_log2();
        }
        NamespaceKind::Segments(SegmentShape { blocks, .. }) => {
            let name = NamespaceName { subsystem: context.subsystem, id: namespace.id };
            let in_use = context.drives.bytes_in_use(name) / BLOCK_BYTES as u64;
            data.capacity = namespace.blocks().into();
            data.utilization = in_use.min(namespace.blocks()).into();
            // DLFEAT stays 0: what is deallocated of a segment reads as before until all of it is.
            let longest = (TRANSFER_BYTES_MAX as usize / BLOCK_BYTES - 1) as u16;
            data.atomic_write_normal = longest.into();
            data.optimal_write_size = longest.into();
            // Hosts that heed the boundary never write to two segments at once. Longer segments cannot be told.
            data.optimal_boundary = u16::try_from(blocks).unwrap_or(0).into();
            let deallocated = u16::try_from(blocks - 1).unwrap_or(0);
            data.preferred_deallocate_granularity = deallocated.into();
            data.preferred_deallocate_alignment = deallocated.into();
            data.lba_formats[0].block_bytes_log2 = namespace.block_bytes_log2();
        }
        NamespaceKind::Values(_) => unreachable!("it has no such data structure"),
        NamespaceKind::Pages(_) => {
            // Sizes alone: pages have no blocks.
            let name = NamespaceName { subsystem: context.subsystem, id: namespace.id };
            let in_use = context.drives.bytes_in_use(name) / BLOCK_BYTES as u64;
            data.capacity = namespace.blocks().into();
            data.utilization = in_use.min(namespace.blocks()).into();
            data.lba_formats[0].block_bytes_log2 = namespace.block_bytes_log2();
        }
    }
    out.extend_from_slice(data.as_bytes());
}

/// A key-value namespace has no logical blocks, and so no data structure that tells of them.
fn expect_blocks(namespace: Option<&Namespace>) -> Result<(), Refusal> {
    match namespace.map(|one| one.kind) {
        Some(NamespaceKind::Values(_)) => Err(Status::INVALID_COMMAND_SET.at(40)),
        _ => Ok(()),
    }
}

/// What the Key Value command set has of a namespace.
fn values_namespace(namespace: &Namespace, shape: &ValueShape, context: &mut Context<'_>) -> ValuesNamespace {
    let name = NamespaceName { subsystem: context.subsystem, id: namespace.id };
    let mut data = ValuesNamespace::of(shape, context.drives.bytes_in_use(name).min(shape.capacity_bytes));
    data.sharing = bits::SHARED;
    data.reservations = bits::RESERVATIONS;
    data.attributes = attributes(context);
    data
}

/// What the Zoned Namespace command set has of a namespace.
fn zoned_namespace(shape: &ZonedShape) -> ZonedNamespace {
    let mut data = ZonedNamespace::new_zeroed();
    // What all zones are below limits nothing: Linux keeps account of active zones where there is a limit, and btrfs with it.
    let limit = |most: u32| if most < shape.zones { most - 1 } else { u32::MAX };
    data.active_max = limit(shape.max_active).into();
    data.open_max = limit(shape.max_open).into();
    data.formats[0].size = shape.size.into();
    if shape.window_blocks > 0 {
        data.optional = ZonedNamespace::ZRWA_SUPPORTED.into();
        data.zrwa_max = (shape.max_open - 1).into();
        // Blocks are committed one by one.
        data.zrwa_blocks = [1.into(), (shape.window_blocks as u16).into()];
        data.zrwa_capabilities = ZonedNamespace::EXPLICIT_FLUSH;
    }
    data.formats[0].extension_units = (shape.extension_bytes / EXTENSION_UNIT_BYTES) as u8;
    data
}
