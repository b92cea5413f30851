//! `openftl profiles`: the NAND devices that drives can be made of.

use crate::cli;
use crate::failure::Failure;
use crate::terminal::{Ink, Palette, say};
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, Geometry, Nanos};
use openftl_drive::description::find_profile;
use openftl_media::Profile;
use openftl_parts::map::Width;
use openftl_parts::map::memory::whole_bytes;
use openftl_zones::sizing::map_bytes_for;
use serde::Serialize;
use std::fmt::Write;

/// The shape of a device, for scripts.
#[derive(Serialize)]
pub struct GeometryFacts {
    pub groups: u32,
    pub pus_per_group: u32,
    pub chunks_per_pu: u32,
    pub blocks_per_chunk: u32,
    pub ws_min: u32,
    pub ws_opt: u32,
    pub mw_cunits: u32,
    pub oob_bytes: u32,
}

impl GeometryFacts {
    pub fn of(geometry: &Geometry) -> GeometryFacts {
        GeometryFacts {
            groups: geometry.groups,
            pus_per_group: geometry.pus_per_group,
            chunks_per_pu: geometry.chunks_per_pu,
            blocks_per_chunk: geometry.blocks_per_chunk,
            ws_min: geometry.ws_min,
            ws_opt: geometry.ws_opt,
            mw_cunits: geometry.mw_cunits,
            oob_bytes: geometry.oob_bytes,
        }
    }
}

/// What an Open-Channel host is told about a device: it follows from the profile.
#[derive(Serialize)]
struct Derived {
    #[serde(flatten)]
    shape: GeometryFacts,
    read_ns: u64,
    write_ns: u64,
    reset_ns: u64,
    volatile_cache: bool,
    bytes: u64,
}

#[derive(Serialize)]
struct Listed<'a> {
    profile: &'a Profile,
    geometry: Derived,
}

/// Capacities that maps are compared at.
const MAPPED: [ByteSize; 2] = [ByteSize(512 << 30), ByteSize(1 << 40)];

/// What maps need in memory, of drives on one profile.
#[derive(Serialize)]
struct MapMemory {
    profile: String,
    blocks_per_chunk: u32,
    capacity_bytes: u64,
    /// Of a block FTL: an entry for each logical block.
    page_map_bytes: u64,
    /// Of segments on all parallel units: the place of each chunk, and a number for each segment.
    segment_map_bytes: u64,
    /// Of zones on the parallel units of a group.
    zone_map_bytes: u64,
}

impl MapMemory {
    fn of(profile: &Profile, capacity: ByteSize) -> Result<MapMemory, Failure> {
        let geometry = geometry(profile)?;
        let zones = |width: u32| map_bytes_for(&geometry, width, capacity.0 / BLOCK_BYTES as u64);
        Ok(MapMemory {
            profile: profile.name.clone(),
            blocks_per_chunk: geometry.blocks_per_chunk,
            capacity_bytes: capacity.0,
            page_map_bytes: whole_bytes(capacity.0 / BLOCK_BYTES as u64, Width::Narrow),
            segment_map_bytes: zones(geometry.pus()),
            zone_map_bytes: zones(geometry.pus_per_group),
        })
    }
}

fn map_memory(profiles: &[Profile], as_json: bool) -> Result<(), Failure> {
    let rows = profiles.iter().flat_map(|profile| MAPPED.map(|capacity| MapMemory::of(profile, capacity)));
    let rows: Vec<MapMemory> = rows.collect::<Result<_, _>>()?;
    if as_json {
        return print_json(&rows);
    }
    let header = format!(
        "{:<10}{:<14}{:<10}{:<11}{:<14}{:<14}{}",
        "PROFILE", "BLOCKS/CHUNK", "CAPACITY", "PAGE MAP", "SEGMENT MAP", "ZONE MAP", "PAGE : SEGMENT"
    );
    let mut text = String::new();
    _ = writeln!(text, "{}", Palette::of_stdout().paint(Ink::Bold, &header));
    for row in rows {
        _ = writeln!(
            text,
            "{:<10}{:<14}{:<10}{:<11}{:<14}{:<14}{:.0}",
            row.profile,
            row.blocks_per_chunk,
            ByteSize(row.capacity_bytes).to_string(),
            ByteSize(row.page_map_bytes).to_string(),
            ByteSize(row.segment_map_bytes).to_string(),
            ByteSize(row.zone_map_bytes).to_string(),
            row.page_map_bytes as f64 / row.segment_map_bytes as f64
        );
    }
    let note = "\nA segment is on all parallel units, a zone on those of a group; both have the place of each chunk in memory, in as few bytes as name it. A block FTL can keep less in \
                memory: map_memory in [ftl].";
    _ = writeln!(text, "{}", Palette::of_stdout().paint(Ink::Dim, note));
    say(&text)
}

pub fn run(arguments: &cli::Profiles) -> Result<(), Failure> {
    if arguments.map_memory {
        let named = arguments.profile.as_deref().map(find_profile).transpose()?;
        let profiles = named.map_or_else(|| Profile::builtins().collect(), |profile| vec![profile]);
        return map_memory(&profiles, arguments.json);
    }
    let Some(name) = &arguments.profile else {
        let profiles: Vec<Profile> = Profile::builtins().collect();
        return match arguments.json {
            true => print_json(&profiles.iter().map(listed).collect::<Result<Vec<_>, _>>()?),
            false => say(&table(&profiles, Palette::of_stdout())?),
        };
    };
    let profile = find_profile(name)?;
    if arguments.json {
        return print_json(&listed(&profile)?);
    }
    if arguments.toml {
        // The builtin text has the comments that say why.
        return say(&Profile::builtin_text(name).map_or_else(|| profile.to_toml(), str::to_owned));
    }
    say(&page(&profile, Palette::of_stdout())?)
}

fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    say(&crate::json(value)?)
}

fn geometry(profile: &Profile) -> Result<Geometry, Failure> {
    profile.geometry(profile.chunks_per_pu).map_err(Failure::bad_input)
}

fn bytes(geometry: &Geometry) -> ByteSize {
    ByteSize(geometry.chunks() * u64::from(geometry.blocks_per_chunk) * BLOCK_BYTES as u64)
}

fn listed(profile: &Profile) -> Result<Listed<'_>, Failure> {
    let geometry = geometry(profile)?;
    let derived = Derived {
        shape: GeometryFacts::of(&geometry),
        read_ns: geometry.read.typical.0,
        write_ns: geometry.write.typical.0,
        reset_ns: geometry.reset.typical.0,
        volatile_cache: geometry.volatile_cache,
        bytes: bytes(&geometry).0,
    };
    Ok(Listed { profile, geometry: derived })
}

fn table(profiles: &[Profile], palette: Palette) -> Result<String, Failure> {
    let mut text = String::new();
    let header = format!(
        "{:<10}{:<6}{:<10}{:<11}{:<14}{:<17}{}",
        "PROFILE", "CELL", "GROUPS×PU", "CHUNK", "NATURAL SIZE", "WS_MIN/MW_CUNITS", "READ / WRITE / RESET"
    );
    _ = writeln!(text, "{}", palette.paint(Ink::Bold, &header));
    for profile in profiles {
        let geometry = geometry(profile)?;
        let chunk = ByteSize(u64::from(geometry.blocks_per_chunk) * BLOCK_BYTES as u64);
        _ = writeln!(
            text,
            "{:<10}{:<6}{:<10}{:<11}{:<14}{:<17}{} / {} / {}",
            profile.name,
            format!("{:?}", profile.chip.cell).to_lowercase(),
            format!("{}×{}", geometry.groups, geometry.pus_per_group),
            chunk.to_string(),
            bytes(&geometry).to_string(),
            format!("{} / {}", geometry.ws_min, geometry.mw_cunits),
            micros(geometry.read.typical),
            micros(geometry.write.typical),
            micros(geometry.reset.typical),
        );
    }
    let note =
        "\nSizes are scaled to the drive's capacity. More: openftl profiles cosmos, or --toml for the file behind it.";
    _ = writeln!(text, "{}", palette.paint(Ink::Dim, note));
    Ok(text)
}

fn micros(span: Nanos) -> String {
    format!("{} µs", span.0 / 1000)
}

fn page(profile: &Profile, palette: Palette) -> Result<String, Failure> {
    let geometry = geometry(profile)?;
    let mut text = String::new();
    _ = writeln!(text, "{}  {}\n", palette.paint(Ink::Bold, &profile.name), profile.description);
    let mut row = |name: &str, value: String, note: &str| {
        _ = writeln!(text, "  {name:<14} {value:<22} {}", palette.paint(Ink::Dim, note));
    };
    row("groups", geometry.groups.to_string(), "a channel each; groups never interfere");
    row("PUs a group", geometry.pus_per_group.to_string(), "one operation at a time on each");
    row("chunks a PU", geometry.chunks_per_pu.to_string(), "at its natural size");
    row("chunk", format!("{} blocks of 4 KiB", geometry.blocks_per_chunk), "written in order, reset as a whole");
    row("size", bytes(&geometry).to_string(), "");
    row("WS_MIN", format!("{} blocks", geometry.ws_min), "every write is a multiple of it");
    row("WS_OPT", format!("{} blocks", geometry.ws_opt), "the best write");
    row("MW_CUNITS", format!("{} blocks", geometry.mw_cunits), "behind the write pointer, not yet readable");
    row("out of band", format!("{} bytes a block", geometry.oob_bytes), "");
    row("read", geometry.read.typical.to_string(), "one block");
    row("write", geometry.write.typical.to_string(), "WS_MIN blocks");
    row("reset", geometry.reset.typical.to_string(), "one chunk");
    let cache =
        if geometry.volatile_cache { "loses its cache with the power" } else { "keeps its cache when the power fails" };
    row("power", cache.to_owned(), "");
    _ = writeln!(text, "\nTry: openftl bench --profile {}", profile.name);
    Ok(text)
}
