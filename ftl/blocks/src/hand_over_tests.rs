//! What parts say is to be done, on its way to the device.

use crate::BlockFtl;
use openftl_core::{ChunkId, Frames, Geometry, Nanos, Time, VECTOR_BLOCKS_MAX, VirtualClock};
use openftl_media::{
    ChunkDescriptor, Command, Completion, EmulatedDevice, Media, MediaError, Notification, Profile, QueueFull, Store,
    Tag, Timing,
};
use openftl_parts::flash::provisioning::Claim;
use openftl_parts::flash::{Errand, Flash};
use openftl_parts::words::{Label, Purpose};
use openftl_parts::{Config, Target};

/// A device that takes so many commands, and ends none.
struct Narrow {
    geometry: Geometry,
    room: usize,
    taken: Vec<Tag>,
}

impl Media for Narrow {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&mut self, _: Time, _: &mut Frames, tag: Tag, _: Command<'_>) -> Result<(), QueueFull> {
        if self.taken.len() == self.room {
            return Err(QueueFull);
        }
        self.taken.push(tag);
        Ok(())
    }

    fn poll(&mut self, _: Time, _: &mut Frames, _: &mut Vec<Completion>) {}

    fn next_due(&self) -> Option<Time> {
        None
    }

    fn chunk_report(&mut self, _: Time, _: ChunkId, _: &mut [ChunkDescriptor]) -> Result<(), MediaError> {
        Ok(())
    }

    fn notifications(&mut self, _: Time, _: u64, _: &mut Vec<Notification>) -> Result<(), MediaError> {
        Ok(())
    }

    fn set_dulbe(&mut self, _: bool) {}

    fn pu_busy(&self) -> Vec<Nanos> {
        Vec::new()
    }
}

fn drive() -> BlockFtl<EmulatedDevice> {
    let profile = Profile::builtin("tiny").unwrap();
    let device = EmulatedDevice::new(profile, 60, Store::Stamps, Timing::Modelled, 1).unwrap();
    BlockFtl::format(device, Config { capacity_blocks: 700, ..Config::default() }, &mut VirtualClock::default())
        .unwrap()
}

/// Writes three units of padding, which nobody hands over.
fn write_three(flash: &mut Flash) -> [Tag; 3] {
    let pu = flash.geometry.pu_ids().next().unwrap();
    let open = flash.open_chunk(Claim::Host(pu), Label::Ordinary).unwrap();
    let (count, padding) = (flash.geometry.ws_min, [flash.padding; VECTOR_BLOCKS_MAX]);
    let mut write = || flash.write_unit(open, Purpose::Padding, 0, &padding[..count as usize], 0);
    [write(), write(), write()].map(|unit| Errand::Unit(unit).tag())
}

#[test]
fn what_the_device_has_no_room_for_goes_to_it_later_in_its_order() {
    let mut flash = drive().flash;
    let tags = write_three(&mut flash);
    let mut device = Narrow { geometry: flash.geometry, room: 1, taken: Vec::new() };
    flash.hand_over(&mut device);
    device.room = 3;
    flash.hand_over(&mut device);
    assert_eq!(device.taken, tags[..1], "it is not asked again before it was polled");
    assert!(!flash.may_hand_over() && !flash.is_handed_over());
    flash.poll(&mut device, Time::ZERO, &mut Vec::new());
    assert!(flash.may_hand_over());
    flash.hand_over(&mut device);
    assert_eq!(device.taken, tags);
    assert!(flash.is_handed_over());
}

#[test]
fn a_drive_with_commands_that_nobody_handed_over_wants_a_turn() {
    let mut drive = drive();
    while let Some(due) = drive.next_due() {
        drive.poll(due, &mut Vec::new());
    }
    write_three(&mut drive.flash);
    assert_eq!(drive.next_due(), Some(Time::ZERO));
    drive.poll(Time::ZERO, &mut Vec::new());
    assert!(drive.flash.is_handed_over() && drive.flash.under_way == 3);
}
