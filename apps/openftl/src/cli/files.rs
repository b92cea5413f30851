//! The words of `openftl files` name a drive that has files, and a folder or a file on it.

use clap::Args;
use std::path::PathBuf;

const FILES_EXAMPLES: &str = "\
Examples:
  openftl files lsm.oftl
  openftl files lsm.toml                  also while it is served
  openftl files lsm.toml /db --json
  openftl files lsm.toml --get /db/CURRENT";

#[derive(Args, Debug)]
#[command(after_help = FILES_EXAMPLES)]
pub struct Files {
    /// A drive of tables, or of zones that hold files, made by `openftl create`; or its description (TOML), which also finds its server.
    #[arg(value_name = "DISK|TOML")]
    pub drive: PathBuf,
    /// Only what is in this folder.
    #[arg(value_name = "FOLDER")]
    pub folder: Option<String>,
    /// Copy this file to standard output.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["folder", "json"])]
    pub get: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}
