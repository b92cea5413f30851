//! Privileges: the set-user-ID and set-group-ID bits, which a file loses when somebody changes it who could not give them.
//!
//! A write, a truncation and a `fallocate` take them unless the caller has `CAP_FSETID`; a change of the owner does whoever the caller is. The
//! set-group-ID bit of a file that its group may not execute is no privilege, and stays.
//!
//! The kernel knows the caller's capabilities, and says in each request whether the bits go (`FUSE_HANDLE_KILLPRIV_V2`). With `fallocate` it
//! cannot say so: there, and to kernels without that feature, root alone has the capability. The kernel goes on with the mode that it remembers, unless
//! a reply has attributes or it is told that they are old ([`Answer::notice`](crate::Answer::notice)). File capabilities (`security.capability`) are an
//! extended attribute, which the kernel removes itself.

use crate::plan::Then;
use crate::request::{Body, Head};
use crate::wire::{init_flag, setattr_flag};
use openftl_alfs::{Attributes, Changes, FileKind, Operation};

/// What the kernel leaves to the file system.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Privileges {
    /// The kernel says of each request whether it drops them. Otherwise it changes the mode itself, but not when an open truncates.
    are_announced: bool,
}

impl Privileges {
    /// By the flags of an `INIT` that both ends have.
    pub(crate) fn agreed(flags: u32) -> Privileges {
        Privileges { are_announced: flags & init_flag::HANDLE_KILLPRIV_V2 != 0 }
    }

    /// Whether the file of a request loses its privileges.
    pub(crate) fn are_dropped(self, head: &Head, body: &Body<'_>) -> bool {
        let is_announced = match *body {
            Body::Open { drops_privileges, .. } | Body::Create { drops_privileges, .. } => match self.are_announced {
                true => drops_privileges,
                false => return head.uid != 0,
            },
            Body::Write { drops_privileges, .. } => drops_privileges,
            Body::Setattr(setattr) => setattr.valid.get() & setattr_flag::KILL_SUIDGID != 0,
            Body::Fallocate { .. } => head.uid != 0,
            _ => false,
        };
        self.are_announced && is_announced
    }
}

/// The mode of a file without its privileges; `None`: it has none.
pub(crate) fn lost_by(file: &Attributes) -> Option<u16> {
    let without = match file.mode & 0o010 {
        0 => file.mode & !0o4000,
        _ => file.mode & !0o6000,
    };
    (without != file.mode && file.kind != FileKind::Directory).then_some(without)
}

/// The next operation of a request that takes the privileges of `file`: a change of its mode, if it has some, and else the operation behind. A
/// change of attributes is one with that of the mode, so no crash comes between; before other operations it is the safe half of both.
pub(crate) fn drop_before<'a>(file: &Attributes, behind: (Operation<'a>, Then<'a>)) -> (Operation<'a>, Then<'a>) {
    let mode = lost_by(file);
    match behind {
        (Operation::SetAttributes { inode, changes }, then) => {
            (Operation::SetAttributes { inode, changes: Changes { mode: changes.mode.or(mode), ..changes } }, then)
        }
        _ if mode.is_some() => {
            let changes = Changes { mode, ..Changes::default() };
            (Operation::SetAttributes { inode: file.inode, changes }, Then::DropPrivileges)
        }
        _ => behind,
    }
}
