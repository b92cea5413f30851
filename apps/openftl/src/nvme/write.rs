//! `openftl nvme write`: a file to blocks of a namespace.

use super::channel::Channel;
use super::disk::Disk;
use super::input::Input;
use super::transfer::{Progress, WINDOW, check, command_bytes};
use crate::cli::nvme::Write;
use crate::failure::Failure;
use crate::terminal::{Ink, Palette, say};
use openftl_core::units::ByteSize;
use openftl_nvme_tcp::ClientError;
use openftl_nvme_tcp::client::{Client, Payload};
use openftl_nvme_tcp::nvm::{self, Lifetime};

pub fn run(arguments: &Write) -> Result<(), Failure> {
    let input = Input::open(&arguments.input)?;
    let mut disk = Disk::open(&arguments.place.subsystem, arguments.place.namespace)?;
    let offset = arguments.place.offset;
    disk.check_whole("--offset", offset)?;
    // What is known to be wrong is refused before anything is written.
    let length = match (arguments.length, input.bytes) {
        (Some(length), Some(bytes)) if length.0 > bytes => {
            return Err(Failure::bad_input(format_args!(
                "--length {length}: {} has only {}",
                input.name,
                ByteSize(bytes)
            ))
            .fix("leave --length away to write all of it"));
        }
        (Some(length), _) => Some(length),
        (None, bytes) => bytes.map(ByteSize),
    };
    if let Some(length) = length {
        let what = if arguments.length.is_some() { "--length".to_owned() } else { format!("--input {}:", input.name) };
        disk.check_whole(&what, length)?;
        disk.check_inside(offset.0, length.0)?;
    }
    disk.check_inside(offset.0, 0)?;
    let lifetime = lifetime(arguments, &mut disk)?;
    let length = length.map(|length| length.0);
    let copied = Copy { disk: &mut disk, input, offset: offset.0, length, fua: arguments.fua, lifetime }.run()?;
    let done = Palette::of_stdout().paint(Ink::Good, "✓");
    let durable = if arguments.fua { ", and durable" } else { "" };
    say(&format!(
        "{done} {} are written to namespace {} from offset {offset} on{durable}",
        ByteSize(copied),
        arguments.place.namespace
    ))
}

/// What writes say of how long their data live, if the namespace heeds it: elsewhere it would go unnoticed.
fn lifetime(arguments: &Write, disk: &mut Disk) -> Result<Option<Lifetime>, Failure> {
    let namespace = disk.namespace;
    let (lifetime, flag, what) = match (arguments.stream, arguments.placement) {
        (Some(stream), _) => (Lifetime::Stream(stream), "--stream", "streams"),
        (None, Some(identifier)) => (Lifetime::Placement(identifier), "--placement", "placement identifiers"),
        (None, None) => return Ok(None),
    };
    match disk.association.admin.enable_directive(namespace, lifetime) {
        Ok(()) => Ok(Some(lifetime)),
        Err(ClientError::Refused { .. }) => Err(Failure::bad_input(format_args!(
            "{flag}: namespace {namespace} takes no {what}"
        ))
        .fix(format_args!("leave {flag} away, or serve a drive with `--placement streams` or `--placement fdp`"))),
        Err(error) => Err(disk.association.failure(error)),
    }
}

/// Whether the namespace has a placement identifier: data with another one would go anywhere.
fn check_identifier(queue: &mut Client<Channel>, disk: &Disk, lifetime: Option<Lifetime>) -> Result<(), Failure> {
    let Some(Lifetime::Placement(identifier)) = lifetime else { return Ok(()) };
    let identifiers = queue.placement_identifiers(disk.namespace).map_err(|error| disk.association.failure(error))?;
    if identifier < identifiers {
        return Ok(());
    }
    let namespace = disk.namespace;
    Err(Failure::bad_input(format_args!("--placement {identifier}: namespace {namespace} has no such identifier"))
        .fix(format_args!("name one from 0 to {}", identifiers.saturating_sub(1))))
}

struct Copy<'a> {
    disk: &'a mut Disk,
    input: Input,
    offset: u64,
    /// If it is known; else to the input's end.
    length: Option<u64>,
    fua: bool,
    lifetime: Option<Lifetime>,
}

impl Copy<'_> {
    /// Writes piece after piece, several at a time.
    fn run(mut self) -> Result<u64, Failure> {
        let mut queue = self.disk.queue(WINDOW as u16)?;
        check_identifier(&mut queue, self.disk, self.lifetime)?;
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
                match self.next_piece(submitted, &mut data) {
                    Ok(()) if data.is_empty() => end = Some(Ok(())),
                    Err(failure) => end = Some(Err(failure)),
                    Ok(()) => {
                        let bytes = data.len() as u64;
                        let blocks = self.disk.blocks(self.offset + submitted, bytes);
                        let entry = if self.fua { nvm::durable_write(blocks) } else { nvm::write(blocks) };
                        let entry = self.lifetime.map_or(entry, |lifetime| nvm::directed(entry, lifetime));
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
    fn next_piece(&mut self, after: u64, data: &mut Vec<u8>) -> Result<(), Failure> {
        let left = self.length.map_or(u64::MAX, |length| length - after);
        data.truncate(left.min(data.len() as u64) as usize);
        let bytes = self.input.fill(data)?;
        let (end, name) = (after + bytes as u64, &self.input.name);
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
