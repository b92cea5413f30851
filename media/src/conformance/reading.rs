//! Checks: reading.

use super::Host;
use crate::contract::{Blocks, Command, Media, SCALAR_BLOCKS_MAX, Status};
use openftl_core::{Payload, Ppa, VECTOR_BLOCKS_MAX};

pub fn what_was_written_comes_back_with_its_out_of_band_bytes<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(2);
    let end = host.geometry.blocks_per_chunk;
    host.fill_chunk(chunk, 0..end);
    let ppas = host.ppas(chunk, 0..end);
    host.expect_good_read(&ppas);
    let count = end.min(SCALAR_BLOCKS_MAX);
    let completion = host.read_scalar(ppas[0], count);
    host.expect(completion, Status::Success, 0);
    for (index, ppa) in ppas[..count as usize].iter().enumerate() {
        host.expect_frame(index, *ppa);
    }
}

pub fn a_vector_read_takes_blocks_in_any_order<M: Media>(host: &mut Host<M>) {
    let chunks = [host.chunk(3), host.chunk(0)];
    let end = host.geometry.blocks_per_chunk;
    let mut ppas = Vec::new();
    for chunk in chunks {
        host.fill_chunk(chunk, 0..end);
        ppas.extend(host.ppas(chunk, 0..end).into_iter().rev().step_by(3).take(VECTOR_BLOCKS_MAX / 2 - 1));
    }
    ppas.push(ppas[0]);
    host.expect_good_read(&ppas);
}

pub fn the_last_mw_cunits_blocks_of_an_open_chunk_cannot_be_read<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let (unit, hidden, end) = (host.geometry.ws_min, host.geometry.mw_cunits, host.geometry.blocks_per_chunk);
    host.device.set_dulbe(true);
    for written in (unit..end).step_by(unit as usize).take(1 + (2 * hidden / unit) as usize) {
        host.fill_chunk(chunk, written - unit..written);
        let readable = written.saturating_sub(hidden);
        if readable > 0 {
            let ppas = host.ppas(chunk, readable - 1..readable);
            host.expect_good_read(&ppas);
        }
        for block in readable..(written + unit).min(end) {
            let completion = host.read(&[host.format.ppa(chunk, block)]);
            host.expect(completion, Status::DeallocatedOrUnwritten, 1);
            let completion = host.read_scalar(host.format.ppa(chunk, block), 1);
            host.expect(completion, Status::DeallocatedOrUnwritten, 1);
        }
    }
    let written = host.descriptor(chunk).write_pointer;
    host.fill_chunk(chunk, written..end);
    let ppas = host.ppas(chunk, 0..end);
    host.expect_good_read(&ppas);
}

pub fn nothing_reads_as_zeroes_unless_dulbe_is_set<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let ppas = host.ppas(chunk, 0..2.min(host.geometry.blocks_per_chunk));
    let all = u64::MAX >> (64 - ppas.len());
    for (dulbe, status) in [(false, Status::Success), (true, Status::DeallocatedOrUnwritten), (false, Status::Success)]
    {
        host.device.set_dulbe(dulbe);
        let completion = host.read(&ppas);
        host.expect(completion, status, if dulbe { all } else { 0 });
        if !dulbe {
            (0..ppas.len()).for_each(|index| host.expect_nothing(index));
        }
        let completion = host.read_scalar(ppas[0], ppas.len() as u32);
        host.expect(completion, status, u64::from(dulbe));
        if !dulbe {
            (0..ppas.len()).for_each(|index| host.expect_nothing(index));
        }
    }
}

pub fn each_unreadable_block_has_its_bit<M: Media>(host: &mut Host<M>) {
    let (written, empty) = (host.chunk(0), host.chunk(1));
    host.device.set_dulbe(true);
    host.fill_chunk(written, 0..host.geometry.blocks_per_chunk);
    let good = host.format.ppa(written, 0);
    let ppas = [good, host.format.ppa(empty, 0), good, host.absent(), good];
    let completion = host.read(&ppas);
    host.expect(completion, Status::DeallocatedOrUnwritten, 0b01010);
    for index in [0, 2, 4] {
        host.expect_frame(index, good);
    }
}

pub fn bytes_and_stamps_are_two_forms_of_one_block<M: Media>(host: &mut Host<M>) {
    let chunk = host.chunk(0);
    let end = host.geometry.blocks_per_chunk;
    host.fill_chunk(chunk, 0..end);
    let ppas = host.ppas(chunk, 0..end.min(VECTOR_BLOCKS_MAX as u32));
    let list = host.stamps[..ppas.len()].to_vec();
    let completion = host.run(Command::Read { blocks: Blocks::Vector(&ppas), frames: &list });
    host.expect(completion, Status::Success, 0);
    for (frame, ppa) in list.iter().zip(&ppas) {
        assert_eq!(host.frames.payload(*frame), Payload::Stamp(Host::<M>::stamp(*ppa)));
    }
    // And back: written as stamps, read as bytes.
    let other = host.chunk(1);
    let unit = host.geometry.ws_min;
    let to = host.ppas(other, 0..unit);
    let completion =
        host.run(Command::Write { blocks: Blocks::Vector(&to), frames: &list[..unit as usize], fua: false });
    host.expect(completion, Status::Success, 0);
    host.fill_chunk(other, unit..end);
    let completion = host.read(&to);
    host.expect(completion, Status::Success, 0);
    for (index, ppa) in ppas[..unit as usize].iter().enumerate() {
        host.expect_frame(index, *ppa);
    }
    // Bytes that no stamp stands for come back as bytes, and cannot be read into a stamp.
    let odd = host.chunk(2);
    let at = host.ppas(odd, 0..unit);
    let list = host.filled(&at);
    for frame in &list {
        host.frames.bytes_mut(*frame)[4000] ^= 0x10;
    }
    let expected = *host.frames.bytes(list[0]);
    let completion = host.run(Command::Write { blocks: Blocks::Vector(&at), frames: &list, fua: false });
    host.expect(completion, Status::Success, 0);
    host.fill_chunk(odd, unit..end);
    let completion = host.read(&at[..1]);
    host.expect(completion, Status::Success, 0);
    assert!(*host.frames.bytes(host.pages[0]) == expected);
    let stamp = [host.stamps[0]];
    let completion = host.run(Command::Read { blocks: Blocks::Vector(&at[..1]), frames: &stamp });
    host.expect(completion, Status::UnrecoveredRead, 1);
}

pub fn an_address_that_does_not_exist_is_out_of_range<M: Media>(host: &mut Host<M>) {
    let unit = u64::from(host.geometry.ws_min);
    let chunk = host.chunk(0);
    let mut absent = vec![host.absent(), Ppa(1 << 50)];
    if !host.geometry.blocks_per_chunk.is_power_of_two() {
        absent.push(host.format.ppa(chunk, host.geometry.blocks_per_chunk));
    }
    for first in absent {
        let ppas: Vec<Ppa> = (0..unit).map(|block| Ppa(first.0 + block)).collect();
        let completion = host.read(&ppas[..1]);
        host.expect(completion, Status::LbaOutOfRange, 1);
        let completion = host.read_scalar(first, 1);
        host.expect(completion, Status::LbaOutOfRange, 1);
        let completion = host.write(&ppas);
        host.expect(completion, Status::LbaOutOfRange, u64::MAX >> (64 - unit));
        let completion = host.write_scalar(first, unit as u32);
        host.expect(completion, Status::LbaOutOfRange, 1);
    }
}
