//! The NVMe target of a server has a namespace for each drive and each Open-Channel device.

use crate::failure::Failure;
use crate::host_access::HostAccess;
use crate::namespaces::{Namespaces, of_kind};
use openftl_blocks::Ftl;
use openftl_core::BLOCK_BYTES;
use openftl_drive::any_drive::AnyDrive;
use openftl_media::{Media, PartKind};
use openftl_nvme::{BlockFormat, Nqn};
use openftl_parts::BlockTarget;
use openftl_server::{Device, Endpoint};
use openftl_serving::flash::Flash;
use openftl_values::{ValueInfo, ValueTarget};
use openftl_zones::Face;

/// What NVMe hosts connect to: the drives are namespaces 1, 2, …; behind them come those of other kinds and the Open-Channel ones of the
/// device, and the devices beside it.
pub(super) fn nvme_target(
    nqn: Nqn,
    format: BlockFormat,
    access: &HostAccess,
    namespaces: &Namespaces,
    others: &[Device<Flash>],
    endpoints: &[Endpoint],
) -> Result<openftl_nvme::Target, Failure> {
    use openftl_nvme::{
        Namespace, NamespaceKind, PageShape, Port, SegmentShape, SubsystemConfig, Target, ValueShape, ZonedShape,
    };
    let Namespaces { parts, drives, others: beside, bare } = namespaces;
    let bare_ids: Vec<u64> = of_kind(parts, PartKind::OpenChannel).map(|label| label.id).collect();
    let drive_ids = namespaces.ftls().map(|drive| drive.config().drive_id);
    let first_id = drive_ids.chain(bare_ids.iter().copied()).next().expect("something is on the device");
    let serial = format!("{first_id:016X}");
    let firmware = env!("CARGO_PKG_VERSION");
    let mut target = Target::new(&serial, "OpenFTL", firmware);
    let subsystem = target
        .add_subsystem(SubsystemConfig {
            hosts: access.hosts.clone(),
            requires_authentication: access.secrets.is_some(),
            ..SubsystemConfig::new(nqn, &serial)
        })
        .map_err(Failure::bad_input)?;
    let uuid = |id: u64| {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&id.to_be_bytes());
        uuid[8..].copy_from_slice(&(!id).to_be_bytes());
        uuid
    };
    let drives = drives.iter().map(|drive| {
        let kind = NamespaceKind::Block {
            format,
            bytes: drive.blocks() * BLOCK_BYTES as u64,
            hints: drive.placement().into(),
        };
        (uuid(drive.config().drive_id), kind)
    });
    let bare = bare.iter().zip(bare_ids).map(|(flash, id)| (uuid(id), NamespaceKind::OpenChannel(*flash.geometry())));
    let beside = beside.iter().map(|drive| {
        let kind = match drive {
            AnyDrive::Zones(zoned) => {
                let layout = zoned.layout();
                match zoned.face() {
                    Face::Zones => NamespaceKind::Zoned(ZonedShape::of(layout, zoned.board().limits())),
                    Face::Segments => {
                        NamespaceKind::Segments(SegmentShape { segments: layout.zones, blocks: layout.capacity })
                    }
                }
            }
            AnyDrive::Pages(store) => NamespaceKind::Pages(PageShape {
                capacity_bytes: store.capacity_bytes(),
                page_bytes_max: store.page_bytes_max(),
            }),
            AnyDrive::Values(drive) => {
                let ValueInfo { capacity_bytes, keys_max, key_max, value_max, .. } = drive.info();
                NamespaceKind::Values(ValueShape { capacity_bytes, keys_max, key_max, drive_value_max: value_max })
            }
            AnyDrive::Blocks(_) | AnyDrive::Tables(_) => unreachable!("these are served otherwise"),
        };
        (uuid(drive.block().config().drive_id), kind)
    });
    let own: Vec<_> = drives.chain(beside).chain(bare).collect();
    let others = others.iter().zip(own.len() + 1..).map(|(device, id)| {
        let mut uuid = uuid(first_id);
        uuid[15] ^= id as u8;
        (uuid, NamespaceKind::OpenChannel(device.geometry()))
    });
    for (id, (uuid, kind)) in (1..).zip(own.into_iter().chain(others)) {
        target.attach(subsystem, Namespace { id, uuid, kind }).map_err(Failure::bad_input)?;
    }
    for (id, endpoint) in endpoints.iter().enumerate() {
        if let Endpoint::Tcp(address) = endpoint {
            target.add_port(Port { id: id as u16 + 1, address: *address });
        }
    }
    Ok(target)
}
