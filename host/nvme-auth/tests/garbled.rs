//! Whatever arrives: nothing panics, and nobody is let in.

mod support;

use openftl_core::time::Time;
use openftl_nvme_auth::messages::RECEIVE_BYTES_MAX;
use openftl_nvme_auth::{DhGroup, HashFunction, Host, Next, Secret, Secrets, Step, TlsKey, TlsKeys, read_key_file};
use proptest::collection::vec;
use proptest::prelude::*;
use support::*;

/// Bytes of a message before its end that say nothing: reserved ones, and those of a response or challenge that is not
/// valid. In the reply also S2 without a challenge.
fn says_nothing(message: &[u8], at: usize) -> bool {
    if matches!(at, 2 | 3) {
        return true;
    }
    match message[..2] {
        // A protocol descriptor's second byte, and what is behind its lists of one.
        [0x00, 0x00] => at == 9 || (13..42).contains(&at) || at > 42,
        [0x01, 0x01] => at == 7,
        [0x01, 0x02] => matches!(at, 7 | 9) || (message[8] == 0 && ((12..16).contains(&at) || (48..80).contains(&at))),
        [0x01, 0x03] => matches!(at, 7 | 9..=15) || (message[8] == 0 && (at == 6 || at >= 16)),
        [0x01, 0x04] => at >= 6,
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn noise_never_authenticates(
        messages in vec((vec(any::<u8>(), 0..200), any::<bool>(), 0_u8..6, any::<bool>()), 1..8),
    ) {
        let mut controller = controller(mutual(), plain());
        let mut nonces = nonces(1);
        for (mut message, known, id, receive) in messages {
            if known && message.len() >= 8 {
                message[0] = u8::from(id != 0 && id != 5);
                message[1] = if id == 5 { 0xF0 } else { id };
                message[6] = if id == 0 { 0 } else { 32 };
            }
            prop_assert_ne!(controller.send(Time::ZERO, &message), Step::Authenticated);
            if receive {
                let allocated = message.len() * 4;
                let authenticated = matches!(
                    controller.receive(Time::ZERO, allocated, &mut nonces), Ok((_, Step::Authenticated))
                );
                prop_assert!(!authenticated);
            }
        }
        prop_assert!(!controller.is_authenticated());
    }

    #[test]
    fn a_host_survives_noise(message in vec(any::<u8>(), 0..200), id in 0_u8..6, second in any::<bool>()) {
        let mut host = Host::new(mutual(), plain());
        let mut nonces = nonces(1);
        let mut controller = controller(mutual(), plain());
        prop_assert_eq!(controller.send(Time::ZERO, &host.begin(TRANSACTION)), Step::Continue);
        if second {
            let (challenge, _) = controller.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut nonces).unwrap();
            let _ = host.receive(&challenge, &mut nonces);
        }
        let mut message = message;
        if message.len() >= 16 {
            message[..9].copy_from_slice(&[1, id, 0, 0, 0xEF, 0xBE, 32, 0, 1]);
            message[9..12].fill(0);
        }
        let authenticated = matches!(host.receive(&message, &mut nonces), Next::Authenticated(_));
        prop_assert!(!authenticated);
    }

    /// One byte of one message changed on the way: both sides end as if nothing had happened, or without each other.
    #[test]
    fn a_changed_byte_is_noticed_or_says_nothing(
        which in 0_usize..5, at in any::<prop::sample::Index>(), flip in 1_u8..=255, asks in any::<bool>(),
    ) {
        let credentials = if asks { mutual() } else { one_way() };
        let mut host = Host::new(credentials.clone(), plain());
        let mut controller = controller(credentials, plain());
        let (mut number, mut silent) = (0, true);
        let outcomes = talk(&mut host, &mut controller, |message| {
            if number == which {
                let mut at = at.index(message.len());
                // How many identifiers a proposal has matters only if they are less than those that are needed.
                if message[..2] == [0x00, 0x00] && matches!(at, 10 | 11) {
                    at = 8;
                }
                silent = says_nothing(message, at);
                message[at] ^= flip;
            }
            number += 1;
        });
        let both = outcomes == (Outcome::Authenticated, Outcome::Authenticated);
        prop_assert_eq!(both, silent, "{:?}", outcomes);
    }

    #[test]
    fn a_cut_message_authenticates_nobody(which in 0_usize..5, at in any::<prop::sample::Index>()) {
        let mut host = Host::new(mutual(), plain());
        let mut controller = controller(mutual(), plain());
        let mut number = 0;
        let outcomes = talk(&mut host, &mut controller, |message| {
            if number == which {
                let length = at.index(message.len());
                message.truncate(length);
            }
            number += 1;
        });
        prop_assert!(matches!(outcomes.0, Outcome::Closed(_)), "{:?}", outcomes);
    }

    #[test]
    fn secrets_and_key_files_never_panic(bytes in vec(any::<u8>(), 0..200), text in "((DHHC|NVMeTLSkey)-1:0[0-3]:)?[A-Za-z0-9+/=]{0,100}:?") {
        let _ = read_key_file::<Secret>(&bytes);
        let _ = read_key_file::<TlsKey>(&bytes);
        let _ = Secrets::read(&bytes);
        let _ = TlsKeys::read(&bytes);
        let _ = text.parse::<Secret>();
        let _ = text.parse::<TlsKey>();
    }

    #[test]
    fn secrets_are_read_as_they_were_written(seed in any::<u64>()) {
        let text = secret(seed).to_text();
        let read: Secret = text.parse().unwrap();
        prop_assert_eq!(read.to_text(), text);
    }
}

/// The same with a group, on fewer bytes: exponentiations take their time.
#[test]
fn a_changed_byte_of_a_diffie_hellman_value_is_noticed() {
    let policy = policy(HashFunction::Sha256, DhGroup::Ffdhe2048);
    for kind in [[0x01, 0x01], [0x01, 0x02]] {
        for from_end in [1, 100, 256] {
            let mut host = Host::new(one_way(), policy.clone());
            let mut controller = controller(one_way(), policy.clone());
            let outcomes = talk(&mut host, &mut controller, |message| {
                if message[..2] == kind {
                    let at = message.len() - from_end;
                    message[at] ^= 0x10;
                }
            });
            assert!(matches!(outcomes.0, Outcome::Closed(_)), "{kind:?}, {from_end}");
        }
    }
}
