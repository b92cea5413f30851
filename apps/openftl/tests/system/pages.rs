//! A served store of pages whose server is killed: what was committed durably is there, and no batch is there in part.

use crate::drive::{openftl, run_openftl};
use crate::mounted::text;
use crate::program::{Running, wait_for};
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_pages::RemoteStore;
use openftl_pages::{BlockingStore, Change, Session, SessionId, StoreError, StoreFailure};
use openftl_parts::Durability;
use serde_json::Value;
use std::path::Path;

const SESSION: SessionId = SessionId(*b"killed again    ");

/// Pages of a batch.
const PAGES: u64 = 40;

/// How often the server is killed.
const KILLS: u64 = 5;

const STORE: &str = r#"
[media]
profile = "cosmos"
capacity = "64MiB"
store = "file"
path = "pages.oftl"
timing = "instant"
durability = "process"
[ftl]
kind = "pages"
"#;

/// A server of the store, and where it is.
pub fn serve(folder: &Path, disk: &str) -> (Running, DriveUri) {
    let ready = folder.join("ready");
    _ = std::fs::remove_file(&ready);
    let line = format!("exec {} serve {disk} --nvme-tcp 127.0.0.1:0 --ready-fd 3 3> {}", openftl(), ready.display());
    let mut server = Running::start("bash", ["-c", &line]);
    let uri = wait_for("the server", || {
        assert!(server.ended().is_none(), "the server ended");
        let line = std::fs::read_to_string(&ready).ok().filter(|line| line.ends_with('\n'))?;
        let ready: Value = serde_json::from_str(&line).expect("a line of JSON");
        Some(ready["pages"][0].as_str().expect("the URI of the store").parse().expect("a URI"))
    });
    (server, uri)
}

/// The bytes of a page after this batch.
fn bytes_of(lpid: u64, wsn: u64) -> Vec<u8> {
    let mut bytes = vec![(lpid * 7 + wsn) as u8; 100 + (lpid * 131 + wsn * 17) as usize % 9000];
    bytes[..8].copy_from_slice(&wsn.to_le_bytes());
    bytes
}

fn send(store: &mut RemoteStore, session: Session, wsn: u64) -> Result<(), StoreFailure> {
    for lpid in 0..PAGES {
        store.stage(session, wsn, lpid, Change::Put(&[&bytes_of(lpid, wsn)]), None)?;
    }
    store.commit(session, wsn, Durability::Durable)
}

#[test]
fn a_store_whose_server_is_killed_again_and_again_has_every_durable_batch_and_none_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| text(&folder.path().join(name)).to_owned();
    std::fs::write(path("pages.toml"), STORE).unwrap();
    let disk = path("pages.oftl");
    run_openftl(["create", &disk, "--drive", &path("pages.toml")]).succeeded();
    let mut acknowledged = 0;
    for kill in 0..KILLS {
        let (server, uri) = serve(folder.path(), &disk);
        let mut store = RemoteStore::connect(&uri).unwrap();
        let (session, last) = store.open_session(SESSION).unwrap();
        assert!(last == acknowledged || last == acknowledged + 1, "{last} after {acknowledged} were acknowledged");
        for lpid in 0..PAGES {
            let expected = if last > 0 { Ok(bytes_of(lpid, last)) } else { Err(StoreError::NoPage { lpid }.into()) };
            assert!(store.read_whole(lpid) == expected, "page {lpid} after batch {last}");
        }
        // The host whose commit got no answer sends it again.
        if last == acknowledged && last > 0 {
            send(&mut store, session, last).expect("what was committed is committed");
        }
        acknowledged = last;
        // Killed while it is at work: by a thread of its own, during another batch each time.
        let kills_at = acknowledged + 3 + 4 * kill;
        let mut server = Some(server);
        let failure = std::thread::scope(|scope| {
            loop {
                if acknowledged == kills_at
                    && let Some(mut server) = server.take()
                {
                    scope.spawn(move || server.kill());
                }
                match send(&mut store, session, acknowledged + 1) {
                    Ok(()) => acknowledged += 1,
                    Err(failure) => break failure,
                }
            }
        });
        assert!(matches!(failure, StoreFailure::Gone(_)), "{failure}");
        // Nobody has opened it since, and it is only looked at.
        let seen = run_openftl(["pages", "get", "--drive", &disk, "0"]).succeeded();
        let is_newest = [acknowledged, acknowledged + 1]
            .iter()
            .any(|wsn| seen.stdout == String::from_utf8_lossy(&bytes_of(0, *wsn)));
        assert!(is_newest, "page 0 after batch {acknowledged}");
    }
    run_openftl(["check", &disk]).succeeded();
}
