//! The tables of `docs/FORMAT.md` and `docs/RECOVERY.md` are printed from the code. Each stands between two comments,
//! `<!-- table: name -->` and `<!-- end -->`. With `UPDATE_EXPECT=1` the test writes them, without it compares.

use openftl_core::{OOB_BYTES_MIN, PuId, VECTOR_BLOCKS_MAX};
use openftl_media::parts::PART_NAME_BYTES_MAX;
use openftl_media::store::format::{self, Header, JournalHeader, JournalRecord, PartEntry, Record};
use openftl_parts::flash::plan::{CHECKPOINT_LANES_MAX, SUPERBLOCK_CHUNKS, SUPERBLOCK_COPIES};
use openftl_parts::journal::checkpoint::{CHUNK_RETIRED, CHUNK_SUSPECT, CHUNKS_PER_BLOCK};
use openftl_parts::journal::recovery_report::STEPS;
use openftl_parts::journal::superblock::{
    LOG_GAPS_MAX, SEARCH_CHUNKS, SUPERBLOCK_BYTES_MAX, SUPERBLOCK_VERSION, SuperblockError,
};
use openftl_parts::map::ENTRIES_PER_BLOCK;
use openftl_parts::open_error::OpenError;
use openftl_parts::words::METADATA_COPIES;
use openftl_parts::{
    ReadOnlyReason,
    flash::oob,
    journal::{log_block, superblock},
};
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::PathBuf;

type Row = (usize, usize, &'static str);

/// Lists behind the header of a superblock.
const BEHIND_SUPERBLOCK: usize = 3;

/// Replaces what stands between the comments in `text`.
fn with_tables(text: &str, table: impl Fn(&str) -> String) -> String {
    let mut new = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!-- table: ") {
        let (name, after) = after.split_once(" -->\n").expect("a name, and the comment ends");
        let (_, after) = after.split_once("<!-- end -->").unwrap_or_else(|| panic!("table {name} has no end"));
        write!(new, "{before}<!-- table: {name} -->\n{}<!-- end -->", table(name)).unwrap();
        rest = after;
    }
    new + rest
}

fn check(document: &str, table: impl Fn(&str) -> String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(document);
    let text = std::fs::read_to_string(&path).unwrap();
    let new = with_tables(&text, table);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, new).unwrap();
    } else if text != new {
        let (found, expected) =
            text.lines().zip(new.lines()).find(|(old, new)| old != new).unwrap_or(("", "more lines"));
        panic!(
            "docs/{document} says\n  {found}\nand the code\n  {expected}\nrun this test with UPDATE_EXPECT=1 and look at the difference"
        );
    }
}

fn fields(rows: &[Row]) -> String {
    let mut text = String::from("| bytes | field |\n|---|---|\n");
    for (first, bytes, field) in rows {
        match bytes {
            1 => writeln!(text, "| {first} | {field} |"),
            _ => writeln!(text, "| {first}-{} | {field} |", first + bytes - 1),
        }
        .unwrap();
    }
    text
}

fn rows(head: &str, rows: impl IntoIterator<Item = String>) -> String {
    let columns = head.matches('|').count() - 1;
    let mut text = format!("{head}\n|{}\n", "---|".repeat(columns));
    for row in rows {
        writeln!(text, "{row}").unwrap();
    }
    text
}

fn format_table(name: &str) -> String {
    match name {
        "oob" => fields(oob::format_table()),
        "log block" => fields(log_block::format_table()),
        "log words" => rows(
            "| word | example | meaning |",
            log_block::word_table()
                .iter()
                .map(|(bits, example, meaning)| format!("| {bits} | `{example}` | {meaning} |")),
        ),
        "checkpoint body" => rows(
            "| blocks | contents |",
            [
                format!(
                    "| ⌈capacity / {ENTRIES_PER_BLOCK}⌉ | map: for each logical block, in order, 4 bytes: its address, FFFF_FFFFh for nowhere, FFFF_FFFEh for lost |"
                ),
                format!(
                    "| ⌈chunks / {CHUNKS_PER_BLOCK}⌉ | chunk table: for each chunk of the device, in address order, 8 bytes: resets (4; \
                 {CHUNK_RETIRED:08X}h is added if it is retired, {CHUNK_SUSPECT:08X}h if a program failed in it), seal (4) |"
                ),
                format!(
                    "| ⌈capacity / {ENTRIES_PER_BLOCK}⌉, or none | for each logical block, in order, 4 bytes: what its salt differs by if the \
                 device copied it to its address, else 0; only if bit 1 of the superblock's flags is set |"
                ),
            ],
        ),
        // The rows behind the header have no place of their own.
        "superblock" => {
            let table = superblock::format_table();
            let (header, behind) = table.split_at(table.len() - BEHIND_SUPERBLOCK);
            let end = header.iter().map(|(first, bytes, _)| first + bytes).max().unwrap();
            behind.iter().fold(fields(header), |text, (.., field)| text + &format!("| {end}- | {field} |\n"))
        }
        "numbers" => rows(
            "| number | value |",
            [
                format!(
                    "| format version of superblock, log block, out-of-band bytes | {}, {}, {} |",
                    SUPERBLOCK_VERSION,
                    log_block::LOG_VERSION,
                    oob::OOB_VERSION
                ),
                format!("| out-of-band bytes used of each block | {OOB_BYTES_MIN} |"),
                format!("| words in a log block | {} |", log_block::WORDS_PER_BLOCK),
                format!("| places of superblocks, chunks of each | {SUPERBLOCK_COPIES}, {SUPERBLOCK_CHUNKS} |"),
                format!("| chunks of a parallel unit in which superblocks are looked for | {SEARCH_CHUNKS} |"),
                format!("| longest superblock | {SUPERBLOCK_BYTES_MAX} bytes |"),
                format!("| copies of log and checkpoint | {METADATA_COPIES} |"),
                format!("| lanes of one copy of a checkpoint, at most | {CHECKPOINT_LANES_MAX} |"),
                format!("| gaps in the log, at most | {LOG_GAPS_MAX} |"),
                format!("| blocks of one vector command, at most | {VECTOR_BLOCKS_MAX} |"),
            ],
        ),
        "file header" => fields(&[
            (offset_of!(Header, magic), 8, "magic, `OFTLNAND`"),
            (offset_of!(Header, version), 4, "version, 3"),
            (offset_of!(Header, header_bytes), 4, "where the chunk records begin"),
            (offset_of!(Header, groups), 4, "groups"),
            (offset_of!(Header, pus_per_group), 4, "parallel units per group"),
            (offset_of!(Header, chunks_per_pu), 4, "chunks per parallel unit"),
            (offset_of!(Header, blocks_per_chunk), 4, "logical blocks per chunk"),
            (offset_of!(Header, oob_bytes), 4, "out-of-band bytes of a block"),
            (offset_of!(Header, block_bytes), 4, "bytes of a block, 4096"),
            (offset_of!(Header, seed), 8, "seed of the emulated device's chance"),
            (offset_of!(Header, chunks_start), 8, "where the first chunk begins"),
            (offset_of!(Header, chunk_bytes), 8, "from one chunk to the next"),
            (offset_of!(Header, profile_bytes), 4, "length of the profile, TOML text that follows the header"),
            (offset_of!(Header, parts), 4, "parts that the device is divided into; their entries follow the profile"),
            (offset_of!(Header, journal_pages), 4, "pages of 4096 bytes that the journal has"),
            (offset_of!(Header, crc), 4, "CRC32C of the bytes before it, of the profile text and of the entries"),
        ]),
        "part entry" => fields(&[
            (offset_of!(PartEntry, kind), 1, "kind: 1 block, 2 open-channel, 3 zoned"),
            (offset_of!(PartEntry, reserved), 7, "0"),
            (offset_of!(PartEntry, groups), 8, "the first group, and one past the last (4 each)"),
            (offset_of!(PartEntry, pus), 8, "of each group the first parallel unit, and one past the last (4 each)"),
            (offset_of!(PartEntry, id), 8, "what hosts recognise it by; of a block namespace its drive's id"),
            (offset_of!(PartEntry, name), PART_NAME_BYTES_MAX, "name, zeroes behind it"),
        ]),
        "journal entry" => {
            let header = fields(&[
                (offset_of!(JournalHeader, magic), 8, "magic, `OFTLJRNL`"),
                (offset_of!(JournalHeader, sequence), 8, "sequence: one more than that of the entry before"),
                (offset_of!(JournalHeader, records), 4, "records"),
                (offset_of!(JournalHeader, bitmaps), 4, "bitmaps"),
                (offset_of!(JournalHeader, reserved), 4, "0"),
                (offset_of!(JournalHeader, crc), 4, "CRC32C of the bytes before it and of what follows"),
            ]);
            let record_bytes = size_of::<JournalRecord>();
            header
                + &format!(
                    "| {}- | records: the chunk's number (4), its record; {record_bytes} each |\n",
                    size_of::<JournalHeader>()
                )
                + "| behind them | bitmaps: the chunk's number (4), its bitmap of lost blocks |\n"
        }
        "chunk record" => fields(&[
            (
                offset_of!(Record, state),
                1,
                "state: 1 free, 2 closed, 4 open, 8 offline; 0 in a record never written: free and new",
            ),
            (offset_of!(Record, flags), 1, "flags: bit 0, the lost-block bitmap counts"),
            (offset_of!(Record, reserved), 2, "0"),
            (offset_of!(Record, write_pointer), 4, "write pointer, in blocks"),
            (offset_of!(Record, resets), 4, "erases so far"),
            (offset_of!(Record, crc), 4, "CRC32C of the chunk's number (4 bytes) and the bytes before it"),
        ]),
        other => panic!("docs/FORMAT.md asks for an unknown table: {other}"),
    }
}

fn recovery_table(name: &str) -> String {
    let refusal = |error: OpenError, fate: &str| format!("| {error} | {fate} |");
    match name {
        "steps" => STEPS
            .iter()
            .enumerate()
            .fold(String::new(), |text, (number, step)| text + &format!("{}. {step}\n", number + 1)),
        "refusals" => rows(
            "| message | what to do |",
            [
                refusal(OpenError::NotFormatted, "`openftl create`, if nothing else is on the device"),
                refusal(SuperblockError::Version(SUPERBLOCK_VERSION + 1).into(), "a newer program"),
                refusal(
                    OpenError::OtherGeometry { formatted: [2, 2, 16, 32], found: [2, 2, 15, 32] },
                    "the profile it was created with; for a drive in a file `openftl inspect` shows it",
                ),
                refusal(
                    OpenError::OtherSize {
                        field: "checkpoint_log_blocks",
                        asked: "4096".into(),
                        formatted: "1".into(),
                        needed: 600,
                        good: 54,
                    },
                    "as it says",
                ),
                refusal(
                    SuperblockError::Untrue { sequence: 7, reason: "…".into() }.into(),
                    "restore a copy; please report it with the drive",
                ),
                refusal(
                    OpenError::CheckpointLost { sequence: 7, blocks: 8, missing: 1, first: 3 },
                    "the tool that it names, or a copy",
                ),
                refusal(OpenError::LogLost { lsn: 99, durable_below: 104 }, "the same"),
                refusal(OpenError::SuperblockLost { sequence: 17, chunk: "g0p1c5".into(), lsn: 104 }, "the same"),
                refusal(OpenError::MapPageLost { page: 17, first: 17_408, blocks: 1024 }, "the same"),
                refusal(OpenError::Inconsistent("…".into()), "the same; please report it with the drive"),
                refusal(
                    OpenError::IndexLost("the anchor of the store is none, or one of another version".into()),
                    "the same: the index of pages, or the directory of keys, is rebuilt",
                ),
                refusal(OpenError::WholeMap, "as it says"),
                refusal(OpenError::NoSuperblockPlace(PuId(0)), "another device: this one cannot hold a drive"),
                refusal(OpenError::Stopped, "look at the device"),
            ],
        ),
        "read-only" => rows(
            "| reason | what still works |",
            [
                format!(
                    "| {} | reads; what was acknowledged is still saved, also by a flush and a clean stop |",
                    ReadOnlyReason::WornOut
                ),
                format!("| {} | reads |", ReadOnlyReason::StoreFault),
                format!("| {} | reads |", ReadOnlyReason::NoSuperblock),
                format!("| {} | reads |", ReadOnlyReason::NoRoom),
                format!("| {} | reads; what was flushed is there |", ReadOnlyReason::Spent),
                format!("| {} | reads, unless the device lost one |", ReadOnlyReason::Stalled),
                format!("| {} | reads |", ReadOnlyReason::Inspection),
            ],
        ),
        other => panic!("docs/RECOVERY.md asks for an unknown table: {other}"),
    }
}

#[test]
fn the_format_document_says_what_the_code_does() {
    check("FORMAT.md", format_table);
}

#[test]
fn the_recovery_document_says_what_the_code_does() {
    check("RECOVERY.md", recovery_table);
}

/// A table of a layout is worth something only if it leaves nothing out.
#[test]
fn the_tables_have_no_gaps_and_no_overlaps() {
    let complete = |rows: &[Row], end: usize| {
        let behind = rows.iter().fold(0, |next, (first, bytes, field)| {
            assert_eq!(*first, next, "{field}");
            first + bytes
        });
        assert_eq!(behind, end);
    };
    complete(oob::format_table(), OOB_BYTES_MIN);
    complete(log_block::format_table(), openftl_core::BLOCK_BYTES);
    let table = superblock::format_table();
    let (header, behind) = table.split_at(table.len() - BEHIND_SUPERBLOCK);
    complete(header, behind[0].0);
    assert_eq!(format::MAGIC, *b"OFTLNAND");
    assert_eq!((size_of::<Header>(), size_of::<Record>()), (80, 16));
}
