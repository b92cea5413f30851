//! Commands for drives of blocks and zones, and descriptions of other drives that they are given.

use crate::failure::Failure;
use openftl_drive::description::FtlKind;

/// Whether a drive of this kind has blocks or zones.
pub fn expect_blocks(kind: Option<FtlKind>) -> Result<(), Failure> {
    let (what, fix) = match kind {
        Some(FtlKind::Tables) => (
            "ftl.kind = \"tables\": this command is for block drives, and a table drive has files",
            "`openftl create` makes it, `openftl serve` serves it, and RocksDB opens it by its URI",
        ),
        Some(FtlKind::Pages) => (
            "ftl.kind = \"pages\": this command is for drives that hosts see, and a store of pages has no host interface yet",
            "`openftl create` makes it, and `openftl pages` puts, gets and lists its pages",
        ),
        Some(FtlKind::Values) => (
            "ftl.kind = \"values\": this command is for block drives, and a key-value drive has keys",
            "`openftl create` makes it, `openftl kv` puts, gets and lists, and `openftl serve --redis` serves it",
        ),
        Some(FtlKind::Block | FtlKind::Zones | FtlKind::Segments) | None => return Ok(()),
    };
    Err(Failure::bad_input(what).fix(fix))
}
