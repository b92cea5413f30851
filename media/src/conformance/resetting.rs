//! Checks: resetting.

use super::Host;
use crate::contract::{Blocks, ChunkState, Command, Media, Status};
use openftl_core::ChunkId;

pub fn a_reset_chunk_is_free_and_can_be_written_again<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let end = host.geometry.blocks_per_chunk;
    for _ in 0..3 {
        host.fill_chunk(chunk, 0..end);
        let ppas = host.ppas(chunk, 0..end);
        host.expect_good_read(&ppas);
        let completion = host.reset(&[chunk]);
        host.expect(completion, Status::Success, 0);
        host.expect_chunk(chunk, ChunkState::Free, 0);
        host.device.set_dulbe(true);
        let completion = host.read(&ppas[..1]);
        host.expect(completion, Status::DeallocatedOrUnwritten, 1);
    }
}

pub fn an_open_chunk_cannot_be_reset<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let unit = host.geometry.ws_min;
    if unit == host.geometry.blocks_per_chunk {
        return;
    }
    host.fill_chunk(chunk, 0..unit);
    let completion = host.reset(&[chunk]);
    host.expect(completion, Status::InvalidReset, 1);
    let blocks = Blocks::Scalar { first: host.format.ppa(chunk, 0), count: host.geometry.blocks_per_chunk };
    let completion = host.run(Command::Reset { blocks });
    host.expect(completion, Status::InvalidReset, 1);
    host.expect_chunk(chunk, ChunkState::Open, unit);
}

pub fn a_free_chunk_can_be_reset_only_if_the_geometry_says_so<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let completion = host.reset(&[chunk]);
    if host.geometry.reset_of_free {
        host.expect(completion, Status::Success, 0);
    } else {
        host.expect(completion, Status::InvalidReset, 1);
    }
    host.expect_chunk(chunk, ChunkState::Free, 0);
    host.fill_chunk(chunk, 0..host.geometry.ws_min);
}

pub fn a_chunk_that_does_not_exist_cannot_be_reset<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    host.fill_chunk(chunk, 0..host.geometry.blocks_per_chunk);
    // Neither one that is not there, nor a block in the middle of one.
    for ppa in [host.absent(), host.format.ppa(chunk, 1)] {
        let completion = host.run(Command::Reset { blocks: Blocks::Vector(&[ppa]) });
        host.expect(completion, Status::InvalidReset, 1);
        let blocks = Blocks::Scalar { first: ppa, count: host.geometry.blocks_per_chunk };
        let completion = host.run(Command::Reset { blocks });
        host.expect(completion, Status::InvalidReset, 1);
    }
    let end = host.geometry.blocks_per_chunk;
    host.expect_chunk(chunk, ChunkState::Closed, end);
}

pub fn each_chunk_that_is_not_reset_has_its_bit<M: Media>(host: &mut Host<M>) {
    let chunks: Vec<ChunkId> = (0..4).map(|index| host.chunk(index)).collect();
    let end = host.geometry.blocks_per_chunk;
    host.fill_chunk(chunks[0], 0..end);
    host.fill_chunk(chunks[3], 0..end);
    if host.geometry.ws_min == end {
        return;
    }
    host.fill_chunk(chunks[1], 0..host.geometry.ws_min);
    let absent = host.format.chunk_of(host.absent());
    let completion = host.reset(&[chunks[0], chunks[1], absent, chunks[3]]);
    host.expect(completion, Status::InvalidReset, 0b0110);
    host.expect_chunk(chunks[0], ChunkState::Free, 0);
    host.expect_chunk(chunks[3], ChunkState::Free, 0);
}

pub fn a_scalar_reset_covers_whole_chunks<M: Media>(host: &mut Host<M>) {
    let (unit, end) = (host.geometry.ws_min, host.geometry.blocks_per_chunk);
    // Two chunks that follow each other on one parallel unit.
    let report = host.report();
    let pair = report.windows(2).find(|pair| {
        pair[1].chunk.0 == pair[0].chunk.0 + 1 && pair.iter().all(|entry| entry.state == ChunkState::Free)
    });
    let Some([first, second]) = pair.map(|pair| [pair[0].chunk, pair[1].chunk]) else { return };
    for chunk in [first, second] {
        host.fill_chunk(chunk, 0..end);
    }
    let start = host.format.ppa(first, 0);
    let completion = host.run(Command::Reset { blocks: Blocks::Scalar { first: start, count: end - unit } });
    host.expect(completion, Status::InvalidReset, 1);
    host.expect_chunk(first, ChunkState::Closed, end);
    let count = (1 << host.format.block_bits) + end;
    let completion = host.run(Command::Reset { blocks: Blocks::Scalar { first: start, count } });
    host.expect(completion, Status::Success, 0);
    for chunk in [first, second] {
        host.expect_chunk(chunk, ChunkState::Free, 0);
    }
}
