//! Both halves against each other.

mod support;

use openftl_core::time::{Nanos, Time};
use openftl_nvme_auth::controller::time_limit;
use openftl_nvme_auth::messages::RECEIVE_BYTES_MAX;
use openftl_nvme_auth::refusal::Explanation;
use openftl_nvme_auth::{AllocationTooShort, Controller, Credentials, DhGroup, HashFunction, Host, Next, Policy, Step};
use support::*;

fn explanation(outcome: Outcome) -> Explanation {
    match outcome {
        Outcome::Authenticated => panic!("authenticated"),
        Outcome::Closed(refusal) => refusal.explanation,
    }
}

#[test]
fn every_hash_in_every_group_authenticates_in_both_directions() {
    for hash in HashFunction::ALL {
        for group in DhGroup::ALL {
            for (seed, asks) in [(hash.id(), false), (group.id() + 4, true)] {
                let (of_host, of_controller) = (secret(seed.into()), secret(u64::from(seed) + 1));
                let credentials = Credentials::new(HOST_NQN, SUBSYSTEM_NQN, &of_host, asks.then_some(&of_controller));
                let mut host = Host::new(credentials.clone(), policy(hash, group));
                let mut controller = controller(credentials, policy(hash, group));
                let mut messages = 0;
                let outcomes = talk(&mut host, &mut controller, |_| messages += 1);
                assert_eq!(outcomes, (Outcome::Authenticated, Outcome::Authenticated), "{hash}, {group}");
                assert_eq!(messages, if asks { 5 } else { 4 });
            }
        }
    }
}

#[test]
fn a_host_that_asks_nothing_is_served_by_a_controller_that_could_say() {
    let outcomes = talk(&mut Host::new(one_way(), plain()), &mut controller(mutual(), plain()), |_| {});
    assert_eq!(outcomes, (Outcome::Authenticated, Outcome::Authenticated));
}

#[test]
fn a_wrong_secret_is_refused() {
    let wrong = Credentials::new(HOST_NQN, SUBSYSTEM_NQN, &secret(9), None);
    for group in [DhGroup::Null, DhGroup::Ffdhe2048] {
        let policy = policy(HashFunction::Sha512, group);
        let outcomes = talk(&mut Host::new(wrong.clone(), policy.clone()), &mut controller(one_way(), policy), |_| {});
        assert_eq!(explanation(outcomes.0), Explanation::Failed);
        assert_eq!(explanation(outcomes.1), Explanation::Failed);
    }
}

#[test]
fn a_wrong_controller_secret_is_refused_by_the_host() {
    let wrong = Credentials::new(HOST_NQN, SUBSYSTEM_NQN, &secret(1), Some(&secret(9)));
    let outcomes = talk(&mut Host::new(mutual(), plain()), &mut controller(wrong, plain()), |_| {});
    assert_eq!(explanation(outcomes.0), Explanation::Failed);
    assert_eq!(explanation(outcomes.1), Explanation::Failed);
}

#[test]
fn a_name_belongs_to_the_response_with_and_without_a_transformed_secret() {
    for seed in [0, 1] {
        let credentials = |host, subsystem| Credentials::new(host, subsystem, &secret(seed), None);
        for wrong in [credentials("nqn.2026-11.org.example:other", SUBSYSTEM_NQN), credentials(HOST_NQN, "nqn.x:y")] {
            let right = credentials(HOST_NQN, SUBSYSTEM_NQN);
            let outcomes = talk(&mut Host::new(wrong, plain()), &mut controller(right, plain()), |_| {});
            assert_eq!(explanation(outcomes.0), Explanation::Failed);
        }
    }
}

#[test]
fn a_controller_without_a_secret_of_its_own_refuses_to_be_asked() {
    let outcomes = talk(&mut Host::new(mutual(), plain()), &mut controller(one_way(), plain()), |_| {});
    assert_eq!(explanation(outcomes.0), Explanation::Failed);
    assert_eq!(explanation(outcomes.1), Explanation::Failed);
}

#[test]
fn a_host_that_asks_is_not_content_without_an_answer() {
    // A false controller says that the host is welcome, and nothing of itself.
    let outcomes = talk(&mut Host::new(mutual(), plain()), &mut controller(mutual(), plain()), |message| {
        if message[..2] == [0x01, 0x03] {
            message[8] = 0;
        }
    });
    assert_eq!(explanation(outcomes.0), Explanation::Failed);
    assert_eq!(explanation(outcomes.1), Explanation::Failed);
}

#[test]
fn the_best_of_the_controllers_policy_is_taken_whatever_the_order_of_the_proposal() {
    let mut proposal = Policy::default();
    proposal.hashes.reverse();
    proposal.groups.reverse();
    let mut chosen = None;
    let outcomes =
        talk(&mut Host::new(one_way(), proposal), &mut controller(one_way(), Policy::default()), |message| {
            if message[..2] == [0x01, 0x01] {
                chosen = Some((message[8], message[9]));
            }
        });
    assert_eq!(outcomes.0, Outcome::Authenticated);
    assert_eq!(chosen, Some((HashFunction::Sha512.id(), DhGroup::Ffdhe3072.id())));
}

#[test]
fn a_controller_accepts_no_group_above_4096_bits_unless_it_is_told_to() {
    let large = || Policy::with_groups(vec![DhGroup::Ffdhe8192, DhGroup::Ffdhe6144]);
    let outcomes = talk(&mut Host::new(one_way(), large()), &mut controller(one_way(), Policy::default()), |_| {});
    assert_eq!(explanation(outcomes.0), Explanation::GroupNotUsable);
    let mut told = controller(one_way(), Policy::with_groups(vec![DhGroup::Ffdhe6144]));
    assert_eq!(talk(&mut Host::new(one_way(), large()), &mut told, |_| {}).0, Outcome::Authenticated);
}

/// The exponentiations run elsewhere, one of each kind, whatever a host asks for meanwhile.
#[test]
fn keys_and_secrets_are_computed_once_and_elsewhere() {
    let policy = || policy(HashFunction::Sha256, DhGroup::Ffdhe2048);
    let (mut of_host, mut of_controller) = (nonces(3), nonces(4));
    let mut host = Host::new(one_way(), policy());
    let mut controller = controller(one_way(), policy());
    let negotiate = host.begin(TRANSACTION);
    assert!(controller.work_to_send(&negotiate).is_none(), "a negotiation takes no time");
    assert_eq!(controller.send(Time::ZERO, &negotiate), Step::Continue);
    assert!(controller.work_to_receive(8, &mut of_controller).is_none(), "there is no room for the challenge");
    let work = controller.work_to_receive(RECEIVE_BYTES_MAX, &mut of_controller).expect("a key is due");
    assert!(controller.work_to_receive(RECEIVE_BYTES_MAX, &mut of_controller).is_none(), "it is under way");
    fn on_another_thread<T: Send>(there: T) -> T {
        there
    }
    controller.computed(on_another_thread(on_another_thread(work).run()));
    let (challenge, _) = controller.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut of_controller).unwrap();
    let Next::Exchange(reply) = host.receive(&challenge, &mut of_host) else { panic!("the host replies") };
    let work = controller.work_to_send(&reply).expect("a secret is due");
    assert!(controller.work_to_send(&reply).is_none(), "it is under way");
    controller.computed(work.run());
    assert_eq!(controller.send(Time::ZERO, &reply), Step::Continue);
    let (_, step) = controller.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut of_controller).unwrap();
    assert_eq!(step, Step::Authenticated);
}

/// A host that does not wait for its challenge, and asks for another, gets none.
#[test]
fn who_asks_again_while_a_key_is_computed_is_refused() {
    let policy = || policy(HashFunction::Sha256, DhGroup::Ffdhe2048);
    let mut of_controller = nonces(4);
    let mut controller = controller(one_way(), policy());
    let _ = controller.send(Time::ZERO, &Host::new(one_way(), policy()).begin(TRANSACTION));
    let work = controller.work_to_receive(RECEIVE_BYTES_MAX, &mut of_controller).expect("a key is due");
    let (_, step) = controller.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut of_controller).unwrap();
    let Step::Close(refusal) = step else { panic!("{step:?}") };
    assert_eq!(refusal.explanation, Explanation::IncorrectMessage);
    controller.computed(work.run());
    assert!(!controller.is_authenticated());
}

#[test]
fn nothing_in_common_is_told_apart() {
    let sha_256 = policy(HashFunction::Sha256, DhGroup::Null);
    let sha_512 = policy(HashFunction::Sha512, DhGroup::Null);
    let with_group = policy(HashFunction::Sha256, DhGroup::Ffdhe2048);
    for (theirs, expected) in [(sha_512, Explanation::HashNotUsable), (with_group, Explanation::GroupNotUsable)] {
        let outcomes = talk(&mut Host::new(one_way(), sha_256.clone()), &mut controller(one_way(), theirs), |_| {});
        assert_eq!(explanation(outcomes.0), expected);
        assert_eq!(explanation(outcomes.1), expected);
    }
}

#[test]
fn a_choice_that_was_not_proposed_is_refused_by_the_host() {
    let policy = policy(HashFunction::Sha256, DhGroup::Null);
    for (at, id, expected) in [(12, 2, Explanation::HashNotUsable), (42, 1, Explanation::GroupNotUsable)] {
        let outcomes =
            talk(&mut Host::new(one_way(), policy.clone()), &mut controller(one_way(), Policy::default()), |message| {
                if message[..2] == [0x00, 0x00] {
                    message[at] = id;
                }
            });
        assert_eq!(explanation(outcomes.0), expected, "what the host told the controller");
        assert_eq!(explanation(outcomes.1), expected);
    }
}

#[test]
fn a_secure_channel_is_refused() {
    for secure_channel in [1, 2, 3, 0xFF] {
        let outcomes = talk(&mut Host::new(one_way(), plain()), &mut controller(one_way(), plain()), |message| {
            if message[..2] == [0x00, 0x00] {
                message[6] = secure_channel;
            }
        });
        assert_eq!(explanation(outcomes.1), Explanation::SecureChannelMismatch);
    }
}

#[test]
fn a_degenerate_diffie_hellman_value_is_refused_by_both() {
    let policy = policy(HashFunction::Sha256, DhGroup::Ffdhe2048);
    for kind in [[0x01, 0x01], [0x01, 0x02]] {
        for value in [0, 1] {
            let outcomes = talk(
                &mut Host::new(one_way(), policy.clone()),
                &mut controller(one_way(), policy.clone()),
                |message| {
                    if message[..2] == kind {
                        let at = message.len() - 256;
                        message[at..].fill(0);
                        *message.last_mut().unwrap() = value;
                    }
                },
            );
            assert_eq!(explanation(outcomes.0), Explanation::IncorrectPayload);
            assert_eq!(explanation(outcomes.1), Explanation::IncorrectPayload);
        }
    }
}

#[test]
fn another_transaction_is_refused_by_both() {
    for kind in [[0x01, 0x01], [0x01, 0x02], [0x01, 0x03], [0x01, 0x04]] {
        let outcomes = talk(&mut Host::new(mutual(), plain()), &mut controller(mutual(), plain()), |message| {
            if message[..2] == kind {
                message[4] ^= 1;
            }
        });
        assert_eq!(explanation(outcomes.0), Explanation::IncorrectPayload, "{kind:?}");
    }
}

#[test]
fn a_replayed_conversation_does_not_authenticate() {
    for group in [DhGroup::Null, DhGroup::Ffdhe2048] {
        let policy = policy(HashFunction::Sha256, group);
        let mut recorded = Vec::new();
        let mut first = controller(one_way(), policy.clone());
        talk(&mut Host::new(one_way(), policy.clone()), &mut first, |message| recorded.push(message.clone()));
        assert!(first.is_authenticated());

        let mut second = controller(one_way(), policy);
        let mut nonces = nonces(77);
        for message in recorded.iter().step_by(2) {
            assert_eq!(second.send(Time::ZERO, message), Step::Continue);
            let _ = second.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut nonces).unwrap();
        }
        assert!(!second.is_authenticated());
    }
}

#[test]
fn a_response_thrown_back_does_not_authenticate() {
    // Whoever knows no secret lets the host answer its own question, as the challenge of a second queue. Everything but
    // the two roles is the same on both.
    let credentials = Credentials::new("nqn.x:same", "nqn.x:same", &secret(1), Some(&secret(1)));
    let mut nonces = nonces(5);
    let mut answer = |queue: &mut Host, challenge: &[u8], sequence: &[u8]| {
        let _ = queue.begin(TRANSACTION);
        let mut message = vec![0x01, 0x01, 0, 0, 0xEF, 0xBE, 32, 0, 1, 0, 0, 0];
        message.extend(sequence);
        message.extend(challenge);
        match queue.receive(&message, &mut nonces) {
            Next::Exchange(reply) => reply,
            next => panic!("a challenge is answered: {next:?}"),
        }
    };
    let (mut first, mut second) = (Host::new(credentials.clone(), plain()), Host::new(credentials, plain()));
    let question = answer(&mut first, &[7; 32], &[1, 0, 0, 0]);
    let response = answer(&mut second, &question[48..80], &question[12..16]);
    let mut success = vec![0x01, 0x03, 0, 0, 0xEF, 0xBE, 32, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    success.extend(&response[16..48]);
    let Next::Close { refusal, .. } = first.receive(&success, &mut nonces) else {
        panic!("content with its own answer")
    };
    assert_eq!(refusal.explanation, Explanation::Failed);
}

/// A controller in each of its states, and the message that is due there.
fn states() -> Vec<(&'static str, Controller, &'static str)> {
    let build = |steps: usize| {
        let mut host = Host::new(mutual(), plain());
        let mut controller = controller(mutual(), plain());
        let (mut of_host, mut of_controller) = (nonces(3), nonces(4));
        let mut outgoing = host.begin(TRANSACTION);
        for step in 0..steps {
            if step % 2 == 0 {
                assert_ne!(controller.send(Time::ZERO, &outgoing), Step::Close(dummy()));
            } else {
                let (answer, _) = controller.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut of_controller).unwrap();
                outgoing = match host.receive(&answer, &mut of_host) {
                    Next::Exchange(next) | Next::Authenticated(Some(next)) => next,
                    next => panic!("{next:?}"),
                };
            }
        }
        controller
    };
    vec![
        ("idle", build(0), "negotiate"),
        ("negotiated", build(1), "receive"),
        ("challenged", build(2), "reply"),
        ("replied", build(3), "receive"),
        ("confirming", build(4), "success2"),
        ("authenticated", build(5), "negotiate"),
    ]
}

fn dummy() -> openftl_nvme_auth::Refusal {
    openftl_nvme_auth::Refusal { explanation: Explanation::Failed, why: "" }
}

#[test]
fn a_message_that_is_not_due_ends_it_in_every_state() {
    let mut recorded = Vec::new();
    talk(&mut Host::new(mutual(), plain()), &mut controller(mutual(), plain()), |message| {
        recorded.push(message.clone());
    });
    let [negotiate, challenge, reply, success1, success2] = recorded.try_into().unwrap();
    let failure1 = vec![0x00, 0xF1, 0, 0, 0xEF, 0xBE, 1, 1];
    let unknown = vec![0x02, 0x02, 0, 0, 0xEF, 0xBE, 0, 0];
    let messages = [
        ("negotiate", negotiate),
        ("challenge", challenge),
        ("reply", reply),
        ("success1", success1),
        ("success2", success2),
        ("failure1", failure1),
        ("unknown", unknown),
    ];
    for (name, message) in &messages {
        for (state, mut controller, due) in states() {
            if due == *name {
                continue;
            }
            // Another transaction, too, is first of all a message that is not due.
            let mut message = message.clone();
            message[5] ^= u8::from(*name == "negotiate");
            assert_eq!(controller.send(Time::ZERO, &message), Step::Continue);
            assert!(!controller.is_authenticated(), "{name} while {state}");
            let (answer, step) = controller.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut nonces(8)).unwrap();
            assert!(
                matches!(step, Step::Close(refusal) if refusal.explanation == Explanation::IncorrectMessage),
                "{name} while {state}: {step:?}"
            );
            assert_eq!((&answer[..4], &answer[6..]), (&[0x00, 0xF1, 0, 0][..], &[1, 7][..]));
        }
    }
}

#[test]
fn a_receive_that_is_not_due_ends_it_in_every_state() {
    for (state, mut controller, due) in states() {
        let (answer, step) = controller.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut nonces(8)).unwrap();
        if due == "receive" {
            assert_eq!(step, Step::Continue, "{state}");
        } else {
            assert!(matches!(step, Step::Close(_)), "{state}");
            assert!(!controller.is_authenticated());
            assert_eq!((answer[1], answer[7]), (0xF1, 7), "{state}");
        }
    }
}

#[test]
fn nothing_follows_a_refusal_but_the_same_refusal() {
    let mut controller = controller(one_way(), plain());
    let mut nonces = nonces(1);
    assert_eq!(controller.send(Time::ZERO, &[1, 2, 0, 0, 5, 0]), Step::Continue);
    let (first, step) = controller.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut nonces).unwrap();
    assert!(matches!(step, Step::Close(_)));
    assert_eq!(controller.send(Time::ZERO, &Host::new(one_way(), plain()).begin(1)), Step::Continue);
    let (second, step) = controller.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut nonces).unwrap();
    assert!(matches!(step, Step::Close(_)));
    assert_eq!(first, second);
    assert!(!controller.is_authenticated());
}

#[test]
fn an_authenticated_queue_may_authenticate_again_and_loses_it_if_that_fails() {
    let mut controller = controller(mutual(), plain());
    for _ in 0..3 {
        let outcomes = talk(&mut Host::new(mutual(), plain()), &mut controller, |_| {});
        assert_eq!(outcomes.0, Outcome::Authenticated);
    }
    assert_eq!(controller.send(Time::ZERO, &Host::new(mutual(), plain()).begin(1)), Step::Continue);
    assert!(controller.is_authenticated(), "while it is under way");
    let _ = controller.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut nonces(1)).unwrap();
    assert_eq!(controller.send(Time::ZERO, &[0; 40]), Step::Continue);
    assert!(!controller.is_authenticated());
}

#[test]
fn a_receive_with_too_little_room_changes_nothing() {
    let policy = policy(HashFunction::Sha512, DhGroup::Ffdhe8192);
    let mut controller = controller(one_way(), policy.clone());
    let mut nonces = nonces(1);
    assert_eq!(controller.send(Time::ZERO, &Host::new(one_way(), policy).begin(1)), Step::Continue);
    let short = AllocationTooShort { allocated: RECEIVE_BYTES_MAX - 1, needed: RECEIVE_BYTES_MAX };
    assert_eq!(controller.receive(Time::ZERO, RECEIVE_BYTES_MAX - 1, &mut nonces).unwrap_err(), short);
    let (challenge, step) = controller.receive(Time::ZERO, RECEIVE_BYTES_MAX, &mut nonces).unwrap();
    assert_eq!((challenge.len(), step), (RECEIVE_BYTES_MAX, Step::Continue));
}

#[test]
fn each_step_has_its_time_and_an_authenticated_queue_has_all() {
    let mut host = Host::new(one_way(), plain());
    let mut controller = controller(one_way(), plain());
    let (mut of_host, mut of_controller) = (nonces(3), nonces(4));
    assert_eq!(controller.deadline(), Time(1_000), "to begin");
    assert_eq!(controller.send(Time(10), &host.begin(1)), Step::Continue);
    assert_eq!(controller.deadline(), Time(1_010));
    let (challenge, _) = controller.receive(Time(20), RECEIVE_BYTES_MAX, &mut of_controller).unwrap();
    assert_eq!(controller.deadline(), Time(1_020));
    let Next::Exchange(reply) = host.receive(&challenge, &mut of_host) else { panic!("a challenge is answered") };
    assert_eq!(controller.send(Time(30), &reply), Step::Continue);
    assert_eq!(controller.deadline(), Time(1_030));
    let (_, step) = controller.receive(Time(40), RECEIVE_BYTES_MAX, &mut of_controller).unwrap();
    assert_eq!((step, controller.deadline()), (Step::Authenticated, Time::NEVER));

    assert_eq!(controller.send(Time(50), &reply), Step::Continue);
    assert_eq!(controller.deadline(), Time(1_050), "to fetch the refusal");
    assert_eq!(controller.send(Time(60), &reply), Step::Continue);
    assert_eq!(controller.deadline(), Time(1_050), "trying on earns no time");
}

#[test]
fn the_time_limit_is_the_keep_alive_timeout_or_two_minutes() {
    assert_eq!(time_limit(5_000), Nanos(5_000_000_000));
    assert_eq!(time_limit(0), Nanos(120_000_000_000));
}
