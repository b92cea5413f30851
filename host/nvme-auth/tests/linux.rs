//! Conversations with Linux 6.1, recorded over NVMe/TCP: its host with our controller, and our host with its target.

#[expect(dead_code, reason = "other tests use more of it")]
mod support;

use std::convert::Infallible;

use openftl_core::time::Time;
use openftl_nvme_auth::messages::RECEIVE_BYTES_MAX;
use openftl_nvme_auth::{Credentials, DhGroup, HashFunction, Host, Next, Nonces, Policy, Secret, Step};
use rand_core::{TryCryptoRng, TryRng};
use support::*;

/// One conversation of a file in `tests/linux/`.
struct Exchange<'a> {
    name: &'a str,
    credentials: Credentials,
    hash: HashFunction,
    group: DhGroup,
    /// What the host sent, and what it received.
    sent: Vec<Vec<u8>>,
    received: Vec<Vec<u8>>,
}

fn exchanges(file: &str) -> Vec<Exchange<'_>> {
    let (_, file) = file.split_once("\n\n").expect("a file begins with a comment");
    file.split("\n\n").map(exchange).collect()
}

fn exchange(text: &str) -> Exchange<'_> {
    let field =
        |name: &str| text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).collect::<Vec<&str>>();
    let bytes = |digits: &str| -> Vec<u8> {
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    };
    let secret = |name: &str| field(name).first().map(|text| text.parse::<Secret>().unwrap());
    let (sent, received): (Vec<_>, Vec<_>) =
        (field("send").into_iter().map(bytes).collect(), field("receive").into_iter().map(bytes).collect());
    Exchange {
        name: field("exchange")[0],
        credentials: Credentials::new(
            field("host-nqn")[0],
            SUBSYSTEM_NQN,
            &secret("host-secret").unwrap(),
            secret("controller-secret").as_ref(),
        ),
        hash: HashFunction::from_id(received[0][8]).unwrap(),
        group: DhGroup::from_id(received[0][9]).unwrap(),
        sent,
        received,
    }
}

/// The bytes 1, 2, 3, …
struct Counting(u8);

impl TryRng for Counting {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for byte in bytes {
            self.0 = self.0.wrapping_add(1);
            *byte = self.0;
        }
        Ok(())
    }
}

impl TryCryptoRng for Counting {}

fn counting() -> Nonces<Counting> {
    Nonces::new(Counting(0))
}

#[test]
fn a_linux_host_is_authenticated_with_the_bytes_that_it_was_content_with() {
    let exchanges = exchanges(include_str!("linux/host.txt"));
    assert_eq!(exchanges.len(), 5);
    for Exchange { name, credentials, hash, group, sent, received } in exchanges {
        let mut controller = controller(credentials, policy(hash, group));
        let mut nonces = counting();
        let mut last = Step::Continue;
        for (at, message) in sent.iter().enumerate() {
            assert_eq!(last, Step::Continue, "{name}");
            last = controller.send(Time::ZERO, message);
            if let Some(expected) = received.get(at) {
                assert_eq!(last, Step::Continue, "{name}");
                let (payload, step) = controller.receive(Time::ZERO, 4096, &mut nonces).unwrap();
                assert_eq!(&payload, expected, "{name}");
                last = step;
            }
        }
        assert_eq!(last, Step::Authenticated, "{name}");
        assert!(controller.is_authenticated());
    }
}

#[test]
fn a_linux_target_is_authenticated_with_the_bytes_that_it_was_content_with() {
    let exchanges = exchanges(include_str!("linux/controller.txt"));
    assert_eq!(exchanges.len(), 5);
    for Exchange { name, credentials, hash, group: _, sent, received } in exchanges {
        let mut host = Host::new(credentials, Policy { hashes: vec![hash], ..Policy::everything() });
        let mut nonces = counting();
        let mut messages = sent.into_iter();
        let negotiate = messages.next().unwrap();
        assert_eq!(host.begin(u16::from_le_bytes([negotiate[4], negotiate[5]])), negotiate, "{name}");
        for mut payload in received {
            // That target fills the whole buffer.
            payload.resize(RECEIVE_BYTES_MAX, 0);
            let expected = match (host.receive(&payload, &mut nonces), messages.next()) {
                (Next::Exchange(message), expected) => (Some(message), expected),
                (Next::Authenticated(last), expected) => (last, expected),
                (next, _) => panic!("{name}: {next:?}"),
            };
            assert_eq!(expected.0, expected.1, "{name}");
        }
        assert!(messages.next().is_none());
    }
}
