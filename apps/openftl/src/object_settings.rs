//! Stores of pages, key-value drives and table drives among drives of blocks: most commands are not for them.

use crate::failure::Failure;
use crate::settings::Settings;
use openftl_drive::description::FtlKind;

/// Refuses a table drive: it is made and served otherwise.
pub fn expect_no_tables(kind: Option<FtlKind>) -> Result<(), Failure> {
    match kind {
        Some(FtlKind::Tables) => Err(Failure::bad_input(
            "ftl.kind = \"tables\": this command is for block drives, and a table drive has files",
        )
        .fix("`openftl create` makes it, `openftl serve` serves it, and RocksDB opens it by its URI")),
        _ => Ok(()),
    }
}

impl Settings {
    /// Refuses a store of pages or a key-value drive where a drive of blocks or zones is wanted.
    pub fn expect_no_objects(self) -> Result<Settings, Failure> {
        let (what, fix) = match (&self.pages, &self.values) {
            (Some(_), _) => (
                "ftl.kind = \"pages\": this command is for drives of blocks or zones",
                "`openftl pages` puts, gets, lists and measures pages, and `openftl serve` serves them",
            ),
            (None, Some(_)) => (
                "ftl.kind = \"values\": this command is for block drives, and a key-value drive has keys",
                "`openftl create` makes it, `openftl kv` puts, gets and lists, and `openftl serve` serves it",
            ),
            (None, None) => return Ok(self),
        };
        Err(Failure::bad_input(what).fix(fix))
    }

    /// Whether it is one of them.
    pub fn has_objects(&self) -> bool {
        self.pages.is_some() || self.values.is_some()
    }
}
