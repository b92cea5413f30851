//! Key-value drives from C: what `include/openftl_kv.h` says.

use crate::{Error, give, null, run, text};
use openftl_drive::small_file::is_stored_drive;
use openftl_drive::value_drive::{ValueDrive, open_stored};
use openftl_drive::value_store::ValueStore;
use openftl_files::FileError;
use openftl_media::EmulatedDevice;
use openftl_parts::{Access, Durability};
use openftl_values::{Condition, Key, ValueError};
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a path of a drive may begin with.
const SCHEME: &str = "openftl://";

/// `OPENFTL_KV_IF_EXISTS`, `OPENFTL_KV_IF_MISSING`, `OPENFTL_KV_DURABLE`.
const IF_EXISTS: c_int = 1;
const IF_MISSING: c_int = 2;
const DURABLE: c_int = 4;

/// Keys that are listed at a time.
const KEYS_AT_A_TIME: usize = 1024;

/// `openftl_kv`: an open drive, of which any thread may ask.
pub struct Kv(Mutex<ValueStore<EmulatedDevice>>);

/// `openftl_kv_each`.
type Each = unsafe extern "C" fn(context: *mut c_void, key: *const c_void, key_bytes: usize) -> c_int;

/// The status of the drive as one of a file: the header lists them.
fn refused(error: ValueError) -> FileError {
    let text = error.to_string();
    match error {
        ValueError::NoKey => FileError::NotFound(text),
        ValueError::KeyExists => FileError::Exists(text),
        ValueError::CapacityExceeded { .. } | ValueError::KeysExceeded { .. } => FileError::NoSpace(text),
        ValueError::ValueSize { .. } => FileError::TooLarge(text),
        ValueError::KeySize { .. } | ValueError::ListSize { .. } | ValueError::Frames { .. } => {
            FileError::Invalid(text)
        }
        ValueError::ReadOnly(_) => FileError::ReadOnly(text),
        ValueError::Busy => FileError::Busy(text),
        ValueError::Unrecovered | ValueError::Log(_) | ValueError::Pages(_) => FileError::Io(text),
    }
}

/// # Safety
/// `kv` is null or came from `openftl_kv_open` and was not closed.
unsafe fn store<'a>(kv: *const Kv) -> Result<MutexGuard<'a, ValueStore<EmulatedDevice>>, FileError> {
    // SAFETY: as the caller of this function promises.
    let kv = unsafe { kv.as_ref() }.ok_or_else(|| null("the drive"))?;
    Ok(kv.0.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Bytes of the caller.
///
/// # Safety
/// `bytes` is null or has so many bytes.
unsafe fn bytes<'a>(bytes: *const c_void, count: usize, what: &str) -> Result<&'a [u8], FileError> {
    match (bytes.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null(what)),
        // SAFETY: as the caller of this function promises.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), count) }),
    }
}

/// # Safety
/// `key` is null or has so many bytes.
unsafe fn key(key: *const c_void, count: usize) -> Result<Key, FileError> {
    // SAFETY: as the caller of this function promises.
    Key::new(unsafe { bytes(key, count, "the key") }?).map_err(refused)
}

fn durability(flags: c_int) -> Durability {
    if flags & DURABLE != 0 { Durability::Durable } else { Durability::Volatile }
}

fn expect_flags(flags: c_int, known: c_int) -> Result<(), FileError> {
    match flags & !known {
        0 => Ok(()),
        other => Err(FileError::Invalid(format!("flags = {flags:#x}: {other:#x} is none of this function"))),
    }
}

/// See `openftl_kv.h`.
///
/// # Safety
/// As `openftl_kv.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_kv_open(uri: *const c_char, kv: *mut *mut Kv, error: *mut Error) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let uri = unsafe { text(uri, "the path of the drive") }?;
        let path = Path::new(uri.strip_prefix(SCHEME).unwrap_or(uri));
        if !path.exists() {
            return Err(FileError::NotFound(format!("{}: make the drive with `openftl create`", path.display())));
        }
        let opened = match is_stored_drive(path) {
            true => open_stored(path, Access::ReadWrite),
            false => ValueDrive::read(path).and_then(|drive| drive.open(Access::ReadWrite)),
        };
        let opened = opened.map_err(|failure| FileError::Invalid(failure.what().to_owned()))?;
        let kv_opened = Box::into_raw(Box::new(Kv(Mutex::new(opened))));
        // SAFETY: the caller's pointers.
        unsafe { give(kv, kv_opened, "the place for the drive") }.inspect_err(|_| {
            // SAFETY: it was just made, and nobody has it.
            drop(unsafe { Box::from_raw(kv_opened) });
        })
    })
}

/// See `openftl_kv.h`.
///
/// # Safety
/// As `openftl_kv.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_kv_close(kv: *mut Kv, error: *mut Error) -> c_int {
    run(error, || {
        if kv.is_null() {
            return Err(null("the drive"));
        }
        // SAFETY: it came from openftl_kv_open, and the caller uses it no more.
        let store = unsafe { Box::from_raw(kv) }.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        store.close().map(drop).map_err(|failure| FileError::Io(failure.what().to_owned()))
    })
}

/// See `openftl_kv.h`.
///
/// # Safety
/// As `openftl_kv.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_kv_store(
    kv: *const Kv,
    key_of: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    flags: c_int,
    error: *mut Error,
) -> c_int {
    run(error, || {
        expect_flags(flags, IF_EXISTS | IF_MISSING | DURABLE)?;
        let condition = match flags & (IF_EXISTS | IF_MISSING) {
            0 => Condition::Always,
            IF_EXISTS => Condition::IfExists,
            IF_MISSING => Condition::IfMissing,
            _ => return Err(FileError::Invalid(format!("flags = {flags:#x}: if it exists, and if it does not"))),
        };
        // SAFETY: the caller's pointers.
        let (mut store, key, value) =
            unsafe { (store(kv)?, key(key_of, key_bytes)?, bytes(value, value_bytes, "the value")?) };
        store.store(key, value, condition, durability(flags)).map(drop).map_err(refused)
    })
}

/// See `openftl_kv.h`.
///
/// # Safety
/// As `openftl_kv.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_kv_retrieve(
    kv: *const Kv,
    key_of: *const c_void,
    key_bytes: usize,
    buffer: *mut c_void,
    buffer_bytes: usize,
    value_bytes: *mut usize,
    error: *mut Error,
) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let (mut store, key) = unsafe { (store(kv)?, key(key_of, key_bytes)?) };
        let value = store.retrieve(key).map_err(refused)?;
        let count = value.len().min(buffer_bytes);
        if count > 0 {
            if buffer.is_null() {
                return Err(null("the buffer"));
            }
            // SAFETY: the caller's buffer has so many bytes, and the value is elsewhere.
            unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), buffer.cast(), count) };
        }
        // SAFETY: the caller's pointers.
        unsafe { give(value_bytes, value.len(), "the place for the length") }
    })
}

/// See `openftl_kv.h`.
///
/// # Safety
/// As `openftl_kv.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_kv_exist(
    kv: *const Kv,
    key_of: *const c_void,
    key_bytes: usize,
    value_bytes: *mut usize,
    error: *mut Error,
) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let (mut store, key) = unsafe { (store(kv)?, key(key_of, key_bytes)?) };
        let bytes = store.exist(key).map_err(refused)? as usize;
        // SAFETY: the caller's pointers.
        if value_bytes.is_null() { Ok(()) } else { unsafe { give(value_bytes, bytes, "the place for the length") } }
    })
}

/// See `openftl_kv.h`.
///
/// # Safety
/// As `openftl_kv.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_kv_delete(
    kv: *const Kv,
    key_of: *const c_void,
    key_bytes: usize,
    flags: c_int,
    error: *mut Error,
) -> c_int {
    run(error, || {
        expect_flags(flags, DURABLE)?;
        // SAFETY: the caller's pointers.
        let (mut store, key) = unsafe { (store(kv)?, key(key_of, key_bytes)?) };
        store.delete(key, durability(flags)).map_err(refused)
    })
}

/// See `openftl_kv.h`.
///
/// # Safety
/// As `openftl_kv.h` says of the pointers and of `each`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_kv_list(
    kv: *const Kv,
    from: *const c_void,
    from_bytes: usize,
    each: Option<Each>,
    context: *mut c_void,
    error: *mut Error,
) -> c_int {
    run(error, || {
        let each = each.ok_or_else(|| null("the function that is called for each key"))?;
        // SAFETY: the caller's pointers.
        let mut first = if from_bytes == 0 { None } else { Some(unsafe { key(from, from_bytes) }?) };
        let mut is_behind = false;
        loop {
            // The drive is free while the caller looks at keys: it may ask for their values.
            // SAFETY: the caller's pointers.
            let keys = unsafe { store(kv) }?.list(first, is_behind, KEYS_AT_A_TIME).map_err(refused)?;
            let Some(last) = keys.last().copied() else { return Ok::<(), FileError>(()) };
            for key in keys {
                // SAFETY: the caller's function, with bytes that are there until it returns.
                if unsafe { each(context, key.bytes().as_ptr().cast(), key.bytes().len()) } != 0 {
                    return Ok(());
                }
            }
            (first, is_behind) = (Some(last), true);
        }
    })
}

/// See `openftl_kv.h`.
///
/// # Safety
/// As `openftl_kv.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_kv_flush(kv: *const Kv, error: *mut Error) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        unsafe { store(kv) }?.flush().map_err(refused)
    })
}
