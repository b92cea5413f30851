//! Which zones hold resources: a host may have forgotten them.

use openftl_zones::{Face, Zone, ZoneFtl, ZoneState};

/// Active zones that are named, at most.
const ACTIVE_SHOWN: usize = 64;

/// What zones hold resources, which a host may have forgotten.
#[derive(serde::Serialize)]
pub(super) struct ZonesShown {
    #[serde(skip)]
    face: Face,
    max_active: u32,
    max_open: u32,
    active: u32,
    open: u32,
    /// The first of those that are open or closed.
    active_zones: Vec<u32>,
    read_only: usize,
}

impl ZonesShown {
    pub(super) fn of(drive: &ZoneFtl) -> ZonesShown {
        let (limits, (open, active)) = (drive.board().limits(), drive.board().resources());
        let states = || (0..).zip(drive.board().zones());
        let is_active = |(number, zone): (u32, &Zone)| zone.state.is_active().then_some(number);
        ZonesShown {
            face: drive.face(),
            max_active: limits.max_active,
            max_open: limits.max_open,
            active,
            open,
            active_zones: states().filter_map(is_active).take(ACTIVE_SHOWN).collect(),
            read_only: states().filter(|(_, zone)| zone.state == ZoneState::ReadOnly).count(),
        }
    }

    pub(super) fn line(&self) -> String {
        let ZonesShown { face, max_active, max_open, active, open, active_zones, .. } = self;
        let names: Vec<String> = active_zones.iter().map(u32::to_string).collect();
        let more = if active_zones.len() < *active as usize { ", …" } else { "" };
        let which = if names.is_empty() { String::new() } else { format!(": {}{more}", names.join(", ")) };
        match face {
            Face::Zones => format!("\nZones: {active} of {max_active} active, {open} of {max_open} open{which}"),
            Face::Segments => format!("\nSegments: {active} of {max_active} written in part{which}"),
        }
    }
}
