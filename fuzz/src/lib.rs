//! Fuzz targets: whatever bytes come from outside, a parser returns what they say or an error. It never panics, hangs
//! or takes memory without bound, and what it accepted it would write the same way.
//!
//! | target | bytes | shown |
//! |---|---|---|
//! | `alfs` | all metadata of a file system | it mounts, or says why not; what mounts ends every operation, and what is rebuilt is sound |
//! | `nbd` | what a client sends | the same answers however they are cut into pieces |
//! | `nvme_tcp` | what a host or a controller sends | the same |
//! | `nvme_auth` | what a host or a controller without the secret says | nobody is let in |
//! | `key_file` | a file of secrets | what is accepted is written the same way |
//! | `nvme` | what a host says to a controller | every command ends once or is held, inside its limits |
//! | `profile` | a NAND device as TOML | what is accepted can be written, read back and built |
//! | `drive_description` | a drive as TOML | errors name line and field |
//! | `server` | what a host says to a served drive after a good handshake | others are served, nothing is kept |
//! | `resp` | what a Redis client sends | no part of a command is one, and what follows it changes nothing |
//! | `store_file` | the start of a drive description, its chunk records | what is accepted is written the same way |
//! | `out_of_band` | the bytes beside each block | the same, and no other payload passes for this one |
//! | `superblock` | a superblock | the same |
//! | `traces` | a recorded trace, or the text of a load | what is played lies on the drive, errors name their line |
//! | `control` | what a client says to a drive's control socket, and the drive to it | the same requests however they arrive |
//! | `catalog` | the blocks of a table drive's catalog | the same entries again |
//! | `file_note` | the note of a file on a table drive | the same again |
//! | `zone_files` | records and batches of the catalog of files on zones | the same again |
//! | `files_wire` | what a process says to the server of a table drive, and the server to it | the same |
//! | `log_block` | a block of the log | the same records again |
//! | `flash` | all metadata of a drive: superblocks, log, checkpoints | it opens, or says why not; what opens works |
//! | `store_of_pages` | what a store of pages keeps beside its pages, and their headers | what is accepted is written the same way |
//! | `values` | what a host says to a key-value drive, and a list of keys | the same, and what is accepted is inside the limits |
//! | `map_pages` | the same of a drive whose map is on media, map pages among them | the same |
//!
//! Where a checksum would keep a fuzzer out, the target computes it. `cargo xtask fuzz` runs them under libFuzzer; each
//! has a folder in `corpus/` with inputs to begin with, among them everything that was ever found, which an ordinary
//! test runs too.

#[path = "../../host/bytes/tests/support/memory.rs"]
#[expect(dead_code, reason = "tests use more of it")]
mod memory;
#[path = "../../host/server/tests/support/nvme.rs"]
#[expect(dead_code, reason = "tests use more of it")]
mod nvme;
#[path = "../../host/server/tests/support/rant.rs"]
mod rant;
#[path = "../../host/server/tests/support/reactors.rs"]
mod reactors;

mod alfs;
mod catalog;
mod control;
mod controller;
mod drive_description;
mod file_note;
mod files_wire;
mod flash;
mod key_file;
mod log_block;
mod nbd;
mod nvme_auth;
mod nvme_tcp;
mod out_of_band;
mod profile;
mod resp;
mod server;
mod store_file;
mod store_of_pages;
mod superblock;
mod traces;
mod values;
mod zone_files;

/// One parser, or several that work together.
pub struct Target {
    /// As on the command line; also the folder of its inputs.
    pub name: &'static str,
    /// Runs one input. Panics where something is wrong.
    pub run: fn(&[u8]),
}

/// All of them, by name.
pub const TARGETS: [Target; 24] = [
    Target { name: "alfs", run: alfs::run },
    Target { name: "catalog", run: catalog::run },
    Target { name: "control", run: control::run },
    Target { name: "drive_description", run: drive_description::run },
    Target { name: "file_note", run: file_note::run },
    Target { name: "files_wire", run: files_wire::run },
    Target { name: "flash", run: flash::run },
    Target { name: "key_file", run: key_file::run },
    Target { name: "log_block", run: log_block::run },
    Target { name: "map_pages", run: flash::run_paged },
    Target { name: "nbd", run: nbd::run },
    Target { name: "nvme_auth", run: nvme_auth::run },
    Target { name: "nvme_tcp", run: nvme_tcp::run },
    Target { name: "nvme", run: controller::run },
    Target { name: "out_of_band", run: out_of_band::run },
    Target { name: "profile", run: profile::run },
    Target { name: "resp", run: resp::run },
    Target { name: "server", run: server::run },
    Target { name: "store_file", run: store_file::run },
    Target { name: "store_of_pages", run: store_of_pages::run },
    Target { name: "superblock", run: superblock::run },
    Target { name: "traces", run: traces::run },
    Target { name: "values", run: values::run },
    Target { name: "zone_files", run: zone_files::run },
];
