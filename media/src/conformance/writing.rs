//! Checks: writing.

use super::Host;
use crate::contract::{Blocks, ChunkState, Command, Media, SCALAR_BLOCKS_MAX, Status};
use openftl_core::VECTOR_BLOCKS_MAX;

pub fn a_new_device_reports_every_chunk_once_and_none_in_use<M: Media>(host: &mut Host<M>) {
    let report = host.report();
    let chunks: Vec<_> = host.geometry.chunk_ids().collect();
    assert_eq!(report.iter().map(|descriptor| descriptor.chunk).collect::<Vec<_>>(), chunks);
    for descriptor in report {
        assert!(matches!(descriptor.state, ChunkState::Free | ChunkState::Offline), "{descriptor:?}");
        assert_eq!((descriptor.write_pointer, descriptor.blocks), (0, host.geometry.blocks_per_chunk));
    }
    let beyond = host.format.chunk_of(host.absent());
    let first = host.descriptor(chunks[0]);
    assert!(
        host.device.chunk_report(host.now, beyond, &mut [first]).is_err(),
        "no report of a chunk that is not there"
    );
}

pub fn a_chunk_goes_from_free_over_open_to_closed<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(1);
    let (unit, end) = (host.geometry.ws_min, host.geometry.blocks_per_chunk);
    host.expect_chunk(chunk, ChunkState::Free, 0);
    host.fill_chunk(chunk, 0..unit);
    if unit < end {
        host.expect_chunk(chunk, ChunkState::Open, unit);
        // The other form goes on where the first one stopped.
        let completion = host.write_scalar(host.format.ppa(chunk, unit), unit.min(end - unit));
        host.expect(completion, Status::Success, 0);
        host.fill_chunk(chunk, 2 * unit..end);
    }
    host.expect_chunk(chunk, ChunkState::Closed, end);
}

pub fn a_write_away_from_the_write_pointer_is_out_of_order<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let unit = host.geometry.ws_min;
    host.fill_chunk(chunk, 0..unit);
    let all = u64::MAX >> (64 - unit);
    for first in [0, 2 * unit] {
        let ppas = host.ppas(chunk, first..first + unit);
        let completion = host.write(&ppas);
        host.expect(completion, Status::OutOfOrderWrite, all);
        let completion = host.write_scalar(ppas[0], unit);
        host.expect(completion, Status::OutOfOrderWrite, 1);
    }
    host.expect_chunk(chunk, ChunkState::Open, unit);
}

pub fn a_write_that_is_no_multiple_of_ws_min_is_refused<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let unit = host.geometry.ws_min;
    if unit == 1 {
        return;
    }
    let mut counts = vec![1, unit - 1];
    if unit < VECTOR_BLOCKS_MAX as u32 {
        counts.push(unit + 1);
    }
    for count in counts {
        let ppas = host.ppas(chunk, 0..count);
        let completion = host.write(&ppas);
        host.expect(completion, Status::OutOfOrderWrite, u64::MAX >> (64 - count));
        let completion = host.write_scalar(ppas[0], count);
        host.expect(completion, Status::OutOfOrderWrite, 1);
    }
    host.expect_chunk(chunk, ChunkState::Free, 0);
}

pub fn a_closed_chunk_takes_no_more_writes<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let unit = host.geometry.ws_min;
    host.fill_chunk(chunk, 0..host.geometry.blocks_per_chunk);
    let ppas = host.ppas(chunk, 0..unit);
    let completion = host.write(&ppas);
    host.expect(completion, Status::OutOfOrderWrite, u64::MAX >> (64 - unit));
    let completion = host.write_scalar(ppas[0], unit);
    host.expect(completion, Status::OutOfOrderWrite, 1);
    let end = host.geometry.blocks_per_chunk;
    host.expect_chunk(chunk, ChunkState::Closed, end);
}

pub fn a_write_never_leaves_its_chunk<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let (unit, end) = (host.geometry.ws_min, host.geometry.blocks_per_chunk);
    host.fill_chunk(chunk, 0..end - unit);
    if 2 * unit <= SCALAR_BLOCKS_MAX {
        let completion = host.write_scalar(host.format.ppa(chunk, end - unit), 2 * unit);
        assert!(matches!(completion.status, Status::OutOfOrderWrite | Status::LbaOutOfRange), "{completion:?}");
        assert_eq!(completion.failed, 1);
        host.expect_chunk(chunk, if end == unit { ChunkState::Free } else { ChunkState::Open }, end - unit);
        let next = host.geometry.chunk_ids().find(|other| *other > chunk);
        if let Some(next) = next {
            assert_eq!(host.descriptor(next).write_pointer, 0, "nothing has spilled over");
        }
    }
    host.fill_chunk(chunk, end - unit..end);
}

pub fn a_vector_write_may_hold_runs_in_several_chunks<M: Media>(host: &mut Host<M>) {
    let unit = host.geometry.ws_min;
    let runs = (VECTOR_BLOCKS_MAX as u32 / unit).min(3) as usize;
    let runs = if host.geometry.open_chunks_max > 0 { runs.min(host.geometry.open_chunks_max as usize) } else { runs };
    // One chunk on each of several parallel units, so that limits on one unit do not matter.
    let report = host.report();
    let chunks: Vec<_> = (0..)
        .zip(host.geometry.pu_ids())
        .filter_map(|(_, pu)| {
            report.iter().find(|entry| host.format.pu_of(entry.chunk) == pu && entry.state == ChunkState::Free)
        })
        .map(|entry| entry.chunk)
        .take(runs)
        .collect();
    let mut ppas = Vec::new();
    for chunk in chunks.iter().rev() {
        ppas.extend(host.ppas(*chunk, 0..unit));
    }
    host.expect_good_write(&ppas);
    for chunk in chunks {
        assert_eq!(host.descriptor(chunk).write_pointer, unit);
        host.fill_chunk(chunk, unit..host.geometry.blocks_per_chunk);
    }
    host.expect_good_read(&ppas);
}

pub fn a_bad_run_of_a_vector_write_fails_alone<M: Media>(host: &mut Host<M>) {
    let unit = host.geometry.ws_min;
    if VECTOR_BLOCKS_MAX < 2 * unit as usize {
        return;
    }
    let (bad, good) = (host.chunk(0), host.chunk(1));
    let ppas = [host.ppas(bad, unit..2 * unit), host.ppas(good, 0..unit)].concat();
    let completion = host.write(&ppas);
    host.expect(completion, Status::OutOfOrderWrite, u64::MAX >> (64 - unit));
    host.expect_chunk(bad, ChunkState::Free, 0);
    assert_eq!(host.descriptor(good).write_pointer, unit);
}

pub fn no_more_chunks_are_opened_than_the_geometry_allows<M: Media>(host: &mut Host<M>) {
    let (unit, end) = (host.geometry.ws_min, host.geometry.blocks_per_chunk);
    let (on_device, on_pu) = (host.geometry.open_chunks_max, host.geometry.open_chunks_per_pu_max);
    let limit = match (on_device, on_pu) {
        (0, 0) => return,
        (0, limit) | (limit, 0) => limit,
        (device, pu) => device.min(pu),
    };
    if unit == end || limit >= host.geometry.chunks_per_pu {
        return;
    }
    // All on one parallel unit, so that both limits count.
    let first = host.chunk(0);
    let pu = host.format.pu_of(first);
    let chunks: Vec<_> = host.report().into_iter().filter(|entry| entry.state == ChunkState::Free).collect();
    let chunks: Vec<_> =
        chunks.iter().map(|entry| entry.chunk).filter(|chunk| host.format.pu_of(*chunk) == pu).collect();
    for chunk in &chunks[..limit as usize] {
        host.fill_chunk(*chunk, 0..unit);
    }
    let one_more = host.ppas(chunks[limit as usize], 0..unit);
    let completion = host.write(&one_more);
    host.expect(completion, Status::OutOfOrderWrite, u64::MAX >> (64 - unit));
    let list = host.filled(&one_more);
    let blocks = Blocks::Scalar { first: one_more[0], count: unit };
    let completion = host.run(Command::Write { blocks, frames: &list, fua: false });
    host.expect(completion, Status::OutOfOrderWrite, 1);
    // An open chunk may be written on, and closing it makes room.
    host.fill_chunk(chunks[0], unit..end);
    host.expect_good_write(&one_more);
}
