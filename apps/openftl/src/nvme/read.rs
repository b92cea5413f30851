//! `openftl nvme read`: blocks of a namespace to a file.

use super::disk::Disk;
use super::transfer::{Progress, WINDOW, check, command_bytes};
use crate::cli::nvme::Read;
use crate::failure::Failure;
use crate::terminal::{Ink, Palette, say};
use openftl_core::units::ByteSize;
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::nvm;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write, stdout};

pub fn run(arguments: &Read) -> Result<(), Failure> {
    let to_stdout = arguments.output.as_os_str() == "-";
    if to_stdout && stdout().is_terminal() {
        return Err(Failure::bad_input("standard output is a terminal, which blocks of a drive are not for")
            .fix("name a file (--output FILE), or pipe it into a program"));
    }
    let mut disk = Disk::open(&arguments.place.subsystem, arguments.place.namespace)?;
    let offset = arguments.place.offset;
    let length = arguments.length.unwrap_or(ByteSize(disk.bytes.saturating_sub(offset.0)));
    disk.check_whole("--offset", offset)?;
    disk.check_whole("--length", length)?;
    disk.check_inside(offset.0, length.0)?;
    if to_stdout {
        return copy(&mut disk, offset.0, length.0, &mut stdout().lock(), "standard output").map(drop);
    }
    let name = arguments.output.display().to_string();
    let mut file = File::create(&arguments.output)
        .map_err(|error| Failure::bad_input(format_args!("--output: cannot write {name}: {error}")))?;
    let copied = copy(&mut disk, offset.0, length.0, &mut file, &name)?;
    let done = Palette::of_stdout().paint(Ink::Good, "✓");
    say(&format!(
        "{done} {} of namespace {} from offset {offset} on are in {name}",
        ByteSize(copied),
        arguments.place.namespace
    ))
}

/// Reads several pieces at a time and writes them in order. A reader of the output that goes away is no failure.
fn copy(disk: &mut Disk, offset: u64, length: u64, out: &mut impl Write, name: &str) -> Result<u64, Failure> {
    let mut queue = disk.queue(WINDOW as u16)?;
    let piece_bytes = command_bytes(disk);
    let pieces = length.div_ceil(piece_bytes);
    let bytes_of = |piece: u64| piece_bytes.min(length - piece * piece_bytes);
    let blocks_of = |piece: u64| disk.blocks(offset + piece * piece_bytes, bytes_of(piece));
    // Pieces that have come before their turn, by their number.
    let mut come: [Option<Vec<u8>>; WINDOW] = Default::default();
    let mut spare = Vec::with_capacity(WINDOW);
    let (mut submitted, mut written) = (0, 0);
    let mut progress = Progress::new("read", Some(length));
    while written < pieces {
        while submitted < pieces && submitted - written < WINDOW as u64 && queue.has_room() {
            let mut room: Vec<u8> = spare.pop().unwrap_or_default();
            room.resize(bytes_of(submitted) as usize, 0);
            queue.submit(submitted, &nvm::read(blocks_of(submitted)), Payload::ToHost(room));
            submitted += 1;
        }
        let ended = queue.wait().map_err(|error| disk.association.failure(error))?;
        check("Read", blocks_of(ended.tag), &ended, bytes_of(ended.tag))?;
        come[ended.tag as usize % WINDOW] = Some(ended.data);
        while let Some(data) = come[written as usize % WINDOW].take() {
            match out.write_all(&data) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(progress.end()),
                result => result.map_err(|error| Failure::failed(format_args!("cannot write {name}: {error}")))?,
            }
            progress.advance(data.len() as u64);
            spare.push(data);
            written += 1;
        }
    }
    out.flush().map_err(|error| Failure::failed(format_args!("cannot write {name}: {error}")))?;
    Ok(progress.end())
}
