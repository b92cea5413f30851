//! `openftl nvme write`: a file to blocks of a namespace.

use super::disk::Disk;
use super::transfer::{Progress, WINDOW, check, command_bytes};
use crate::cli::nvme::Write;
use crate::failure::Failure;
use crate::terminal::{Ink, Palette, say};
use openftl_core::units::ByteSize;
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::nvm;
use std::fs::File;
use std::io::{self, Read, stdin};

pub fn run(arguments: &Write) -> Result<(), Failure> {
    let (mut input, name, file_bytes) = input(arguments)?;
    let mut disk = Disk::open(&arguments.place.subsystem, arguments.place.namespace)?;
    let offset = arguments.place.offset;
    disk.check_whole("--offset", offset)?;
    // What is known to be wrong is refused before anything is written.
    let length = match (arguments.length, file_bytes) {
        (Some(length), Some(bytes)) if length.0 > bytes => {
            return Err(Failure::bad_input(format_args!("--length {length}: {name} has only {}", ByteSize(bytes)))
                .fix("leave --length away to write all of it"));
        }
        (Some(length), _) => Some(length),
        (None, bytes) => bytes.map(ByteSize),
    };
    if let Some(length) = length {
        disk.check_whole(if arguments.length.is_some() { "--length" } else { "the input's" }, length)?;
        disk.check_inside(offset.0, length.0)?;
    }
    disk.check_inside(offset.0, 0)?;
    let copied = Copy { disk: &mut disk, offset: offset.0, length: length.map(|length| length.0), fua: arguments.fua }
        .run(&mut input, &name)?;
    let done = Palette::of_stdout().paint(Ink::Good, "✓");
    let durable = if arguments.fua { ", and durable" } else { "" };
    say(&format!(
        "{done} {} are written to namespace {} from offset {offset} on{durable}",
        ByteSize(copied),
        arguments.place.namespace
    ))
}

/// What is to be written, its name, and how long it is if that can be known.
fn input(arguments: &Write) -> Result<(Box<dyn Read>, String, Option<u64>), Failure> {
    if arguments.input.as_os_str() == "-" {
        return Ok((Box::new(stdin().lock()), "standard input".to_owned(), None));
    }
    let name = arguments.input.display().to_string();
    let unreadable = |error: io::Error| Failure::bad_input(format_args!("--input: cannot read {name}: {error}"));
    let file = File::open(&arguments.input).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let bytes = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(file), name, bytes))
}

struct Copy<'a> {
    disk: &'a mut Disk,
    offset: u64,
    /// If it is known; else to the input's end.
    length: Option<u64>,
    fua: bool,
}

impl Copy<'_> {
    /// Writes piece after piece, several at a time.
    fn run(mut self, input: &mut dyn Read, name: &str) -> Result<u64, Failure> {
        let mut queue = self.disk.queue(WINDOW as u16)?;
        let piece_bytes = command_bytes(self.disk);
        let mut spare: Vec<Vec<u8>> = Vec::with_capacity(WINDOW);
        let mut progress = Progress::new("write", self.length);
        let mut submitted = 0;
        // How the input ended, once it has. What is under way then is waited for.
        let mut end = None;
        loop {
            while end.is_none() && queue.commands_under_way() < WINDOW && queue.has_room() {
                let mut data = spare.pop().unwrap_or_default();
                data.resize(piece_bytes as usize, 0);
                match self.next_piece(input, name, submitted, &mut data) {
                    Ok(()) if data.is_empty() => end = Some(Ok(())),
                    Err(failure) => end = Some(Err(failure)),
                    Ok(()) => {
                        let bytes = data.len() as u64;
                        let blocks = self.disk.blocks(self.offset + submitted, bytes);
                        let entry = if self.fua { nvm::durable_write(blocks) } else { nvm::write(blocks) };
                        queue.submit(submitted, &entry, Payload::ToController(data));
                        submitted += bytes;
                    }
                }
            }
            if queue.commands_under_way() == 0 {
                let copied = progress.end();
                return end.unwrap_or(Ok(())).map(|()| copied);
            }
            let ended = queue.wait().map_err(|error| self.disk.association.failure(error))?;
            let bytes = ended.data.len() as u64;
            check("Write", self.disk.blocks(self.offset + ended.tag, bytes), &ended, 0)?;
            progress.advance(bytes);
            spare.push(ended.data);
        }
    }

    /// Reads what is written next, after so many bytes; nothing at the end.
    fn next_piece(&mut self, input: &mut dyn Read, name: &str, after: u64, data: &mut Vec<u8>) -> Result<(), Failure> {
        let left = self.length.map_or(u64::MAX, |length| length - after);
        data.truncate(left.min(data.len() as u64) as usize);
        let bytes = fill(input, data).map_err(|error| Failure::failed(format_args!("cannot read {name}: {error}")))?;
        let end = after + bytes as u64;
        if self.length.is_some() && bytes < data.len() {
            return Err(Failure::bad_input(format_args!("{name} ends after {}", ByteSize(end)))
                .fix(format_args!("choose a --length that it has; {} of it are written", ByteSize(after))));
        }
        data.truncate(bytes);
        let block_bytes = self.disk.block_bytes;
        if !end.is_multiple_of(block_bytes) {
            return Err(Failure::bad_input(format_args!(
                "{name} ends inside a block: it has {end} bytes, and blocks have {block_bytes}"
            ))
            .fix(format_args!("fill it up with zeroes to whole blocks; {} of it are written", ByteSize(after))));
        }
        self.disk.check_inside(self.offset + after, bytes as u64)
    }
}

/// Reads until `room` is full or the input has ended.
fn fill(input: &mut dyn Read, room: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < room.len() {
        match input.read(&mut room[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
