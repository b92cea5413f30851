//! Sessions: whom they belong to, and what is left of them.

use openftl_media::{EmulatedDevice, Profile, Timing};
use openftl_nvme::Status;
use openftl_nvme::command::pages::PageCommand;
use openftl_nvme_tcp::client::Payload;
use openftl_pages::{BlockingStore, Change, Ftl, PageFtl, StoreError, StoreFailure};
use openftl_parts::{Access, Config, Durability};
use openftl_server::WallClock;

use crate::support::*;

#[test]
fn a_session_that_is_open_is_refused_to_others_until_its_host_leaves() {
    let served = Served::new(drive());
    let first = served.connect();
    let second = served.connect();
    let (of_first, _) = first.open_session(session(1)).unwrap();
    assert_eq!(second.open_session(session(1)), Err(StoreError::SessionOpen.into()));
    assert_eq!(first.open_session(session(1)), Err(StoreError::SessionOpen.into()));
    // Nor is its number of any use to them.
    let stolen = second.commit(of_first, 1, Durability::Volatile);
    assert_eq!(stolen, Err(StoreError::NoSession { session: of_first.0 }.into()));
    second.stage(of_first, 1, 9, Change::Put(&[b"stolen"]), None).unwrap();
    assert_eq!(
        second.commit(of_first, 1, Durability::Volatile),
        Err(StoreError::NoSession { session: of_first.0 }.into())
    );
    assert_eq!(second.close_session(of_first, true), Err(StoreError::NoSession { session: of_first.0 }.into()));
    first.stage(of_first, 1, 1, Change::Put(&[b"mine"]), None).unwrap();
    first.commit(of_first, 1, Durability::Durable).unwrap();
    first.close_session(of_first, false).unwrap();
    let (of_second, last) = second.open_session(session(1)).unwrap();
    assert_eq!((last, second.read_whole(1).unwrap().as_slice()), (1, &b"mine"[..]));
    assert!(second.read_whole(9).unwrap_err().is_no_page());
    // Forgotten, it begins anew.
    second.close_session(of_second, true).unwrap();
    assert_eq!(second.open_session(session(1)).unwrap().1, 0);
}

#[test]
fn a_connection_that_goes_away_takes_its_sessions_and_what_was_staged_with_it() {
    let served = Served::new(drive());
    let store = served.connect();
    let (of_first, _) = store.open_session(session(1)).unwrap();
    store.stage(of_first, 1, 1, Change::Put(&[b"kept"]), None).unwrap();
    store.commit(of_first, 1, Durability::Durable).unwrap();
    let used = store.facts().unwrap().used_bytes;
    // Several parts have been sent when the connection breaks.
    let page = vec![3; 100_000];
    for lpid in 2..82 {
        store.stage(of_first, 2, lpid, Change::Put(&[&page]), None).unwrap();
    }
    assert!(store.facts().unwrap().used_bytes > used, "parts have arrived");
    drop(store);
    let next = served.connect();
    // The server hears of the end when it reads the socket: until then the session is in use.
    let (of_second, last) = loop {
        match next.open_session(session(1)) {
            Err(StoreFailure::Refused(StoreError::SessionOpen)) => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(last, 1);
    assert_eq!(next.facts().unwrap().used_bytes, used, "staged pages are free room again");
    next.stage(of_second, 2, 2, Change::Put(&[b"again"]), None).unwrap();
    next.commit(of_second, 2, Durability::Durable).unwrap();
    assert_eq!(next.list(0, 10).unwrap(), [(1, 4), (2, 5)]);
}

#[test]
fn a_batch_that_is_sent_again_after_a_lost_reply_is_committed_once() {
    let served = Served::new(drive());
    let mut store = served.connect();
    let (of_first, _) = store.open_session(session(1)).unwrap();
    let send = |store: &mut openftl_nvme_pages::RemoteStore, of: openftl_pages::Session, bytes: &[u8]| {
        store.stage(of, 1, 1, Change::Put(&[bytes]), None).unwrap();
        store.stage(of, 1, 2, Change::Delete, None).unwrap();
        store.commit(of, 1, Durability::Durable)
    };
    send(&mut store, of_first, b"once").unwrap();
    let version = store.stat(1).unwrap().version;
    // Its host has not seen that, and sends it again: here, and after it has connected again.
    send(&mut store, of_first, b"once").unwrap();
    store.close_session(of_first, false).unwrap();
    let (of_second, last) = store.open_session(session(1)).unwrap();
    assert_eq!(last, 1);
    send(&mut store, of_second, b"once").unwrap();
    assert_eq!(store.stat(1).unwrap().version, version, "nothing has happened");
    assert_eq!(send(&mut store, of_second, b"else"), Err(StoreError::Repeated { wsn: 1 }.into()));
    assert_eq!(store.read_whole(1).unwrap(), b"once");
}

#[test]
fn a_commit_that_waits_for_another_batch_wears_out_nobodys_patience() {
    let served = Served::new(drive());
    let mut host = served.host();
    let number = host.open(1);
    let entry = |wsn, part, bytes, commit| {
        let part = openftl_nvme::command::pages::PagePart { session: number, wsn, part, bytes, commit };
        PageCommand::Write(part).entry(1)
    };
    let submit = |host: &mut Host, tag: u64, entry: openftl_nvme::SubmissionEntry| {
        host.io.submit(tag, zerocopy::IntoBytes::as_bytes(&entry).try_into().unwrap(), Payload::None);
    };
    // Batch 2 waits for batch 1, whose host takes its time. The drive has nothing to do meanwhile, and is not to be taken for one that stands still.
    submit(&mut host, 2, entry(2, 0, 0, Some(Durability::Durable)));
    let other = served.connect();
    let (of_other, _) = other.open_session(session(2)).unwrap();
    for wsn in 1..=50 {
        other.stage(of_other, wsn, wsn, Change::Put(&[b"beside"]), None).unwrap();
        other.commit(of_other, wsn, Durability::Durable).unwrap();
    }
    submit(&mut host, 1, entry(1, 0, 0, Some(Durability::Durable)));
    let mut ended = [host.io.wait().unwrap(), host.io.wait().unwrap()];
    ended.sort_by_key(|ended| ended.tag);
    assert_eq!(ended.map(|ended| (ended.tag, ended.status())), [(1, 0), (2, 0)]);
    assert_eq!(served.counters.standstills.get(), 0);
    // One that is never to have its turn does not keep the server from stopping.
    submit(&mut host, 4, entry(4, 0, 0, Some(Durability::Durable)));
    drop((host, other));
    served.end();
}

#[test]
fn a_store_in_a_file_is_served_again_and_says_what_was_durable() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("pages.oftl");
    let profile = Profile::builtin("cosmos").unwrap();
    let device = EmulatedDevice::create(&disk, &profile, 28, Timing::Instant, 1).unwrap();
    let config = Config { host_frames: 4096, ..Config::default() };
    let drive: Drive = PageFtl::format(device, config.clone(), (), &mut WallClock::new()).unwrap();
    let served = Served::new(drive);
    let store = served.connect();
    let (of_first, _) = store.open_session(session(1)).unwrap();
    for wsn in 1..=9 {
        store.stage(of_first, wsn, wsn, Change::Put(&[&bytes_of(wsn, 1, 5000)]), None).unwrap();
        store.commit(of_first, wsn, Durability::Volatile).unwrap();
    }
    store.stage(of_first, 10, 10, Change::Put(&[b"never committed"]), None).unwrap();
    // A server that stops makes all durable that was committed; the host is still connected.
    served.end().close(&mut WallClock::new()).unwrap();
    assert!(matches!(store.read_whole(1), Err(StoreFailure::Gone(_))), "the link is cut, and says so");
    assert!(matches!(store.commit(of_first, 10, Durability::Durable), Err(StoreFailure::Gone(_))));
    let device = EmulatedDevice::open(&disk, Timing::Instant).unwrap();
    let drive: Drive = PageFtl::open_with(device, config, (), Access::ReadWrite, &mut WallClock::new()).unwrap();
    let served = Served::new(drive);
    let store = served.connect();
    let (of_second, last) = store.open_session(session(1)).unwrap();
    assert_eq!(last, 9);
    for lpid in 1..=9 {
        assert!(store.read_whole(lpid).unwrap() == bytes_of(lpid, 1, 5000));
    }
    assert_eq!(store.list(10, 10).unwrap(), []);
    store.stage(of_second, 10, 10, Change::Put(&[b"now"]), None).unwrap();
    store.commit(of_second, 10, Durability::Durable).unwrap();
}

#[test]
fn there_are_so_many_sessions_and_the_drive_says_how_many() {
    let served = Served::new(drive());
    let mut host = served.host();
    let mut count = 0_u32;
    let refused = loop {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&count.to_le_bytes());
        let (status, result, _) = host.run(PageCommand::Open, Payload::ToController(id.to_vec()));
        if status != Status::SUCCESS {
            break (status, result);
        }
        count += 1;
    };
    assert_eq!(refused, (Status::TOO_MANY_SESSIONS, u64::from(count)));
    assert!(count > 10);
    let (status, ..) = host.run(PageCommand::Close { session: 0, forget: true }, Payload::None);
    assert_eq!(status, Status::SUCCESS);
    host.open(200);
}
