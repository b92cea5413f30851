//! The words of `openftl profiles` name the profile to show.

use clap::Args;

const PROFILES_EXAMPLES: &str = "\
Examples:
  openftl profiles
  openftl profiles cosmos
  openftl profiles cosmos --toml > mine.toml     change it, then: openftl bench --profile ./mine.toml
  openftl profiles --map-memory                  memory for maps, by FTL";

#[derive(Args, Debug)]
#[command(after_help = PROFILES_EXAMPLES)]
pub struct Profiles {
    /// Show this one: a name, or a TOML file.
    #[arg(value_name = "NAME|FILE")]
    pub profile: Option<String>,
    /// Print its TOML.
    #[arg(long, requires = "profile", conflicts_with = "json")]
    pub toml: bool,
    /// Show what FTLs need in memory to know where blocks are: a map of blocks, and one of chunks as zones and segments have it.
    #[arg(long, conflicts_with = "toml")]
    pub map_memory: bool,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}
