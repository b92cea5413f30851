//! Parts of one device: what is shared, and what is not.

use openftl_core::{Frames, PuId, Time};
use openftl_media::partition::{join, split};
use openftl_media::{
    Blocks, COMMANDS_MAX, ChunkState, Command, Completion, EmulatedDevice, Media, Part, PartKind, PartLabel, Partition,
    Profile, Status, Store, Timing,
};

fn partition(group: u32) -> Partition {
    Partition { groups: group..group + 1, pus: 0..2 }
}

fn halves(timing: Timing) -> [Part; 2] {
    let device = EmulatedDevice::new(Profile::builtin("tiny").unwrap(), 6, Store::Ram, timing, 5).unwrap();
    split(device, vec![partition(0), partition(1)]).unwrap().try_into().ok().expect("two parts")
}

fn poll(part: &mut Part, now: Time, frames: &mut Frames) -> Vec<Completion> {
    let mut completions = Vec::new();
    part.poll(now, frames, &mut completions);
    completions
}

#[test]
fn a_tenant_that_fills_its_share_of_the_queue_leaves_the_other_one_its_own() {
    let [mut greedy, mut other] = halves(Timing::Modelled);
    let mut frames = Frames::new(0, 0, 16);
    let flush =
        |part: &mut Part, frames: &mut Frames, tag| part.submit(Time::ZERO, frames, tag, Command::Flush).is_ok();
    let taken = (0..COMMANDS_MAX as u64).take_while(|tag| flush(&mut greedy, &mut frames, *tag)).count();
    assert_eq!(taken, COMMANDS_MAX / 2);
    assert!(flush(&mut other, &mut frames, 7), "its share is free");
    assert_eq!(other.next_due().map(|due| due < Time::NEVER), Some(true));
    assert_eq!(poll(&mut other, Time::NEVER, &mut frames).len(), 1);
    assert_eq!(poll(&mut greedy, Time::NEVER, &mut frames).len(), COMMANDS_MAX / 2);
    assert!(flush(&mut greedy, &mut frames, 0));
}

#[test]
fn parts_put_together_again_are_the_device() {
    let [one, mut other] = halves(Timing::Instant);
    let mut frames = Frames::new(4, 0, 16);
    let mut list = Vec::new();
    assert!(frames.acquire_many(openftl_core::FrameForm::Bytes, 4, &mut list));
    let format = other.geometry().format();
    let chunk = format.chunk_id(PuId(0), 3);
    let blocks = Blocks::Scalar { first: format.ppa(chunk, 0), count: 4 };
    other.submit(Time::ZERO, &mut frames, 1, Command::Write { blocks, frames: &list, fua: false }).unwrap();
    assert_eq!(poll(&mut other, Time::NEVER, &mut frames)[0].status, Status::Success);
    let mut device = join(vec![one, other]);
    let report = device.whole_chunk_report(Time::NEVER).unwrap();
    let open: Vec<_> = report.iter().filter(|chunk| chunk.state == ChunkState::Open).collect();
    let place = device.geometry().format().unpack_chunk(open[0].chunk);
    assert_eq!((open.len(), place.group, place.pu, place.chunk), (1, 1, 0, 3));
}

#[test]
#[should_panic(expected = "all parts are handed back")]
fn a_device_is_not_put_together_of_some_of_its_parts() {
    let [one, _other] = halves(Timing::Instant);
    let _ = join(vec![one]);
}

#[test]
fn what_a_device_in_a_file_is_divided_into_is_kept_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("divided.oftl");
    let label = |name: &str, kind, group| PartLabel {
        name: name.parse().unwrap(),
        kind,
        partition: partition(group),
        id: u64::from(group) + 7,
    };
    let parts = [label("database", PartKind::Block, 0), label("flash", PartKind::OpenChannel, 1)];
    let profile = Profile::builtin("tiny").unwrap();
    let make =
        |parts: &[PartLabel]| EmulatedDevice::create_divided(&path, &profile, 6, parts, Timing::Instant, 5).map(drop);
    let overlapping = [parts[0].clone(), PartLabel { partition: partition(0), ..parts[1].clone() }];
    let error = make(&overlapping).unwrap_err().to_string();
    assert!(error.contains("both have group 0"), "{error}");
    assert!(!path.exists());
    make(&parts).unwrap();
    assert_eq!(EmulatedDevice::open(&path, Timing::Instant).unwrap().parts(), parts);
}
