//! DH-HMAC-CHAP with somebody who does not know the secret. The first byte says which half listens; what follows are
//! messages, each behind two bytes of length.

use std::convert::Infallible;

use openftl_core::time::{Nanos, Time};
use openftl_nvme_auth::messages::{RECEIVE_BYTES_MAX, SEND_BYTES_MAX};
use openftl_nvme_auth::{Controller, Credentials, DhGroup, HashFunction, Host, Next, Nonces, Policy, Secret, Step};
use rand_core::{TryCryptoRng, TryRng};

const SECRET: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";

/// The bytes 1, 2, 3, …, so that an input always does the same.
struct Counting(u8);

impl TryRng for Counting {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.0 = self.0.wrapping_add(1);
        Ok(self.0.into())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.try_next_u32().map(u64::from)
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

pub fn run(data: &[u8]) {
    let Some((&half, mut rest)) = data.split_first() else { return };
    let mut messages = Vec::new();
    while let Some((length, tail)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)) % (SEND_BYTES_MAX + 1);
        let (message, tail) = tail.split_at(length.min(tail.len()));
        messages.push(message);
        rest = tail;
    }
    let secret: Secret = SECRET.parse().expect("an example of the specification");
    let credentials =
        Credentials::new("nqn.2026-11.org.example:host", "nqn.2026-11.org.example:drive", &secret, Some(&secret));
    // The small group only: exponentiations are not what is looked for.
    let policy = Policy { hashes: HashFunction::ALL.to_vec(), groups: vec![DhGroup::Null, DhGroup::Ffdhe2048] };
    let nonces = Nonces::new(Counting(0));
    if half % 2 == 0 {
        controller(Controller::new(credentials, policy, Nanos(1), Time::ZERO), &messages, nonces);
    } else {
        host(Host::new(credentials, policy), &messages, nonces);
    }
}

fn controller(mut controller: Controller, messages: &[&[u8]], mut nonces: Nonces<Counting>) {
    for message in messages {
        if let Step::Close(_) = controller.send(Time::ZERO, message) {
            break;
        }
        let (payload, step) =
            controller.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut nonces).expect("there is room for any message");
        assert!(payload.len() <= RECEIVE_BYTES_MAX);
        if let Step::Close(_) = step {
            break;
        }
    }
    assert!(!controller.is_authenticated(), "let in without the secret");
}

fn host(mut host: Host, messages: &[&[u8]], mut nonces: Nonces<Counting>) {
    let _ = host.begin(1);
    for message in messages {
        match host.receive(message, &mut nonces) {
            Next::Exchange(reply) => assert!(reply.len() <= SEND_BYTES_MAX),
            Next::Authenticated(_) => panic!("content without the controller's secret"),
            Next::Close { .. } => break,
        }
    }
}
