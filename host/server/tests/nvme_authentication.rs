//! NVMe hosts that have to show who they are: with the right secret, a wrong one, none, and in their own time.

use std::sync::atomic::Ordering;

use crate::authentication::authenticate;
use crate::memory::{Memory, Temper};
use crate::nvme::{Admin, HOST, SUBSYSTEM, Served, TestClock, Wishes, entry, identity, status};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_nvme_auth::{Credentials, DhGroup, Explanation, HashFunction, Host, Policy, Secret, Secrets};
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, PropertyName, QueueParameters};
use openftl_nvme_tcp::{Client, ClientError, InitiatorConfig};
use openftl_server::ServerConfig;

fn secret(seed: u8) -> Secret {
    let texts = [
        "DHHC-1:00:2wKd3YDIcRMN/rCJa/k60E8xBQMw+2D9UnigSQ6YFkEHV3Yy:",
        "DHHC-1:02:d4gmzh5i0I3npDMWAmJX/nAvAw7ioKmS2w44ceutFeObYDFG/r6zOB3UW0FLzevsI7XDJg==:",
        "DHHC-1:01:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
    ];
    texts[usize::from(seed)].parse().unwrap()
}

/// A server that lets `HOST` in, if it knows the first secret; its own is the second.
fn served(wishes: Wishes<TestClock>) -> Served {
    let text = format!("{HOST} {}\ncontroller {}\n", secret(0).to_text().as_str(), secret(1).to_text().as_str());
    let secrets = Secrets::read(text.as_bytes()).unwrap();
    Served::that_authenticates(Memory::new(64, 64, Temper::Instant), wishes, secrets)
}

fn host(host: &Secret, controller: Option<&Secret>) -> Host {
    let policy = Policy { hashes: vec![HashFunction::Sha256], groups: vec![DhGroup::Null, DhGroup::Ffdhe2048] };
    Host::new(Credentials::new(HOST, SUBSYSTEM, host, controller), policy)
}

/// Authentication Send or Receive of so many bytes.
fn message(kind: u8, bytes: usize) -> [u8; 64] {
    let mut entry = entry(0x7f, 0, [0x0001_0100 | 0xe9 << 24, bytes as u32, 0]);
    entry[4] = kind;
    entry[40..44].copy_from_slice(&[0, 1, 1, 0xe9]);
    entry
}

fn is_closed(queue: &mut Admin) -> bool {
    queue.submit(0, &entry(0x18, 0, [0; 3]), Payload::None);
    queue.wait().is_err()
}

fn refused(result: Result<impl Sized, ClientError>) -> u16 {
    match result {
        Err(ClientError::Refused { status, .. }) => status & 0x7ff,
        Err(error) => panic!("{error}"),
        Ok(_) => 0,
    }
}

#[test]
fn who_knows_the_secret_is_let_in_on_every_queue_one_way_or_both() {
    for mutual in [None, Some(secret(1))] {
        let served = served(Wishes::at(TestClock::default()));
        let mut host = host(&secret(0), mutual.as_ref());
        let (mut admin, controller) = served.admin_of(HOST, SUBSYSTEM, 0).unwrap();
        assert_eq!(refused(admin.property(PropertyName::Csts)), status::AUTHENTICATION_REQUIRED);
        assert_eq!(authenticate(&mut admin, &mut host, 1), Ok(()));
        admin.start_controller(|| false).unwrap();
        admin.set_number_of_queues(1).unwrap();

        let mut io = Client::open(served.connect(), InitiatorConfig::default()).unwrap();
        let queue = QueueParameters { queue_id: 1, entries: 32, flow_control: true, keep_alive_ms: 0 };
        let connected = io.connect(queue, &identity(HOST, SUBSYSTEM), controller).unwrap();
        assert!(connected.authentication_required);
        let write = || entry(0x01, 1, [0; 3]);
        let data = || Payload::ToController(vec![1; BLOCK_BYTES]);
        assert_eq!(refused(io.call("Write", &write(), data())), status::AUTHENTICATION_REQUIRED);
        assert_eq!(authenticate(&mut io, &mut host, 2), Ok(()));
        assert_eq!(refused(io.call("Write", &write(), data())), 0);
        // And again, while the queue goes on.
        assert_eq!(authenticate(&mut admin, &mut host, 3), Ok(()));
        assert_eq!(authenticate(&mut io, &mut host, 4), Ok(()));
        assert_eq!(refused(io.call("Write", &write(), data())), 0);
        drop((admin, io));
        served.end();
    }
}

#[test]
fn of_many_hosts_at_once_each_has_its_turn() {
    let served = served(Wishes::at(TestClock::default()));
    let queues: Vec<Admin> = (0..24).map(|_| served.admin_of(HOST, SUBSYSTEM, 0).unwrap().0).collect();
    let threads: Vec<_> = queues
        .into_iter()
        .map(|mut admin| {
            std::thread::spawn(move || {
                let result = authenticate(&mut admin, &mut host(&secret(0), Some(&secret(1))), 1);
                admin.start_controller(|| false).unwrap();
                result
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), Ok(()));
    }
    served.end();
}

#[test]
fn a_wrong_secret_a_wrong_name_and_a_wrong_controller_end_the_connection() {
    let served = served(Wishes::at(TestClock::default()));
    let (mut admin, _) = served.admin_of(HOST, SUBSYSTEM, 0).unwrap();
    assert_eq!(authenticate(&mut admin, &mut host(&secret(2), None), 1), Err(Explanation::Failed));
    assert!(is_closed(&mut admin));

    // A host without a secret is asked like one with a wrong one.
    let other = "nqn.2026-11.org.example:other";
    let (mut admin, _) = served.admin_of(other, SUBSYSTEM, 0).unwrap();
    let credentials = Credentials::new(other, SUBSYSTEM, &secret(0), None);
    let mut stranger = Host::new(credentials, Policy::default());
    assert_eq!(authenticate(&mut admin, &mut stranger, 1), Err(Explanation::Failed));
    assert!(is_closed(&mut admin));

    // A host that knows another secret of the controller's is not content.
    let (mut admin, _) = served.admin_of(HOST, SUBSYSTEM, 0).unwrap();
    assert_eq!(authenticate(&mut admin, &mut host(&secret(0), Some(&secret(2))), 1), Err(Explanation::Failed));
    assert!(is_closed(&mut admin));

    // One that fails when it authenticates again loses what it had.
    let (mut admin, _) = served.admin_of(HOST, SUBSYSTEM, 0).unwrap();
    assert_eq!(authenticate(&mut admin, &mut host(&secret(0), None), 1), Ok(()));
    admin.start_controller(|| false).unwrap();
    assert_eq!(authenticate(&mut admin, &mut host(&secret(2), None), 2), Err(Explanation::Failed));
    assert!(is_closed(&mut admin));
    served.end();
}

#[test]
fn messages_that_are_none_and_rooms_that_are_too_small_are_refused() {
    let served = served(Wishes::at(TestClock::default()));
    let (mut admin, _) = served.admin_of(HOST, SUBSYSTEM, 0).unwrap();
    admin.call("Authentication Send", &message(0x05, 20), Payload::ToController(vec![0xff; 20])).unwrap();
    let short = admin.call("Authentication Receive", &message(0x06, 4), Payload::ToHost(vec![0; 4]));
    assert_eq!(refused(short), status::INVALID_FIELD);
    let failure = admin.call("Authentication Receive", &message(0x06, 8), Payload::ToHost(vec![0; 8])).unwrap();
    assert_eq!(failure.data[..2], [0x00, 0xf1], "AUTH_Failure1");
    assert!(is_closed(&mut admin));
    served.end();
}

#[test]
fn a_subsystem_that_asks_for_no_authentication_does_not_know_its_commands() {
    let served = Served::new(Memory::new(64, 64, Temper::Instant));
    let (mut admin, _) = served.admin_of(HOST, SUBSYSTEM, 0).unwrap();
    let send = admin.call("Authentication Send", &message(0x05, 20), Payload::ToController(vec![0; 20]));
    assert_eq!(refused(send), status::INVALID_OPCODE);
    admin.start_controller(|| false).unwrap();
    served.end();
}

#[test]
fn an_authentication_that_does_not_go_on_ends() {
    let clock = TestClock::default();
    let config = ServerConfig::default();
    let served = served(Wishes::at(clock.clone()));
    let pass = |span: Nanos| {
        clock.0.fetch_add(span.0, Ordering::SeqCst);
        served.stop.wake();
    };
    let (mut silent, _) = served.admin_of(HOST, SUBSYSTEM, 0).unwrap();
    let (mut halfway, _) = served.admin_of(HOST, SUBSYSTEM, 0).unwrap();
    let begin = host(&secret(0), None).begin(1);
    halfway.call("Authentication Send", &message(0x05, begin.len()), Payload::ToController(begin.clone())).unwrap();
    // One that is in, and begins anew: it has as long as its keep-alive timer would have given it.
    let (mut again, _) = served.admin_of(HOST, SUBSYSTEM, 0).unwrap();
    assert_eq!(authenticate(&mut again, &mut host(&secret(0), None), 1), Ok(()));
    again.call("Authentication Send", &message(0x05, begin.len()), Payload::ToController(begin)).unwrap();
    pass(config.handshake_max);
    // What comes in the very turn that finds them late is still answered.
    while !is_closed(&mut silent) || !is_closed(&mut halfway) {}
    again.start_controller(|| false).unwrap();
    pass(Nanos::from_millis(120_000));
    while !is_closed(&mut again) {}
    served.end();
}

#[test]
fn of_too_many_half_open_handshakes_the_oldest_end() {
    let config = ServerConfig { handshakes_max: 3, ..ServerConfig::default() };
    let clock = TestClock::default();
    let served = served(Wishes { config, ..Wishes::at(clock.clone()) });
    let mut queues: Vec<Admin> = (0..5)
        .map(|_| {
            clock.0.fetch_add(1, Ordering::SeqCst);
            served.admin_of(HOST, SUBSYSTEM, 0).expect("the newest is always let in").0
        })
        .collect();
    let closed: Vec<bool> = queues.iter_mut().map(is_closed).collect();
    assert_eq!(closed, [true, true, false, false, false]);
    // Who is in takes no place among them.
    let (mut admin, _) = served.admin_of(HOST, SUBSYSTEM, CONTROLLER_ID_ANY.into()).unwrap();
    assert_eq!(authenticate(&mut admin, &mut host(&secret(0), None), 1), Ok(()));
    for _ in 0..3 {
        served.admin_of(HOST, SUBSYSTEM, 0).unwrap();
    }
    admin.start_controller(|| false).unwrap();
    served.end();
}
