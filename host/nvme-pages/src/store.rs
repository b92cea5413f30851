//! A store of pages behind a connection. Any thread may use it: a call has the connection for itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use openftl_nvme::command::pages::{Asked, PageCommand};
use openftl_nvme::wire::identify::{cns, csi};
use openftl_nvme::wire::pages::{
    LIST_BYTES_MAX, ListEntry, ListHead, PageStat, PagesNamespace, SessionReport, StoreReport, read_facts,
};
use openftl_nvme_media::ANSWER_MAX;
use openftl_nvme_media::connect::{ConnectError, connect};
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_tcp::client::{ClientError, Payload};
use openftl_pages::{BlockingStore, Change, PageFacts, Session, SessionId, StoreFacts, StoreFailure, WINDOW};
use openftl_parts::target::Durability;
use zerocopy::FromBytes;

use crate::link::{ENTRIES, Link};

/// Who connects, unless the caller says another name.
const HOST_NQN: &str = "nqn.2026-11.org.openftl:pages";

/// Bytes of a page that are asked for before its length is known.
const FIRST_READ_BYTES: u32 = 64 << 10;

/// See the module.
#[derive(Clone)]
pub struct RemoteStore {
    link: Arc<Mutex<Link>>,
}

impl RemoteStore {
    /// Connects to the store at `uri`.
    ///
    /// # Errors
    /// If nobody is there, the subsystem refuses, or the namespace is another kind.
    pub fn connect(uri: &DriveUri) -> Result<RemoteStore, ConnectError> {
        RemoteStore::connect_within(uri, ANSWER_MAX)
    }

    /// The same; whoever does not answer within `answer_max` is cut, now and later.
    ///
    /// # Errors
    /// As [`RemoteStore::connect`].
    pub fn connect_within(uri: &DriveUri, answer_max: Duration) -> Result<RemoteStore, ConnectError> {
        let mut association = connect(uri, HOST_NQN, 1, answer_max)?;
        let no_store = |why: &str| ConnectError::other_kind(uri, format_args!("is no store of pages: {why}"));
        let found = association.admin.identify_of_set(cns::COMMAND_SET_NAMESPACE, uri.namespace, csi::PAGES);
        let found = match found {
            Ok(found) => PagesNamespace::read_from_bytes(&found).expect("4096 bytes"),
            Err(ClientError::Refused { .. }) => return Err(no_store("it has another command set")),
            Err(error) => return Err(error.into()),
        };
        match found.version.get() {
            1 => {}
            0 => return Err(no_store("there is no such namespace")),
            other => return Err(no_store(&format!("its commands are of version {other}, and this host knows 1"))),
        }
        if u64::from(found.window.get()) != WINDOW {
            return Err(no_store(&format!("its window has {} batches, and this host knows {WINDOW}", found.window)));
        }
        let (part_bytes_max, page_bytes_max) = (found.transfer_bytes_max.get(), found.page_bytes_max.get());
        if page_bytes_max == 0 || part_bytes_max < page_bytes_max {
            return Err(no_store("its longest page is longer than its longest command"));
        }
        let io = association.io_queue(ENTRIES)?;
        let link = Link::new(io, association.admin, uri.namespace, part_bytes_max, page_bytes_max);
        Ok(RemoteStore { link: Arc::new(Mutex::new(link)) })
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        // A call that panicked has left a connection that a later one finds out about.
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of a page that can be written, at most.
    #[must_use]
    pub fn page_bytes_max(&self) -> u32 {
        self.link().page_bytes_max()
    }

    /// All bytes of these pages; some are read at a time.
    ///
    /// # Errors
    /// If the store is not reached. What is wrong with one of them is in its place.
    pub fn read_many(&self, lpids: &[u64]) -> Result<Vec<Result<Vec<u8>, StoreFailure>>, StoreFailure> {
        let mut link = self.link();
        let mut pages: Vec<Result<Vec<u8>, StoreFailure>> = (0..lpids.len()).map(|_| Ok(Vec::new())).collect();
        let mut long = Vec::new();
        link.read_together(lpids, FIRST_READ_BYTES, |at, result| {
            pages[at] = result.map(|(facts, data)| {
                let (bytes, _) = read_facts(facts);
                if bytes as usize > data.len() {
                    long.push((at, bytes));
                }
                data
            });
        })?;
        for (at, bytes) in long {
            pages[at] = read_all(&mut link, lpids[at], bytes);
        }
        Ok(pages)
    }
}

/// Reads a page of about so many bytes, in one command: so they are of one version.
fn read_all(link: &mut Link, lpid: u64, mut bytes: u32) -> Result<Vec<u8>, StoreFailure> {
    let asked = Asked { lpid, ..Asked::default() };
    loop {
        let room = Payload::ToHost(vec![0; bytes as usize]);
        let (facts, data) = link.call(PageCommand::Read { lpid, offset: 0, bytes }, room, asked)?;
        let (length, _) = read_facts(facts);
        if length as usize == data.len() {
            return Ok(data);
        }
        // Put anew meanwhile, and longer.
        if length <= bytes {
            return Err(StoreFailure::Drive(format!("page {lpid} has {length} bytes, and {} came", data.len())));
        }
        bytes = length;
    }
}

/// A data structure of fixed length.
fn structure<T: FromBytes>(link: &mut Link, command: PageCommand, asked: Asked<'_>) -> Result<T, StoreFailure> {
    let room = Payload::ToHost(vec![0; size_of::<T>()]);
    let (_, data) = link.call(command, room, asked)?;
    T::read_from_bytes(&data)
        .map_err(|_| StoreFailure::Drive(format!("{command:?} brought {} bytes of {}", data.len(), size_of::<T>())))
}

impl BlockingStore for RemoteStore {
    fn open_session(&self, id: SessionId) -> Result<(Session, u64), StoreFailure> {
        let mut link = self.link();
        let data = Payload::ToController(id.0.to_vec());
        let (result, _) = link.call(PageCommand::Open, data, Asked::default())?;
        let session = result as u32;
        let asked = Asked { session, ..Asked::default() };
        let report: SessionReport = structure(&mut link, PageCommand::Session { session }, asked)?;
        Ok((Session(session), report.durable_at_open.get()))
    }

    fn close_session(&self, session: Session, forget: bool) -> Result<(), StoreFailure> {
        let mut link = self.link();
        link.forget_batches(session)?;
        let asked = Asked { session: session.0, ..Asked::default() };
        link.call(PageCommand::Close { session: session.0, forget }, Payload::None, asked).map(drop)
    }

    fn stage(
        &self,
        session: Session,
        wsn: u64,
        lpid: u64,
        change: Change<'_>,
        if_version: Option<u64>,
    ) -> Result<(), StoreFailure> {
        self.link().stage(session, wsn, lpid, change, if_version)
    }

    fn commit(&self, session: Session, wsn: u64, durability: Durability) -> Result<(), StoreFailure> {
        self.link().commit(session, wsn, durability)
    }

    fn abort(&self, session: Session, wsn: u64) -> Result<(), StoreFailure> {
        self.link().abort(session, wsn)
    }

    fn read(&self, lpid: u64, offset: u32, buffer: &mut [u8]) -> Result<PageFacts, StoreFailure> {
        let asked = Asked { lpid, ..Asked::default() };
        let bytes = buffer.len().min(self.page_bytes_max() as usize) as u32;
        let room = Payload::ToHost(vec![0; bytes as usize]);
        let (facts, data) = self.link().call(PageCommand::Read { lpid, offset, bytes }, room, asked)?;
        let Some(to) = buffer.get_mut(..data.len()) else {
            return Err(StoreFailure::Drive(format!(
                "page {lpid}: {bytes} bytes were asked for, and {} came",
                data.len()
            )));
        };
        to.copy_from_slice(&data);
        let (bytes, version) = read_facts(facts);
        Ok(PageFacts { bytes, version })
    }

    fn read_whole(&self, lpid: u64) -> Result<Vec<u8>, StoreFailure> {
        read_all(&mut self.link(), lpid, FIRST_READ_BYTES)
    }

    fn stat(&self, lpid: u64) -> Result<PageFacts, StoreFailure> {
        let asked = Asked { lpid, ..Asked::default() };
        let stat: PageStat = structure(&mut self.link(), PageCommand::Stat { lpid }, asked)?;
        Ok(PageFacts { bytes: stat.bytes.get(), version: stat.version.get() })
    }

    fn list(&self, from: u64, most: usize) -> Result<Vec<(u64, u32)>, StoreFailure> {
        let mut link = self.link();
        let mut pages: Vec<(u64, u32)> = Vec::new();
        let mut next = Some(from);
        while let Some(from) = next.filter(|_| pages.len() < most) {
            let entries_max = (LIST_BYTES_MAX as usize - size_of::<ListHead>()) / size_of::<ListEntry>();
            let wanted = entries_max.min(most - pages.len());
            let bytes = (size_of::<ListHead>() + wanted * size_of::<ListEntry>()) as u32;
            let room = Payload::ToHost(vec![0; bytes as usize]);
            let (_, data) = link.call(PageCommand::List { from, bytes }, room, Asked::default())?;
            let short = || StoreFailure::Drive(format!("a list of pages broke off after {} bytes", data.len()));
            let (head, rest) = ListHead::ref_from_prefix(&data).map_err(|_| short())?;
            let count = head.pages.get() as usize;
            let (entries, _) = <[ListEntry]>::ref_from_prefix_with_elems(rest, count).map_err(|_| short())?;
            pages.extend(entries.iter().map(|entry| (entry.lpid.get(), entry.bytes.get())));
            next = entries.last().filter(|_| count == wanted).and_then(|entry| entry.lpid.get().checked_add(1));
        }
        Ok(pages)
    }

    fn sync(&self) -> Result<(), StoreFailure> {
        self.link().flush()
    }

    fn facts(&self) -> Result<StoreFacts, StoreFailure> {
        let report: StoreReport = structure(&mut self.link(), PageCommand::Store, Asked::default())?;
        Ok(StoreFacts {
            pages: report.pages.get(),
            used_bytes: report.used_bytes.get(),
            capacity_bytes: report.capacity_bytes.get(),
            page_bytes_max: report.page_bytes_max.get(),
        })
    }
}
