//! The words of `openftl nvme zones`.

use super::number::whole;
use super::nvme::Subsystem;
use clap::{Args, Subcommand, ValueEnum};
use openftl_zones::ZoneState;
use std::path::PathBuf;
use std::str::FromStr;

const ZONES_EXAMPLES: &str = "\
Examples:
  openftl nvme zones list 127.0.0.1:4420
  openftl nvme zones append 127.0.0.1:4420 3 --input log.bin
  openftl nvme zones finish 127.0.0.1:4420 3
  openftl nvme zones reset 127.0.0.1:4420 all

Zones are counted from 0. `openftl nvme read` reads what is in them.";

#[derive(Args, Debug)]
#[command(after_help = ZONES_EXAMPLES)]
pub struct Zones {
    #[command(subcommand)]
    pub command: ZonesCommand,
}

#[derive(Subcommand, Debug)]
pub enum ZonesCommand {
    /// Shows the zones: their states, how full they are, and which of them hold active resources.
    List(ZoneList),
    /// Opens a zone, or all closed ones, until it is closed.
    Open(ZoneOpen),
    /// Commits blocks of the random write area of a zone: the write pointer moves behind them.
    Commit(ZoneCommit),
    /// Closes a zone, or all open ones: its open resource is free again, its active one is not.
    Close(ZoneAction),
    /// Makes a zone full, or all open and closed ones: nothing more is written to it, and its resources are free again.
    Finish(ZoneAction),
    /// Empties a zone, or all: everything in it is gone.
    Reset(ZoneAction),
    /// Gives up a read-only zone, or all: it can be neither read nor written, for ever.
    Offline(ZoneAction),
    /// Appends a file to a zone, and shows where each piece of it is.
    Append(ZoneAppend),
}

/// A zoned namespace.
#[derive(Args, Clone, Debug)]
pub struct ZonedPlace {
    #[command(flatten)]
    pub subsystem: Subsystem,
    /// The namespace [default: the one that is zoned].
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, u64::from(u32::MAX)))]
    pub namespace: Option<u32>,
}

const LIST_EXAMPLES: &str = "\
Examples:
  openftl nvme zones list 127.0.0.1:4420
  openftl nvme zones list 127.0.0.1:4420 --namespace 2 --state active
  openftl nvme zones list 127.0.0.1:4420 --from 1000 --limit 16
  openftl nvme zones list 127.0.0.1:4420 --json | jq '.zones[] | select(.state == \"full\") | .number'

Neighbours that are alike are one line. --from, --limit and --state choose zones for the table; what stands above it is of
all zones.";

#[derive(Args, Debug)]
#[command(after_help = LIST_EXAMPLES)]
pub struct ZoneList {
    #[command(flatten)]
    pub place: ZonedPlace,
    /// List only zones in this state.
    #[arg(long, value_enum, value_name = "STATE")]
    pub state: Option<ZoneFilter>,
    /// List only zones from this one on.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>(0, u64::MAX))]
    pub from: u64,
    /// List at most so many zones [default: all].
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1, u64::MAX))]
    pub limit: Option<u64>,
    /// Print as one JSON object, every zone as an object of its own.
    #[arg(long)]
    pub json: bool,
}

/// States of zones.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneFilter {
    /// Nothing is written to it.
    Empty,
    /// Opened, by a write or by the host.
    Open,
    /// Opened by a write.
    ImplicitlyOpen,
    /// Opened by the host.
    ExplicitlyOpen,
    /// It can be written, once it is opened again.
    Closed,
    /// Open or closed.
    Active,
    /// It can be read, and written after a reset.
    Full,
    /// It can only be read.
    ReadOnly,
    /// It can be neither read nor written.
    Offline,
}

impl ZoneFilter {
    /// Whether it is for zones in this state.
    pub fn fits(self, state: ZoneState) -> bool {
        match self {
            ZoneFilter::Empty => state == ZoneState::Empty,
            ZoneFilter::Open => state.is_open(),
            ZoneFilter::ImplicitlyOpen => state == ZoneState::ImplicitlyOpen,
            ZoneFilter::ExplicitlyOpen => state == ZoneState::ExplicitlyOpen,
            ZoneFilter::Closed => state == ZoneState::Closed,
            ZoneFilter::Active => state.is_active(),
            ZoneFilter::Full => state == ZoneState::Full,
            ZoneFilter::ReadOnly => state == ZoneState::ReadOnly,
            ZoneFilter::Offline => state == ZoneState::Offline,
        }
    }
}

const ACTION_EXAMPLES: &str = "\
Examples:
  openftl nvme zones open 127.0.0.1:4420 3
  openftl nvme zones close 127.0.0.1:4420 all
  openftl nvme zones reset 127.0.0.1:4420 3 --namespace 2 --json";

#[derive(Args, Debug)]
#[command(after_help = ACTION_EXAMPLES)]
pub struct ZoneAction {
    #[command(flatten)]
    pub place: ZonedPlace,
    /// The zone, or all that are in a state for it.
    #[arg(value_name = "ZONE|all")]
    pub zones: ZoneChoice,
    /// Print the zones as they are afterwards, as one JSON object.
    #[arg(long)]
    pub json: bool,
}

const OPEN_EXAMPLES: &str = "\
Examples:
  openftl nvme zones open 127.0.0.1:4420 3
  openftl nvme zones open 127.0.0.1:4420 3 --zrwa";

#[derive(Args, Debug)]
#[command(after_help = OPEN_EXAMPLES)]
pub struct ZoneOpen {
    #[command(flatten)]
    pub action: ZoneAction,
    /// Open an empty zone with a random write area: blocks from its write pointer on that can be written in any order.
    #[arg(long)]
    pub zrwa: bool,
}

const COMMIT_EXAMPLES: &str = "\
Examples:
  openftl nvme zones commit 127.0.0.1:4420 3 --blocks 16

Blocks that were not written are zeroes. A write behind the random write area commits its first blocks by itself.";

#[derive(Args, Debug)]
#[command(after_help = COMMIT_EXAMPLES)]
pub struct ZoneCommit {
    #[command(flatten)]
    pub place: ZonedPlace,
    /// The zone.
    #[arg(value_name = "ZONE", value_parser = whole::<u64>(0, u64::MAX))]
    pub zone: u64,
    /// How many blocks from the write pointer on.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, u64::from(u32::MAX)))]
    pub blocks: u32,
    /// Print the zone as it is afterwards, as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A zone, or all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneChoice {
    All,
    One(u64),
}

impl FromStr for ZoneChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<ZoneChoice, String> {
        match text {
            "all" => Ok(ZoneChoice::All),
            number => number.parse().map(ZoneChoice::One).map_err(|_| "write the number of a zone, or all".to_owned()),
        }
    }
}

const APPEND_EXAMPLES: &str = "\
Examples:
  openftl nvme zones append 127.0.0.1:4420 3 --input log.bin
  date | openftl nvme zones append 127.0.0.1:4420 0 --fua --json

The drive chooses the place in the zone: where its data end. Zeroes fill the last block.";

#[derive(Args, Debug)]
#[command(after_help = APPEND_EXAMPLES)]
pub struct ZoneAppend {
    #[command(flatten)]
    pub place: ZonedPlace,
    /// The zone.
    #[arg(value_name = "ZONE", value_parser = whole::<u64>(0, u64::MAX))]
    pub zone: u64,
    /// The file to append, or - for standard input.
    #[arg(long, value_name = "FILE|-", default_value = "-")]
    pub input: PathBuf,
    /// Have every piece durable when it is acknowledged.
    #[arg(long)]
    pub fua: bool,
    /// Print the places as one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::nvme::NvmeCommand;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn understood(words: &str) -> Result<ZonesCommand, String> {
        let words = ["openftl", "nvme", "zones"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Nvme(nvme) => match nvme.command {
                NvmeCommand::Zones(zones) => Ok(zones.command),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_zone_is_a_number_or_all_zones() {
        let Ok(ZonesCommand::Reset(action)) = understood("reset 127.0.0.1 7 --namespace 2") else { panic!() };
        assert_eq!((action.zones, action.place.namespace), (ZoneChoice::One(7), Some(2)));
        let Ok(ZonesCommand::Finish(action)) = understood("finish 127.0.0.1 all --json") else { panic!() };
        assert_eq!((action.zones, action.place.namespace, action.json), (ZoneChoice::All, None, true));
        let Ok(ZonesCommand::Open(open)) = understood("open 127.0.0.1 7 --zrwa") else { panic!() };
        assert_eq!((open.action.zones, open.zrwa), (ZoneChoice::One(7), true));
        let Ok(ZonesCommand::Commit(commit)) = understood("commit 127.0.0.1 7 --blocks 16") else { panic!() };
        assert_eq!((commit.zone, commit.blocks), (7, 16));
        let Ok(ZonesCommand::Append(append)) = understood("append 127.0.0.1 3 --input x") else { panic!() };
        assert_eq!((append.zone, append.fua), (3, false));
        for (words, told) in [
            ("reset 127.0.0.1 some", "write the number of a zone, or all"),
            ("append 127.0.0.1 all", "write a whole number"),
            ("reset 127.0.0.1", "<ZONE|all>"),
            ("commit 127.0.0.1 7", "--blocks <N>"),
            ("commit 127.0.0.1 7 --blocks 0", "write a whole number from 1"),
            ("list 127.0.0.1 --state half", "implicitly-open"),
            ("list 127.0.0.1 --limit 0", "write a whole number from 1 on"),
        ] {
            let error = understood(words).unwrap_err();
            assert!(error.contains(told), "{words}: {error}");
        }
    }

    #[test]
    fn a_filter_is_for_its_states() {
        let states = |filter: ZoneFilter| ZoneState::ALL.into_iter().filter(move |state| filter.fits(*state));
        let open = [ZoneState::ImplicitlyOpen, ZoneState::ExplicitlyOpen];
        assert!(states(ZoneFilter::Open).eq(open));
        assert!(states(ZoneFilter::Active).eq(open.into_iter().chain([ZoneState::Closed])));
        for filter in ZoneFilter::value_variants() {
            assert!(matches!(filter, ZoneFilter::Open | ZoneFilter::Active) || states(*filter).count() == 1);
        }
    }
}
