//! Files of a drive that this process has open, on tables, on zones or of an ALFS, or that a server has: the same functions, whichever it is.

use crate::alfs::{AlfsFiles, AlfsReader, AlfsSync, AlfsWriter};
use openftl_core::Time;
use openftl_dispatch::{Pace, PaceClock};
use openftl_files::client::{ClientReader, ClientSync, ClientWriter};
use openftl_files::{
    Attributes, Client, FileError, FileKind, FileReader, FileWriter, Files, PendingSync, ReadRequest, ZoneFiles,
    ZoneReader, ZoneSync, ZoneWriter,
};
use openftl_media::Media;
use openftl_parts::{Access, Config};
use openftl_segments::SegmentFtl;
use openftl_tables::TableLifetime;
use openftl_zones::{AskedLimits, Ftl};

/// The files of a drive.
pub enum Volume<M: Media> {
    /// It is open here.
    Here(Files<M>),
    /// The same, and its files are on zones.
    Zoned(ZoneFiles<M>),
    /// The same, and they are those of an ALFS.
    Alfs(AlfsFiles<M>),
    /// A server has it open.
    Served(Client),
}

/// A file that is written from front to back.
pub enum VolumeWriter<M: Media> {
    /// Of a drive that is open here.
    Here(FileWriter<M>),
    /// On zones.
    Zoned(ZoneWriter<M>),
    /// Of an ALFS.
    Alfs(AlfsWriter<M>),
    /// Of a served one.
    Served(ClientWriter),
}

/// A file being read, by any number of threads.
pub enum VolumeReader<M: Media> {
    /// Of a drive that is open here.
    Here(FileReader<M>),
    /// On zones.
    Zoned(ZoneReader<M>),
    /// Of an ALFS.
    Alfs(AlfsReader<M>),
    /// Of a served one.
    Served(ClientReader),
}

/// A sync that waits for the drive.
pub enum VolumeSync<M: Media> {
    /// Of a drive that is open here.
    Here(PendingSync<M>),
    /// On zones.
    Zoned(ZoneSync<M>),
    /// Of an ALFS.
    Alfs(AlfsSync<M>),
    /// Of a served one.
    Served(ClientSync),
}

/// Does the same with either.
macro_rules! either {
    ($it:expr, $of:ident, $found:ident => $deed:expr) => {
        match $it {
            $of::Here($found) => $deed,
            $of::Zoned($found) => $deed,
            $of::Alfs($found) => $deed,
            $of::Served($found) => $deed,
        }
    };
}

impl<M: Media> Volume<M> {
    /// Opens a drive of zones or segments, and what is on it: an ALFS, or files on zones. Where nothing is yet it is made, on segments a file
    /// system whose number is `id` (one that no other has), on zones the catalog of files.
    ///
    /// # Errors
    /// If it has neither zones nor segments, they hold something else, or it cannot be trusted.
    pub fn on_zones(media: M, config: Config, access: Access, pace: Pace, id: u64) -> Result<Volume<M>, FileError> {
        let mut clock = PaceClock { pace, now: Time::ZERO };
        let mut drive = SegmentFtl::open_with(media, config, AskedLimits::default(), access, &mut clock)?;
        if crate::alfs::is_meant(&mut drive, &mut clock)? {
            return AlfsFiles::adopt(drive, clock, access, id).map(Volume::Alfs);
        }
        ZoneFiles::adopt(*drive.into_zones(), clock, access).map(Volume::Zoned)
    }

    /// See [`Files::space`].
    ///
    /// # Errors
    /// If the connection to the server breaks.
    pub fn space(&self) -> Result<(u64, u64), FileError> {
        match self {
            Volume::Here(files) => Ok(files.space()),
            Volume::Zoned(files) => Ok(files.space()),
            Volume::Alfs(files) => Ok(files.space()),
            Volume::Served(client) => client.space(),
        }
    }

    /// See [`Files::statistics`]; as JSON.
    ///
    /// # Errors
    /// If the connection to the server breaks.
    pub fn statistics(&self) -> Result<String, FileError> {
        let text = match self {
            Volume::Here(files) => serde_json::to_string(&files.statistics()),
            Volume::Zoned(files) => serde_json::to_string(&files.statistics()),
            Volume::Alfs(files) => serde_json::to_string(&files.statistics()),
            Volume::Served(client) => return client.statistics(),
        };
        text.map_err(|error| FileError::Io(error.to_string()))
    }

    /// See [`Files::create`].
    ///
    /// # Errors
    /// As there.
    pub fn create(&self, path: &str, kind: FileKind) -> Result<VolumeWriter<M>, FileError> {
        Ok(match self {
            Volume::Here(files) => VolumeWriter::Here(files.create(path, kind)?),
            Volume::Zoned(files) => VolumeWriter::Zoned(files.create(path, kind)?),
            Volume::Alfs(files) => VolumeWriter::Alfs(files.create(path, kind)?),
            Volume::Served(client) => VolumeWriter::Served(client.create(path, kind)?),
        })
    }

    /// See [`Files::append_to`].
    ///
    /// # Errors
    /// As there.
    pub fn append_to(&self, path: &str) -> Result<VolumeWriter<M>, FileError> {
        Ok(match self {
            Volume::Here(files) => VolumeWriter::Here(files.append_to(path)?),
            Volume::Zoned(files) => VolumeWriter::Zoned(files.append_to(path)?),
            Volume::Alfs(files) => VolumeWriter::Alfs(files.append_to(path)?),
            Volume::Served(client) => VolumeWriter::Served(client.append_to(path)?),
        })
    }

    /// See [`Files::open_read`].
    ///
    /// # Errors
    /// As there.
    pub fn open_read(&self, path: &str) -> Result<VolumeReader<M>, FileError> {
        Ok(match self {
            Volume::Here(files) => VolumeReader::Here(files.open_read(path)?),
            Volume::Zoned(files) => VolumeReader::Zoned(files.open_read(path)?),
            Volume::Alfs(files) => VolumeReader::Alfs(files.open_read(path)?),
            Volume::Served(client) => VolumeReader::Served(client.open_read(path)?),
        })
    }

    /// See [`Files::attributes`].
    ///
    /// # Errors
    /// As there.
    pub fn attributes(&self, path: &str) -> Result<Attributes, FileError> {
        either!(self, Volume, files => files.attributes(path))
    }

    /// See [`Files::list`].
    ///
    /// # Errors
    /// As there.
    pub fn list(&self, folder: &str) -> Result<Vec<(String, Attributes)>, FileError> {
        either!(self, Volume, files => files.list(folder))
    }

    /// See [`Files::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, path: &str) -> Result<(), FileError> {
        either!(self, Volume, files => files.delete(path))
    }

    /// See [`Files::rename`].
    ///
    /// # Errors
    /// As there.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        either!(self, Volume, files => files.rename(from, to))
    }

    /// See [`Files::make_folder`].
    ///
    /// # Errors
    /// As there.
    pub fn make_folder(&self, path: &str) -> Result<(), FileError> {
        either!(self, Volume, files => files.make_folder(path))
    }

    /// See [`Files::delete_folder`].
    ///
    /// # Errors
    /// As there.
    pub fn delete_folder(&self, path: &str) -> Result<(), FileError> {
        either!(self, Volume, files => files.delete_folder(path))
    }

    /// See [`Files::sync_names`].
    ///
    /// # Errors
    /// As there.
    pub fn sync_names(&self, folder: &str) -> Result<(), FileError> {
        either!(self, Volume, files => files.sync_names(folder))
    }

    /// See [`Files::lock`].
    ///
    /// # Errors
    /// As there.
    pub fn lock(&self, path: &str) -> Result<(), FileError> {
        either!(self, Volume, files => files.lock(path))
    }

    /// See [`Files::unlock`].
    ///
    /// # Errors
    /// As there.
    pub fn unlock(&self, path: &str) -> Result<(), FileError> {
        either!(self, Volume, files => files.unlock(path))
    }

    /// Ends the use of the drive; one that is open here is closed. False if files of it are still open.
    ///
    /// # Errors
    /// If the device fails.
    pub fn close(self) -> Result<bool, FileError> {
        match self {
            Volume::Here(files) => Ok(files.close()?.is_some()),
            Volume::Zoned(files) => Ok(files.close()?.is_some()),
            Volume::Alfs(files) => Ok(files.close()?.is_some()),
            Volume::Served(client) => Ok(client.close()),
        }
    }
}

impl<M: Media> VolumeWriter<M> {
    /// See [`FileWriter::hint_size`].
    pub fn hint_size(&mut self, bytes: u64) {
        either!(self, VolumeWriter, writer => writer.hint_size(bytes));
    }

    /// See [`FileWriter::hint_lifetime`].
    pub fn hint_lifetime(&mut self, lifetime: TableLifetime) {
        either!(self, VolumeWriter, writer => writer.hint_lifetime(lifetime));
    }

    /// See [`FileWriter::bytes`].
    #[must_use]
    pub fn bytes(&self) -> u64 {
        either!(self, VolumeWriter, writer => writer.bytes())
    }

    /// See [`FileWriter::id`].
    #[must_use]
    pub fn id(&self) -> u64 {
        either!(self, VolumeWriter, writer => writer.id())
    }

    /// See [`FileWriter::append`].
    ///
    /// # Errors
    /// As there.
    pub fn append(&mut self, data: &[u8]) -> Result<(), FileError> {
        either!(self, VolumeWriter, writer => writer.append(data))
    }

    /// See [`FileWriter::write_at`].
    ///
    /// # Errors
    /// As there.
    pub fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), FileError> {
        either!(self, VolumeWriter, writer => writer.write_at(offset, data))
    }

    /// See [`FileWriter::truncate`].
    ///
    /// # Errors
    /// As there.
    pub fn truncate(&mut self, bytes: u64) -> Result<(), FileError> {
        either!(self, VolumeWriter, writer => writer.truncate(bytes))
    }

    /// See [`FileWriter::flush`].
    ///
    /// # Errors
    /// As there.
    pub fn flush(&mut self) -> Result<(), FileError> {
        either!(self, VolumeWriter, writer => writer.flush())
    }

    /// See [`FileWriter::commit`].
    ///
    /// # Errors
    /// As there.
    pub fn commit(&mut self) -> Result<(), FileError> {
        either!(self, VolumeWriter, writer => writer.commit())
    }

    /// See [`FileWriter::sync`].
    ///
    /// # Errors
    /// As there.
    pub fn sync(&mut self) -> Result<(), FileError> {
        either!(self, VolumeWriter, writer => writer.sync())
    }

    /// See [`FileWriter::begin_sync`].
    ///
    /// # Errors
    /// As there.
    pub fn begin_sync(&mut self) -> Result<VolumeSync<M>, FileError> {
        Ok(match self {
            VolumeWriter::Here(writer) => VolumeSync::Here(writer.begin_sync()?),
            VolumeWriter::Zoned(writer) => VolumeSync::Zoned(writer.begin_sync()?),
            VolumeWriter::Alfs(writer) => VolumeSync::Alfs(writer.begin_sync()?),
            VolumeWriter::Served(writer) => VolumeSync::Served(writer.begin_sync()?),
        })
    }

    /// See [`FileWriter::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(self) -> Result<(), FileError> {
        either!(self, VolumeWriter, writer => writer.close())
    }

    /// See [`FileWriter::forget`].
    pub fn forget(self) {
        either!(self, VolumeWriter, writer => writer.forget());
    }
}

impl<M: Media> VolumeSync<M> {
    /// See [`PendingSync::finish`].
    ///
    /// # Errors
    /// As there.
    pub fn finish(self) -> Result<(), FileError> {
        either!(self, VolumeSync, pending => pending.finish())
    }
}

impl<M: Media> VolumeReader<M> {
    /// See [`FileReader::bytes`].
    #[must_use]
    pub fn bytes(&self) -> u64 {
        either!(self, VolumeReader, reader => reader.bytes())
    }

    /// See [`FileReader::id`].
    #[must_use]
    pub fn id(&self) -> u64 {
        either!(self, VolumeReader, reader => reader.id())
    }

    /// See [`FileReader::read`].
    ///
    /// # Errors
    /// As there.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        either!(self, VolumeReader, reader => reader.read(offset, buffer))
    }

    /// See [`FileReader::read_many`].
    pub fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        either!(self, VolumeReader, reader => reader.read_many(requests));
    }
}
