//! What RocksDB stands on: a table drive with one of the placements, files on zones or an ALFS on segments of the same device, or ext4 on a block drive
//! with it.
//!
//! ```text
//!   tables, zones, ALFS   scratch folder: nand.toml, drive.toml, flash.oftl ◀── plugin ── db_bench, replay
//!                                         statistics.json ◀── when it ends ─────────────────┘
//!   ext4                  ext4.rs
//! ```

use crate::ext4::{Ext4, openftl, program};
use crate::rocksdb::{Bench, RocksDb, of_host};
use openftl_core::BLOCK_BYTES;
use openftl_drive::description::DriveDescription;
use openftl_drive::table_drive::TableDrive;
use openftl_experiments::ExperimentError;
use openftl_media::Profile;
use openftl_tables::TablePlacement;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// Scratch folders made so far: each has a name of its own.
static SCRATCHES: AtomicU64 = AtomicU64::new(0);

/// The least by which a drive is made smaller until it fits on the device of a table drive.
pub const STEP: u64 = 16 << 20;

/// A builtin profile with chunks of so many blocks, so that a table over all of them is smaller; and everything takes so many times longer, so
/// that RocksDB waits for the drive and not for this machine.
pub fn slow_flash(name: &str, slower: u32, blocks_per_chunk: u32) -> Result<Profile, ExperimentError> {
    let mut profile = Profile::builtin(name)?;
    profile.name = format!("{name}-slow");
    profile.chip.blocks_per_chunk = blocks_per_chunk;
    profile.channel_mb_s /= slower;
    profile.cache.mb_s /= slower;
    profile.chip.erase_us *= slower;
    for times in [&mut profile.chip.read_us, &mut profile.chip.program_us] {
        times.iter_mut().for_each(|time| *time *= slower);
    }
    Ok(profile)
}

/// Bytes of a table that has a chunk on each die.
pub fn largest_table(profile: &Profile) -> u64 {
    u64::from(profile.groups * profile.pus_per_group * profile.chip.blocks_per_chunk) * BLOCK_BYTES as u64
}

/// One way to keep a database on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stack {
    /// A table drive.
    Tables(TablePlacement),
    /// Files on zones of four parallel units.
    Zones,
    /// A log-structured file system on segments of all parallel units, without a kernel.
    Alfs,
    /// A file system on a block drive.
    Ext4,
}

impl Stack {
    /// The table drives.
    pub const TABLES: [Stack; 3] = [
        Stack::Tables(TablePlacement::Horizontal),
        Stack::Tables(TablePlacement::Vertical),
        Stack::Tables(TablePlacement::ByLoad),
    ];

    /// What the plugin opens: those, and the drives whose hosts write in order.
    pub const OF_PLUGIN: [Stack; 5] = [Stack::TABLES[0], Stack::TABLES[1], Stack::TABLES[2], Stack::Zones, Stack::Alfs];

    /// The section `[ftl]` of a drive whose hosts write in order.
    fn in_order(self) -> Option<&'static str> {
        match self {
            Stack::Zones => Some("kind = \"zones\"\nzone_width = 4\nmax_active_zones = 14\n"),
            Stack::Alfs => Some("kind = \"segments\"\nsegment_width = 32\nmax_open_segments = 8\n"),
            Stack::Tables(_) | Stack::Ext4 => None,
        }
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stack::Tables(placement) => placement.fmt(f),
            Stack::Zones => f.pad("zones"),
            Stack::Alfs => f.pad("ALFS"),
            Stack::Ext4 => f.pad("ext4 on block"),
        }
    }
}

/// How much a table drive holds, in bytes. A block drive on the same device holds what that leaves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// For tables.
    pub tables: u64,
    /// For logs and other small files.
    pub log_area: u64,
}

/// A folder in memory, for as long as this is there.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one, with the drive description of a table drive on a device of `profile`.
    pub fn new(profile: &Profile, placement: TablePlacement, room: Room) -> Result<Scratch, ExperimentError> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let number = SCRATCHES.fetch_add(1, Ordering::Relaxed);
        let scratch = Scratch(parent.join(format!("openftl-lightlsm-{}-{number}", std::process::id())));
        std::fs::create_dir_all(&scratch.0).map_err(of_host)?;
        std::fs::write(scratch.nand(), profile.to_toml()).map_err(of_host)?;
        let text = format!(
            "description = \"LightLSM\"\n[media]\nprofile = {:?}\ncapacity = \"{}\"\nstore = \"file\"\npath = \"flash.oftl\"\n\
             timing = \"wall-clock\"\n[ftl]\nkind = \"tables\"\nlog_area = \"{}\"\ntable_placement = \"{placement}\"\n",
            scratch.nand().display().to_string(),
            room.tables,
            room.log_area
        );
        std::fs::write(scratch.drive_description(), text).map_err(of_host)?;
        Ok(scratch)
    }

    /// Something in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The NAND.
    pub fn nand(&self) -> PathBuf {
        self.file("nand.toml")
    }

    /// The flash.
    pub fn disk(&self) -> PathBuf {
        self.file("flash.oftl")
    }

    fn drive_description(&self) -> PathBuf {
        self.file("drive.toml")
    }

    /// Makes the largest drive with this section `[ftl]` that is on no more flash than the table drive described here, and describes it in its place.
    fn make_in_order(&self, ftl: &str, room: Room) -> Result<(), ExperimentError> {
        let flash = self.table_drive()?.geometry().map_err(of_host)?.bytes();
        let mut capacity = room.tables + room.log_area;
        loop {
            let text = format!(
                "description = \"what is written in order\"\n[media]\nprofile = {:?}\ncapacity = \"{capacity}\"\nstore = \"file\"\n\
                 path = \"flash.oftl\"\ntiming = \"wall-clock\"\n[ftl]\n{ftl}",
                self.nand().display().to_string(),
            );
            let description = self.file("in-order.toml");
            std::fs::write(&description, text).map_err(of_host)?;
            let mut command = program(openftl()?);
            command.arg("create").arg(self.disk()).arg("--drive").arg(&description).arg("--json");
            let output = command.output().map_err(of_host)?;
            if !output.status.success() {
                let error = String::from_utf8_lossy(&output.stderr);
                return Err(of_host(format!("openftl create: {}", error.trim())));
            }
            let made: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(of_host)?;
            let taken = made["flash_bytes"].as_u64();
            if taken.ok_or_else(|| of_host("openftl create says nothing of flash_bytes"))? <= flash {
                return std::fs::rename(description, self.drive_description()).map_err(of_host);
            }
            std::fs::remove_file(self.disk()).map_err(of_host)?;
            capacity = capacity.checked_sub(STEP).filter(|left| *left > 0).ok_or_else(|| {
                of_host("flash as large as that of the table drive has no room for what is written in order")
            })?;
        }
    }

    /// The table drive that is described here.
    pub fn table_drive(&self) -> Result<TableDrive, ExperimentError> {
        let file = DriveDescription::read(&self.drive_description()).map_err(of_host)?;
        TableDrive::of(&file).map_err(of_host)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It was made here, and is in memory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A new drive, and what makes it a place for files.
pub enum Drive {
    /// The plugin does.
    OfPlugin(Scratch),
    /// A kernel does.
    Ext4(Box<Ext4>),
}

impl Drive {
    /// A new one.
    pub fn new(stack: Stack, profile: &Profile, room: Room) -> Result<Drive, ExperimentError> {
        match stack {
            Stack::Tables(placement) => {
                let scratch = Scratch::new(profile, placement, room)?;
                scratch.table_drive()?.create(&scratch.disk(), None).map_err(of_host)?;
                Ok(Drive::OfPlugin(scratch))
            }
            Stack::Zones | Stack::Alfs => {
                let scratch = Scratch::new(profile, TablePlacement::default(), room)?;
                scratch.make_in_order(stack.in_order().expect("it is written in order"), room)?;
                Ok(Drive::OfPlugin(scratch))
            }
            Stack::Ext4 => {
                let scratch = Scratch::new(profile, TablePlacement::default(), room)?;
                Ok(Drive::Ext4(Box::new(Ext4::new(scratch, room)?)))
            }
        }
    }

    /// The folder that it is in.
    pub fn scratch(&self) -> &Scratch {
        match self {
            Drive::OfPlugin(scratch) => scratch,
            Drive::Ext4(ext4) => &ext4.scratch,
        }
    }

    /// Runs db_bench or a program with its words on the drive, and waits for its end.
    pub fn bench(&self, rocksdb: &RocksDb, mut command: Command) -> Result<Bench, ExperimentError> {
        let scratch = match self {
            Drive::OfPlugin(scratch) => scratch,
            Drive::Ext4(ext4) => return ext4.bench(rocksdb, command),
        };
        let statistics = scratch.file("statistics.json");
        command.env("LD_PRELOAD", rocksdb.plugin()).env("OPENFTL_STATISTICS", &statistics);
        command.arg(format!("--fs_uri=openftl://{}", scratch.drive_description().display()));
        command.arg("--db=/db");
        let bench = rocksdb.run(command)?;
        let drive = std::fs::read_to_string(&statistics).map_err(of_host)?;
        Ok(Bench { drive: serde_json::from_str(&drive).map_err(of_host)?, ..bench })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_described_as_a_table_drive_and_made() {
        let mut profile = Profile::builtin("granby").unwrap();
        profile.chip.blocks_per_chunk = 48;
        let room = Room { tables: 64 << 20, log_area: 16 << 20 };
        let drive = Drive::new(Stack::Tables(TablePlacement::Vertical), &profile, room).unwrap();
        let Drive::OfPlugin(scratch) = &drive else { panic!("a table drive was asked for") };
        let described = scratch.table_drive().unwrap();
        assert_eq!((described.capacity().0, described.log_area().0), (64 << 20, 16 << 20));
        assert!(described.disk().unwrap().exists());
        let folder = scratch.file("");
        drop(drive);
        assert!(!folder.exists(), "nothing is left of it");
    }
}
