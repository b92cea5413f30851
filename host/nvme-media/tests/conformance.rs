//! The conformance suite of devices, unchanged, over NVMe/TCP.

use crate::support::Served;
use openftl_core::{ChunkId, Frames, Geometry, Nanos, Ppa, Time};
use openftl_media::conformance::{Inject, suite_with_faults};
use openftl_media::{
    ChunkDescriptor, Command, Completion, EmulatedDevice, Media, MediaError, Notification, Profile, ProgramFailure,
    QueueFull, Store, Tag, Timing,
};
use openftl_nvme_media::FabricDevice;

/// A device that is reached, and whose other end can be made to fail.
struct Reached {
    device: FabricDevice,
    served: Served,
}

impl Media for Reached {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull> {
        self.device.submit(now, frames, tag, command)
    }

    fn poll(&mut self, now: Time, frames: &mut Frames, completions: &mut Vec<Completion>) {
        self.device.poll(now, frames, completions);
        assert_eq!(self.device.cut(), None);
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
        self.device.chunk_report(now, first, descriptors)
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
        self.device.set_dulbe(dulbe);
    }

    fn pu_busy(&self) -> Vec<Nanos> {
        self.device.pu_busy()
    }
}

impl Inject for Reached {
    fn lose(&mut self, ppa: Ppa) {
        self.served.ask(move |device| device.lose(ppa));
    }

    fn fail_reads(&mut self, ppa: Ppa, times: u32) {
        self.served.ask(move |device| device.fail_reads(ppa, times));
    }

    fn weaken(&mut self, ppa: Ppa) {
        self.served.ask(move |device| device.weaken(ppa));
    }

    fn misdirect(&mut self, one: Ppa, other: Ppa) {
        self.served.ask(move |device| Inject::misdirect(device, one, other));
    }

    fn fail_program(&mut self, chunk: ChunkId, failure: ProgramFailure) {
        self.served.ask(move |device| device.fail_program(chunk, failure));
    }

    fn take_offline(&mut self, chunk: ChunkId) {
        self.served.ask(move |device| Inject::take_offline(device, chunk));
    }

    fn wear_out(&mut self, chunk: ChunkId, resets: u32) {
        self.served.ask(move |device| device.wear_out(chunk, resets));
    }

    fn endurance(&self) -> u32 {
        self.served.ask(|device| Inject::endurance(device))
    }
}

#[test]
fn a_device_reached_over_the_network_conforms() {
    let tiny = Profile::builtin("tiny").unwrap();
    let mut volatile = tiny.clone();
    volatile.cache.power_loss_protection = false;
    volatile.vector_copy = false;
    volatile.oob_bytes = 64;
    for profile in [tiny, volatile] {
        suite_with_faults(|| {
            let device = EmulatedDevice::new(profile.clone(), 6, Store::Ram, Timing::Instant, 5).unwrap();
            let served = Served::new(device);
            Reached { device: served.reach(), served }
        });
    }
}
