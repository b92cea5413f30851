//! Where a file system is: on a drive that is kept in a file, or on one that another process or machine serves.

use super::Patient;
use openftl_alfs::MountError;
use openftl_alfs::segments::{LOGS, SEGMENT_BLOCKS_MIN, SEGMENTS_MIN};
use openftl_blocks::Ftl;
use openftl_command_line::failure::Failure;
use openftl_drive::segment_drive::{SegmentDrive, open_stored};
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_segments::{Claim, ConnectError, RemoteSegments};
use openftl_parts::Access;
use openftl_parts::target::SegmentTarget;
use openftl_zones::Face;
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// A drive of segments.
pub enum AlfsDrive {
    Here(Box<SegmentDrive>),
    There(Box<RemoteSegments>),
}

impl AlfsDrive {
    /// Opens the drive in a file, or connects to the one that a URI names: to write to it as the only host, if it is to be written to.
    pub fn open(drive: &Path, access: Access, claim: Claim, clock: &mut Patient) -> Result<AlfsDrive, Failure> {
        let Some(uri) = drive.to_str().filter(|text| DriveUri::is_meant(text)) else {
            if claim == Claim::Preempt {
                return Err(Failure::bad_input(format_args!(
                    "--preempt: {} is the drive itself, and only a served drive can be taken from another host",
                    drive.display()
                ))
                .fix("leave it out"));
            }
            return Ok(AlfsDrive::Here(Box::new(open_stored(drive, access, clock)?)));
        };
        let uri: DriveUri = uri.parse().map_err(|error| Failure::bad_input(format_args!("DRIVE: {error}")))?;
        let drive = RemoteSegments::claim(&uri, claim).map_err(|error| match error {
            ConnectError::Taken { .. } => Failure::failed(error).fix(
                "end its mount first, or take the drive from it with --preempt: what it has not synced is lost then",
            ),
            error => Failure::failed(error).fix(
                "`openftl serve DISK --drive DESCRIPTION --nvme-tcp ADDRESS` serves a drive of segments as zones, if its [ftl] has interface = \"zones\"",
            ),
        })?;
        Ok(AlfsDrive::There(Box::new(drive)))
    }

    /// Stops the drive, if it is here.
    pub fn close(self, clock: &mut Patient) -> Result<(), Failure> {
        match self {
            AlfsDrive::Here(drive) => drive.close(clock).map(drop).map_err(Failure::failed),
            AlfsDrive::There(_) => Ok(()),
        }
    }

    /// Why the drive takes no more changes, if that is known.
    pub fn trouble(&self) -> Option<String> {
        match self {
            AlfsDrive::Here(_) => None,
            AlfsDrive::There(drive) => drive.trouble().map(str::to_owned),
        }
    }

    /// What hosts call its segments.
    fn face(&self) -> Face {
        match self {
            AlfsDrive::Here(drive) => drive.zones().face(),
            AlfsDrive::There(_) => Face::Zones,
        }
    }

    /// A file system cannot be made on the drive, or not be mounted.
    pub fn refused(&self, path: &Path, error: MountError) -> Failure {
        let (noun, width, limit) = (self.face().noun(), self.face().width_field(), self.face().limit_field());
        let failure = match error {
            MountError::TooFewSegments { segments } => Failure::bad_input(format_args!(
                "the drive has {segments} {noun}, and a file system needs {SEGMENTS_MIN}"
            ))
            .fix(format_args!("create it with a smaller {width}, or with more capacity")),
            MountError::SegmentsTooShort { blocks } => Failure::bad_input(format_args!(
                "the drive has {noun} of {blocks} blocks of 4 KiB, and a file system needs {SEGMENT_BLOCKS_MIN}"
            ))
            .fix(format_args!("create it with a greater {width}")),
            MountError::TooFewOpen { most } => {
                let least = LOGS + 2;
                Failure::bad_input(format_args!(
                    "{limit} = {most}: a file system writes {least} {noun} at a time, six logs and two anchors"
                ))
                .fix(format_args!("create the drive with {limit} = {least} or more"))
            }
            MountError::TooLarge { .. } => Failure::bad_input(error).fix("create a drive of less capacity"),
            error => Failure::failed(error),
        };
        let failure = failure.about(path.display());
        match self.trouble() {
            Some(trouble) => Failure::failed(format_args!("{}: {trouble}", failure.what())),
            None => failure,
        }
    }
}

impl Deref for AlfsDrive {
    type Target = dyn SegmentTarget;

    fn deref(&self) -> &(dyn SegmentTarget + 'static) {
        match self {
            AlfsDrive::Here(drive) => &**drive,
            AlfsDrive::There(drive) => &**drive,
        }
    }
}

impl DerefMut for AlfsDrive {
    fn deref_mut(&mut self) -> &mut (dyn SegmentTarget + 'static) {
        match self {
            AlfsDrive::Here(drive) => &mut **drive,
            AlfsDrive::There(drive) => &mut **drive,
        }
    }
}
