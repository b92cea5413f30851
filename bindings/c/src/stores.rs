//! Stores of pages from C.

use crate::drives::{drive_file, not_closed};
use crate::fault::Fault;
use crate::{Error, give, null, run, text};
use openftl_drive::page_drive::{PageDrive, open_stored};
use openftl_drive::page_store::PageStore;
use openftl_drive::small_file::is_stored_drive;
use openftl_files::FileError;
use openftl_media::EmulatedDevice;
use openftl_pages::{BlockingStore, Change, PageFacts, SessionId};
use openftl_parts::{Access, Durability};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

type Pages = PageStore<EmulatedDevice>;

/// The stores that this process has open, and how often each.
static OPEN: Mutex<BTreeMap<PathBuf, (Pages, usize)>> = Mutex::new(BTreeMap::new());

/// Pages that are listed at a time.
const LISTED_MAX: usize = 256;

/// `openftl_store`: one use of an open store.
pub struct Store {
    file: PathBuf,
    pages: Pages,
}

/// `openftl_session`.
pub struct Session {
    pages: Pages,
    session: openftl_pages::Session,
}

/// `openftl_batch`.
pub struct Batch {
    pages: Pages,
    session: openftl_pages::Session,
    wsn: u64,
}

/// `openftl_page`.
#[repr(C)]
pub struct CPage {
    bytes: u32,
    version: u64,
}

impl CPage {
    fn of(PageFacts { bytes, version }: PageFacts) -> CPage {
        CPage { bytes, version }
    }
}

impl Store {
    fn open(uri: &str) -> Result<Store, Fault> {
        let file = drive_file(uri)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((pages, users)) = open.get_mut(&file) {
            *users += 1;
            return Ok(Store { pages: pages.clone(), file });
        }
        let pages = match is_stored_drive(&file) {
            true => open_stored(&file, Access::ReadWrite)?,
            false => PageDrive::read(&file)?.open(Access::ReadWrite)?,
        };
        open.insert(file.clone(), (pages.clone(), 1));
        Ok(Store { file, pages })
    }

    fn close(self) -> Result<(), Fault> {
        let Store { file, pages } = self;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, users)) = open.get_mut(&file) {
            *users -= 1;
            if *users > 0 {
                return Ok(());
            }
        }
        open.remove(&file);
        match pages.close()? {
            Some(_) => Ok(()),
            None => Err(not_closed(&file, "sessions or batches of the store").into()),
        }
    }
}

/// What a pointer of the caller leads to.
///
/// # Safety
/// `pointer` is null or was given out and not closed.
unsafe fn of<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, FileError> {
    // SAFETY: as the caller of this function promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// Takes back what was given to the caller.
///
/// # Safety
/// As of [`of`]; the caller uses it no more.
unsafe fn back<T>(pointer: *mut T, what: &str) -> Result<T, FileError> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: as the caller of this function promises.
    Ok(*unsafe { Box::from_raw(pointer) })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_store_open(uri: *const c_char, store: *mut *mut Store, error: *mut Error) -> c_int {
    run(error, || -> Result<(), Fault> {
        // SAFETY: the caller's pointers.
        let opened = Store::open(unsafe { text(uri, "the URI") }?)?;
        // SAFETY: the caller's pointers.
        Ok(unsafe { give(store, Box::into_raw(Box::new(opened)), "the place for the store") }?)
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_store_close(store: *mut Store, error: *mut Error) -> c_int {
    // SAFETY: the caller's pointer, which it uses no more.
    run(error, || unsafe { back(store, "the store") }.map_err(Fault::from)?.close())
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_store_sync(store: *const Store, error: *mut Error) -> c_int {
    run(error, || -> Result<(), Fault> {
        // SAFETY: the caller's pointers.
        Ok(unsafe { of(store, "the store") }?.pages.sync()?)
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_store_space(
    store: *const Store,
    free_bytes: *mut u64,
    all_bytes: *mut u64,
    error: *mut Error,
) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let pages = &unsafe { of(store, "the store") }?.pages;
        let (used, all) = pages.with_drive(|drive| (drive.used_bytes(), drive.capacity_bytes()));
        // SAFETY: the caller's pointers.
        unsafe { give(free_bytes, all - used, "free_bytes").and_then(|()| give(all_bytes, all, "all_bytes")) }
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_session_open(
    store: *const Store,
    id: *const [u8; 16],
    session: *mut *mut Session,
    last_wsn: *mut u64,
    error: *mut Error,
) -> c_int {
    run(error, || -> Result<(), Fault> {
        // SAFETY: the caller's pointers.
        let (pages, id) = unsafe { (&of(store, "the store")?.pages, of(id, "the identifier of the session")?) };
        if session.is_null() || last_wsn.is_null() {
            return Err(null("the place for the session, or that for its last number").into());
        }
        let (opened, last) = pages.open_session(SessionId(*id))?;
        let opened = Session { pages: pages.clone(), session: opened };
        // SAFETY: the caller's pointers.
        unsafe {
            give(last_wsn, last, "last_wsn")?;
            Ok(give(session, Box::into_raw(Box::new(opened)), "the place for the session")?)
        }
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_session_close(session: *mut Session, forget: c_int, error: *mut Error) -> c_int {
    run(error, || -> Result<(), Fault> {
        // SAFETY: the caller's pointer, which it uses no more.
        let Session { pages, session } = unsafe { back(session, "the session") }?;
        Ok(pages.close_session(session, forget != 0)?)
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_batch_new(
    session: *const Session,
    wsn: u64,
    batch: *mut *mut Batch,
    error: *mut Error,
) -> c_int {
    run(error, || {
        // SAFETY: the caller's pointers.
        let Session { pages, session } = unsafe { of(session, "the session") }?;
        let made = Batch { pages: pages.clone(), session: *session, wsn };
        // SAFETY: the caller's pointers.
        unsafe { give(batch, Box::into_raw(Box::new(made)), "the place for the batch") }
    })
}

/// Adds a change to a batch.
///
/// # Safety
/// The pointers are the caller's.
unsafe fn stage(batch: *const Batch, lpid: u64, change: Change<'_>, if_version: *const u64) -> Result<(), Fault> {
    // SAFETY: the caller's pointers.
    let (Batch { pages, session, wsn }, if_version) = unsafe { (of(batch, "the batch")?, if_version.as_ref()) };
    Ok(pages.stage(*session, *wsn, lpid, change, if_version.copied())?)
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_batch_put(
    batch: *const Batch,
    lpid: u64,
    data: *const c_void,
    bytes: usize,
    if_version: *const u64,
    error: *mut Error,
) -> c_int {
    run(error, || {
        let page = match bytes {
            0 => &[],
            _ if data.is_null() => return Err(null("the bytes of the page").into()),
            // SAFETY: the caller has so many bytes there.
            _ => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) },
        };
        // SAFETY: the caller's pointers.
        unsafe { stage(batch, lpid, Change::Put(&[page]), if_version) }
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_batch_delete(
    batch: *const Batch,
    lpid: u64,
    if_version: *const u64,
    error: *mut Error,
) -> c_int {
    // SAFETY: the caller's pointers.
    run(error, || unsafe { stage(batch, lpid, Change::Delete, if_version) })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_batch_commit(batch: *mut Batch, durable: c_int, error: *mut Error) -> c_int {
    run(error, || -> Result<(), Fault> {
        // SAFETY: the caller's pointer, which it uses no more.
        let Batch { pages, session, wsn } = unsafe { back(batch, "the batch") }?;
        let durability = if durable == 0 { Durability::Volatile } else { Durability::Durable };
        Ok(pages.commit(session, wsn, durability)?)
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_batch_abort(batch: *mut Batch, error: *mut Error) -> c_int {
    run(error, || -> Result<(), Fault> {
        // SAFETY: the caller's pointer, which it uses no more.
        let Batch { pages, session, wsn } = unsafe { back(batch, "the batch") }?;
        Ok(pages.abort(session, wsn)?)
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_page_read(
    store: *const Store,
    lpid: u64,
    offset: u32,
    buffer: *mut c_void,
    bytes: usize,
    got: *mut usize,
    page: *mut CPage,
    error: *mut Error,
) -> c_int {
    run(error, || -> Result<(), Fault> {
        // SAFETY: the caller's pointers.
        let pages = &unsafe { of(store, "the store") }?.pages;
        let to = match bytes {
            0 => &mut [],
            _ if buffer.is_null() => return Err(null("the buffer").into()),
            // SAFETY: the caller has room for so many bytes there.
            _ => unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), bytes) },
        };
        let facts = pages.read(lpid, offset, to)?;
        let count = bytes.min(facts.bytes.saturating_sub(offset) as usize);
        // SAFETY: the caller's pointers, of which the second may be null.
        unsafe {
            if let Some(page) = page.as_mut() {
                *page = CPage::of(facts);
            }
            Ok(give(got, count, "got")?)
        }
    })
}

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_page_stat(
    store: *const Store,
    lpid: u64,
    page: *mut CPage,
    error: *mut Error,
) -> c_int {
    run(error, || -> Result<(), Fault> {
        // SAFETY: the caller's pointers.
        let facts = unsafe { of(store, "the store") }?.pages.stat(lpid)?;
        // SAFETY: the caller's pointers.
        Ok(unsafe { give(page, CPage::of(facts), "the place for the page") }?)
    })
}

/// What is called for a page: context, number, bytes.
pub type EachPage = unsafe extern "C" fn(*mut c_void, u64, u32) -> c_int;

/// See `openftl.h`.
///
/// # Safety
/// As `openftl.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openftl_page_list(
    store: *const Store,
    from: u64,
    each: Option<EachPage>,
    context: *mut c_void,
    error: *mut Error,
) -> c_int {
    run(error, || -> Result<(), Fault> {
        // SAFETY: the caller's pointers.
        let pages = &unsafe { of(store, "the store") }?.pages;
        let each = each.ok_or_else(|| null("the function for each page"))?;
        let mut from = from;
        loop {
            let found = pages.list(from, LISTED_MAX)?;
            for (lpid, bytes) in &found {
                // SAFETY: the caller's function, with the caller's context.
                if unsafe { each(context, *lpid, *bytes) } != 0 {
                    return Ok(());
                }
            }
            match found.last().and_then(|(last, _)| last.checked_add(1)) {
                Some(next) if found.len() == LISTED_MAX => from = next,
                _ => return Ok(()),
            }
        }
    })
}
