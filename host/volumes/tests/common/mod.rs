//! Small drives, and files whose every byte says whose it is.

use openftl_files::{Client, FileKind, FileServer, Files, Pace, Stream, ZoneFiles};
use openftl_media::{EmulatedDevice, Media, Profile, Store, Timing};
use openftl_parts::{Access, Config};
use openftl_tables::TablePlacement;
use openftl_volumes::{AlfsFiles, Volume, VolumeReader};
use openftl_zones::{Face, Limits, ZoneConfig};
use std::ops::Deref;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Blocks of the log area.
pub const LOG_BLOCKS: u64 = 512;

/// As many as a file system needs.
pub const HOST_FRAMES: u32 = 768;

pub fn config() -> Config {
    Config { capacity_blocks: LOG_BLOCKS, host_frames: HOST_FRAMES, drive_id: 7, ..Config::default() }
}

pub fn tiny_device(chunks: u32, seed: u64) -> EmulatedDevice {
    EmulatedDevice::new(Profile::builtin("tiny").unwrap(), chunks, Store::Ram, Timing::Modelled, seed).unwrap()
}

/// A new drive on the profile `tiny`, with `chunks` chunks on each of its four parallel units.
pub fn tiny(chunks: u32, seed: u64) -> Files<EmulatedDevice> {
    Files::format(tiny_device(chunks, seed), config(), TablePlacement::Horizontal, Pace::Virtual).unwrap()
}

/// Zones of `width` chunks, as many as there is room for.
pub fn zones(width: u32) -> ZoneConfig {
    let limits = Limits { max_open: 6, max_active: 8 };
    ZoneConfig { face: Face::Zones, width, limits, zones: None, extension_bytes: 0, window_blocks: 0 }
}

/// Segments of a chunk each, as many as there is room for.
pub fn segments() -> ZoneConfig {
    let limits = Limits { max_open: 8, max_active: 8 };
    ZoneConfig { face: Face::Segments, limits, ..zones(1) }
}

/// The same device with files on zones, each of two chunks, and more chunks for what the drive keeps of them.
pub fn tiny_zones(chunks: u32, seed: u64) -> ZoneFiles<EmulatedDevice> {
    ZoneFiles::format(tiny_device(chunks + 8, seed), config(), zones(2), Pace::Virtual).unwrap()
}

pub fn reopen_zones(device: EmulatedDevice) -> ZoneFiles<EmulatedDevice> {
    ZoneFiles::open(device, config(), Access::ReadWrite, Pace::Virtual).unwrap()
}

/// The same device with an ALFS on segments of one chunk each, and more chunks, because a file system needs 64 segments.
pub fn tiny_alfs(chunks: u32, seed: u64) -> AlfsFiles<EmulatedDevice> {
    AlfsFiles::format(tiny_device(chunks + 16, seed), config(), segments(), seed, Pace::Virtual).unwrap()
}

/// Opens what is on zones or segments.
pub fn reopen_found(device: EmulatedDevice) -> Volume<EmulatedDevice> {
    Volume::on_zones(device, config(), Access::ReadWrite, Pace::Virtual, 8).unwrap()
}

pub fn reopen(device: EmulatedDevice) -> Files<EmulatedDevice> {
    Files::open(device, config(), TablePlacement::Horizontal, Access::ReadWrite, Pace::Virtual).unwrap()
}

/// Cuts the power of a drive that nobody uses.
pub fn power_cut(files: Files<EmulatedDevice>, torn: bool) -> Files<EmulatedDevice> {
    let now = files.with_drive(|drive| drive.block().now());
    let mut device = files.crash().expect("nobody uses it");
    device.power_cut(now, torn).unwrap();
    reopen(device)
}

/// Where the drive of a test is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Where {
    Here,
    Zoned,
    Alfs,
    Served,
}

pub const PLACES: [Where; 4] = [Where::Here, Where::Zoned, Where::Alfs, Where::Served];

/// A server of files at a Unix socket.
pub struct Server {
    pub server: FileServer<EmulatedDevice>,
    pub path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Server {
    pub fn new(files: Files<EmulatedDevice>) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("files");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let server = FileServer::new(vec![listener], files).unwrap();
        Server { server, path, _folder: folder }
    }

    pub fn client(&self) -> Client {
        connect(&self.path).unwrap()
    }

    /// The power goes, and comes back.
    pub fn power_cut(&self, torn: bool) {
        let cut = |files: &Files<EmulatedDevice>| {
            files.stop(|drive, now| drive.media_mut().power_cut(now, torn).unwrap());
        };
        let (files, ()) = self.server.interrupt(cut).unwrap();
        self.server.serve(reopen(files.crash().expect("nobody uses it")));
    }
}

pub fn connect(path: &Path) -> Result<Client, openftl_files::FileError> {
    let (name, path) = (path.display().to_string(), path.to_owned());
    Client::connect(name, Box::new(move || Stream::unix(&path)))
}

/// A drive, and whoever serves it.
pub struct Drive {
    volume: Volume<EmulatedDevice>,
    server: Option<Server>,
}

impl Deref for Drive {
    type Target = Volume<EmulatedDevice>;

    fn deref(&self) -> &Volume<EmulatedDevice> {
        &self.volume
    }
}

impl Drive {
    /// A new drive of `chunks` chunks on each parallel unit.
    pub fn new(place: Where, chunks: u32, seed: u64) -> Drive {
        match place {
            Where::Zoned => Drive { volume: Volume::Zoned(tiny_zones(chunks, seed)), server: None },
            Where::Alfs => Drive { volume: Volume::Alfs(tiny_alfs(chunks, seed)), server: None },
            Where::Here | Where::Served => Drive::of_tables(place, tiny(chunks, seed)),
        }
    }

    fn of_tables(place: Where, files: Files<EmulatedDevice>) -> Drive {
        match place {
            Where::Here | Where::Zoned | Where::Alfs => Drive { volume: Volume::Here(files), server: None },
            Where::Served => {
                let server = Server::new(files);
                Drive { volume: Volume::Served(server.client()), server: Some(server) }
            }
        }
    }

    /// Gives the device away for what `taken` makes of it; it is opened again.
    fn with(self, taken: impl Fn(Taken) -> EmulatedDevice) -> Drive {
        match (self.volume, self.server) {
            (Volume::Here(files), _) => Drive::of_tables(Where::Here, reopen(taken(Taken::Tables(files)))),
            (Volume::Zoned(files), _) => Drive { volume: reopen_found(taken(Taken::Zones(files))), server: None },
            (Volume::Alfs(files), _) => Drive { volume: reopen_found(taken(Taken::Alfs(files))), server: None },
            (Volume::Served(client), server) => {
                assert!(client.close(), "nobody uses it");
                let files = server.expect("it is served").server.end().unwrap();
                Drive::of_tables(Where::Served, reopen(taken(Taken::Tables(files))))
            }
        }
    }

    /// Closes the drive and opens it again.
    pub fn reopen(self) -> Drive {
        self.with(|taken| match taken {
            Taken::Tables(files) => files.close().unwrap().expect("nobody uses it"),
            Taken::Zones(files) => files.close().unwrap().expect("nobody uses it"),
            Taken::Alfs(files) => files.close().unwrap().expect("nobody uses it"),
        })
    }

    /// The power goes, and comes back.
    pub fn power_cut(self, torn: bool) -> Drive {
        self.with(|taken| {
            let (now, device) = match taken {
                Taken::Tables(files) => (files.with_drive(|drive| drive.block().now()), files.crash()),
                Taken::Zones(files) => (files.with_drive(|drive| drive.block().now()), files.crash()),
                Taken::Alfs(files) => (files.with_drive(|drive| drive.block().now()), files.crash()),
            };
            let mut device = device.expect("nobody uses it");
            device.power_cut(now, torn).unwrap();
            device
        })
    }
}

/// Files that nobody uses, on their way to the device below them.
enum Taken {
    Tables(Files<EmulatedDevice>),
    Zones(ZoneFiles<EmulatedDevice>),
    Alfs(AlfsFiles<EmulatedDevice>),
}

/// Byte `at` of file `id`.
pub fn byte(id: u64, at: u64) -> u8 {
    let word = (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (at / 8)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (word >> (8 * (at % 8))) as u8
}

pub fn bytes(id: u64, from: u64, count: u64) -> Vec<u8> {
    (from..from + count).map(|at| byte(id, at)).collect()
}

/// Writes file `id` of `count` bytes in pieces, and closes it.
pub fn write(files: &Volume<EmulatedDevice>, path: &str, kind: FileKind, id: u64, count: u64, piece: u64) {
    let mut writer = files.create(path, kind).unwrap();
    let mut at = 0;
    while at < count {
        let step = piece.min(count - at);
        writer.append(&bytes(id, at, step)).unwrap();
        at += step;
    }
    writer.close().unwrap();
}

/// All of a file.
pub fn read_all<M: Media>(reader: &VolumeReader<M>) -> Vec<u8> {
    let mut found = vec![0; reader.bytes() as usize + 10];
    let count = reader.read(0, &mut found).unwrap();
    found.truncate(count);
    found
}

pub fn content<M: Media>(files: &Volume<M>, path: &str) -> Vec<u8> {
    read_all(&files.open_read(path).unwrap())
}
