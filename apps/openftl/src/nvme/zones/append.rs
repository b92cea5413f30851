//! `openftl nvme zones append`: a file to the end of the data of a zone.
//!
//! One piece is under way at a time: of several, the drive would choose the order in the zone.

use super::{ZoneFacts, ZonedDisk};
use crate::cli::zones::ZoneAppend;
use crate::failure::Failure;
use crate::nvme::identify::append_bytes_max;
use crate::nvme::input::Input;
use crate::nvme::transfer::command_bytes;
use crate::terminal::{Ink, Palette, say};
use openftl_core::units::ByteSize;
use openftl_lab::picture::thousands;
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::nvm::{self, Blocks};
use openftl_zones::ZoneState;
use serde::Serialize;

/// The one object that `--json` prints.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Findings {
    namespace: u32,
    zone: u64,
    /// Of the input.
    bytes: u64,
    /// Zeroes behind them, to the end of the last block.
    padding_bytes: u64,
    pieces: Vec<Piece>,
}

/// What one command appended.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where it begins in the input.
    pub from_byte: u64,
    /// Where it is on the drive.
    pub first_block: u64,
    pub blocks: u64,
}

pub fn run(arguments: &ZoneAppend) -> Result<(), Failure> {
    let mut input = Input::open(&arguments.input)?;
    let mut disk = ZonedDisk::open(&arguments.place)?;
    let zone = disk.zone(arguments.zone)?;
    check_room(&input, &zone, disk.shape.block_bytes)?;
    let palette = Palette::of_stdout();
    let mut write_piece = |piece: &Piece| match arguments.json {
        true => Ok(()),
        false if piece.from_byte == 0 => say(&format!("{}\n{}", header(palette), row(piece))),
        false => say(&row(piece)),
    };
    let findings = append(&mut disk, &zone, &mut input, arguments.fua, &mut write_piece)?;
    if arguments.json {
        return say(&crate::json(&findings)?);
    }
    let durable = if arguments.fua { ", and durable" } else { "" };
    let Findings { namespace, zone, bytes, padding_bytes, .. } = findings;
    let padding = match padding_bytes {
        0 => String::new(),
        padding => format!("; {padding} bytes of zeroes fill the last block"),
    };
    let done = palette.paint(Ink::Good, "✓");
    say(&format!("{done} {} are appended to zone {zone} of namespace {namespace}{durable}{padding}", ByteSize(bytes)))
}

/// Whether the input fits, if that can be known: a zone that is written in part cannot be taken back.
fn check_room(input: &Input, zone: &ZoneFacts, block_bytes: u64) -> Result<(), Failure> {
    // The controller refuses zones that cannot be written, with a status of its own.
    let is_written = zone.state.is_active() || zone.state == ZoneState::Empty;
    let (true, Some(bytes), Some(written)) = (is_written, input.bytes, zone.written_blocks) else { return Ok(()) };
    let room_blocks = zone.capacity_blocks - written;
    if bytes.div_ceil(block_bytes) <= room_blocks {
        return Ok(());
    }
    let (number, name) = (zone.number, &input.name);
    Err(Failure::bad_input(format_args!(
        "--input {name}: {} do not fit into zone {number}, which has room for {}",
        ByteSize(bytes),
        ByteSize(room_blocks.saturating_mul(block_bytes))
    ))
    .fix("append less, choose another zone, or reset this one first"))
}

/// Appends piece after piece, and tells `placed` of each.
pub fn append(
    disk: &mut ZonedDisk,
    zone: &ZoneFacts,
    input: &mut Input,
    is_durable: bool,
    placed: &mut impl FnMut(&Piece) -> Result<(), Failure>,
) -> Result<Findings, Failure> {
    let (namespace, block_bytes) = (disk.shape.namespace, disk.shape.block_bytes as usize);
    let piece_bytes = disk.append_bytes_max()? as usize;
    let mut findings = Findings { namespace, zone: zone.number, bytes: 0, padding_bytes: 0, pieces: Vec::new() };
    let mut data = Vec::new();
    loop {
        data.resize(piece_bytes, 0);
        let bytes = input.fill(&mut data)?;
        if bytes == 0 {
            break;
        }
        data.truncate(bytes.next_multiple_of(block_bytes));
        data[bytes..].fill(0);
        let count = (data.len() / block_bytes) as u32;
        let blocks = Blocks { namespace, first: zone.first_block, count };
        let entry = if is_durable { nvm::durable_zone_append(blocks) } else { nvm::zone_append(blocks) };
        findings.padding_bytes = (data.len() - bytes) as u64;
        let ended = disk.queue.call("Zone Append", &entry, Payload::ToController(data));
        let from_byte = findings.bytes;
        let ended = ended.map_err(|error| {
            let what =
                format!("Append of bytes {from_byte} to {} to zone {}", from_byte + bytes as u64 - 1, zone.number);
            disk.failure(&what, None, error)
        })?;
        let piece = Piece { from_byte, first_block: ended.completion.specific.get(), blocks: count.into() };
        placed(&piece)?;
        findings.pieces.push(piece);
        findings.bytes += bytes as u64;
        data = ended.data;
    }
    if findings.bytes == 0 {
        return Err(Failure::bad_input(format_args!("{} is empty", input.name)).fix("name a file with bytes in it"));
    }
    Ok(findings)
}

impl ZonedDisk {
    /// The most bytes of one append: whole blocks, within MDTS and ZASL.
    pub fn append_bytes_max(&mut self) -> Result<u64, Failure> {
        let limit = append_bytes_max(&mut self.disk.association)?;
        let bytes = limit.unwrap_or(u64::MAX).min(command_bytes(&self.disk));
        Ok((bytes - bytes % self.shape.block_bytes).max(self.shape.block_bytes))
    }
}

fn header(palette: Palette) -> String {
    palette.paint(Ink::Bold, &format!("{:<15}  {:>15}  {:>6}", "FROM BYTE", "FIRST BLOCK", "BLOCKS"))
}

fn row(piece: &Piece) -> String {
    let Piece { from_byte, first_block, blocks } = *piece;
    format!("{:<15}  {:>15}  {:>6}", thousands(from_byte), thousands(first_block), thousands(blocks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_piece_is_a_row_below_its_header() {
        let piece = Piece { from_byte: 262_144, first_block: 8256, blocks: 64 };
        expect![[r#"
            FROM BYTE            FIRST BLOCK  BLOCKS
            262 144                    8 256      64
        "#]]
        .assert_eq(&format!("{}\n{}\n", header(Palette::PLAIN), row(&piece)));
    }

    #[test]
    fn an_input_that_does_not_fit_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("input");
        std::fs::write(&path, [1; 4097]).unwrap();
        let input = Input::open(&path).unwrap();
        let zone = |state, written| ZoneFacts {
            number: 3,
            state,
            first_block: 48,
            capacity_blocks: 12,
            written_blocks: Some(written),
            attributes: 0,
        };
        assert_eq!(check_room(&input, &zone(ZoneState::Closed, 10), 4096), Ok(()));
        let refused = check_room(&input, &zone(ZoneState::Closed, 11), 4096).unwrap_err();
        assert!(refused.what().contains("zone 3, which has room for 4 KiB"), "{refused}");
        assert_eq!(check_room(&input, &zone(ZoneState::Full, 12), 4096), Ok(()), "the controller says that it is full");
    }
}
