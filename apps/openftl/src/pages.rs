//! `openftl pages`: what is in a store of pages.

mod bench;

use crate::cli::pages::{PageDelete, PageGet, PageList, PagePlace, PagePut, Pages, PagesCommand};
use crate::failure::Failure;
use crate::terminal::{Ink, Palette, say};
use openftl_core::units::ByteSize;
use openftl_drive::page_drive::{PageDrive, open_stored};
use openftl_drive::page_store::PageStore;
use openftl_drive::small_file::is_stored_drive;
use openftl_media::EmulatedDevice;
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_pages::RemoteStore;
use openftl_pages::{BlockingStore, Change, SessionId, StoreError, StoreFacts, StoreFailure};
use openftl_parts::{Access, Durability};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{Read, Write as _};

/// The session of this command. What it commits is done when it ends, so its numbers are of no use to the next one.
const SESSION: SessionId = SessionId(*b"openftl pages   ");

type Store = PageStore<EmulatedDevice>;

#[derive(Serialize)]
struct Listed {
    lpid: u64,
    bytes: u32,
}

#[derive(Serialize)]
struct Listing {
    pages: Vec<Listed>,
    pages_all: u64,
    used_bytes: u64,
    capacity_bytes: u64,
}

pub fn run(arguments: &Pages) -> Result<(), Failure> {
    match &arguments.command {
        PagesCommand::Put(put_arguments) => put(put_arguments),
        PagesCommand::Get(get_arguments) => get(get_arguments),
        PagesCommand::Delete(delete_arguments) => delete(delete_arguments),
        PagesCommand::List(list_arguments) => list(list_arguments),
        PagesCommand::Bench(bench_arguments) => bench::run(bench_arguments),
    }
}

/// A store: on a drive of this machine, or served by another process or machine.
enum Opened {
    Here(Box<Store>),
    There(RemoteStore),
}

impl Opened {
    fn open(place: &PagePlace, access: Access) -> Result<Opened, Failure> {
        let drive = &place.drive;
        if let Some(uri) = drive.to_str().filter(|text| DriveUri::is_meant(text)) {
            let uri: DriveUri = uri.parse().map_err(|error| Failure::bad_input(format_args!("--drive: {error}")))?;
            let store = RemoteStore::connect(&uri).map_err(|error| {
                Failure::failed(error)
                    .fix("`openftl serve --drive drives/eleos.toml --nvme-tcp ADDRESS` serves a store")
            })?;
            return Ok(Opened::There(store));
        }
        let store = match is_stored_drive(drive) {
            true => open_stored(drive, access)?,
            false => PageDrive::read(drive)?.open(access)?,
        };
        Ok(Opened::Here(Box::new(store)))
    }

    fn store(&self) -> &dyn BlockingStore {
        match self {
            Opened::Here(store) => &**store,
            Opened::There(store) => store,
        }
    }

    /// Stops the drive, if it is here.
    fn close(self) -> Result<(), Failure> {
        match self {
            Opened::Here(store) => store.close().map(drop),
            Opened::There(_) => Ok(()),
        }
    }
}

/// A number, and the file that has the bytes of that page.
fn page_of(text: &str) -> Result<(u64, Option<&str>), Failure> {
    let (number, file) = text.split_once('=').map_or((text, None), |(number, file)| (number, Some(file)));
    let number = number.parse().map_err(|_| {
        Failure::bad_input(format_args!("{text}: no page has such a number"))
            .fix("write a whole number from 0 on, or one and a file: 7=FILE")
    })?;
    Ok((number, file))
}

fn put(arguments: &PagePut) -> Result<(), Failure> {
    let mut pages = Vec::new();
    for text in &arguments.pages {
        let (lpid, file) = page_of(text)?;
        let bytes = match file {
            Some(file) => std::fs::read(file).map_err(|error| {
                Failure::bad_input(format_args!("{file}: {error}")).fix("name a file that has the bytes of the page")
            })?,
            None if arguments.pages.len() > 1 => {
                return Err(Failure::bad_input(format_args!("{text}: standard input has the bytes of one page"))
                    .fix("name a file for each page: 7=FILE"));
            }
            None => {
                let mut bytes = Vec::new();
                std::io::stdin().read_to_end(&mut bytes).map_err(Failure::failed)?;
                bytes
            }
        };
        pages.push((lpid, bytes));
    }
    let count = pages.len();
    let bytes: usize = pages.iter().map(|(_, bytes)| bytes.len()).sum();
    change(&arguments.place, |stage| pages.iter().try_for_each(|(lpid, bytes)| stage(*lpid, Change::Put(&[bytes]))))?;
    say(&format!("{} {}, {bytes} bytes\n", Palette::of_stdout().paint(Ink::Good, "✓"), pages_in_words(count)))
}

fn delete(arguments: &PageDelete) -> Result<(), Failure> {
    let opened = Opened::open(&arguments.place, Access::ReadWrite)?;
    for lpid in &arguments.lpids {
        opened.store().stat(*lpid).map_err(failure)?;
    }
    change_in(opened, |stage| arguments.lpids.iter().try_for_each(|lpid| stage(*lpid, Change::Delete)))?;
    let sign = Palette::of_stdout().paint(Ink::Good, "✓");
    say(&format!("{sign} {} deleted\n", pages_in_words(arguments.lpids.len())))
}

type Stage<'a> = dyn FnMut(u64, Change<'_>) -> Result<(), StoreFailure> + 'a;

/// Commits one batch, durably.
fn change(place: &PagePlace, fill: impl FnOnce(&mut Stage<'_>) -> Result<(), StoreFailure>) -> Result<(), Failure> {
    change_in(Opened::open(place, Access::ReadWrite)?, fill)
}

fn change_in(opened: Opened, fill: impl FnOnce(&mut Stage<'_>) -> Result<(), StoreFailure>) -> Result<(), Failure> {
    let store = opened.store();
    let (session, last) = store.open_session(SESSION).map_err(failure)?;
    let filled = fill(&mut |lpid, change| store.stage(session, last + 1, lpid, change, None));
    let done = filled.and_then(|()| store.commit(session, last + 1, Durability::Durable));
    let closed = store.close_session(session, true);
    opened.close()?;
    done.and(closed).map_err(failure)
}

fn get(arguments: &PageGet) -> Result<(), Failure> {
    let bytes = Opened::open(&arguments.place, Access::Inspect)?.store().read_whole(arguments.lpid).map_err(failure)?;
    match std::io::stdout().lock().write_all(&bytes) {
        // Whoever reads has enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::failed(format_args!("standard output: {error}"))),
    }
}

fn list(arguments: &PageList) -> Result<(), Failure> {
    let opened = Opened::open(&arguments.place, Access::Inspect)?;
    let store = opened.store();
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let found = store.list(arguments.from, limit).map_err(failure)?;
    let pages: Vec<Listed> = found.into_iter().map(|(lpid, bytes)| Listed { lpid, bytes }).collect();
    let StoreFacts { pages: pages_all, used_bytes, capacity_bytes, .. } = store.facts().map_err(failure)?;
    if arguments.json {
        return say(&crate::json(&Listing { pages, pages_all, used_bytes, capacity_bytes })?);
    }
    let mut text = String::new();
    for Listed { lpid, bytes } in &pages {
        _ = writeln!(text, "{lpid:>20} {bytes:>9}");
    }
    let more =
        if (pages.len() as u64) < pages_all { format!(", {} of them shown", pages.len()) } else { String::new() };
    _ = writeln!(
        text,
        "{}{more}; with headers {} of {} are used",
        pages_in_words(pages_all as usize),
        ByteSize(used_bytes),
        ByteSize(capacity_bytes)
    );
    say(&text)
}

fn pages_in_words(count: usize) -> String {
    if count == 1 { "1 page".to_owned() } else { format!("{count} pages") }
}

/// What a store says, for people.
fn failure(error: impl Into<StoreFailure>) -> Failure {
    let error = match error.into() {
        StoreFailure::Refused(error) => error,
        other => return Failure::failed(other),
    };
    match error {
        StoreError::NoPage { .. } => Failure::failed(error).fix("`openftl pages list` shows which there are"),
        StoreError::Length { bytes: 0, .. } => Failure::bad_input(error).fix("`openftl pages delete` deletes a page"),
        StoreError::Length { .. } => Failure::bad_input(error).fix("divide it, or take a profile with larger chunks"),
        StoreError::NoSpace { .. } => Failure::failed(error).fix("`openftl pages delete` makes room"),
        StoreError::SessionOpen => {
            Failure::failed("another `openftl pages` changes this store at the moment").fix("wait until it has ended")
        }
        error => Failure::failed(error),
    }
}
