//! OpenFTL's table drives and stores of pages from C: what `include/openftl.h` says, over [`openftl_files`] and [`openftl_pages`].
//!
//! Every function checks its pointers, catches panics (a bug is an `OPENFTL_IO_ERROR` with its message, and not the end of the
//! database that called), and fills the caller's error with one line.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod drives;
mod fault;
mod kv;
mod stores;

use drives::{Drive, Path};
use fault::Fault;
use openftl_drive_files::DriveFiles;
use openftl_files::{Attributes, FileError, FileKind, ReadRequest};
use openftl_media::EmulatedDevice;
use openftl_tables::TableLifetime;
use openftl_volumes::{VolumeReader, VolumeWriter};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The version of the interface in `openftl.h`.
const ABI_VERSION: u32 = 1;
/// Bytes of a message, its end counted.
const MESSAGE_BYTES: usize = 512;
/// `OPENFTL_OK`.
const OK: c_int = 0;

/// `openftl_error`.
#[repr(C)]
pub struct Error {
    message: [c_char; MESSAGE_BYTES],
}

/// `openftl_attributes`.
#[repr(C)]
pub struct CAttributes {
    bytes: u64,
    modified_s: u64,
    kind: c_int,
}

impl CAttributes {
    fn of(attributes: Attributes) -> CAttributes {
        let Attributes { kind, bytes, modified } = attributes;
        CAttributes { bytes, modified_s: modified, kind: kind as c_int }
    }
}

/// `openftl_read_request`.
#[repr(C)]
pub struct CReadRequest {
    offset: u64,
    bytes: usize,
    buffer: *mut c_void,
    got: usize,
    status: c_int,
}

/// `openftl_file`: being written or being read.
pub enum File {
    /// By several threads too: a database appends to its log while another thread syncs it.
    Written(Mutex<VolumeWriter<EmulatedDevice>>),
    /// By any number.
    Read(VolumeReader<EmulatedDevice>),
}

/// Runs `deed`, and tells the caller how it ended.
fn run<E: Into<Fault>>(error: *mut Error, deed: impl FnOnce() -> Result<(), E>) -> c_int {
    let fault = match catch_unwind(AssertUnwindSafe(deed)) {
        Ok(Ok(())) => return OK,
        Ok(Err(failure)) => failure.into(),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            FileError::Io(format!("a bug in OpenFTL: {words}")).into()
        }
    };
    tell(error, &fault.text);
    fault.code
}

fn tell(error: *mut Error, message: &str) {
    // SAFETY: the caller gave a pointer to an openftl_error, or null.
    let Some(error) = (unsafe { error.as_mut() }) else { return };
    let line = message.replace(['\n', '\0'], " ");
    let mut end = line.len().min(MESSAGE_BYTES - 1);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in error.message.iter_mut().zip(line.as_bytes()[..end].iter().chain([&0])) {
        *to = *from as c_char;
    }
}

fn null(what: &str) -> FileError {
    FileError::Invalid(format!("{what} is a null pointer"))
}

/// A string of the caller.
///
/// # Safety
/// `text` is null or ends with 0.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, FileError> {
    if text.is_null() {
        return Err(null(what));
    }
    // SAFETY: as the caller of this function promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| FileError::Invalid(format!("{what} {:?} is not UTF-8", text.to_string_lossy())))
}

/// # Safety
/// `drive` is null or came from `openftl_open` and was not closed.
unsafe fn files<'a>(drive: *const Drive) -> Result<&'a DriveFiles, FileError> {
    // SAFETY: as the caller of this function promises.
    unsafe { drive.as_ref() }.map(|drive| drive.files()).ok_or_else(|| null("the drive"))
}

/// # Safety
/// `file` is null or was given out and not closed.
unsafe fn writer<'a>(file: *const File) -> Result<MutexGuard<'a, VolumeWriter<EmulatedDevice>>, FileError> {
    // SAFETY: as the caller of this function promises.
    match unsafe { file.as_ref() } {
        Some(File::Written(writer)) => Ok(writer.lock().unwrap_or_else(PoisonError::into_inner)),
        Some(File::Read(_)) => Err(FileError::Invalid("the file was opened for reading".to_owned())),
        None => Err(null("the file")),
    }
}

/// # Safety
/// `file` is null or was given out and not closed.
unsafe fn reader<'a>(file: *const File) -> Result<&'a VolumeReader<EmulatedDevice>, FileError> {
    // SAFETY: as the caller of this function promises.
    match unsafe { file.as_ref() } {
        Some(File::Read(reader)) => Ok(reader),
        Some(File::Written(_)) => Err(FileError::Invalid("the file was opened for writing".to_owned())),
        None => Err(null("the file")),
    }
}

/// Gives a value to the caller.
///
/// # Safety
/// `to` is null or can be written.
unsafe fn give<T>(to: *mut T, value: T, what: &str) -> Result<(), FileError> {
    if to.is_null() {
        return Err(null(what));
    }
    // SAFETY: as the caller of this function promises.
    unsafe { to.write(value) };
    Ok(())
}

fn kind(kind: c_int) -> Result<FileKind, FileError> {
    let file = u8::try_from(kind).ok().and_then(FileKind::from_byte).filter(|kind| *kind != FileKind::Folder);
    file.ok_or_else(|| FileError::Invalid(format!("kind {kind}: a file is OPENFTL_TABLE or OPENFTL_LOG")))
}

/// See `openftl.h`.
#[unsafe(no_mangle)]
pub extern "C" fn openftl_abi_version() -> u32 {
    ABI_VERSION
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_open(uri: *const c_char, drive: *mut *mut Drive, error: *mut Error) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let opened = Drive::open(unsafe { text(uri, "the URI") }?)?;
        // SAFETY: the caller's pointers.
        unsafe { give(drive, Box::into_raw(Box::new(opened)), "the place for the drive") }
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_close(drive: *mut Drive, error: *mut Error) -> c_int {
    run(error, || {
        if drive.is_null() {
            return Err(null("the drive"));
        }
        // SAFETY: it came from openftl_open, and the caller uses it no more.
        unsafe { Box::from_raw(drive) }.close()
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_space(
    drive: *const Drive,
    free_bytes: *mut u64,
    all_bytes: *mut u64,
    error: *mut Error,
) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let (free, all) = unsafe { files(drive) }?.space()?;
        // SAFETY: the caller's pointers.
        unsafe { give(free_bytes, free, "free_bytes").and_then(|()| give(all_bytes, all, "all_bytes")) }
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_statistics(drive: *const Drive, json: *mut *mut c_char, error: *mut Error) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let text = unsafe { files(drive) }?.statistics()?;
        let text = CString::new(text).map_err(|error| FileError::Io(error.to_string()))?;
        // SAFETY: the caller's pointers.
        unsafe { give(json, text.into_raw(), "the place for the text") }
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_free_text(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: it came from openftl_statistics.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_create(
    drive: *const Drive,
    path: *const c_char,
    of_kind: c_int,
    file: *mut *mut File,
    error: *mut Error,
) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let (files, path) = unsafe { (files(drive)?, text(path, "the path")?) };
        let writer = files.create(path, kind(of_kind)?)?;
        // SAFETY: the caller's pointers.
        unsafe { give(file, Box::into_raw(Box::new(File::Written(Mutex::new(writer)))), "the place for the file") }
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_append_to(
    drive: *const Drive,
    path: *const c_char,
    file: *mut *mut File,
    error: *mut Error,
) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let (files, path) = unsafe { (files(drive)?, text(path, "the path")?) };
        let writer = files.append_to(path)?;
        // SAFETY: the caller's pointers.
        unsafe { give(file, Box::into_raw(Box::new(File::Written(Mutex::new(writer)))), "the place for the file") }
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_hint_size(file: *mut File, expected_bytes: u64) {
    // SAFETY: the caller's pointers.
    if let Ok(mut writer) = unsafe { writer(file) } {
        writer.hint_size(expected_bytes);
    }
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_hint_lifetime(file: *mut File, lifetime: c_int) {
    // SAFETY: the caller's pointers.
    if let Ok(mut writer) = unsafe { writer(file) } {
        writer.hint_lifetime(match lifetime {
            1 => TableLifetime::Short,
            2 => TableLifetime::Medium,
            3 => TableLifetime::Long,
            4 => TableLifetime::Extreme,
            _ => TableLifetime::Unknown,
        });
    }
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_append(
    file: *mut File,
    data: *const c_void,
    bytes: usize,
    error: *mut Error,
) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        unsafe { writer(file)?.append(slice(data, bytes)?) }
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_write_at(
    file: *mut File,
    offset: u64,
    data: *const c_void,
    bytes: usize,
    error: *mut Error,
) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        unsafe { writer(file)?.write_at(offset, slice(data, bytes)?) }
    })
}

/// # Safety
/// `data` are `bytes` bytes, or null with none.
unsafe fn slice<'a>(data: *const c_void, bytes: usize) -> Result<&'a [u8], FileError> {
    match bytes {
        0 => Ok(&[]),
        _ if data.is_null() => Err(null("the data")),
        // SAFETY: as the caller of this function promises.
        _ => Ok(unsafe { std::slice::from_raw_parts(data.cast(), bytes) }),
    }
}

/// # Safety
/// `buffer` has room for `bytes` bytes, or is null with none.
unsafe fn slice_mut<'a>(buffer: *mut c_void, bytes: usize) -> Result<&'a mut [u8], FileError> {
    match bytes {
        0 => Ok(&mut []),
        _ if buffer.is_null() => Err(null("the buffer")),
        // SAFETY: as the caller of this function promises.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), bytes) }),
    }
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_truncate(file: *mut File, bytes: u64, error: *mut Error) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        unsafe { writer(file) }?.truncate(bytes)
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_flush(file: *mut File, error: *mut Error) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        unsafe { writer(file) }?.flush()
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_commit(file: *mut File, error: *mut Error) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        unsafe { writer(file) }?.commit()
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_sync(file: *mut File, error: *mut Error) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let pending = unsafe { writer(file) }?.begin_sync()?;
        pending.finish()
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_size(file: *const File) -> u64 {
    // SAFETY: the caller's pointers.
    match unsafe { file.as_ref() } {
        Some(File::Written(writer)) => writer.lock().unwrap_or_else(PoisonError::into_inner).bytes(),
        Some(File::Read(reader)) => reader.bytes(),
        None => 0,
    }
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_close_file(file: *mut File, error: *mut Error) -> c_int {
    run(error, || {
        if file.is_null() {
            return Err(null("the file"));
        }
        // SAFETY: it was given out, and the caller uses it no more.
        match *unsafe { Box::from_raw(file) } {
            File::Written(writer) => writer.into_inner().unwrap_or_else(PoisonError::into_inner).close(),
            File::Read(_) => Ok(()),
        }
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_open_read(
    drive: *const Drive,
    path: *const c_char,
    file: *mut *mut File,
    error: *mut Error,
) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let (files, path) = unsafe { (files(drive)?, text(path, "the path")?) };
        let reader = files.open_read(path)?;
        // SAFETY: the caller's pointers.
        unsafe { give(file, Box::into_raw(Box::new(File::Read(reader))), "the place for the file") }
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_read(
    file: *const File,
    offset: u64,
    bytes: usize,
    buffer: *mut c_void,
    got: *mut usize,
    error: *mut Error,
) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let (reader, buffer) = unsafe { (reader(file)?, slice_mut(buffer, bytes)?) };
        let read = reader.read(offset, buffer)?;
        // SAFETY: the caller's pointers.
        unsafe { give(got, read, "the place for the number of bytes") }
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_read_many(
    file: *const File,
    requests: *mut CReadRequest,
    count: usize,
    error: *mut Error,
) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let reader = unsafe { reader(file) }?;
        if count == 0 {
            return Ok(());
        }
        if requests.is_null() {
            return Err(null("the requests"));
        }
        // SAFETY: the caller's pointer to `count` requests.
        let requests = unsafe { std::slice::from_raw_parts_mut(requests, count) };
        let mut reads = Vec::with_capacity(count);
        for request in requests.iter() {
            // SAFETY: each request has a buffer of its own.
            let buffer = unsafe { slice_mut(request.buffer, request.bytes) }?;
            reads.push(ReadRequest { offset: request.offset, buffer, result: Ok(0) });
        }
        reader.read_many(&mut reads);
        let mut first = Ok(());
        for (request, read) in requests.iter_mut().zip(reads) {
            match read.result {
                Ok(got) => (request.got, request.status) = (got, OK),
                Err(failure) => {
                    (request.got, request.status) = (0, failure.code());
                    first = first.and(Err(failure));
                }
            }
        }
        first
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_file_id(file: *const File) -> u64 {
    // SAFETY: the caller's pointers.
    match unsafe { file.as_ref() } {
        Some(File::Read(reader)) => reader.id(),
        Some(File::Written(writer)) => writer.lock().unwrap_or_else(PoisonError::into_inner).id(),
        None => 0,
    }
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_stat(
    drive: *const Drive,
    path: *const c_char,
    attributes: *mut CAttributes,
    error: *mut Error,
) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let found = unsafe { files(drive)?.attributes(text(path, "the path")?) }?;
        // SAFETY: the caller's pointers.
        unsafe { give(attributes, CAttributes::of(found), "the place for the attributes") }
    })
}

/// `openftl_each`.
pub type Each = extern "C" fn(context: *mut c_void, name: *const c_char, attributes: *const CAttributes);

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_list(
    drive: *const Drive,
    folder: *const c_char,
    each: Option<Each>,
    context: *mut c_void,
    error: *mut Error,
) -> c_int {
    run(error, || {
        let each = each.ok_or_else(|| null("the function for each name"))?;
        // SAFETY: the caller's pointers.
        let found = unsafe { files(drive)?.list(text(folder, "the folder")?) }?;
        for (name, attributes) in found {
            let name = CString::new(name).map_err(|error| FileError::Corruption(error.to_string()))?;
            each(context, name.as_ptr(), &CAttributes::of(attributes));
        }
        Ok::<(), FileError>(())
    })
}

/// Does something with a path.
///
/// # Safety
/// As `openftl.h` says of the pointers.
unsafe fn with_path(
    drive: *const Drive,
    path: *const c_char,
    error: *mut Error,
    deed: impl FnOnce(&DriveFiles, Path<'_>) -> Result<(), FileError>,
) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let (files, path) = unsafe { (files(drive)?, text(path, "the path")?) };
        deed(files, path)
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_delete(drive: *const Drive, path: *const c_char, error: *mut Error) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe { with_path(drive, path, error, |files, path| files.delete(path)) }
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_rename(
    drive: *const Drive,
    from: *const c_char,
    to: *const c_char,
    error: *mut Error,
) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe { with_path(drive, from, error, |files, from| files.rename(from, text(to, "the new path")?)) }
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_make_folder(drive: *const Drive, path: *const c_char, error: *mut Error) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe { with_path(drive, path, error, |files, path| files.make_folder(path)) }
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_delete_folder(drive: *const Drive, path: *const c_char, error: *mut Error) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe { with_path(drive, path, error, |files, path| files.delete_folder(path)) }
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_sync_folder(drive: *const Drive, path: *const c_char, error: *mut Error) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe { with_path(drive, path, error, |files, path| files.sync_names(path)) }
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_lock(drive: *const Drive, path: *const c_char, error: *mut Error) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe { with_path(drive, path, error, |files, path| files.lock(path)) }
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_unlock(drive: *const Drive, path: *const c_char, error: *mut Error) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe { with_path(drive, path, error, |files, path| files.unlock(path)) }
}

const _: () = assert!(size_of::<Error>() == MESSAGE_BYTES);

/// What the drives of this process share.
type Shared = Arc<DriveFiles>;
