//! The words of `openftl explain` name the term to look up.

use clap::Args;

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  openftl explain WAF\n  openftl explain effective over-provisioning\n  openftl explain | less"
)]
pub struct Explain {
    /// The word; without one, all are listed.
    #[arg(value_name = "TERM")]
    pub term: Vec<String>,
}
