//! A block FTL on this side of the network, its flash on the other: what was flushed outlives a cut of the link.

use crate::support::Served;
use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{Clock, Frame, FrameForm, Time};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_nvme_media::{FabricDevice, Place, ReachError, Waiting};
use openftl_parts::flash::plan::chunks_per_pu;
use openftl_parts::target::{BlockTarget, Done, Durability, IoError, Request, Target};
use openftl_parts::words::Handle;
use openftl_parts::{Config, ReadOnlyReason};

const BLOCKS: u64 = 700;

/// Time that goes on with whatever is waited for: the other side's is its own.
#[derive(Default)]
struct Steps(Time);

impl Clock for Steps {
    fn now(&mut self) -> Time {
        self.0
    }

    fn wait_until(&mut self, due: Time) -> Time {
        self.0 = self.0.max(due);
        self.0
    }
}

fn config() -> Config {
    Config {
        capacity_blocks: BLOCKS,
        over_provisioning: Share::percent(20),
        drive_id: 7,
        payload: FrameForm::Bytes,
        host_frames: 300,
        ..Config::default()
    }
}

fn device() -> EmulatedDevice {
    let profile = Profile::builtin("tiny").unwrap();
    let chunks = chunks_per_pu(&profile.geometry(64).unwrap(), &config(), Share::percent(20)).unwrap();
    EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Instant, 3).unwrap()
}

/// A drive with one request under way at a time.
struct Host {
    ftl: BlockFtl<FabricDevice>,
    clock: Steps,
}

impl Host {
    fn write(&mut self, block: u64, value: u8) -> Result<(), IoError> {
        let frame = self.frame();
        self.ftl.frames_mut().bytes_mut(frame).fill(value);
        let write =
            Request::Write { first: block, frames: &[frame], durability: Durability::Volatile, handle: Handle::NONE };
        if let Err(error) = self.ftl.submit(self.clock.now(), 1, write) {
            self.ftl.frames_mut().release(frame);
            return Err(error);
        }
        self.wait()
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.ftl.submit(self.clock.now(), 1, Request::Flush)?;
        self.wait()
    }

    fn read(&mut self, block: u64) -> Result<u8, IoError> {
        let frame = self.frame();
        let read = self.ftl.submit(self.clock.now(), 1, Request::Read { first: block, frames: &[frame] });
        let ended = read.and_then(|()| self.wait());
        let bytes = self.ftl.frames_mut().bytes(frame);
        let value = bytes[0];
        assert!(ended.is_err() || bytes.iter().all(|byte| *byte == value), "one write's bytes");
        self.ftl.frames_mut().release(frame);
        ended.map(|()| value)
    }

    /// A frame, of which the drive has many while it writes.
    fn frame(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.ftl.frames_mut().acquire(FrameForm::Bytes) {
                return frame;
            }
            self.poll();
        }
    }

    fn poll(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        let due = self.ftl.next_due().expect("the drive has work under way");
        let now = self.clock.wait_until(due);
        self.ftl.poll(now, &mut done);
        done
    }

    fn wait(&mut self) -> Result<(), IoError> {
        loop {
            if let [done, ..] = self.poll()[..] {
                return done.result;
            }
        }
    }
}

fn formatted(served: &Served) -> Host {
    let mut clock = Steps::default();
    let ftl = BlockFtl::format(served.reach(), config(), &mut clock).unwrap();
    Host { ftl, clock }
}

fn opened(served: &Served) -> Host {
    let mut clock = Steps::default();
    let ftl = BlockFtl::open(served.reach(), config(), &mut clock).unwrap();
    Host { ftl, clock }
}

/// Three drive writes, so that garbage is collected over the network too.
fn fill(host: &mut Host, seed: u64, held: &mut [u8]) {
    for step in 0..3 * BLOCKS {
        let block = step.wrapping_mul(seed | 1) * 2_654_435_761 % BLOCKS;
        let value = (step % 250 + 1) as u8;
        host.write(block, value).unwrap();
        held[block as usize] = value;
    }
}

fn nothing() -> Vec<u8> {
    vec![0; BLOCKS as usize]
}

#[test]
fn a_drive_whose_flash_is_elsewhere_holds_what_was_written() {
    let served = Served::new(device());
    let mut host = formatted(&served);
    let mut held = nothing();
    fill(&mut host, 3, &mut held);
    for (block, value) in held.iter().enumerate() {
        assert_eq!(host.read(block as u64), Ok(*value), "block {block}");
    }
    host.ftl.close(&mut host.clock).unwrap();
    let mut host = opened(&served);
    assert!(host.ftl.recovery_report().clean);
    for (block, value) in held.iter().enumerate() {
        assert_eq!(host.read(block as u64), Ok(*value), "block {block}");
    }
}

#[test]
fn what_was_flushed_outlives_a_host_that_vanishes() {
    let served = Served::new(device());
    let mut host = formatted(&served);
    let mut held = nothing();
    for round in 0..6 {
        fill(&mut host, round, &mut held);
        host.flush().unwrap();
        // Not flushed: the old or the new, and the cut comes with commands under way.
        for block in 0..20 {
            host.write(block, 251).unwrap();
        }
        drop(host);
        host = opened(&served);
        assert!(!host.ftl.recovery_report().clean);
        for (block, value) in held.iter_mut().enumerate() {
            let found = host.read(block as u64).unwrap();
            assert!(found == *value || (block < 20 && found == 251), "block {block} holds {found}, not {value}");
            *value = found;
        }
    }
}

#[test]
fn a_drive_whose_link_is_cut_turns_read_only_and_loses_nothing_that_was_flushed() {
    let served = Served::new(device());
    let mut host = formatted(&served);
    let mut held = nothing();
    fill(&mut host, 5, &mut held);
    host.flush().unwrap();
    let device = served.end();
    let mut refused = None;
    for block in 0..BLOCKS {
        if let Err(error) = host.write(block, 252).and_then(|()| host.flush()) {
            refused = Some(error);
            break;
        }
    }
    assert_eq!(refused, Some(IoError::ReadOnly), "writes are refused, and nobody waits for ever");
    assert_eq!(host.ftl.read_only_reason(), Some(ReadOnlyReason::StoreFault));
    drop(host);
    let served = Served::new(device);
    let mut host = opened(&served);
    for (block, value) in held.iter().enumerate() {
        let found = host.read(block as u64).unwrap();
        assert!(found == *value || found == 252, "block {block} holds {found}, not {value}");
    }
}

#[test]
fn what_is_not_there_or_not_open_channel_is_said_so() {
    let served = Served::new(device());
    let elsewhere = Place { namespace: 2, ..served.place() };
    let refused = FabricDevice::reach(&elsewhere, Waiting::ForOne).err().expect("there is no namespace 2");
    assert!(matches!(refused, ReachError::Client(_) | ReachError::NotOpenChannel { .. }), "{refused}");
    let mut stranger = served.place();
    stranger.identity.subsystem_nqn = "nqn.2024-01.org.example:other".to_owned();
    let refused = FabricDevice::reach(&stranger, Waiting::ForOne).err().expect("there is no such subsystem");
    assert!(refused.to_string().contains("Connect"), "{refused}");
    let nowhere = Place { address: "127.0.0.1:1".parse().unwrap(), ..served.place() };
    let refused = FabricDevice::reach(&nowhere, Waiting::ForOne).err().expect("nobody is there");
    assert!(refused.to_string().contains("127.0.0.1:1"), "{refused}");
}
