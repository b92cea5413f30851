//! A drive of this machine that is opened to be looked at, whatever happened to it before.

use openftl_drive::failure::Failure;
use openftl_parts::Access;

/// Opens a drive for `access`. One that is only looked at, and was not stopped, is recovered before, as it would be to be served: the end of its log
/// may be readable only when something is written behind it, and without that what was acknowledged last seems to be missing.
pub fn opened<D>(
    access: Access,
    open: impl Fn(Access) -> Result<D, Failure>,
    was_stopped: impl FnOnce(&mut D) -> bool,
    stop: impl FnOnce(D) -> Result<(), Failure>,
) -> Result<D, Failure> {
    let mut drive = open(access)?;
    if access != Access::Inspect || was_stopped(&mut drive) {
        return Ok(drive);
    }
    drop(drive);
    stop(open(Access::ReadWrite)?)?;
    open(access)
}
