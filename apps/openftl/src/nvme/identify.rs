//! `openftl nvme identify`: what a controller and its namespaces say of themselves.

mod reservation;
mod values;
mod zoned;

use super::association::Association;
use super::channel::Channel;
use super::discover::ascii_of;
use super::disk::{format_index, format_of};
use super::namespaces;
use crate::cli::nvme::Identify;
use crate::failure::Failure;
use crate::terminal::{Ink, Palette, say};
use openftl_core::units::ByteSize;
use openftl_core::{Geometry, Nanos};
use openftl_lab::picture::thousands;
use openftl_nvme::wire::identify::{
    IdentifyController, IdentifyNamespace, NamespaceDescriptorHead, cns, controller as bits, csi,
};
use openftl_nvme::wire::log::{self, OcpSmartLog, SmartLog};
use openftl_nvme::wire::open_channel::GeometryData;
use openftl_nvme_tcp::ClientError;
use openftl_nvme_tcp::client::Client;
use openftl_nvme_tcp::nvm::{ALL_NAMESPACES, LogPart};
use reservation::ReservationFacts;
use serde::Serialize;
use std::fmt::Write as _;
use values::ValuesFacts;
use zerocopy::{FromBytes, FromZeros};
pub(super) use zoned::{ZonedFacts, append_bytes_max, limit};

/// The one object that `--json` prints.
#[derive(Serialize, Clone, PartialEq, Debug)]
struct Findings {
    controller: ControllerFacts,
    namespaces: Vec<NamespaceFacts>,
    health: Option<HealthFacts>,
    /// OCP's extended health log; null where the drive has none.
    ocp: Option<OcpFacts>,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
struct ControllerFacts {
    subsystem_nqn: String,
    controller_id: u16,
    model: String,
    serial: String,
    firmware: String,
    nvme_version: String,
    /// Null: no limit.
    transfer_bytes_max: Option<u64>,
    in_capsule_bytes: u32,
    queue_commands_max: u16,
    volatile_write_cache: bool,
    /// Beyond Flush, Read and Write.
    commands: Vec<&'static str>,
    capacity_bytes: u128,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
struct NamespaceFacts {
    id: u32,
    kind: String,
    uuid: Option<String>,
    block_bytes: u64,
    metadata_bytes: u16,
    /// That can be addressed; an Open-Channel namespace has gaps among them.
    blocks: u64,
    capacity_blocks: u64,
    used_blocks: u64,
    /// A write of so many blocks, or fewer, is there whole or not at all, also after a power cut; null where the namespace
    /// says nothing of its own.
    atomic_write_blocks: Option<u64>,
    open_channel: Option<OpenChannelFacts>,
    zoned: Option<ZonedFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<ValuesFacts>,
    /// Of hosts that have registered to reserve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<ReservationFacts>,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
struct OpenChannelFacts {
    groups: u32,
    pus_per_group: u32,
    chunks_per_pu: u32,
    blocks_per_chunk: u32,
    ws_min: u32,
    ws_opt: u32,
    mw_cunits: u32,
    /// 0: no limit.
    open_chunks_max: u32,
    vector_copy: bool,
    read_ns: u64,
    write_ns: u64,
    reset_ns: u64,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
struct HealthFacts {
    /// Bits as in the log page.
    critical_warning: u8,
    temperature_kelvins: u16,
    available_spare_percent: u8,
    used_percent: u8,
    read_bytes: u128,
    written_bytes: u128,
    power_cycles: u128,
    unsafe_shutdowns: u128,
    media_errors: u128,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
struct OcpFacts {
    media_bytes_written: u128,
    media_bytes_read: u128,
    /// Media over host writes; null if the host wrote nothing. The host's are counted in units of 512 000 bytes.
    waf: Option<f64>,
    bad_blocks: u64,
    uncorrectable_reads: u64,
    erases_min: u32,
    erases_max: u32,
}

pub fn run(arguments: &Identify) -> Result<(), Failure> {
    let subsystem = &arguments.subsystem;
    let mut association = Association::make(&subsystem.address, subsystem.nqn.as_str(), &subsystem.host)?;
    let mut ids = namespaces::active(&mut association)?;
    if let Some(wanted) = arguments.namespace {
        if !ids.contains(&wanted) {
            let list = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            return Err(Failure::bad_input(format_args!("{} has no namespace {wanted}", association.subsystem_nqn()))
                .fix(format_args!(
                    "choose one of {}",
                    if list.is_empty() { "those to come: it has none" } else { &list }
                )));
        }
        ids = vec![wanted];
    }
    let mut queue = None;
    let namespaces = ids.into_iter().map(|id| NamespaceFacts::ask(&mut association, &mut queue, id));
    let namespaces = namespaces.collect::<Result<Vec<_>, Failure>>()?;
    let smart: Option<SmartLog> = log_page(&mut association, log::id::SMART)?;
    let ocp: Option<OcpSmartLog> = log_page(&mut association, log::id::OCP_SMART)?;
    // Other vendors have other pages of that number.
    let ocp = ocp.filter(|page| page.guid == OcpSmartLog::GUID);
    let health = smart.as_ref().map(HealthFacts::of);
    let written = health.as_ref().map_or(0, |health| health.written_bytes);
    let findings = Findings {
        controller: ControllerFacts::of(&association),
        namespaces,
        ocp: ocp.map(|page| OcpFacts::of(&page, written)),
        health,
    };
    if arguments.json {
        return say(&crate::json(&findings)?);
    }
    say(&page(&findings, Palette::of_stdout()))
}

/// A log page, if the controller has it.
fn log_page<T: FromBytes>(association: &mut Association, page: u8) -> Result<Option<T>, Failure> {
    let part = LogPart { page, namespace: ALL_NAMESPACES, offset: 0 };
    match association.admin.log_page(part, vec![0; size_of::<T>()]) {
        Ok(data) => Ok(Some(T::read_from_bytes(&data).expect("the page has the size asked for"))),
        Err(ClientError::Refused { .. }) => Ok(None),
        Err(error) => Err(association.failure(error)),
    }
}

impl ControllerFacts {
    fn of(association: &Association) -> ControllerFacts {
        let data: &IdentifyController = &association.controller;
        let version = data.version.get();
        let optional = data.optional_io_commands.get();
        let commands = [
            (bits::COMPARE, "Compare"),
            (1 << 1, "Write Uncorrectable"),
            (bits::DATASET_MANAGEMENT, "Dataset Management"),
            (bits::WRITE_ZEROES, "Write Zeroes"),
            (bits::VERIFY, "Verify"),
            (bits::COPY, "Copy"),
            (bits::RESERVATIONS, "Reservations"),
        ];
        ControllerFacts {
            subsystem_nqn: association.subsystem_nqn().to_owned(),
            controller_id: data.controller_id.get(),
            model: ascii_of(&data.model),
            serial: ascii_of(&data.serial),
            firmware: ascii_of(&data.firmware),
            nvme_version: format!("{}.{}", version >> 16, version >> 8 & 0xff),
            transfer_bytes_max: association.transfer_bytes_max(),
            in_capsule_bytes: (data.command_capsule_units.get().saturating_mul(16)).saturating_sub(64),
            queue_commands_max: association.commands_max(),
            volatile_write_cache: data.volatile_write_cache & 1 != 0,
            commands: commands.into_iter().filter(|(bit, _)| optional & bit != 0).map(|(_, name)| name).collect(),
            capacity_bytes: data.total_capacity.get(),
        }
    }
}

impl NamespaceFacts {
    fn ask(
        association: &mut Association,
        queue: &mut Option<Client<Channel>>,
        id: u32,
    ) -> Result<NamespaceFacts, Failure> {
        let descriptors = match association.admin.identify(cns::NAMESPACE_DESCRIPTORS, id) {
            // Controllers from before NVMe 1.3 have none.
            Err(ClientError::Refused { .. }) => Vec::new(),
            descriptors => descriptors.map_err(|error| association.failure(error))?,
        };
        let command_set = descriptor(&descriptors, NamespaceDescriptorHead::COMMAND_SET);
        let command_set = command_set.and_then(|value| value.first().copied()).unwrap_or(csi::NVM);
        // It has no blocks, and so no data structure that tells of them.
        let values = match command_set {
            csi::VALUES => Some(ValuesFacts::ask(association, id)?),
            _ => None,
        };
        let data = match values {
            Some(_) => IdentifyNamespace::new_zeroed(),
            None => {
                let data =
                    association.admin.identify(cns::NAMESPACE, id).map_err(|error| association.failure(error))?;
                IdentifyNamespace::read_from_bytes(&data).expect("a data structure has 4096 bytes")
            }
        };
        let format = format_of(&data);
        let open_channel = match command_set {
            csi::OPEN_CHANNEL => {
                let said = association.admin.geometry(id).map_err(|error| association.failure(error))?;
                let said = GeometryData::read_from_bytes(&said).expect("a geometry has 4096 bytes");
                Some(OpenChannelFacts::of(&said.geometry(u32::from(format.metadata_bytes.get()), true)))
            }
            _ => None,
        };
        let zoned = match command_set {
            csi::ZONED => Some(ZonedFacts::ask(association, queue, id, format_index(&data), data.size.get())?),
            _ => None,
        };
        let reservation = ReservationFacts::ask(association, queue, id);
        // NSFEAT bit 1: the namespace's own field counts. It is 0-based.
        let has_atomic = data.features & openftl_nvme::wire::identify::namespace::ATOMIC_FIELDS != 0;
        Ok(NamespaceFacts {
            id,
            kind: match command_set {
                csi::NVM => "block".to_owned(),
                csi::ZONED => "zoned".to_owned(),
                csi::OPEN_CHANNEL => "open-channel".to_owned(),
                csi::PAGES => "pages".to_owned(),
                csi::VALUES => "values".to_owned(),
                other => format!("command set {other:#04x}"),
            },
            uuid: descriptor(&descriptors, NamespaceDescriptorHead::UUID).and_then(uuid),
            block_bytes: 1_u64.checked_shl(format.block_bytes_log2.into()).unwrap_or(0),
            metadata_bytes: format.metadata_bytes.get(),
            blocks: data.size.get(),
            capacity_blocks: data.capacity.get(),
            used_blocks: data.utilization.get(),
            atomic_write_blocks: has_atomic.then(|| u64::from(data.atomic_write_power_fail.get()) + 1),
            open_channel,
            zoned,
            values,
            reservation,
        })
    }
}

/// The value of the namespace identification descriptor of this kind.
fn descriptor(list: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = list;
    loop {
        let (head, after) = NamespaceDescriptorHead::ref_from_prefix(rest).ok()?;
        // Zeroes are the end.
        if head.length == 0 {
            return None;
        }
        let value = after.get(..head.length.into())?;
        if head.kind == wanted {
            return Some(value);
        }
        rest = &after[usize::from(head.length)..];
    }
}

/// A UUID as people write it.
fn uuid(bytes: &[u8]) -> Option<String> {
    let bytes: [u8; 16] = bytes.try_into().ok()?;
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    Some([&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-"))
}

impl OpenChannelFacts {
    fn of(geometry: &Geometry) -> OpenChannelFacts {
        OpenChannelFacts {
            groups: geometry.groups,
            pus_per_group: geometry.pus_per_group,
            chunks_per_pu: geometry.chunks_per_pu,
            blocks_per_chunk: geometry.blocks_per_chunk,
            ws_min: geometry.ws_min,
            ws_opt: geometry.ws_opt,
            mw_cunits: geometry.mw_cunits,
            open_chunks_max: geometry.open_chunks_max,
            vector_copy: geometry.vector_copy,
            read_ns: geometry.read.typical.0,
            write_ns: geometry.write.typical.0,
            reset_ns: geometry.reset.typical.0,
        }
    }
}

impl HealthFacts {
    fn of(log: &SmartLog) -> HealthFacts {
        // "Data Units": thousands of 512 bytes.
        let bytes = |units: u128| units.saturating_mul(512_000);
        HealthFacts {
            critical_warning: log.critical_warning,
            temperature_kelvins: log.temperature.get(),
            available_spare_percent: log.available_spare,
            used_percent: log.percentage_used,
            read_bytes: bytes(log.data_units_read.get()),
            written_bytes: bytes(log.data_units_written.get()),
            power_cycles: log.power_cycles.get(),
            unsafe_shutdowns: log.unsafe_shutdowns.get(),
            media_errors: log.media_errors.get(),
        }
    }
}

/// Bytes written by hosts from which on a write amplification is told: it is within 1 % then.
const WAF_BYTES_MIN: u128 = 51_200_000;

impl OcpFacts {
    fn of(log: &OcpSmartLog, host_bytes_written: u128) -> OcpFacts {
        let [a, b, c, d, e, f] = log.bad_user_blocks;
        let media_bytes_written = log.media_bytes_written.get();
        OcpFacts {
            media_bytes_written,
            media_bytes_read: log.media_bytes_read.get(),
            // Hosts' bytes are rounded up to units of 512,000: of few of them nothing follows.
            waf: (host_bytes_written >= WAF_BYTES_MIN).then(|| media_bytes_written as f64 / host_bytes_written as f64),
            bad_blocks: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
            uncorrectable_reads: log.uncorrectable_reads.get(),
            erases_min: log.erases_min.get(),
            erases_max: log.erases_max.get(),
        }
    }
}

fn page(findings: &Findings, palette: Palette) -> String {
    let mut text = String::new();
    let Findings { controller, namespaces, health, ocp } = findings;
    write_controller(&mut text, controller, palette);
    for namespace in namespaces {
        write_namespace(&mut text, namespace, palette);
    }
    if let Some(health) = health {
        write_health(&mut text, health, ocp.as_ref(), palette);
    }
    text
}

/// A line with a name on the left.
pub(super) fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    _ = writeln!(text, "  {name:<16} {value}");
}

/// A size that may not fit 64 bits, as only a controller that makes things up has.
fn size(bytes: u128) -> ByteSize {
    ByteSize(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// Bytes that are told in units of 512,000, rounded up.
fn rounded(bytes: u128) -> String {
    match bytes {
        0 => "nothing".to_owned(),
        1..=1_024_000 => "less than 1 MiB".to_owned(),
        bytes => size(bytes).to_string(),
    }
}

fn times(count: u128) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

fn write_controller(text: &mut String, controller: &ControllerFacts, palette: Palette) {
    let ControllerFacts { subsystem_nqn, controller_id, model, serial, firmware, nvme_version, .. } = controller;
    _ = writeln!(text, "{}", palette.paint(Ink::Bold, subsystem_nqn));
    line(text, "controller", format_args!("{controller_id}, {model}, firmware {firmware}, serial number {serial}"));
    line(text, "NVMe", nvme_version);
    line(text, "capacity", size(controller.capacity_bytes));
    let transfer = controller.transfer_bytes_max.map_or("any length".to_owned(), |bytes| ByteSize(bytes).to_string());
    line(
        text,
        "a command",
        format_args!("{transfer}; up to {} with it in its capsule", ByteSize(controller.in_capsule_bytes.into())),
    );
    line(text, "a queue", format_args!("{} commands", controller.queue_commands_max));
    let cache =
        if controller.volatile_write_cache { "volatile: Flush or FUA makes durable" } else { "none, or not volatile" };
    line(text, "write cache", cache);
    if !controller.commands.is_empty() {
        line(text, "also knows", controller.commands.join(", "));
    }
}

fn write_namespace(text: &mut String, namespace: &NamespaceFacts, palette: Palette) {
    let NamespaceFacts { id, kind, block_bytes, metadata_bytes, blocks, capacity_blocks, used_blocks, .. } = namespace;
    _ = writeln!(text, "\n{}", palette.paint(Ink::Bold, &format!("Namespace {id}, {kind}")));
    if let Some(values) = &namespace.values {
        values.write(text);
        namespace.uuid.iter().for_each(|uuid| line(text, "UUID", uuid));
        namespace.reservation.iter().for_each(|reservation| reservation.write(text));
        return;
    }
    let bytes = |blocks: u64| size(u128::from(blocks) * u128::from(*block_bytes));
    let metadata = if *metadata_bytes > 0 { format!(" and {metadata_bytes} of metadata") } else { String::new() };
    line(
        text,
        "capacity",
        format_args!(
            "{}, {} blocks of {block_bytes} bytes{metadata}",
            bytes(*capacity_blocks),
            thousands(*capacity_blocks)
        ),
    );
    if blocks != capacity_blocks {
        line(text, "addresses", format_args!("{}, with gaps", thousands(*blocks)));
    }
    line(text, "in use", bytes(*used_blocks));
    if let Some(atomic) = namespace.atomic_write_blocks {
        line(text, "atomic writes", format_args!("up to {}, also when the power goes", bytes(atomic)));
    }
    if let Some(uuid) = &namespace.uuid {
        line(text, "UUID", uuid);
    }
    namespace.reservation.iter().for_each(|reservation| reservation.write(text));
    if let Some(zoned) = &namespace.zoned {
        zoned.write(text, *block_bytes);
    }
    if let Some(shape) = &namespace.open_channel {
        let OpenChannelFacts {
            groups, pus_per_group, chunks_per_pu, blocks_per_chunk, ws_min, ws_opt, mw_cunits, ..
        } = shape;
        line(
            text,
            "geometry",
            format_args!(
                "{groups} groups × {pus_per_group} parallel units × {chunks_per_pu} chunks × {blocks_per_chunk} blocks"
            ),
        );
        line(text, "writes", format_args!("WS_MIN {ws_min}, WS_OPT {ws_opt}, MW_CUNITS {mw_cunits} blocks"));
        let [read, write, reset] = [shape.read_ns, shape.write_ns, shape.reset_ns].map(Nanos);
        line(text, "takes", format_args!("{read} to read, {write} to write, {reset} to reset"));
    }
}

fn write_health(text: &mut String, health: &HealthFacts, ocp: Option<&OcpFacts>, palette: Palette) {
    _ = writeln!(text, "\n{}", palette.paint(Ink::Bold, "Health"));
    match health.critical_warning {
        0 => line(text, "warnings", "none"),
        bits => line(text, "warnings", palette.paint(Ink::Bad, &format!("{bits:#04x} {}", warnings(bits)))),
    }
    line(
        text,
        "worn",
        format_args!("{} %; {} % of the spares are left", health.used_percent, health.available_spare_percent),
    );
    line(text, "hosts", format_args!("read {}, wrote {}", rounded(health.read_bytes), rounded(health.written_bytes)));
    if let Some(ocp) = ocp {
        let waf = ocp.waf.map_or_else(String::new, |waf| format!(", write amplification {waf:.2}"));
        line(
            text,
            "media",
            format_args!("read {}, wrote {}{waf}", size(ocp.media_bytes_read), size(ocp.media_bytes_written)),
        );
        line(
            text,
            "erases",
            format_args!("{} to {} of each; {} went bad", ocp.erases_min, ocp.erases_max, thousands(ocp.bad_blocks)),
        );
    }
    line(text, "lost", format_args!("{} blocks", health.media_errors));
    line(
        text,
        "opened",
        format_args!("{}, {} of them not closed before", times(health.power_cycles), health.unsafe_shutdowns),
    );
}

/// The critical warnings of the SMART log, by name.
fn warnings(bits: u8) -> String {
    let names = [
        (log::warning::SPARE, "few spares"),
        (log::warning::TEMPERATURE, "temperature"),
        (log::warning::RELIABILITY, "worn out"),
        (log::warning::READ_ONLY, "read-only"),
    ];
    names.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use openftl_nvme::Health;
    use openftl_nvme::wire::U16;
    use zerocopy::{FromZeros, IntoBytes};

    #[test]
    fn descriptors_are_found_in_any_order_and_a_broken_list_has_none() {
        let mut list = Vec::new();
        for (kind, value) in [(1, &[7; 8][..]), (NamespaceDescriptorHead::COMMAND_SET, &[0x30]), (3, &[0xab; 16])] {
            list.extend_from_slice(
                NamespaceDescriptorHead { kind, length: value.len() as u8, reserved: U16::new(0) }.as_bytes(),
            );
            list.extend_from_slice(value);
        }
        assert_eq!(descriptor(&list, NamespaceDescriptorHead::COMMAND_SET), Some(&[0x30][..]));
        let found = descriptor(&list, NamespaceDescriptorHead::UUID).and_then(uuid);
        assert_eq!(found.as_deref(), Some("abababab-abab-abab-abab-abababababab"));
        assert_eq!(descriptor(&list[..list.len() - 1], 3), None, "cut off");
        list.resize(4096, 0);
        assert_eq!(descriptor(&list, 9), None);
        assert_eq!(uuid(&[1; 15]), None);
    }

    #[test]
    fn the_page_shows_an_open_channel_namespace_and_what_is_wrong() {
        let mut list = IdentifyNamespace::new_zeroed();
        list.format = 0x10;
        list.lba_formats[0].block_bytes_log2 = 12;
        assert_eq!(format_of(&list).block_bytes_log2, 12);
        let health = Health { is_read_only: true, wear_percent: 7, host_bytes_written: 512_000, ..Health::default() };
        let health =
            HealthFacts::of(&health.smart_log(openftl_nvme::health::TemperatureRange { over: 343, under: 0 }, 0));
        let media = Health { media_bytes_written: 1_024_000, erases_max: 9, ..Health::default() }.ocp_smart_log(0);
        let namespace = NamespaceFacts {
            id: 2,
            kind: "open-channel".to_owned(),
            uuid: None,
            block_bytes: 4096,
            metadata_bytes: 16,
            blocks: 1024,
            capacity_blocks: 512,
            used_blocks: 512,
            atomic_write_blocks: None,
            open_channel: Some(OpenChannelFacts::of(&Geometry::tiny())),
            zoned: None,
            reservation: None,
            values: None,
        };
        let mut text = String::new();
        write_namespace(&mut text, &namespace, Palette::PLAIN);
        write_health(&mut text, &health, Some(&OcpFacts::of(&media, health.written_bytes)), Palette::PLAIN);
        expect![[r#"

            Namespace 2, open-channel
              capacity         2 MiB, 512 blocks of 4096 bytes and 16 of metadata
              addresses        1 024, with gaps
              in use           2 MiB
              geometry         2 groups × 2 parallel units × 8 chunks × 16 blocks
              writes           WS_MIN 4, WS_OPT 4, MW_CUNITS 0 blocks
              takes            0 ns to read, 0 ns to write, 0 ns to reset

            Health
              warnings         0x08 read-only
              worn             7 %; 100 % of the spares are left
              hosts            read nothing, wrote less than 1 MiB
              media            read 0 B, wrote 1000 KiB
              erases           0 to 9 of each; 0 went bad
              lost             0 blocks
              opened           0 times, 0 of them not closed before
        "#]]
        .assert_eq(&text);
    }
}
