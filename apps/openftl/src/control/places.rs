//! What is served in each place, whatever kind of drive it is.

use crate::assembly::Drive;
use crate::control::refusal::store_refusal;
use crate::inspect::{self, PartFacts};
use openftl_blocks::Ftl;
use openftl_control::Refusal;
use openftl_media::{PartKind, PartLabel};
use openftl_server::Drives;
use openftl_serving::flash::Flash;

/// The flash in this place: of a drive, or a device that is served as it is.
///
/// # Panics
/// If nothing is served there.
pub(super) fn flash<'d>(drives: &'d mut Drives<'_, '_, Drive>, place: usize) -> &'d mut Flash {
    if drives.get_mut(place).is_some() {
        return drives.get_mut(place).expect("it is there").media_mut();
    }
    if drives.zones_mut(place).is_some() {
        return drives.zones_mut(place).expect("it is there").media_mut();
    }
    if drives.pages_mut(place).is_some() {
        return drives.pages_mut(place).expect("it is there").media_mut();
    }
    if drives.values_mut(place).is_some() {
        return drives.values_mut(place).expect("it is there").0.media_mut();
    }
    drives.device_mut(place).expect("something is served")
}

/// The block FTL in this place: that of a drive of blocks, or that beside zones, pages, or keys and values.
pub(super) fn ftl<'d>(drives: &'d mut Drives<'_, '_, Drive>, place: usize) -> Option<&'d Drive> {
    if drives.get_mut(place).is_some() {
        return drives.get_mut(place).map(|drive| &*drive);
    }
    if drives.pages_mut(place).is_some() {
        return drives.pages_mut(place).map(|drive| Ftl::block(&*drive));
    }
    if drives.values_mut(place).is_some() {
        return drives.values_mut(place).map(|(drive, _)| Ftl::block(&*drive));
    }
    drives.zones_mut(place).map(|drive| drive.block())
}

pub(super) fn kind_of(drives: &mut Drives<'_, '_, Drive>, place: usize) -> String {
    if drives.pages_mut(place).is_some() {
        return "pages".to_owned();
    }
    if drives.values_mut(place).is_some() {
        return "values".to_owned();
    }
    let kind = match (drives.get_mut(place).is_some(), drives.zones_mut(place).is_some()) {
        (true, _) => PartKind::Block,
        (false, true) => PartKind::Zoned,
        (false, false) => PartKind::OpenChannel,
    };
    kind.to_string()
}

/// One of the namespaces that the device is divided into.
pub(super) fn part_of(
    place: usize,
    label: &PartLabel,
    drives: &mut Drives<'_, '_, Drive>,
) -> Result<PartFacts, Refusal> {
    let facts = match (drives.get_mut(place).is_some(), drives.zones_mut(place).is_some()) {
        (true, _) => inspect::served_part(drives.get_mut(place).expect("it is there"), label, place + 1),
        (_, true) => inspect::served_zones(drives.zones_mut(place).expect("it is there"), label, place + 1),
        _ => inspect::part_of(flash(drives, place), label, place + 1),
    };
    facts.map_err(store_refusal)
}
