//! Checks: the form of commands, copy, flush, and when things complete.

use super::Host;
use crate::contract::{Blocks, ChunkState, Command, Media, SCALAR_BLOCKS_MAX, Status};
use openftl_core::{Frames, Ppa, Time, VECTOR_BLOCKS_MAX};

pub fn a_command_of_no_or_too_many_blocks_is_invalid<M: Media>(host: &mut Host<M>) {
    let first = host.format.ppa(host.geometry.chunk_ids().next().expect("a chunk"), 0);
    let many = vec![first; VECTOR_BLOCKS_MAX + 1];
    let list = host.pages.clone();
    let (none, most) = (Blocks::Vector(&[]), Blocks::Vector(&many));
    let nothing = Blocks::Scalar { first, count: 0 };
    let long = Blocks::Scalar { first, count: SCALAR_BLOCKS_MAX + 1 };
    for (blocks, count) in
        [(none, 0), (most, VECTOR_BLOCKS_MAX + 1), (nothing, 0), (long, SCALAR_BLOCKS_MAX as usize + 1)]
    {
        let frames = &list[..count];
        let completion = host.run(Command::Read { blocks, frames });
        host.expect(completion, Status::InvalidField, 0);
        let completion = host.run(Command::Write { blocks, frames, fua: false });
        host.expect(completion, Status::InvalidField, 0);
    }
    for blocks in [none, most, nothing] {
        let completion = host.run(Command::Reset { blocks });
        host.expect(completion, Status::InvalidField, 0);
    }
    for list in [&[][..], &many] {
        let completion = host.run(Command::Copy { from: list, to: list, fua: false });
        host.expect(completion, Status::InvalidField, 0);
    }
}

pub fn frames_that_do_not_match_are_invalid<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let unit = host.geometry.ws_min;
    let ppas = host.ppas(chunk, 0..unit);
    let list = host.pages[..=unit as usize].to_vec();
    let blocks = Blocks::Vector(&ppas);
    for frames in [&list[..], &list[..unit as usize - 1]] {
        let completion = host.run(Command::Write { blocks, frames, fua: false });
        host.expect(completion, Status::InvalidField, 0);
        let completion = host.run(Command::Read { blocks, frames });
        host.expect(completion, Status::InvalidField, 0);
    }
    // Frames with room for other out-of-band bytes than the device has.
    let mut odd = Frames::new(host.pages.len(), 0, host.geometry.oob_bytes as usize + 1);
    std::mem::swap(&mut odd, &mut host.frames);
    let completion = host.run(Command::Write { blocks, frames: &list[..unit as usize], fua: false });
    std::mem::swap(&mut odd, &mut host.frames);
    host.expect(completion, Status::InvalidField, 0);
    host.expect_chunk(chunk, ChunkState::Free, 0);
}

pub fn a_copy_carries_payload_and_out_of_band_bytes<M: Media>(host: &mut Host<M>) {
    let (source, target) = (host.chunk(0), host.chunk(1));
    let (unit, end) = (host.geometry.ws_min, host.geometry.blocks_per_chunk);
    host.fill_chunk(source, 0..end);
    let from: Vec<Ppa> = host.ppas(source, 0..end).into_iter().rev().take(unit as usize).collect();
    let to = host.ppas(target, 0..unit);
    let completion = host.run(Command::Copy { from: &from, to: &to, fua: false });
    if !host.geometry.vector_copy {
        host.expect(completion, Status::InvalidField, 0);
        host.expect_chunk(target, ChunkState::Free, 0);
        return;
    }
    host.expect(completion, Status::Success, 0);
    host.fill_chunk(target, unit..end);
    let completion = host.read(&to);
    host.expect(completion, Status::Success, 0);
    for (index, ppa) in from.iter().enumerate() {
        host.expect_frame(index, *ppa);
    }
    host.expect_good_read(&from);
}

pub fn a_copy_keeps_the_rules_of_reading_and_of_writing<M: Media>(host: &mut Host<M>) {
    if !host.geometry.vector_copy {
        return;
    }
    let (source, target, empty) = (host.chunk(0), host.chunk(1), host.chunk(2));
    let (unit, end) = (host.geometry.ws_min, host.geometry.blocks_per_chunk);
    host.fill_chunk(source, 0..end);
    host.device.set_dulbe(true);
    let all = u64::MAX >> (64 - unit);
    let good = host.ppas(source, 0..unit);
    let (nothing, to) = (host.ppas(empty, 0..unit), host.ppas(target, 0..unit));
    let completion = host.run(Command::Copy { from: &nothing, to: &to, fua: false });
    host.expect(completion, Status::DeallocatedOrUnwritten, all);
    let ahead = host.ppas(target, unit..2 * unit);
    if 2 * unit <= end {
        let completion = host.run(Command::Copy { from: &good, to: &ahead, fua: false });
        host.expect(completion, Status::OutOfOrderWrite, all);
    }
    let completion = host.run(Command::Copy { from: &good, to: &to[..unit as usize - 1], fua: false });
    host.expect(completion, Status::InvalidField, 0);
    host.expect_chunk(target, ChunkState::Free, 0);
    let completion = host.run(Command::Copy { from: &good, to: &to, fua: false });
    host.expect(completion, Status::Success, 0);
}

pub fn a_flush_completes_no_earlier_than_the_writes_before_it<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let unit = host.geometry.ws_min;
    let mut completions = Vec::new();
    let units = host.geometry.blocks_per_chunk / unit;
    for index in 0..units {
        let ppas = host.ppas(chunk, index * unit..(index + 1) * unit);
        let list = host.filled(&ppas);
        let write = Command::Write { blocks: Blocks::Vector(&ppas), frames: &list, fua: false };
        host.device.submit(host.now, &mut host.frames, u64::from(index), write).expect("room for one chunk's writes");
    }
    host.device.submit(host.now, &mut host.frames, u64::from(units), Command::Flush).expect("room for a flush");
    while let Some(due) = host.device.next_due() {
        host.now = host.now.max(due);
        host.device.poll(host.now, &mut host.frames, &mut completions);
    }
    assert!(completions.iter().all(|completion| completion.status == Status::Success), "{completions:?}");
    let last = completions.last().expect("as many completions as commands");
    assert_eq!((completions.len(), last.tag), (units as usize + 1, u64::from(units)), "the flush comes last");
}

pub fn a_forced_write_is_safe_when_it_completes<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let unit = host.geometry.ws_min;
    let ppas = host.ppas(chunk, 0..unit);
    let completion = host.write_with(&ppas, true);
    host.expect(completion, Status::Success, 0);
    // Nothing is left for a flush to wait for.
    let flush = host.run(Command::Flush);
    assert!(flush.at <= completion.at.max(host.now), "{flush:?} after {completion:?}");
}

pub fn nothing_is_delivered_before_its_time<M: Media>(host: &mut Host<M>) {
    let chunks = [host.chunk(0), host.chunk(1), host.chunk(2)];
    let end = host.geometry.blocks_per_chunk;
    for chunk in chunks {
        host.fill_chunk(chunk, 0..end);
    }
    let count = 24;
    for tag in 0..count {
        let ppa = [host.format.ppa(chunks[tag as usize % 3], tag as u32 % end)];
        let frame = [host.pages[tag as usize]];
        let read = Command::Read { blocks: Blocks::Vector(&ppa), frames: &frame };
        host.device.submit(host.now, &mut host.frames, tag, read).expect("room for a few reads");
    }
    let (mut completions, mut seen) = (Vec::new(), Vec::new());
    while let Some(due) = host.device.next_due() {
        if due > host.now {
            host.device.poll(Time(due.0 - 1), &mut host.frames, &mut completions);
            assert_eq!(completions, [], "nothing is due before next_due says so");
        }
        host.now = host.now.max(due);
        host.device.poll(host.now, &mut host.frames, &mut completions);
        assert!(!completions.is_empty(), "something is due when next_due says so");
        assert!(completions.is_sorted_by_key(|completion| completion.at), "earliest first");
        assert!(completions.iter().all(|completion| completion.at <= host.now));
        seen.extend(completions.drain(..).map(|completion| completion.tag));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..count).collect::<Vec<_>>(), "each command completes once");
}

pub fn a_full_queue_refuses_and_does_nothing<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let unit = host.geometry.ws_min;
    let mut accepted = 0;
    while accepted < 1 << 16 && host.device.submit(host.now, &mut host.frames, accepted, Command::Flush).is_ok() {
        accepted += 1;
    }
    if accepted < 1 << 16 {
        let ppas = host.ppas(chunk, 0..unit);
        let list = host.filled(&ppas);
        let write = Command::Write { blocks: Blocks::Vector(&ppas), frames: &list, fua: false };
        host.device.submit(host.now, &mut host.frames, 0, write).expect_err("the queue is full");
        host.expect_chunk(chunk, ChunkState::Free, 0);
    }
    let mut completions = Vec::new();
    while let Some(due) = host.device.next_due() {
        host.now = host.now.max(due);
        host.device.poll(host.now, &mut host.frames, &mut completions);
    }
    assert_eq!(
        completions.iter().map(|completion| completion.tag).collect::<Vec<_>>(),
        (0..accepted).collect::<Vec<_>>()
    );
    host.fill_chunk(chunk, 0..unit);
}
