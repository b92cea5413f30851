//! The greeting of a server says what is served and how its drives were opened, and lists the commands that use it.

use crate::assembly::{self, Drive, ZonedDrive};
use crate::host_access::HostAccess;
use crate::namespaces::{Namespaces, of_kind};
use crate::power::Home;
use crate::ready::Uris;
use crate::terminal::{Ink, Palette};
use openftl_blocks::Ftl;
use openftl_control::socket_beside;
use openftl_core::BLOCK_BYTES;
use openftl_core::units::ByteSize;
use openftl_drive::any_drive::AnyDrive;
use openftl_lab::picture::thousands;
use openftl_media::{Media, PartKind, PartLabel};
use openftl_nvme::{HostsAllowed, Nqn};
use openftl_nvme_media::uri::DriveUri;
use openftl_parts::{BlockTarget, RecoveryReport};
use openftl_server::{Endpoint, Listener, TlsPolicy};
use openftl_serving::flash::Flash;
use openftl_values::ValueTarget;
use openftl_zones::Face;
use std::fmt::Write as _;
use std::net::SocketAddr;

pub(super) fn greeting(
    home: &Home,
    namespaces: &Namespaces,
    endpoints: &[Endpoint],
    control: Option<&Listener>,
    palette: Palette,
) -> String {
    let Namespaces { parts, drives, others, bare } = namespaces;
    let mut text = String::new();
    let what = match home {
        Home::Memory => "a new drive in memory".to_owned(),
        Home::File(path) => path.display().to_string(),
        Home::Elsewhere(place) => format!("namespace {} at {}", place.namespace, place.address),
    };
    let what = palette.paint(Ink::Bold, &what);
    if let ([], [drive]) = (&parts[..], &drives[..]) {
        let capacity = ByteSize(drive.blocks() * BLOCK_BYTES as u64);
        _ = writeln!(text, "{what}  {capacity} on {}", drive.media().name());
        write_drive(&mut text, home, drive, palette);
    } else if let ([], [drive]) = (&parts[..], &others[..]) {
        _ = writeln!(text, "{what}  {} on {}", in_words(drive), drive.block().media().name());
        write_other(&mut text, home, drive, palette);
    } else {
        let flash = namespaces.ftls().next().map(|drive| drive.media()).or(bare.first());
        let flash = flash.expect("something is on the device");
        _ = writeln!(text, "{what}  {} namespaces on {}", parts.len(), flash.name());
        let blocks = of_kind(parts, PartKind::Block);
        for (id, (label, drive)) in (1..).zip(blocks.zip(drives)) {
            let capacity = ByteSize(drive.blocks() * BLOCK_BYTES as u64);
            write_namespace(&mut text, id, label, &capacity.to_string(), palette);
            write_drive(&mut text, home, drive, palette);
        }
        let labels = of_kind(parts, PartKind::Zoned);
        for (id, (label, drive)) in (drives.len() + 1..).zip(labels.zip(others)) {
            write_namespace(&mut text, id, label, &in_words(drive), palette);
            write_other(&mut text, home, drive, palette);
        }
        let open_channel = of_kind(parts, PartKind::OpenChannel);
        for (id, (label, flash)) in (drives.len() + others.len() + 1..).zip(open_channel.zip(bare)) {
            let flash = ByteSize(flash.geometry().blocks() * BLOCK_BYTES as u64);
            write_namespace(&mut text, id, label, &flash.to_string(), palette);
        }
    }
    let names: Vec<&str> = match parts.is_empty() {
        true => drives.iter().map(|_| "").collect(),
        false => of_kind(parts, PartKind::Block).map(|label| label.name.as_str()).collect(),
    };
    for uri in names.iter().flat_map(|name| endpoints.iter().map(|endpoint| endpoint.uri(name))) {
        _ = writeln!(text, "  {} {uri}", palette.paint(Ink::Good, "listening on"));
    }
    if let (Some(endpoint), Some(name)) = (endpoints.first(), names.first()) {
        for (note, command) in client_commands(&endpoint.uri(name)) {
            _ = writeln!(text, "\n  {}\n  {command}", palette.paint(Ink::Dim, &format!("# {note}")));
        }
    }
    if let Some(Endpoint::Unix(socket)) = control.map(Listener::endpoint) {
        let name = match home {
            Home::File(path) if socket_beside(path) == *socket => path.display().to_string(),
            _ => format!("unix:{}", socket.display()),
        };
        _ = writeln!(
            text,
            "\n  {}\n  openftl ctl {name} power-cut",
            palette.paint(Ink::Dim, "# cut its power; --help shows what else can happen to it")
        );
    }
    _ = writeln!(text, "\nCtrl-C ends it cleanly.");
    text
}

/// One of several namespaces.
fn write_namespace(text: &mut String, id: usize, label: &PartLabel, capacity: &str, palette: Palette) {
    let PartLabel { name, kind, partition, .. } = label;
    let name = palette.paint(Ink::Bold, name.as_str());
    _ = writeln!(text, "{id}  {name}  {kind}, {capacity} on {partition}");
}

/// What a drive is that NVMe hosts alone can see.
fn in_words(drive: &AnyDrive<Flash>) -> String {
    match drive {
        AnyDrive::Zones(drive) => zones_in_words(drive),
        AnyDrive::Pages(drive) => format!(
            "a store of {} pages, {} of {} used,",
            thousands(drive.pages()),
            ByteSize(drive.used_bytes()),
            ByteSize(drive.capacity_bytes())
        ),
        AnyDrive::Values(drive) => {
            let known = drive.info();
            let (used, capacity) = (ByteSize(known.used_bytes), ByteSize(known.capacity_bytes));
            format!("{} keys, {used} of {capacity} used,", thousands(known.keys))
        }
        AnyDrive::Blocks(_) | AnyDrive::Tables(_) => unreachable!("these are greeted otherwise"),
    }
}

/// How many zones or segments there are, and how large they are: of zones what they hold, and how far apart they are.
fn zones_in_words(drive: &ZonedDrive) -> String {
    let (layout, limits) = (drive.layout(), drive.board().limits());
    let bytes = |blocks: u64| ByteSize(blocks * BLOCK_BYTES as u64);
    if drive.face() == Face::Segments {
        return format!(
            "{} in {} segments of {}, {} of which may be written in part,",
            bytes(u64::from(layout.zones) * u64::from(layout.capacity)),
            layout.zones,
            bytes(layout.capacity.into()),
            limits.max_active
        );
    }
    format!(
        "{} zones of {} ({} apart), {} of which may be active and {} open,",
        layout.zones,
        bytes(layout.capacity.into()),
        bytes(layout.size),
        limits.max_active,
        limits.max_open
    )
}

/// How a drive was opened, and what is unusual about it.
fn write_drive(text: &mut String, home: &Home, drive: &Drive, palette: Palette) {
    if !matches!(home, Home::Memory) && !drive.recovery_report().steps.is_empty() {
        write_recovery(text, drive.recovery_report(), palette);
    }
    if let Some(reason) = drive.read_only_reason() {
        _ = writeln!(text, "{} The drive takes no writes: {reason}.", palette.paint(Ink::Bad, "!"));
    }
    if drive.config().lies_about_flush {
        write_lie(text, palette);
    }
}

/// The same of a drive that NVMe hosts alone can see.
fn write_other(text: &mut String, home: &Home, drive: &AnyDrive<Flash>, palette: Palette) {
    write_drive(text, home, drive.block(), palette);
    if drive.zones().is_some_and(|zones| zones.lies_about_flush()) {
        write_lie(text, palette);
    }
}

fn write_lie(text: &mut String, palette: Palette) {
    let sign = palette.paint(Ink::Bad, "!");
    _ = writeln!(text, "{sign} The drive lies about flush: nothing that it promises is kept.");
}

/// What to type to use a drive.
fn client_commands(uri: &str) -> [(&'static str, String); 6] {
    [
        ("what is there", format!("nbdinfo '{uri}'")),
        (
            "random writes, verified",
            format!(
                "fio --name=v --ioengine=nbd --uri='{uri}' --rw=randwrite --bs=4k --iodepth=32 --size=256M --verify=crc32c"
            ),
        ),
        ("bytes by hand", format!("qemu-io -f raw -c 'write -P 7 0 1M' -c 'read -P 7 0 1M' '{uri}'")),
        ("a virtual machine's disk onto it", format!("qemu-img convert -n -f raw -O raw image.raw '{uri}'")),
        ("all of it into a file", format!("nbdcopy '{uri}' backup.raw")),
        ("as a file: mkfs, mount -o loop", format!("mkdir -p mnt && nbdfuse mnt/disk '{uri}'")),
    ]
}

/// How a drive was opened: the steps, their times and what they found.
pub fn write_recovery(text: &mut String, report: &RecoveryReport, palette: Palette) {
    _ = writeln!(text, "  {} in {}", assembly::opened_how(report), assembly::opened_in(report));
    for step in &report.steps {
        let time = step.time.to_string();
        _ = writeln!(text, "    {:<24} {time:>10}  {}", step.name, palette.paint(Ink::Dim, &step.found));
    }
    if let Some(doubt) = &report.doubt {
        _ = writeln!(text, "  {} {doubt}", palette.paint(Ink::Bad, "✗"));
    }
}

/// Where programs find the drives of one kind that NVMe hosts alone can see.
pub(super) fn drive_uris(
    nqn: &Nqn,
    namespaces: &Namespaces,
    endpoints: &[Endpoint],
    is_meant: impl Fn(&AnyDrive<Flash>) -> bool,
) -> Vec<String> {
    let ids = (namespaces.drives.len() as u32 + 1..).zip(&namespaces.others);
    let ids = ids.filter(|(_, drive)| is_meant(drive)).map(|(id, _)| id);
    let of = |namespace: u32| {
        endpoints.iter().filter_map(move |endpoint| match endpoint {
            Endpoint::Tcp(address) => {
                Some(DriveUri { address: address.to_string(), subsystem: nqn.clone(), namespace }.to_string())
            }
            Endpoint::Unix(_) => None,
        })
    };
    ids.flat_map(of).collect()
}

/// What Redis clients are told.
pub(super) fn to_redis_clients(addresses: &[SocketAddr]) -> String {
    let mut text = "# to Redis clients".to_owned();
    for address in addresses {
        _ = write!(text, "\n  redis-cli -h {} -p {} set hello world", address.ip(), address.port());
    }
    text
}

/// What to type on an NVMe host. Names and secrets of hosts are theirs to fill in.
pub(super) fn to_nvme_hosts(nqn: &Nqn, access: &HostAccess, endpoints: &[Endpoint], uris: &Uris) -> String {
    let name = if access.hosts == HostsAllowed::Any { "" } else { " -q HOSTNQN" };
    let secret = if access.secrets.is_some() { " -S DHHC-1:…:" } else { "" };
    let tls = access.tls.as_ref().is_some_and(|tls| tls.policy == TlsPolicy::Required);
    let tls = if tls { " --tls" } else { "" };
    let mut text = "# to NVMe hosts".to_owned();
    for endpoint in endpoints {
        let Endpoint::Tcp(address) = endpoint else { continue };
        let (ip, port) = (address.ip(), address.port());
        _ = write!(text, "\n  nvme discover -t tcp -a {ip} -s {port}{name}{tls}");
        _ = write!(text, "\n  nvme connect -t tcp -a {ip} -s {port} -n {nqn}{name}{secret}{tls}");
    }
    for uri in &uris.pages {
        _ = write!(text, "\n  openftl pages list --drive '{uri}'");
    }
    for uri in &uris.values {
        _ = write!(text, "\n  openftl kv list --drive '{uri}'");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_commands_hold_the_uri_in_quotes() {
        let uri = "nbd+unix:///?socket=/tmp/a.sock";
        for (_, command) in client_commands(uri) {
            assert!(command.contains(&format!("'{uri}'")), "{command}");
        }
    }
}
