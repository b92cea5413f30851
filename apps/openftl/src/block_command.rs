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
        Some(FtlKind::Values) => (
            "ftl.kind = \"values\": this command is for block drives, and a key-value drive has keys",
            "`openftl create` makes it, `openftl kv` puts, gets and lists, and `openftl serve --redis` serves it",
        ),
        // Stores of pages are served; who cannot use them says so.
        Some(FtlKind::Block | FtlKind::Zones | FtlKind::Segments | FtlKind::Pages) | None => return Ok(()),
    };
    Err(Failure::bad_input(what).fix(fix))
}
