//! A drive under the name that clients ask for, and what they may know of it.

use openftl_core::{BLOCK_BYTES, FrameForm};
use openftl_parts::target::BlockTarget;

use crate::ServeError;
use openftl_nbd::protocol::{ExportInfo, PAYLOAD_BYTES_MAX, Reserved};

/// The smallest pool of frames that a drive can be served from.
pub const POOL_FRAMES_MIN: usize = 8;

/// The longest name of an export, in bytes ("Conventions" of the protocol).
pub const EXPORT_NAME_BYTES_MAX: usize = 4096;

/// A drive under a name.
///
/// Its pool needs byte frames: at least [`POOL_FRAMES_MIN`], and twice the longest request wanted (64 MiB for 32 MiB
/// requests). The drive must not keep more than half of them for good.
#[derive(Debug)]
pub struct Export<T> {
    /// What clients ask for. The first export is also the default one.
    pub name: String,
    /// A line for people.
    pub description: String,
    /// Whether to refuse writes.
    pub read_only: bool,
    /// The drive.
    pub target: T,
}

/// `may_be_none`: there is something else to serve.
pub(crate) fn export_infos<T: BlockTarget>(
    exports: &[Export<T>],
    may_be_none: bool,
) -> Result<Vec<ExportInfo>, ServeError> {
    let mut infos: Vec<ExportInfo> = Vec::with_capacity(exports.len());
    for export in exports {
        let error = |why: String| ServeError::Export { name: export.name.clone(), why };
        if export.name.len() > EXPORT_NAME_BYTES_MAX || export.name.contains('\0') {
            return Err(error(format!("a name has at most {EXPORT_NAME_BYTES_MAX} bytes and no NUL; shorten it")));
        }
        if infos.iter().any(|info| info.name == export.name) {
            return Err(error("two exports have this name; rename one".to_owned()));
        }
        if export.target.payload_form() != FrameForm::Bytes {
            return Err(error("the drive keeps stamps instead of data; choose another store to serve it".to_owned()));
        }
        let pool = export.target.frames();
        let frames = pool.available(FrameForm::Bytes);
        if frames < POOL_FRAMES_MIN {
            return Err(error(format!(
                "{frames} free byte frames in the drive's pool; at least {POOL_FRAMES_MIN} are needed"
            )));
        }
        // Half of the pool, so that one request at most waits for the drive to give frames back, in a power of two.
        let half = (frames as u64 / 2 * BLOCK_BYTES as u64).min(u64::from(PAYLOAD_BYTES_MAX));
        infos.push(ExportInfo {
            name: export.name.clone(),
            description: export.description.clone(),
            size: export.target.blocks() * BLOCK_BYTES as u64,
            read_only: export.read_only || export.target.is_read_only(),
            reserved: Reserved::Nothing,
            payload_bytes_max: 1 << half.ilog2(),
        });
    }
    if infos.is_empty() && !may_be_none {
        return Err(ServeError::Export {
            name: String::new(),
            why: "there is no drive to export; give one".to_owned(),
        });
    }
    Ok(infos)
}
