//! Names, secrets and randomness of the tests.

use std::convert::Infallible;

use openftl_core::time::{Nanos, Time};
use openftl_nvme_auth::messages::RECEIVE_BYTES_MAX;
use openftl_nvme_auth::{
    Controller, Credentials, DhGroup, HashFunction, Host, Next, Nonces, Policy, Refusal, Secret, Step,
};
use rand_core::{SeedableRng, TryCryptoRng, TryRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:befdec4c-2234-11b2-a85c-ca77c773af36";
pub const SUBSYSTEM_NQN: &str = "nqn.2026-11.org.example:drive";
pub const TRANSACTION: u16 = 0xBEEF;
pub const TIME_LIMIT: Nanos = Nanos(1_000);

/// Repeatable, so anything but secret.
pub struct Dice(Xoshiro256PlusPlus);

impl TryRng for Dice {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.0.try_next_u32()
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.0.try_next_u64()
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.try_fill_bytes(bytes)
    }
}

impl TryCryptoRng for Dice {}

pub fn dice(seed: u64) -> Dice {
    Dice(Xoshiro256PlusPlus::seed_from_u64(seed))
}

pub fn nonces(seed: u64) -> Nonces<Dice> {
    Nonces::new(dice(seed))
}

/// The secret with this seed, transformed or not.
pub fn secret(seed: u64) -> Secret {
    let transforms = [None, Some(HashFunction::Sha256), Some(HashFunction::Sha384), Some(HashFunction::Sha512)];
    Secret::generate(transforms[seed as usize % 4], [32, 48, 64][seed as usize % 3], &mut dice(seed)).unwrap()
}

pub fn one_way() -> Credentials {
    Credentials::new(HOST_NQN, SUBSYSTEM_NQN, &secret(1), None)
}

pub fn mutual() -> Credentials {
    Credentials::new(HOST_NQN, SUBSYSTEM_NQN, &secret(1), Some(&secret(2)))
}

pub fn policy(hash: HashFunction, group: DhGroup) -> Policy {
    Policy { hashes: vec![hash], groups: vec![group] }
}

/// No Diffie-Hellman: for tests of everything else.
pub fn plain() -> Policy {
    policy(HashFunction::Sha256, DhGroup::Null)
}

pub fn controller(credentials: Credentials, policy: Policy) -> Controller {
    Controller::new(credentials, policy, TIME_LIMIT, Time::ZERO)
}

/// How an authentication went for one side.
#[derive(PartialEq, Eq, Debug)]
pub enum Outcome {
    Authenticated,
    Closed(Refusal),
}

/// Lets the two halves talk until both know how it went; the controller first. `between` sees every message and may
/// change it.
pub fn talk(host: &mut Host, controller: &mut Controller, mut between: impl FnMut(&mut Vec<u8>)) -> (Outcome, Outcome) {
    let (mut of_host, mut of_controller) = (nonces(3), nonces(4));
    let mut payload = host.begin(TRANSACTION);
    loop {
        between(&mut payload);
        if let Step::Close(refusal) = controller.send(Time::ZERO, &payload) {
            panic!("closed before the host said why: {refusal}");
        }
        let (mut answer, step) = controller.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut of_controller).unwrap();
        between(&mut answer);
        let next = host.receive(&answer, &mut of_host);
        let (last, mine) = match next {
            Next::Exchange(next) => {
                payload = next;
                continue;
            }
            Next::Authenticated(last) => (last, Outcome::Authenticated),
            Next::Close { refusal, last } => (last, Outcome::Closed(refusal)),
        };
        let step = match (step, last) {
            (Step::Continue, Some(mut last)) => {
                between(&mut last);
                controller.send(Time::ZERO, &last)
            }
            (step, _) => step,
        };
        let theirs = match step {
            Step::Authenticated => Outcome::Authenticated,
            Step::Close(refusal) => Outcome::Closed(refusal),
            Step::Continue => match controller.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut of_controller).unwrap() {
                (_, Step::Close(refusal)) => Outcome::Closed(refusal),
                (_, step) => panic!("the host is content, and the controller went on: {step:?}"),
            },
        };
        assert_eq!(controller.is_authenticated(), theirs == Outcome::Authenticated);
        return (theirs, mine);
    }
}
