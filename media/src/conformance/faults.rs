//! Checks: failure.

use super::{Host, Inject};
use crate::contract::{ChunkState, Media, Notification, NotifiedScope, NotifiedState, Status};
use crate::device::ProgramFailure;

fn notifications<M: Media>(host: &mut Host<M>, after: u64) -> Vec<Notification> {
    let mut notifications = Vec::new();
    host.device.notifications(host.now, after, &mut notifications).expect("the log of a device that is there");
    notifications
}

pub fn an_offline_chunk_is_neither_written_nor_reset_nor_read<M: Media + Inject>(host: &mut Host<M>) {
    let (free, full) = (host.chunk(0), host.chunk(1));
    let unit = host.geometry.ws_min;
    host.fill_chunk(full, 0..host.geometry.blocks_per_chunk);
    for chunk in [free, full] {
        host.device.take_offline(chunk);
        assert_eq!(host.descriptor(chunk).state, ChunkState::Offline);
        let ppas = host.ppas(chunk, 0..unit);
        let completion = host.write(&ppas);
        host.expect(completion, Status::OfflineChunk, u64::MAX >> (64 - unit));
        let completion = host.write_scalar(ppas[0], unit);
        host.expect(completion, Status::OfflineChunk, 1);
        let completion = host.reset(&[chunk]);
        host.expect(completion, Status::OfflineChunk, 1);
        host.device.set_dulbe(true);
        let completion = host.read(&ppas[..1]);
        host.expect(completion, Status::DeallocatedOrUnwritten, 1);
        host.device.set_dulbe(false);
        let completion = host.read(&ppas[..1]);
        host.expect(completion, Status::Success, 0);
        host.expect_nothing(0);
    }
}

pub fn after_a_failed_program_the_next_unit_can_be_written<M: Media + Inject>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let (unit, end) = (host.geometry.ws_min, host.geometry.blocks_per_chunk);
    if 4 * unit > end {
        return;
    }
    host.fill_chunk(chunk, 0..unit);
    host.device.fail_program(chunk, ProgramFailure::NextUnit);
    // Where a vector holds two units, the first one fails and the second one is written.
    let units = if 2 * unit <= 64 { 2 } else { 1 };
    let ppas = host.ppas(chunk, unit..(1 + units) * unit);
    let completion = host.write(&ppas);
    host.expect(completion, Status::WriteFailedWriteNextUnit, u64::MAX >> (64 - unit));
    host.expect_chunk(chunk, ChunkState::Open, (1 + units) * unit);
    host.fill_chunk(chunk, (1 + units) * unit..end);
    for block in unit..2 * unit {
        let completion = host.read(&[host.format.ppa(chunk, block)]);
        host.expect(completion, Status::UnrecoveredRead, 1);
    }
    let good = [host.ppas(chunk, 0..unit), host.ppas(chunk, 2 * unit..end)].concat();
    host.expect_good_read(&good);
    // A reset heals it.
    let completion = host.reset(&[chunk]);
    host.expect(completion, Status::Success, 0);
    host.fill_chunk(chunk, 0..end);
    let ppas = host.ppas(chunk, 0..end);
    host.expect_good_read(&ppas);
}

pub fn a_failed_program_may_close_the_chunk_early<M: Media + Inject>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let (unit, end) = (host.geometry.ws_min, host.geometry.blocks_per_chunk);
    if 3 * unit > end {
        return;
    }
    host.fill_chunk(chunk, 0..unit);
    host.device.fail_program(chunk, ProgramFailure::ChunkClosed);
    let units = if 2 * unit <= 64 { 2 } else { 1 };
    let ppas = host.ppas(chunk, unit..(1 + units) * unit);
    let completion = host.write(&ppas);
    host.expect(completion, Status::WriteFailedChunkClosedEarly, u64::MAX >> (64 - ppas.len()));
    host.expect_chunk(chunk, ChunkState::Closed, unit);
    // What lies below the write pointer can be read, all of it, and nothing above.
    let good = host.ppas(chunk, 0..unit);
    host.expect_good_read(&good);
    host.device.set_dulbe(true);
    let completion = host.read(&ppas[..1]);
    host.expect(completion, Status::DeallocatedOrUnwritten, 1);
    let completion = host.reset(&[chunk]);
    host.expect(completion, Status::Success, 0);
    host.fill_chunk(chunk, 0..end);
}

pub fn a_lost_block_fails_alone_and_is_notified<M: Media + Inject>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let end = host.geometry.blocks_per_chunk;
    host.fill_chunk(chunk, 0..end);
    let ppas = host.ppas(chunk, 0..3.min(end));
    host.device.lose(ppas[1]);
    let completion = host.read(&ppas);
    host.expect(completion, Status::UnrecoveredRead, 0b010);
    host.expect_frame(0, ppas[0]);
    host.expect_frame(2, ppas[2]);
    let completion = host.read_scalar(ppas[0], 3);
    host.expect(completion, Status::UnrecoveredRead, 1);
    let found = notifications(host, 0);
    let expected =
        Notification { count: 1, ppa: ppas[1], state: NotifiedState::Unrecoverable, scope: NotifiedScope::Blocks(1) };
    assert_eq!(found.first(), Some(&expected));
    if host.geometry.vector_copy {
        let unit = host.geometry.ws_min;
        let other = host.chunk(1);
        let (from, to) = (host.ppas(chunk, 0..unit), host.ppas(other, 0..unit));
        if unit > 1 {
            let completion = host.run(crate::contract::Command::Copy { from: &from, to: &to, fua: false });
            host.expect(completion, Status::UnrecoveredRead, u64::MAX >> (64 - unit));
        }
    }
}

pub fn a_chunk_that_goes_offline_is_notified_once<M: Media + Inject>(host: &mut Host<M>) {
    let chunk = host.chunk(1);
    host.device.take_offline(chunk);
    host.device.take_offline(chunk);
    let ppa = host.format.ppa(chunk, 0);
    let expected = Notification { count: 1, ppa, state: NotifiedState::Unrecoverable, scope: NotifiedScope::Chunk };
    assert_eq!(notifications(host, 0), [expected]);
}

pub fn a_read_that_fails_for_a_while_is_good_again<M: Media + Inject>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let end = host.geometry.blocks_per_chunk;
    host.fill_chunk(chunk, 0..end);
    let ppas = host.ppas(chunk, 0..3.min(end));
    host.device.fail_reads(ppas[1], 2);
    for _ in 0..2 {
        let completion = host.read(&ppas);
        host.expect(completion, Status::UnrecoveredRead, 0b010);
    }
    host.expect_good_read(&ppas);
    host.expect_good_read(&ppas);
    // Every failure is a reason to refresh the block, and none says that it is lost.
    let found = notifications(host, 0);
    assert_eq!(found.len(), 2, "{found:?}");
    for entry in found {
        let expected = (ppas[1], NotifiedState::ErrorRateHigh, NotifiedScope::Blocks(1));
        assert_eq!((entry.ppa, entry.state, entry.scope), expected);
    }
    // What is lost is not healed by a failure that would pass.
    host.device.lose(ppas[0]);
    host.device.fail_reads(ppas[0], 1);
    for _ in 0..3 {
        let completion = host.read(&ppas);
        host.expect(completion, Status::UnrecoveredRead, 0b001);
    }
}

pub fn a_misdirected_block_is_read_without_complaint<M: Media + Inject>(host: &mut Host<M>) {
    let (one, other) = (host.chunk(0), host.chunk(1));
    let end = host.geometry.blocks_per_chunk;
    host.fill_chunk(one, 0..end);
    host.fill_chunk(other, 0..end);
    let ppas = [host.format.ppa(one, 1), host.format.ppa(other, 0)];
    host.device.misdirect(ppas[0], ppas[1]);
    let completion = host.read(&ppas);
    host.expect(completion, Status::Success, 0);
    host.expect_frame(0, ppas[1]);
    host.expect_frame(1, ppas[0]);
    host.expect_good_read(&[host.format.ppa(one, 0), host.format.ppa(other, 1)]);
}

pub fn high_ecc_is_a_warning_about_good_data<M: Media + Inject>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let end = host.geometry.blocks_per_chunk;
    host.fill_chunk(chunk, 0..end);
    let ppas = host.ppas(chunk, 0..3.min(end));
    host.device.weaken(ppas[2]);
    let completion = host.read(&ppas);
    host.expect(completion, Status::HighEcc, 0b100);
    for (index, ppa) in ppas.iter().enumerate() {
        host.expect_frame(index, *ppa);
    }
    // A block that is lost outweighs one that is weak.
    host.device.lose(ppas[0]);
    let completion = host.read(&[ppas[2], ppas[1], ppas[0]]);
    host.expect(completion, Status::UnrecoveredRead, 0b100);
    host.expect_frame(0, ppas[2]);
    let weak: Vec<_> = notifications(host, 0).into_iter().filter(|entry| entry.ppa == ppas[2]).collect();
    assert_eq!(weak.len(), 2, "one for each read");
    assert_eq!(weak[0].state, NotifiedState::ErrorRateHigh);
}

pub fn notifications_count_from_one_and_are_not_repeated<M: Media + Inject>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    host.fill_chunk(chunk, 0..host.geometry.blocks_per_chunk);
    assert_eq!(notifications(host, 0), []);
    let ppas = host.ppas(chunk, 0..1);
    host.device.weaken(ppas[0]);
    for _ in 0..3 {
        host.read(&ppas);
    }
    let counts = |entries: Vec<Notification>| entries.iter().map(|entry| entry.count).collect::<Vec<_>>();
    assert_eq!(counts(notifications(host, 0)), [1, 2, 3]);
    assert_eq!(counts(notifications(host, 2)), [3]);
    assert_eq!(counts(notifications(host, 3)), []);
}

pub fn the_wear_index_follows_the_resets_to_the_end<M: Media + Inject>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let (end, endurance) = (host.geometry.blocks_per_chunk, host.device.endurance());
    host.device.wear_out(chunk, endurance / 2 - 1);
    host.fill_chunk(chunk, 0..end);
    host.reset(&[chunk]);
    let expected = (u64::from(endurance / 2) * 255 / u64::from(endurance)) as u8;
    assert_eq!(host.descriptor(chunk).wear_index, expected);
    host.device.wear_out(chunk, endurance);
    assert_eq!(host.descriptor(chunk).wear_index, 255);
    host.fill_chunk(chunk, 0..end);
    let completion = host.reset(&[chunk]);
    host.expect(completion, Status::OfflineChunk, 1);
    let found = host.descriptor(chunk);
    assert_eq!((found.state, found.wear_index), (ChunkState::Offline, 255));
}

pub fn a_wear_index_above_the_threshold_is_notified_once<M: Media + Inject>(host: &mut Host<M>) {
    let threshold = u64::from(host.geometry.wear_index_threshold);
    if threshold == 0 {
        return;
    }
    let chunk = host.chunk(0);
    let endurance = u64::from(host.device.endurance());
    // The last number of resets that is not above the threshold.
    let last = ((threshold + 1) * endurance).div_ceil(255) - 1;
    host.device.wear_out(chunk, last as u32 - 1);
    let end = host.geometry.blocks_per_chunk;
    for expected in [0, 1, 1] {
        host.fill_chunk(chunk, 0..end);
        host.reset(&[chunk]);
        let found = notifications(host, 0);
        assert_eq!(found.len(), expected, "{found:?}");
        for entry in found {
            assert_eq!((entry.state, entry.scope), (NotifiedState::WearIndexHigh, NotifiedScope::Chunk));
            assert_eq!(entry.ppa, host.format.ppa(chunk, 0));
        }
    }
}
