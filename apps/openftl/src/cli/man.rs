//! The words of `openftl man` name the folder that the pages go to.

use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  openftl man ~/.local/share/man/man1\n  openftl man pages && man -l pages/openftl-serve.1"
)]
pub struct Man {
    /// The folder to write them to; it is made if it does not exist.
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}
