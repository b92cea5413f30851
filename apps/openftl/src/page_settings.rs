//! A store of pages among drives of other kinds: most commands are not for it.

use crate::failure::Failure;
use crate::settings::Settings;

impl Settings {
    /// Refuses a store of pages where a drive of blocks or zones is wanted.
    pub fn expect_no_pages(self) -> Result<Settings, Failure> {
        match self.pages {
            None => Ok(self),
            Some(_) => Err(Failure::bad_input("ftl.kind = \"pages\": this command is for drives of blocks or zones")
                .fix("`openftl pages` puts, gets, lists and measures pages, and `openftl serve` serves them")),
        }
    }
}
