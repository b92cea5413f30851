//! The conformance suite finds what it is there to find: a device that breaks a rule does not pass.

use openftl_core::{ChunkId, Frames, Geometry, Nanos, Ppa, Time};
use openftl_media::{
    ChunkDescriptor, ChunkState, Command, Completion, EmulatedDevice, Media, MediaError, Notification, Profile,
    QueueFull, Status, Store, Tag, Timing, conformance,
};

/// What is wrong with the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sin {
    None,
    ForgetsOutOfBandBytes,
    ForgetsOneBitOfTheBitmap,
    SaysThatAllIsWell,
    DeliversEarly,
    ForgetsDulbe,
    ClosesNothing,
    NeedsNoCompleteUnits,
    IgnoresFlush,
    ReadsTheNextBlock,
    CopiesNothing,
}

struct Sinner {
    device: EmulatedDevice,
    sin: Sin,
}

impl Media for Sinner {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull> {
        match (self.sin, command) {
            (Sin::ForgetsOutOfBandBytes, Command::Write { frames: list, .. }) => {
                list.iter().for_each(|frame| frames.oob_mut(*frame)[15] = 0);
            }
            (Sin::NeedsNoCompleteUnits, Command::Write { frames: [_], .. }) => {
                return self.device.submit(now, frames, tag, Command::Flush);
            }
            (Sin::IgnoresFlush, Command::Flush) => {
                let nothing = Command::Read { blocks: openftl_media::Blocks::Vector(&[]), frames: &[] };
                return self.device.submit(now, frames, tag, nothing);
            }
            (Sin::CopiesNothing, Command::Copy { .. }) => {
                return self.device.submit(now, frames, tag, Command::Flush);
            }
            (
                Sin::ReadsTheNextBlock,
                Command::Read { blocks: openftl_media::Blocks::Vector([first, second, ..]), .. },
            ) if second.0 == first.0 + 1 => {
                let Command::Read { blocks, frames: list } = command else { unreachable!("matched above") };
                let mut ppas: Vec<Ppa> = (0..blocks.len()).map(|index| blocks.get(index)).collect();
                ppas.swap(0, 1);
                let blocks = openftl_media::Blocks::Vector(&ppas);
                return self.device.submit(now, frames, tag, Command::Read { blocks, frames: list });
            }
            _ => {}
        }
        self.device.submit(now, frames, tag, command)
    }

    fn poll(&mut self, now: Time, frames: &mut Frames, completions: &mut Vec<Completion>) {
        let now = if self.sin == Sin::DeliversEarly { now + Nanos(1) } else { now };
        self.device.poll(now, frames, completions);
        for completion in completions {
            match self.sin {
                Sin::ForgetsOneBitOfTheBitmap => completion.failed &= completion.failed.wrapping_sub(1),
                Sin::SaysThatAllIsWell => (completion.status, completion.failed) = (Status::Success, 0),
                _ => {}
            }
        }
    }

    fn next_due(&self) -> Option<Time> {
        self.device.next_due()
    }

    fn chunk_report(
        &mut self,
        now: Time,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError> {
        self.device.chunk_report(now, first, descriptors)?;
        for descriptor in descriptors {
            if self.sin == Sin::ClosesNothing && descriptor.state == ChunkState::Closed {
                descriptor.state = ChunkState::Open;
            }
        }
        Ok(())
    }

    fn notifications(
        &mut self,
        now: Time,
        after: u64,
        notifications: &mut Vec<Notification>,
    ) -> Result<(), MediaError> {
        self.device.notifications(now, after, notifications)
    }

    fn set_dulbe(&mut self, dulbe: bool) {
        self.device.set_dulbe(dulbe && self.sin != Sin::ForgetsDulbe);
    }

    fn pu_busy(&self) -> Vec<Nanos> {
        self.device.pu_busy()
    }
}

fn passes(sin: Sin) -> bool {
    std::panic::catch_unwind(|| {
        conformance::suite(|| Sinner {
            device: EmulatedDevice::new(Profile::builtin("tiny").unwrap(), 6, Store::Ram, Timing::Modelled, 1).unwrap(),
            sin,
        });
    })
    .is_ok()
}

#[test]
fn a_device_that_breaks_a_rule_does_not_pass() {
    assert!(passes(Sin::None));
    for sin in [
        Sin::ForgetsOutOfBandBytes,
        Sin::ForgetsOneBitOfTheBitmap,
        Sin::SaysThatAllIsWell,
        Sin::DeliversEarly,
        Sin::ForgetsDulbe,
        Sin::ClosesNothing,
        Sin::NeedsNoCompleteUnits,
        Sin::IgnoresFlush,
        Sin::ReadsTheNextBlock,
        Sin::CopiesNothing,
    ] {
        assert!(!passes(sin), "{sin:?} passes");
    }
}
