//! A store behind a connection does what a local one does.

use std::time::Duration;

use openftl_media::Timing;
use openftl_nvme_pages::{ConnectError, RemoteStore};
use openftl_pages::{BlockingStore, Change, StoreError, StoreFailure};
use openftl_parts::Durability;

use crate::support::*;

#[test]
fn pages_of_any_length_come_back_as_they_were_put() {
    let served = Served::new(drive());
    let store = served.connect();
    let (session, last) = store.open_session(session(1)).unwrap();
    assert_eq!(last, 0);
    let longest = store.page_bytes_max() as usize;
    assert_eq!(store.facts().unwrap().page_bytes_max as usize, longest);
    let lengths = [1, 2, 3, 63, 64, 65, 4063, 4064, 4065, 8193, 65_535, 65_536, 65_537, 200_001, longest];
    for (lpid, length) in (100_u64..).zip(lengths) {
        let bytes = bytes_of(lpid, 1, length);
        // In pieces that are cut anywhere.
        let (head, tail) = bytes.split_at(length / 3);
        store.stage(session, 1, lpid, Change::Put(&[head, tail]), None).unwrap();
    }
    assert!(store.read_whole(100).unwrap_err().is_no_page(), "nothing is committed");
    store.commit(session, 1, Durability::Durable).unwrap();
    for (lpid, length) in (100_u64..).zip(lengths) {
        assert!(store.read_whole(lpid).unwrap() == bytes_of(lpid, 1, length), "{length} bytes");
        assert_eq!(store.stat(lpid).unwrap().bytes as usize, length);
    }
    let listed: Vec<(u64, u32)> = (100_u64..).zip(lengths.map(|length| length as u32)).collect();
    assert_eq!(store.list(0, usize::MAX).unwrap(), listed);
    assert_eq!(store.list(103, 2).unwrap(), listed[3..5]);
    let lpids: Vec<u64> = (99..116).rev().collect();
    for (lpid, page) in lpids.iter().zip(store.read_many(&lpids).unwrap()) {
        match lpid {
            99 | 115 => assert_eq!(page, Err(StoreError::NoPage { lpid: *lpid }.into())),
            _ => assert!(page.unwrap() == bytes_of(*lpid, 1, lengths[*lpid as usize - 100]), "page {lpid}"),
        }
    }
    let too_long = vec![0; longest + 1];
    let refused = store.stage(session, 2, 7, Change::Put(&[&too_long]), None);
    assert!(matches!(refused, Err(StoreFailure::Refused(StoreError::Length { lpid: 7, .. }))), "{refused:?}");
    drop(store);
    let drive = served.end();
    assert_eq!(drive.pages(), lengths.len() as u64);
}

#[test]
fn a_batch_of_many_parts_is_there_whole_and_its_payload_is_copied_once_at_most() {
    let served = Served::new(drive());
    let store = served.connect();
    let (session, _) = store.open_session(session(1)).unwrap();
    // 12 MiB: far more than a part, and more than what waits for a store at a time.
    for lpid in 0..6_000 {
        let change = bytes_of(lpid, 1, 1 + (lpid as usize * 37) % 4096);
        store.stage(session, 1, lpid, Change::Put(&[&change]), None).unwrap();
    }
    assert_eq!(store.list(0, 10).unwrap(), [], "no part of it can be read before");
    store.commit(session, 1, Durability::Durable).unwrap();
    assert_eq!(store.list(0, usize::MAX).unwrap().len(), 6_000);
    for lpid in (0..6_000).step_by(7) {
        assert!(store.read_whole(lpid).unwrap() == bytes_of(lpid, 1, 1 + (lpid as usize * 37) % 4096), "page {lpid}");
    }
    let (written, copied) = (served.counters.bytes_written.get(), served.counters.bytes_copied.get());
    assert!(written > 12_000_000, "{written}");
    // Long parts go from the socket to frames; what came together with their head is copied there.
    assert!(copied < written / 4, "{copied} of {written} bytes were copied between socket and frames");
}

#[test]
fn conditions_decide_over_all_of_a_batch() {
    let served = Served::new(drive());
    let store = served.connect();
    let (session, _) = store.open_session(session(1)).unwrap();
    store.stage(session, 1, 5, Change::Put(&[b"one"]), Some(0)).unwrap();
    store.commit(session, 1, Durability::Volatile).unwrap();
    let version = store.stat(5).unwrap().version;
    // It is there already, so nothing of the batch is.
    store.stage(session, 2, 4, Change::Put(&[b"beside"]), None).unwrap();
    store.stage(session, 2, 5, Change::Put(&[b"two"]), Some(0)).unwrap();
    let refused = store.commit(session, 2, Durability::Volatile);
    assert_eq!(refused, Err(StoreError::Condition { lpid: 5 }.into()));
    assert!(store.read_whole(4).unwrap_err().is_no_page());
    // Under the same number, with the version that is there.
    store.stage(session, 2, 5, Change::Put(&[b"two"]), Some(version)).unwrap();
    store.commit(session, 2, Durability::Durable).unwrap();
    assert_eq!(store.read_whole(5).unwrap(), b"two");
    let newer = store.stat(5).unwrap().version;
    assert!(newer > version);
    store.stage(session, 3, 5, Change::Delete, Some(version)).unwrap();
    assert_eq!(store.commit(session, 3, Durability::Volatile), Err(StoreError::Condition { lpid: 5 }.into()));
    store.stage(session, 3, 5, Change::Delete, Some(newer)).unwrap();
    store.commit(session, 3, Durability::Volatile).unwrap();
    assert!(store.read_whole(5).unwrap_err().is_no_page());
    store.sync().unwrap();
}

#[test]
fn what_the_store_refuses_is_said_with_its_figures_and_the_next_batch_is_taken() {
    let served = Served::new(drive_on("tiny", 64, Timing::Instant));
    let store = served.connect();
    let (session, _) = store.open_session(session(1)).unwrap();
    let facts = store.facts().unwrap();
    // More than the clean room, in as many parts as it takes.
    let page = vec![7; store.page_bytes_max() as usize];
    let mut lpid = 0;
    let refused = loop {
        lpid += 1;
        let staged = store.stage(session, 1, lpid, Change::Put(&[&page]), None);
        if let Err(failure) = staged {
            break failure;
        }
        if lpid * page.len() as u64 > 2 * facts.capacity_bytes {
            break store.commit(session, 1, Durability::Durable).unwrap_err();
        }
    };
    let StoreFailure::Refused(StoreError::NoSpace { lpid: at, needed, free }) = refused else { panic!("{refused}") };
    assert!(at <= lpid && needed > page.len() as u64 && free < needed, "{at} {needed} {free}");
    store.abort(session, 1).unwrap();
    assert_eq!(store.facts().unwrap(), facts, "its room has come back");
    store.stage(session, 1, 1, Change::Put(&[&page]), None).unwrap();
    store.commit(session, 1, Durability::Durable).unwrap();
    assert!(store.read_whole(1).unwrap() == page);
    assert_eq!(store.stat(2), Err(StoreError::NoPage { lpid: 2 }.into()));
    let early = store.commit(session, 40, Durability::Volatile);
    assert_eq!(early, Err(StoreError::Early { wsn: 40, last: 1 }.into()));
    let empty = store.stage(session, 2, 3, Change::Put(&[]), None);
    assert!(matches!(empty, Err(StoreFailure::Refused(StoreError::Length { lpid: 3, bytes: 0, .. }))), "{empty:?}");
}

#[test]
fn any_thread_uses_the_store() {
    let served = Served::new(drive());
    let store = served.connect();
    std::thread::scope(|scope| {
        for id in 1..=4_u8 {
            let store = store.clone();
            scope.spawn(move || {
                let (session, _) = store.open_session(session(id)).unwrap();
                for wsn in 1..=20 {
                    for page in 0..5 {
                        let lpid = (u64::from(id) << 32) | page;
                        store.stage(session, wsn, lpid, Change::Put(&[&bytes_of(lpid, wsn, 3000)]), None).unwrap();
                    }
                    store.commit(session, wsn, Durability::Volatile).unwrap();
                    let lpid = (u64::from(id) << 32) | (wsn % 5);
                    assert!(store.read_whole(lpid).unwrap() == bytes_of(lpid, wsn, 3000));
                }
                store.close_session(session, false).unwrap();
            });
        }
    });
    drop(store);
    assert_eq!(served.end().pages(), 20);
}

#[test]
fn who_is_no_store_of_pages_or_says_nothing_is_named() {
    let nobody = "nvme-tcp://127.0.0.1:1".parse().unwrap();
    let refused = RemoteStore::connect(&nobody).err().unwrap().to_string();
    assert!(refused.contains("127.0.0.1:1"), "{refused}");
    let served = Served::new(drive());
    let other = format!("{}?namespace=2", served.uri()).parse().unwrap();
    let refused = RemoteStore::connect(&other).err().unwrap();
    assert!(matches!(refused, ConnectError::OtherKind { namespace: 2, .. }), "{refused}");
    // A listener that never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("nvme-tcp://{}", silent.local_addr().unwrap()).parse().unwrap();
    let refused = RemoteStore::connect_within(&uri, Duration::from_millis(50)).err().unwrap();
    assert!(matches!(refused, ConnectError::Association(_)), "{refused}");
}
