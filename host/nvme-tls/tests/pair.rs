//! Both ends against each other, in memory.
#![cfg(feature = "s2n")]

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};

use openftl_nvme_auth::{HashFunction, PskVersion, TlsKey, TlsPsk};
use openftl_nvme_tls::{Acceptor, FIRST_BYTE, Session};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const HOST: &str = "nqn.2026-11.org.example:host";
const SUBSYSTEM: &str = "nqn.2026-11.org.example:drive";

/// One end of two pipes that hold so many bytes; what is over says that it would block.
struct End<'p> {
    heard: &'p mut VecDeque<u8>,
    said: &'p mut VecDeque<u8>,
    room: usize,
}

impl Read for End<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.heard.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.heard.read(room)
    }
}

impl Write for End<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match bytes.len().min(self.room.saturating_sub(self.said.len())) {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => self.said.write(&bytes[..count]),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A host, a controller, and what is on the way between them.
struct Pair {
    host: Session,
    controller: Session,
    to_controller: VecDeque<u8>,
    to_host: VecDeque<u8>,
    room: usize,
}

impl Pair {
    fn new(offered: impl IntoIterator<Item = TlsPsk>, acceptor: &Acceptor) -> Pair {
        let (host, controller) = (Session::connect(offered).unwrap(), acceptor.accept().unwrap());
        Pair { host, controller, to_controller: VecDeque::new(), to_host: VecDeque::new(), room: 1 << 20 }
    }

    fn host<T>(&mut self, call: impl FnOnce(&mut Session, &mut End<'_>) -> T) -> T {
        call(&mut self.host, &mut End { heard: &mut self.to_host, said: &mut self.to_controller, room: self.room })
    }

    fn controller<T>(&mut self, call: impl FnOnce(&mut Session, &mut End<'_>) -> T) -> T {
        call(
            &mut self.controller,
            &mut End { heard: &mut self.to_controller, said: &mut self.to_host, room: self.room },
        )
    }

    fn open(&mut self) {
        let [host, controller] = self.shake_hands();
        host.unwrap();
        controller.unwrap();
    }

    /// How the handshake ends for the host and for the controller, when neither has more to say.
    fn shake_hands(&mut self) -> [io::Result<()>; 2] {
        let mut left = 100;
        loop {
            let host = self.host(|session, end| session.shake_hands(end));
            let controller = self.controller(|session, end| session.shake_hands(end));
            let is_waiting =
                |result: &io::Result<()>| result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            left -= 1;
            if left == 0 || !is_waiting(&controller) {
                return [host, controller];
            }
        }
    }
}

fn key(hash: HashFunction, seed: u64) -> TlsKey {
    let mut bytes = vec![0; hash.length()];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut bytes);
    TlsKey::from_bytes(Some(hash), &bytes).unwrap()
}

fn acceptor(key: &TlsKey) -> Acceptor {
    Acceptor::new(key.psks(HOST, SUBSYSTEM)).unwrap()
}

#[test]
fn who_knows_the_key_is_let_in_and_both_know_whom_they_deal_with() {
    for hash in [HashFunction::Sha256, HashFunction::Sha384] {
        for version in [PskVersion::Zero, PskVersion::One] {
            let key = key(hash, 1);
            let psk = key.psk(version, HOST, SUBSYSTEM).unwrap();
            let mut pair = Pair::new([psk.clone()], &acceptor(&key));
            let [host, controller] = pair.shake_hands();
            host.unwrap();
            controller.unwrap();
            assert_eq!(pair.host.identity(), Some(&psk.identity));
            assert_eq!(pair.controller.identity(), Some(&psk.identity));
            assert_eq!(psk.identity.host_nqn, HOST);
        }
    }
}

#[test]
fn the_longest_names_fit_in_a_handshake() {
    let [host, subsystem] = ["a", "b"].map(|letter| format!("nqn.{}", letter.repeat(219)));
    let key = key(HashFunction::Sha384, 1);
    let acceptor = Acceptor::new(key.psks(&host, &subsystem)).unwrap();
    let mut pair = Pair::new(key.psks(&host, &subsystem), &acceptor);
    pair.open();
    assert_eq!(pair.controller.identity().unwrap().host_nqn, host);
}

#[test]
fn the_right_one_of_a_thousand_hosts_is_found() {
    let hosts: Vec<(String, TlsKey)> =
        (0..1000).map(|host| (format!("nqn.host-{host}"), key(HashFunction::Sha256, host))).collect();
    let psks = hosts.iter().flat_map(|(host, key)| key.psks(host, SUBSYSTEM));
    let acceptor = Acceptor::new(psks).unwrap();
    for (host, key) in [&hosts[0], &hosts[617], &hosts[999]] {
        let mut pair = Pair::new(key.psks(host, SUBSYSTEM), &acceptor);
        pair.open();
        assert_eq!(&pair.controller.identity().unwrap().host_nqn, host);
    }
}

#[test]
fn a_wrong_key_an_unknown_identity_and_no_key_are_refused() {
    let right = key(HashFunction::Sha256, 1);
    let other = key(HashFunction::Sha256, 2);
    let wrong_key: Vec<TlsPsk> = other.psk(PskVersion::Zero, HOST, SUBSYSTEM).into_iter().collect();
    let unknown: Vec<TlsPsk> = right.psks("nqn.2026-11.org.example:other", SUBSYSTEM).collect();
    let elsewhere: Vec<TlsPsk> = right.psks(HOST, "nqn.2026-11.org.example:other").collect();
    for offered in [wrong_key, unknown, elsewhere, Vec::new()] {
        let mut pair = Pair::new(offered, &acceptor(&right));
        let [_, controller] = pair.shake_hands();
        assert_eq!(controller.unwrap_err().kind(), ErrorKind::InvalidData);
        assert!(!pair.host.is_open() && !pair.controller.is_open());
        assert!(pair.controller.identity().is_none());
    }
}

#[test]
fn bytes_come_as_they_were_sent_through_any_narrow_stream() {
    let key = key(HashFunction::Sha256, 1);
    for room in [1, 100, 5_000, 70_000, 1 << 20] {
        let mut pair = Pair::new(key.psks(HOST, SUBSYSTEM), &acceptor(&key));
        pair.open();
        pair.room = room;
        let mut sent = vec![0; if room == 1 { 20_000 } else { 300_000 }];
        Xoshiro256PlusPlus::seed_from_u64(room as u64).fill_bytes(&mut sent);
        let (mut taken, mut came) = (0, Vec::new());
        let mut piece = vec![0; 9000];
        while came.len() < sent.len() {
            let rest = &sent[taken..];
            match pair.controller(|session, end| session.write(end, rest)) {
                Ok(count) => taken += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            match pair.host(|session, end| session.read(end, &mut piece)) {
                Ok(count) => came.extend_from_slice(&piece[..count]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(came == sent, "through {room} bytes");
        assert_eq!(taken, sent.len());
    }
}

#[test]
fn nobody_can_read_or_change_what_travels() {
    let key = key(HashFunction::Sha256, 1);
    let mut pair = Pair::new(key.psks(HOST, SUBSYSTEM), &acceptor(&key));
    pair.open();
    let secret = b"nobody has to know that it is written here";
    pair.host(|session, end| session.write(end, secret)).unwrap();
    let travelling: Vec<u8> = pair.to_controller.iter().copied().collect();
    assert!(!travelling.windows(8).any(|window| window == &secret[..8]));
    let at = pair.to_controller.len() - 1;
    pair.to_controller[at] ^= 1;
    let read = pair.controller(|session, end| session.read(end, &mut [0; 100]));
    assert_eq!(read.unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn a_handshake_that_is_cut_off_or_garbled_at_any_byte_lets_nobody_in() {
    let key = key(HashFunction::Sha256, 1);
    let acceptor = acceptor(&key);
    let mut pair = Pair::new(key.psks(HOST, SUBSYSTEM), &acceptor);
    let waits = pair.host(|session, end| session.shake_hands(end)).unwrap_err();
    assert_eq!(waits.kind(), ErrorKind::WouldBlock);
    let hello: Vec<u8> = pair.to_controller.iter().copied().collect();
    assert_eq!(hello[0], FIRST_BYTE);
    for at in 0..hello.len() {
        for garbled in [hello[..at].to_vec(), {
            let mut hello = hello.clone();
            hello[at] ^= 0x55;
            hello
        }] {
            let mut controller = acceptor.accept().unwrap();
            let (mut heard, mut said) = (VecDeque::from(garbled), VecDeque::new());
            let mut end = End { heard: &mut heard, said: &mut said, room: 1 << 20 };
            assert!(controller.shake_hands(&mut end).is_err(), "byte {at}");
            assert!(controller.identity().is_none());
        }
    }
}

#[test]
fn a_peer_that_closes_is_seen() {
    let key = key(HashFunction::Sha256, 1);
    let mut pair = Pair::new(key.psks(HOST, SUBSYSTEM), &acceptor(&key));
    pair.open();
    pair.host(|session, end| session.close(end));
    assert_eq!(pair.controller(|session, end| session.read(end, &mut [0; 10])).unwrap(), 0);
}
