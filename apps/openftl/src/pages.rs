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
use openftl_pages::{BlockingStore, Change, SessionId, StoreError, StoreFailure};
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

fn open(place: &PagePlace, access: Access) -> Result<Store, Failure> {
    match is_stored_drive(&place.drive) {
        true => open_stored(&place.drive, access),
        false => PageDrive::read(&place.drive)?.open(access),
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
    let store = open(&arguments.place, Access::ReadWrite)?;
    for lpid in &arguments.lpids {
        store.stat(*lpid).map_err(failure)?;
    }
    store.close()?;
    change(&arguments.place, |stage| arguments.lpids.iter().try_for_each(|lpid| stage(*lpid, Change::Delete)))?;
    let sign = Palette::of_stdout().paint(Ink::Good, "✓");
    say(&format!("{sign} {} deleted\n", pages_in_words(arguments.lpids.len())))
}

type Stage<'a> = dyn FnMut(u64, Change<'_>) -> Result<(), StoreFailure> + 'a;

/// Commits one batch, durably.
fn change(place: &PagePlace, fill: impl FnOnce(&mut Stage<'_>) -> Result<(), StoreFailure>) -> Result<(), Failure> {
    let store = open(place, Access::ReadWrite)?;
    let (session, last) = store.open_session(SESSION).map_err(failure)?;
    let filled = fill(&mut |lpid, change| store.stage(session, last + 1, lpid, change, None));
    let done = filled.and_then(|()| store.commit(session, last + 1, Durability::Durable));
    store.close_session(session, true).map_err(failure)?;
    store.close()?;
    done.map_err(failure)
}

fn get(arguments: &PageGet) -> Result<(), Failure> {
    let store = open(&arguments.place, Access::Inspect)?;
    let bytes = store.read_whole(arguments.lpid).map_err(failure)?;
    match std::io::stdout().lock().write_all(&bytes) {
        // Whoever reads has enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::failed(format_args!("standard output: {error}"))),
    }
}

fn list(arguments: &PageList) -> Result<(), Failure> {
    let store = open(&arguments.place, Access::Inspect)?;
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let found = store.list(arguments.from, limit).map_err(failure)?;
    let pages: Vec<Listed> = found.into_iter().map(|(lpid, bytes)| Listed { lpid, bytes }).collect();
    let (pages_all, used_bytes, capacity_bytes) =
        store.with_drive(|drive| (drive.pages(), drive.used_bytes(), drive.capacity_bytes()));
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
fn failure(failure: StoreFailure) -> Failure {
    let StoreFailure::Refused(error) = failure else { return Failure::failed(failure) };
    match error {
        StoreError::NoPage { .. } => Failure::failed(error).fix("`openftl pages list` shows which there are"),
        StoreError::Length { bytes: 0, .. } => Failure::bad_input(error).fix("`openftl pages delete` deletes a page"),
        StoreError::Length { .. } => Failure::bad_input(error).fix("divide it, or take a profile with larger chunks"),
        StoreError::NoSpace { .. } => Failure::failed(error).fix("`openftl pages delete` makes room"),
        error => Failure::failed(error),
    }
}
