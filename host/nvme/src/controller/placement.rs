//! Flexible Data Placement: log pages and features.
//!
//! Every namespace with it is an endurance group of its own, of the same number: its drive has its own chunks.

use super::logs::Window;
use super::{Context, Controller};
use crate::command::Refusal;
use crate::command::admin::{GetFeature, GetLogPage, SetFeature};
use crate::data_placement::handle_of;
use crate::drives::NamespaceName;
use crate::health::Health;
use crate::hints::Hints;
use crate::namespace::Namespace;
use crate::wire::U128;
use crate::wire::data_placement::{
    Configuration, ConfigurationsHead, EnduranceGroupLog, EventsHead, HOST_EVENTS, HandleDescriptor, PlacementEvent,
    PlacementStatistics, UsageDescriptor, UsageHead, event,
};
use crate::wire::feature::{self, capability, id as feature_id, select};
use crate::wire::log::id;
use crate::wire::status::Status;
use openftl_core::BLOCK_BYTES;
use openftl_parts::words::Handle;
use zerocopy::{FromZeros, IntoBytes};

/// The log pages.
pub(super) const PAGES: [u8; 5] = [
    id::ENDURANCE_GROUP,
    id::PLACEMENT_CONFIGURATIONS,
    id::PLACEMENT_USAGE,
    id::PLACEMENT_STATISTICS,
    id::PLACEMENT_EVENTS,
];

/// The features.
pub(super) const FEATURES: [u8; 2] = [feature_id::DATA_PLACEMENT, feature_id::DATA_PLACEMENT_EVENTS];

/// Every namespace of the subsystem with Flexible Data Placement.
pub(super) fn placed<'a>(context: &Context<'a>) -> impl Iterator<Item = &'a Namespace> + use<'a> {
    context.namespaces.iter().flatten().filter(|namespace| namespace.hints().is_data_placement())
}

/// ENDGID of a namespace; 0: it is in none.
pub(super) fn endurance_group(namespace: &Namespace) -> u16 {
    if namespace.hints().is_data_placement() { namespace.id as u16 } else { 0 }
}

/// Thousands of millions of bytes, rounded up.
fn billions(bytes: u64) -> U128 {
    U128::new(u128::from(bytes.div_ceil(1_000_000_000)))
}

impl Health {
    /// The page of an endurance group of so many bytes.
    fn endurance_group_log(&self, bytes: u64) -> EnduranceGroupLog {
        let wide = |value: u64| U128::new(u128::from(value));
        let mut log = EnduranceGroupLog::new_zeroed();
        log.available_spare = self.spare_percent;
        log.available_spare_threshold = self.spare_threshold_percent;
        log.percentage_used = self.wear_percent.min(255) as u8;
        log.endurance_estimate = billions(self.endurance_bytes);
        log.data_units_read = billions(self.host_bytes_read);
        log.data_units_written = billions(self.host_bytes_written);
        log.media_units_written = billions(self.media_bytes_written);
        log.host_read_commands = wide(self.host_reads);
        log.host_write_commands = wide(self.host_writes);
        log.media_errors = wide(self.unrecovered_reads.saturating_add(self.wrong_blocks));
        log.total_capacity = wide(bytes);
        log
    }
}

impl Controller {
    /// Writes a page of [`PAGES`].
    pub(super) fn placement_page(
        &self,
        command: &GetLogPage,
        context: &mut Context<'_>,
        window: &mut Window<'_>,
    ) -> Result<(), Refusal> {
        // LSI: the endurance group.
        let named = placed(context).find(|namespace| endurance_group(namespace) == command.specific);
        let namespace = named.ok_or(Status::INVALID_FIELD.at(46))?;
        let Hints::DataPlacement { handles, is_persistent, unit_blocks } = namespace.hints() else {
            unreachable!("the namespace was found by it")
        };
        let handles_usize = usize::from(handles);
        match command.page {
            id::ENDURANCE_GROUP => {
                let health = context.drives.health(context.now, context.subsystem);
                let bytes = namespace.blocks() << namespace.block_bytes_log2();
                window.write(health.endurance_group_log(bytes).as_bytes());
            }
            id::PLACEMENT_CONFIGURATIONS => {
                let bytes = size_of::<Configuration>() + handles_usize * size_of::<HandleDescriptor>();
                let mut head = ConfigurationsHead::new_zeroed();
                head.bytes = ((size_of::<ConfigurationsHead>() + bytes) as u32).into();
                let mut data = Configuration::new_zeroed();
                data.bytes = (bytes as u16).into();
                data.attributes = Configuration::VALID | Configuration::WRITE_CACHE;
                data.reclaim_groups = 1.into();
                data.handles = u16::from(handles).into();
                data.identifiers_max = u16::from(handles - 1).into();
                data.namespaces = 1.into();
                data.unit_bytes = (unit_blocks * BLOCK_BYTES as u64).into();
                window.write(head.as_bytes());
                window.write(data.as_bytes());
                let isolation =
                    if is_persistent { HandleDescriptor::PERSISTENTLY } else { HandleDescriptor::INITIALLY };
                let descriptor = HandleDescriptor { isolation, reserved: [0; 3] };
                (0..handles).for_each(|_| window.write(descriptor.as_bytes()));
            }
            id::PLACEMENT_USAGE => {
                let head = UsageHead { handles: u16::from(handles).into(), reserved: [0; 6] };
                window.write(head.as_bytes());
                let descriptor = UsageDescriptor { usage: UsageDescriptor::HOST_SPECIFIED, reserved: [0; 7] };
                (0..handles).for_each(|_| window.write(descriptor.as_bytes()));
            }
            id::PLACEMENT_STATISTICS => {
                let name = NamespaceName { subsystem: context.subsystem, id: namespace.id };
                let counts = context.drives.placement_counts(name);
                let wide = |value: u64| U128::new(u128::from(value));
                let mut data = PlacementStatistics::new_zeroed();
                data.host_bytes_written = wide(counts.host_bytes_written);
                data.media_bytes_written = wide(counts.media_bytes_written);
                data.media_bytes_erased = wide(counts.media_bytes_erased);
                window.write(data.as_bytes());
            }
            id::PLACEMENT_EVENTS => {
                let of_hosts = &context.hint_states[namespace.id as usize - 1].events;
                let events: Vec<PlacementEvent> = if command.parameter & HOST_EVENTS != 0 {
                    of_hosts.iter().copied().collect()
                } else {
                    let name = NamespaceName { subsystem: context.subsystem, id: namespace.id };
                    let mut of_drive = Vec::new();
                    context.drives.handle_events(name, &mut of_drive);
                    let told = |event| namespace.placement_event(event, self.features.timestamp(event.at));
                    of_drive.iter().map(told).collect()
                };
                let head = EventsHead { events: (events.len() as u32).into(), reserved: [0; 60] };
                window.write(head.as_bytes());
                events.iter().for_each(|event| window.write(event.as_bytes()));
            }
            other => unreachable!("page {other:#x} is none of these"),
        }
        Ok(())
    }

    /// Sets a feature of [`FEATURES`]; `data` are as long as the command says.
    pub(super) fn set_placement_feature(
        &self,
        command: &SetFeature,
        data: &[u8],
        context: &mut Context<'_>,
    ) -> Result<u64, Refusal> {
        if placed(context).next().is_none() {
            return Err(Status::INVALID_FIELD.at(40));
        }
        if command.save {
            return Err(Status::FEATURE_NOT_SAVEABLE.at(43).bit(7));
        }
        if command.feature == feature_id::DATA_PLACEMENT {
            self.check_group(command.value, context)?;
            // There is a namespace in every group.
            return Err(Status::COMMAND_SEQUENCE_ERROR.into());
        }
        let (id, handle) = self.handle_named(command.namespace, command.value as u16, context)?;
        let is_wanted = command.second_value & feature::PLACEMENT_EVENT_ENABLED != 0;
        if data.iter().any(|kind| !event::ALL.contains(kind)) {
            return Err(Status::INVALID_FIELD.into());
        }
        let events = &mut context.hint_states[id as usize - 1].events;
        data.iter().try_for_each(|kind| events.want(*kind, handle, is_wanted))?;
        context.drives.watch_handles(NamespaceName { subsystem: context.subsystem, id }, events.watch());
        Ok(0)
    }

    /// The value of a feature of [`FEATURES`]: dword 0, and data that are appended to `out`.
    pub(super) fn get_placement_feature(
        &self,
        command: &GetFeature,
        context: &Context<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u64, Refusal> {
        if placed(context).next().is_none() {
            return Err(Status::INVALID_FIELD.at(40));
        }
        let is_events = command.feature == feature_id::DATA_PLACEMENT_EVENTS;
        match command.select {
            select::CAPABILITIES if is_events => {
                return Ok(u64::from(capability::CHANGEABLE | capability::PER_NAMESPACE));
            }
            select::CAPABILITIES => return Ok(0),
            select::CURRENT | select::DEFAULT | select::SAVED => {}
            _ => return Err(Status::INVALID_FIELD.at(41)),
        }
        if !is_events {
            self.check_group(command.value, context)?;
            // FDPE, and configuration 0.
            return Ok(1);
        }
        let (id, handle) = self.handle_named(command.namespace, command.value as u16, context)?;
        let events = &context.hint_states[id as usize - 1].events;
        let room = (command.value >> 16 & 0xff) as usize;
        for kind in event::ALL.into_iter().take(room) {
            let is_wanted = command.select == select::CURRENT && events.wanted(kind).contains(handle);
            out.extend_from_slice(&[kind, u8::from(is_wanted)]);
        }
        out.resize(room * 2, 0);
        Ok(event::ALL.len() as u64)
    }

    /// ENDGID, bits 15 to 0 of dword 11.
    fn check_group(&self, value: u32, context: &Context<'_>) -> Result<(), Refusal> {
        let is_there = placed(context).any(|namespace| endurance_group(namespace) == value as u16);
        if is_there { Ok(()) } else { Err(Status::INVALID_FIELD.at(44)) }
    }

    /// The id of an attached namespace and the handle of its drive behind placement handle `named`.
    fn handle_named(&self, id: u32, named: u16, context: &Context<'_>) -> Result<(u32, Handle), Refusal> {
        let namespace = self.attached(context).get(id)?;
        match namespace.hints() {
            Hints::DataPlacement { handles, .. } => {
                let handle = handle_of(named, handles).ok_or(Status::INVALID_FIELD.at(44))?;
                Ok((id, handle))
            }
            _ => Err(Status::FDP_DISABLED.at(4)),
        }
    }
}
