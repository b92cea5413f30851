//! `openftl nvme zones`: the zones of a namespace, and what a host may do with them.
//!
//! ```text
//!   list    open  commit  close  finish  reset  offline    append
//!     │       └──────┴───────┴──┼──────┴──────┘              │
//!    page                     change                pieces of a file, one after the other
//!     └─────────────────────────┼────────────────────────────┘
//!                          ZonedDisk          reports of zones, by an I/O queue
//! ```

mod append;
mod page;
#[cfg(test)]
mod served;

use super::association::{Association, refused};
use super::channel::Channel;
use super::disk::Disk;
use super::identify::limit;
use super::namespaces;
use crate::cli::zones::{ZoneAction, ZoneChoice, ZoneCommit, ZoneList, ZonedPlace, Zones, ZonesCommand};
use crate::failure::Failure;
use crate::terminal::{Ink, Palette, say};
use openftl_nvme::Status;
use openftl_nvme::command::zoned::{COMMIT, OPEN_WITH_WINDOW, send_dword};
use openftl_nvme::wire::identify::{cns, csi};
use openftl_nvme::wire::zoned::{REPORT_OF_ALL, ReportHead, ZoneDescriptor, ZonedNamespace};
use openftl_nvme_tcp::ClientError;
use openftl_nvme_tcp::client::Client;
use openftl_nvme_tcp::nvm::ZonePlace;
use openftl_zones::{Action, ZoneState};
use serde::Serialize;
use zerocopy::FromBytes;

/// The most bytes of a report of zones; less where the controller takes less.
const REPORT_BYTES_MAX: u64 = 256 << 10;

pub fn run(arguments: &Zones) -> Result<(), Failure> {
    match &arguments.command {
        ZonesCommand::List(arguments) => list(arguments),
        ZonesCommand::Open(arguments) if arguments.zrwa => open_with_window(&arguments.action),
        ZonesCommand::Open(arguments) => change(&arguments.action, Action::Open),
        ZonesCommand::Commit(arguments) => commit(arguments),
        ZonesCommand::Close(arguments) => change(arguments, Action::Close),
        ZonesCommand::Finish(arguments) => change(arguments, Action::Finish),
        ZonesCommand::Reset(arguments) => change(arguments, Action::Reset),
        ZonesCommand::Offline(arguments) => change(arguments, Action::Offline),
        ZonesCommand::Append(arguments) => append::run(arguments),
    }
}

fn list(arguments: &ZoneList) -> Result<(), Failure> {
    let mut disk = ZonedDisk::open(&arguments.place)?;
    disk.check_zone(arguments.from)?;
    let zones = disk.zones()?;
    let listed = zones.iter().filter(|zone| zone.number >= arguments.from);
    let listed = listed.filter(|zone| arguments.state.is_none_or(|state| state.fits(zone.state)));
    let listed: Vec<ZoneFacts> = listed.copied().collect();
    let length = arguments.limit.map_or(listed.len(), |limit| listed.len().min(limit as usize));
    let findings = page::Findings::of(disk.shape, &zones, listed[..length].to_vec());
    if arguments.json {
        return say(&crate::json(&findings)?);
    }
    say(&page::page(&findings, &zones, listed.len() - length, Palette::of_stdout()))
}

fn change(arguments: &ZoneAction, action: Action) -> Result<(), Failure> {
    let mut disk = ZonedDisk::open(&arguments.place)?;
    disk.change(arguments.zones, action)?;
    tell_change(&mut disk, arguments.zones, arguments.json)
}

fn open_with_window(arguments: &ZoneAction) -> Result<(), Failure> {
    let ZoneChoice::One(number) = arguments.zones else {
        return Err(Failure::bad_input("all zones cannot be opened with a random write area").fix("name one zone"));
    };
    let mut disk = ZonedDisk::open(&arguments.place)?;
    disk.open_with_window(number)?;
    tell_change(&mut disk, arguments.zones, arguments.json)
}

fn commit(arguments: &ZoneCommit) -> Result<(), Failure> {
    let mut disk = ZonedDisk::open(&arguments.place)?;
    disk.commit(arguments.zone, arguments.blocks)?;
    tell_change(&mut disk, ZoneChoice::One(arguments.zone), arguments.json)
}

/// Says what zones are after a change.
fn tell_change(disk: &mut ZonedDisk, chosen: ZoneChoice, json: bool) -> Result<(), Failure> {
    let zones = match chosen {
        ZoneChoice::All => disk.zones()?,
        ZoneChoice::One(number) => vec![disk.zone(number)?],
    };
    if json {
        return say(&crate::json(&Changed { namespace: disk.shape.namespace, zones })?);
    }
    let namespace = disk.shape.namespace;
    let done = Palette::of_stdout().paint(Ink::Good, "✓");
    say(&match (chosen, &zones[..]) {
        (ZoneChoice::One(number), [zone]) => {
            let state = name_of(zone.state);
            let with = page::attributes(zone.attributes).map(|attribute| format!(", {attribute}")).collect::<String>();
            format!("{done} zone {number} of namespace {namespace} is {state}{with}")
        }
        _ => format!("{done} zones of namespace {namespace}: {}", page::counts(&page::count(&zones))),
    })
}

/// The one object that `--json` prints of zones whose state was to change.
#[derive(Serialize, Clone, PartialEq, Debug)]
struct Changed {
    namespace: u32,
    zones: Vec<ZoneFacts>,
}

/// What all zones of a namespace have in common.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    namespace: u32,
    block_bytes: u64,
    zone_count: u64,
    /// From the first block of a zone to that of the next.
    zone_size_blocks: u64,
    /// Null: no limit.
    max_open: Option<u64>,
    max_active: Option<u64>,
    /// Of a random write area; 0: no zone has one.
    zrwa_blocks: u64,
}

/// A zone, as a report describes it.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneFacts {
    number: u64,
    state: ZoneState,
    first_block: u64,
    /// That can be written.
    capacity_blocks: u64,
    /// A full zone counts as written to its end: reports do not say where the data of a finished zone end. Null where the
    /// write pointer means nothing: of a read-only or offline zone.
    written_blocks: Option<u64>,
    /// ZA, bits as in the descriptor.
    attributes: u8,
}

impl ZoneFacts {
    /// Zone `number`, whose descriptor this is to be.
    fn of(descriptor: &ZoneDescriptor, number: u64, shape: &Shape) -> Result<ZoneFacts, Failure> {
        let first_block = descriptor.first.get();
        if number.checked_mul(shape.zone_size_blocks) != Some(first_block) {
            return Err(Failure::failed(format_args!(
                "the report of zones is out of order: it has block {first_block} where zone {number} begins"
            )));
        }
        let Some(state) = descriptor.zone_state() else {
            let code = descriptor.state >> 4;
            return Err(Failure::failed(format_args!("zone {number} has state {code:X}h, which means nothing")));
        };
        let capacity_blocks = descriptor.capacity.get();
        let written_blocks = descriptor.written();
        let attributes = descriptor.attributes;
        Ok(ZoneFacts { number, state, first_block, capacity_blocks, written_blocks, attributes })
    }

    /// How much of it is written, 0 to 1.
    fn share(&self) -> f64 {
        self.written_blocks.unwrap_or(0) as f64 / self.capacity_blocks.max(1) as f64
    }
}

/// What the state is called.
fn name_of(state: ZoneState) -> &'static str {
    match state {
        ZoneState::Empty => "empty",
        ZoneState::ImplicitlyOpen => "implicitly open",
        ZoneState::ExplicitlyOpen => "explicitly open",
        ZoneState::Closed => "closed",
        ZoneState::Full => "full",
        ZoneState::ReadOnly => "read-only",
        ZoneState::Offline => "offline",
    }
}

/// A zoned namespace, and a queue for one command at a time.
pub struct ZonedDisk {
    disk: Disk,
    queue: Client<Channel>,
    shape: Shape,
}

impl ZonedDisk {
    fn open(place: &ZonedPlace) -> Result<ZonedDisk, Failure> {
        let subsystem = &place.subsystem;
        let mut association = Association::make(&subsystem.address, subsystem.nqn.as_str(), &subsystem.host)?;
        let zoned = namespaces::of_set(&mut association, csi::ZONED)?;
        let namespace = chosen(association.subsystem_nqn(), &zoned, place.namespace)?;
        let mut disk = Disk::of(association, namespace)?;
        let data = disk.association.admin.identify_of_set(cns::COMMAND_SET_NAMESPACE, namespace, csi::ZONED);
        let data = data.map_err(|error| disk.association.failure(error))?;
        let data = ZonedNamespace::read_from_bytes(&data).expect("a data structure has 4096 bytes");
        let zone_size_blocks = data.formats[disk.format].size.get();
        if zone_size_blocks == 0 {
            return Err(Failure::failed(format_args!("namespace {namespace} says that its zones have no blocks")));
        }
        let shape = Shape {
            namespace,
            block_bytes: disk.block_bytes,
            zone_count: disk.bytes / disk.block_bytes / zone_size_blocks,
            zone_size_blocks,
            max_open: limit(data.open_max.get()),
            max_active: limit(data.active_max.get()),
            zrwa_blocks: match data.optional.get() & ZonedNamespace::ZRWA_SUPPORTED {
                0 => 0,
                _ => data.zrwa_blocks[1].get().into(),
            },
        };
        let queue = disk.queue(1)?;
        Ok(ZonedDisk { disk, queue, shape })
    }

    /// Whether the namespace has the zone.
    fn check_zone(&self, number: u64) -> Result<(), Failure> {
        let Shape { namespace, zone_count, .. } = self.shape;
        if number < zone_count {
            return Ok(());
        }
        Err(Failure::bad_input(format_args!("namespace {namespace} has no zone {number}"))
            .fix(format_args!("choose one from 0 to {}", zone_count.saturating_sub(1))))
    }

    fn place_of(&self, number: u64) -> ZonePlace {
        ZonePlace { namespace: self.shape.namespace, first: number * self.shape.zone_size_blocks }
    }

    /// All zones.
    fn zones(&mut self) -> Result<Vec<ZoneFacts>, Failure> {
        let mut zones: Vec<ZoneFacts> = Vec::new();
        while (zones.len() as u64) < self.shape.zone_count {
            let number = zones.len() as u64;
            zones.extend(self.report(number, self.shape.zone_count - number)?);
        }
        Ok(zones)
    }

    /// One of them.
    fn zone(&mut self, number: u64) -> Result<ZoneFacts, Failure> {
        self.check_zone(number)?;
        Ok(self.report(number, 1)?[0])
    }

    /// So many zones from `number` on, or as many as a report has room for: one at least.
    fn report(&mut self, number: u64, wanted: u64) -> Result<Vec<ZoneFacts>, Failure> {
        let (head, each) = (size_of::<ReportHead>() as u64, size_of::<ZoneDescriptor>() as u64);
        let room = (REPORT_BYTES_MAX.min(self.disk.command_bytes_max) - head) / each;
        let wanted = wanted.min(room);
        let data = vec![0; (head + wanted * each) as usize];
        let report = self.queue.zone_report(self.place_of(number), REPORT_OF_ALL, data);
        let report = report.map_err(|error| self.disk.association.failure(error))?;
        let (head, _) = ReportHead::ref_from_prefix(&report).expect("a report has a head");
        let told = head.zones.get().min(wanted) as usize;
        if told == 0 {
            return Err(Failure::failed(format_args!("the report of zones ends before zone {number}")));
        }
        let descriptors = ZoneDescriptor::listed(&report)[..told].iter().zip(number..);
        descriptors.map(|(descriptor, number)| ZoneFacts::of(descriptor, number, &self.shape)).collect()
    }

    /// Takes the action on a zone, or on all that are in a state for it.
    fn change(&mut self, zones: ZoneChoice, action: Action) -> Result<(), Failure> {
        let (number, which) = match zones {
            ZoneChoice::All => (0, "all zones".to_owned()),
            ZoneChoice::One(number) => (number, format!("zone {number}")),
        };
        self.check_zone(number)?;
        let dword = send_dword(action, zones == ZoneChoice::All);
        let Err(error) = self.queue.zone_send(self.place_of(number), dword) else { return Ok(()) };
        Err(self.failure(&format!("{action:?} of {which}"), Some(action), error))
    }

    /// Opens a zone with a random write area.
    fn open_with_window(&mut self, number: u64) -> Result<(), Failure> {
        self.check_zone(number)?;
        let Err(error) = self.queue.zone_send(self.place_of(number), OPEN_WITH_WINDOW) else { return Ok(()) };
        Err(self.failure(&format!("Open of zone {number} with a random write area"), Some(Action::Open), error))
    }

    /// Commits so many blocks of the random write area of a zone.
    fn commit(&mut self, number: u64, blocks: u32) -> Result<(), Failure> {
        let zone = self.zone(number)?;
        let most = self.shape.zrwa_blocks.min(zone.capacity_blocks - zone.written_blocks.unwrap_or(0));
        if u64::from(blocks) > most {
            return Err(Failure::bad_input(format_args!(
                "the random write area of zone {number} has {most} blocks from its write pointer on, and {blocks} are to be committed"
            ))
            .fix(match most {
                0 => "create the drive with a zrwa, and open an empty zone with --zrwa".to_owned(),
                most => format!("choose --blocks from 1 to {most}"),
            }));
        }
        let last = zone.first_block + zone.written_blocks.unwrap_or(0) + u64::from(blocks) - 1;
        let place = ZonePlace { namespace: self.shape.namespace, first: last };
        let Err(error) = self.queue.zone_send(place, COMMIT) else { return Ok(()) };
        Err(self.failure(&format!("Commit of {blocks} blocks of zone {number}"), None, error))
    }

    /// A command on zones that did not do what it was asked, and what to do about it.
    fn failure(&self, what: &str, action: Option<Action>, error: ClientError) -> Failure {
        let ClientError::Refused { status, .. } = error else { return self.disk.association.failure(error) };
        let status = Status::from_field(status);
        match fix_of(status, action) {
            Some((fix, flags)) => refused(what, status).fix(format_args!("{fix}; {}", self.how_to_list(flags))),
            None => refused(what, status),
        }
    }

    /// A command line that shows zones.
    fn how_to_list(&self, flags: &str) -> String {
        let association = &self.disk.association;
        let (address, nqn) = (association.address(), association.subsystem_nqn());
        let namespace = self.shape.namespace;
        format!("`openftl nvme zones list {address} --nqn {nqn} --namespace {namespace}{flags}` shows the zones")
    }
}

/// The namespace to use, of those that are zoned.
fn chosen(nqn: &str, zoned: &[u32], wanted: Option<u32>) -> Result<u32, Failure> {
    let list = zoned.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match (wanted, zoned) {
        (_, []) => Err(Failure::bad_input(format_args!("{nqn} has no zoned namespace"))
            .fix("name a subsystem that has one with --nqn; other namespaces need no zones: `openftl nvme write`")),
        (Some(wanted), zoned) if zoned.contains(&wanted) => Ok(wanted),
        (None, [only]) => Ok(*only),
        (Some(wanted), _) => Err(Failure::bad_input(format_args!("{nqn} has no zoned namespace {wanted}"))
            .fix(format_args!("choose one that is zoned: --namespace {list}"))),
        (None, _) => Err(Failure::bad_input(format_args!("{nqn} has several zoned namespaces"))
            .fix(format_args!("choose one of them: --namespace {list}"))),
    }
}

/// What to do about a status that only commands on zones have, and the flags that list the zones that it is about.
fn fix_of(status: Status, action: Option<Action>) -> Option<(&'static str, &'static str)> {
    let fixes = [
        (
            Status::INVALID_ZONE_OPERATION,
            ("open an empty zone with a random write area, and write it where it is to be", " --state empty"),
        ),
        (Status::ZRWA_UNAVAILABLE, ("finish or reset a zone with a random write area first", " --state active")),
        (Status::ZONE_BOUNDARY, ("append less, or reset the zone first", "")),
        (Status::ZONE_FULL, ("reset the zone first, or choose another one", " --state empty")),
        (Status::ZONE_READ_ONLY, ("read what is in the zone, and choose another one to write", " --state empty")),
        (Status::ZONE_OFFLINE, ("choose another zone: what was in this one is lost", " --state empty")),
        (Status::ZONE_INVALID_WRITE, ("write where the write pointer of the zone is, or append", "")),
        (Status::TOO_MANY_ACTIVE_ZONES, ("finish or reset an active zone first", " --state active")),
        (Status::TOO_MANY_OPEN_ZONES, ("close, finish or reset an open zone first", " --state open")),
        (Status::ZONE_INVALID_TRANSITION, (action.map_or("choose a zone in another state", states_for), "")),
    ];
    fixes.into_iter().find(|(known, _)| known.code() == status.code()).map(|(_, fix)| fix)
}

/// The states that zones have to be in for an action.
fn states_for(action: Action) -> &'static str {
    match action {
        Action::Close => "only an open zone can be closed",
        Action::Finish => "only an empty, open or closed zone can be finished",
        Action::Open => "only an empty or closed zone can be opened",
        Action::Reset => "a read-only or offline zone cannot be reset",
        Action::Offline => "only a read-only zone can be given up",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_nvme::wire::zoned::state;
    use zerocopy::FromZeros;

    const SHAPE: Shape = Shape {
        namespace: 2,
        block_bytes: 4096,
        zone_count: 5,
        zone_size_blocks: 16,
        max_open: Some(2),
        max_active: None,
        zrwa_blocks: 0,
    };

    fn descriptor(code: u8, first: u64, write_pointer: u64) -> ZoneDescriptor {
        ZoneDescriptor {
            state: code << 4,
            capacity: 12.into(),
            first: first.into(),
            write_pointer: write_pointer.into(),
            ..ZoneDescriptor::new_zeroed()
        }
    }

    #[test]
    fn a_zone_is_what_its_descriptor_says() {
        let written = |code, pointer| ZoneFacts::of(&descriptor(code, 32, pointer), 2, &SHAPE).unwrap().written_blocks;
        assert_eq!(written(state::CLOSED, 35), Some(3));
        assert_eq!(written(state::EMPTY, 32), Some(0));
        assert_eq!(written(state::FULL, u64::MAX), Some(12));
        assert_eq!(written(state::READ_ONLY, u64::MAX), None);
        assert_eq!(written(state::OFFLINE, 35), None);
        let wrong = |code, first| ZoneFacts::of(&descriptor(code, first, 0), 2, &SHAPE).unwrap_err().to_string();
        assert!(wrong(state::EMPTY, 16).contains("block 16 where zone 2 begins"));
        assert!(wrong(0x9, 32).contains("zone 2 has state 9h"));
    }

    #[test]
    fn the_namespace_is_the_one_that_is_zoned_or_has_to_be_named() {
        let told = |zoned: &[u32], wanted| chosen("nqn.x", zoned, wanted).map_err(|failure| failure.to_string());
        assert_eq!((told(&[2], None), told(&[2, 5], Some(5))), (Ok(2), Ok(5)));
        let refused = |zoned: &[u32], wanted| told(zoned, wanted).unwrap_err();
        assert!(refused(&[], None).contains("nqn.x has no zoned namespace\n"));
        assert!(refused(&[2, 5], Some(1)).ends_with("--namespace 2, 5"));
        assert!(refused(&[2, 5], None).contains("several"));
    }

    #[test]
    fn a_limit_is_0_based_or_none() {
        assert_eq!((limit(0), limit(13), limit(u32::MAX)), (Some(1), Some(14), None));
    }

    #[test]
    fn every_status_of_zones_has_a_fix() {
        for (status, _) in Status::ALL.iter().filter(|(status, _)| (0x1b6..=0x1bf).contains(&status.code())) {
            assert!(fix_of(*status, None).is_some(), "{status}");
        }
        let (fix, _) = fix_of(Status::ZONE_INVALID_TRANSITION, Some(Action::Offline)).unwrap();
        assert_eq!(fix, "only a read-only zone can be given up");
        assert_eq!(fix_of(Status::LBA_OUT_OF_RANGE, None), None);
    }
}
