//! The controller's half of an authentication, for one queue.
//!
//! ```text
//!            send                receive                send                 receive
//!  Idle ── Negotiate ─▶ Negotiated ── Challenge ─▶ Challenged ── Reply ─▶ Replied ── Success1 ─▶ Idle, authenticated
//!   ▲                                                                       │
//!   │                                               send                    │ the host asks, too
//!   └─ authenticated ──────────────────────────── Success2 ─── Confirming ◀─┘
//!
//!  any ── anything wrong ─▶ Refused ── AUTH_Failure1 ─▶ close
//! ```
//!
//! Two of the steps take an exponentiation, some milliseconds: the key of the challenge and the secret of the reply. Each is a
//! [`Work`] of its own, which can be run on another thread before the step itself ([`Controller::work_to_receive`],
//! [`Controller::work_to_send`], [`Controller::computed`]).
//!
//! Authentication Send always succeeds as a command; what was wrong with it is told by the next Authentication Receive
//! (8.3.4.4). A queue that is authenticated stays so while it authenticates again, and loses it if that fails.

use openftl_core::time::{Nanos, Time};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::credentials::{Credentials, Question};
use crate::group::{DegenerateValue, DhGroup, DhKey};
use crate::hash::{Digest, HashFunction};
use crate::messages::{Challenge, Failure, Kind, MessageHead, Negotiate, Reply, Success1, Success2};
use crate::nonces::Nonces;
use crate::policy::Policy;
use crate::refusal::{Explanation, Refusal};

/// How long a host may take for its next message if it has no keep-alive timer (8.3.4).
const TIME_LIMIT_DEFAULT: Nanos = Nanos::from_millis(120_000);

/// How long a host may take for its next message: its keep-alive timeout, or two minutes if it has none.
#[must_use]
pub fn time_limit(keep_alive_ms: u32) -> Nanos {
    match keep_alive_ms {
        0 => TIME_LIMIT_DEFAULT,
        ms => Nanos::from_millis(ms.into()),
    }
}

/// The controller's half.
pub struct Controller {
    credentials: Credentials,
    policy: Policy,
    time_limit: Nanos,
    deadline: Time,
    state: State,
    authenticated: bool,
}

/// What a message led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Step {
    /// There is more to come.
    Continue,
    /// The queue is authenticated from now on.
    Authenticated,
    /// It is over: complete the command, then close the connection.
    Close(Refusal),
}

/// The host left no room for the message that is due. The command fails with Invalid Field in Command; the host may ask
/// again with more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an Authentication Receive of {allocated} bytes, where the message has {needed}")]
pub struct AllocationTooShort {
    /// AL of the command.
    pub allocated: usize,
    /// Bytes of the message.
    pub needed: usize,
}

/// A computation that takes milliseconds. A step without its result computes it itself.
pub struct Work(Task);

enum Task {
    Key { group: DhGroup, exponent: Zeroizing<Vec<u8>> },
    Secret { key: Box<DhKey>, value: Vec<u8> },
}

/// What came of a [`Work`].
pub struct Computed(Outcome);

enum Outcome {
    Key(Option<DhKey>),
    Secret(Result<Zeroizing<Box<[u8]>>, DegenerateValue>),
}

impl Work {
    /// Computes it.
    #[must_use]
    pub fn run(self) -> Computed {
        Computed(match self.0 {
            Task::Key { group, exponent } => Outcome::Key(group.key(&exponent)),
            Task::Secret { key, value } => Outcome::Secret(key.agree(&value)),
        })
    }
}

enum State {
    /// AUTH_Negotiate may come.
    Idle,
    /// The challenge may be fetched. It is drawn ahead of a key that is computed for it.
    Negotiated { agreement: Agreement, key: Key, challenge: Option<Zeroizing<Vec<u8>>> },
    /// The reply is due.
    Challenged(Box<Challenged>),
    /// Success1 may be fetched.
    Replied { agreement: Agreement, response: Option<Digest> },
    /// Success2 is due.
    Confirming { transaction: u16 },
    /// AUTH_Failure1 may be fetched.
    Refused { transaction: u16, refusal: Refusal },
}

/// What the negotiation led to.
#[derive(Clone, Copy)]
struct Agreement {
    transaction: u16,
    hash: HashFunction,
    group: DhGroup,
}

struct Challenged {
    agreement: Agreement,
    challenge: Zeroizing<Vec<u8>>,
    sequence: u32,
    secret: Secret,
}

/// The secret common with the host.
enum Secret {
    /// There is no group.
    None,
    /// It takes this key and the host's value.
    Key(Box<DhKey>),
    /// It is being computed.
    Away,
    /// It is known, or the host's value led to none.
    Known(Result<Zeroizing<Box<[u8]>>, DegenerateValue>),
}

/// The key of the challenge.
enum Key {
    /// There is no group.
    None,
    /// It is to be made.
    Due,
    /// It is being made.
    Away,
    /// It is made.
    Made(Box<DhKey>),
}

const OUT_OF_ORDER: Refusal = Refusal::new(Explanation::IncorrectMessage, "another message was due");

impl Controller {
    /// For a queue that was just connected. Within `time_limit` the host must begin, and then make each of its steps.
    #[must_use]
    pub fn new(credentials: Credentials, policy: Policy, time_limit: Nanos, now: Time) -> Controller {
        let deadline = now + time_limit;
        Controller { credentials, policy, time_limit, deadline, state: State::Idle, authenticated: false }
    }

    /// Whether other commands than Authentication Send and Authentication Receive may be executed.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// When the host's time is up and the connection is to be closed; [`Time::NEVER`] while nothing is due.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// What [`Controller::send`] of this payload would compute. To be run, and given to [`Controller::computed`], before that.
    pub fn work_to_send(&mut self, payload: &[u8]) -> Option<Work> {
        let State::Challenged(challenged) = &mut self.state else { return None };
        let Agreement { transaction, hash, group } = challenged.agreement;
        let head = MessageHead::parse(payload).ok()?;
        if head.kind() != Kind::Reply || head.belongs_to(transaction).is_err() {
            return None;
        }
        let value = Reply::parse(payload, hash, group).ok()?.dh_value.to_vec();
        match std::mem::replace(&mut challenged.secret, Secret::Away) {
            Secret::Key(key) => Some(Work(Task::Secret { key, value })),
            other => {
                challenged.secret = other;
                None
            }
        }
    }

    /// What [`Controller::receive`] with so much room would compute. To be run, and given to [`Controller::computed`], before that.
    pub fn work_to_receive<R: CryptoRng>(&mut self, allocated: usize, nonces: &mut Nonces<R>) -> Option<Work> {
        let State::Negotiated { agreement: Agreement { hash, group, .. }, key: key @ Key::Due, challenge } =
            &mut self.state
        else {
            return None;
        };
        if allocated < Challenge::length(*hash, *group) {
            return None;
        }
        *challenge = Some(nonces.bytes(hash.length()));
        let exponent = group.exponent(nonces)?;
        *key = Key::Away;
        Some(Work(Task::Key { group: *group, exponent }))
    }

    /// Takes what came of work. Of an exchange that has gone on without it, it is dropped.
    pub fn computed(&mut self, computed: Computed) {
        match (&mut self.state, computed.0) {
            (State::Negotiated { key: key @ Key::Away, .. }, Outcome::Key(made)) => {
                *key = made.map_or(Key::None, |made| Key::Made(Box::new(made)));
            }
            (State::Challenged(challenged), Outcome::Secret(secret)) if matches!(challenged.secret, Secret::Away) => {
                challenged.secret = Secret::Known(secret);
            }
            _ => {}
        }
    }

    /// Takes the payload of an Authentication Send.
    pub fn send(&mut self, now: Time, payload: &[u8]) -> Step {
        if let Some(work) = self.work_to_send(payload) {
            self.computed(work.run());
        }
        match self.take(payload) {
            Ok(step) => {
                self.go_on(now, step);
                step
            }
            Err(refusal) => {
                self.refuse(self.transaction().unwrap_or(0), refusal);
                self.end_by(now);
                Step::Continue
            }
        }
    }

    /// Makes the payload of an Authentication Receive that has room for `allocated` bytes.
    pub fn receive<R: CryptoRng>(
        &mut self,
        now: Time,
        allocated: usize,
        nonces: &mut Nonces<R>,
    ) -> Result<(Vec<u8>, Step), AllocationTooShort> {
        if let Some(work) = self.work_to_receive(allocated, nonces) {
            self.computed(work.run());
        }
        let needed = match &self.state {
            // Asked for again while it is computed.
            State::Negotiated { key: Key::Away, .. } => size_of::<Failure>(),
            State::Negotiated { agreement, .. } => Challenge::length(agreement.hash, agreement.group),
            State::Replied { agreement, .. } => Success1::length(agreement.hash),
            _ => size_of::<Failure>(),
        };
        if allocated < needed {
            return Err(AllocationTooShort { allocated, needed });
        }
        let transaction = self.transaction().unwrap_or(0);
        let (payload, step) = match std::mem::replace(&mut self.state, State::Idle) {
            State::Negotiated { key: Key::Away, .. } => self.failure1(transaction, OUT_OF_ORDER),
            State::Negotiated { agreement, key, challenge } => self.challenge(agreement, key, challenge, nonces),
            State::Replied { agreement, response } => self.success1(agreement, response.as_ref()),
            State::Refused { refusal, .. } => self.failure1(transaction, refusal),
            State::Idle | State::Challenged(_) | State::Confirming { .. } => self.failure1(transaction, OUT_OF_ORDER),
        };
        assert_eq!(payload.len(), needed, "a message is as long as it was foretold");
        self.go_on(now, step);
        Ok((payload, step))
    }

    fn go_on(&mut self, now: Time, step: Step) {
        match step {
            Step::Continue => self.deadline = now + self.time_limit,
            Step::Authenticated => {
                self.authenticated = true;
                self.deadline = Time::NEVER;
            }
            Step::Close(_) => self.end_by(now),
        }
    }

    /// Whoever was refused earns no more time by going on.
    fn end_by(&mut self, now: Time) {
        self.deadline = self.deadline.min(now + self.time_limit);
    }

    fn take(&mut self, payload: &[u8]) -> Result<Step, Refusal> {
        let head = MessageHead::parse(payload)?;
        match (&self.state, head.kind()) {
            (State::Idle, Kind::Negotiate) => {
                let transaction = head.transaction.get();
                match agree(&self.policy, payload) {
                    Ok((hash, group)) => {
                        let key = if group == DhGroup::Null { Key::None } else { Key::Due };
                        self.state = State::Negotiated {
                            agreement: Agreement { transaction, hash, group },
                            key,
                            challenge: None,
                        };
                    }
                    Err(refusal) => self.refuse(transaction, refusal),
                }
                Ok(Step::Continue)
            }
            (State::Challenged(challenged), Kind::Reply) => {
                head.belongs_to(challenged.agreement.transaction)?;
                self.state = self.replied(challenged, payload)?;
                Ok(Step::Continue)
            }
            (State::Confirming { transaction }, Kind::Success2) => {
                head.belongs_to(*transaction)?;
                Success2::check(payload)?;
                self.state = State::Idle;
                Ok(Step::Authenticated)
            }
            (_, Kind::Failure2) if self.transaction() == Some(head.transaction.get()) => {
                let refusal = Refusal::new(Failure::explanation(payload)?, "the host is not content");
                self.refuse(head.transaction.get(), refusal);
                Ok(Step::Close(refusal))
            }
            (State::Refused { refusal, .. }, _) => Err(*refusal),
            _ => Err(OUT_OF_ORDER),
        }
    }

    fn transaction(&self) -> Option<u16> {
        match &self.state {
            State::Idle => None,
            State::Negotiated { agreement, .. } | State::Replied { agreement, .. } => Some(agreement.transaction),
            State::Challenged(challenged) => Some(challenged.agreement.transaction),
            State::Confirming { transaction } | State::Refused { transaction, .. } => Some(*transaction),
        }
    }

    fn refuse(&mut self, transaction: u16, refusal: Refusal) {
        self.state = State::Refused { transaction, refusal };
        self.authenticated = false;
    }

    fn replied(&self, challenged: &Challenged, payload: &[u8]) -> Result<State, Refusal> {
        let Challenged { agreement, challenge, sequence, secret } = challenged;
        let Agreement { transaction, hash, group } = *agreement;
        let reply = Reply::parse(payload, hash, group)?;
        let dh_secret = match secret {
            Secret::Known(Ok(secret)) => Some(secret.as_ref()),
            Secret::Known(Err(DegenerateValue)) => {
                return Err(Refusal::payload("the host's Diffie-Hellman value is out of range"));
            }
            // Another reply is being worked on.
            Secret::Away | Secret::Key(_) => return Err(OUT_OF_ORDER),
            Secret::None => None,
        };
        let dh_secret: Option<&[u8]> = dh_secret.map(AsRef::as_ref);
        let asked = Question { hash, challenge, sequence: *sequence, transaction, dh_secret };
        if !self.credentials.host_response(asked).equals(reply.response) {
            return Err(Refusal::new(
                Explanation::Failed,
                "the host does not know the secret, or connected under another name",
            ));
        }
        let response = match reply.challenge {
            None => None,
            Some(challenge) => {
                let asked = Question { hash, challenge, sequence: reply.sequence, transaction, dh_secret };
                Some(self.credentials.controller_response(asked).ok_or(Refusal::new(
                    Explanation::Failed,
                    "the host asks who the controller is, and no controller secret says so",
                ))?)
            }
        };
        Ok(State::Replied { agreement: *agreement, response })
    }

    fn challenge<R: CryptoRng>(
        &mut self,
        agreement: Agreement,
        key: Key,
        challenge: Option<Zeroizing<Vec<u8>>>,
        nonces: &mut Nonces<R>,
    ) -> (Vec<u8>, Step) {
        let Agreement { transaction, hash, group } = agreement;
        let challenge = challenge.unwrap_or_else(|| nonces.bytes(hash.length()));
        let sequence = nonces.sequence();
        let secret = match key {
            Key::Made(key) => Secret::Key(key),
            Key::None | Key::Due | Key::Away => Secret::None,
        };
        let dh_value = if let Secret::Key(key) = &secret { key.public_value() } else { &[] };
        let payload = Challenge { hash, group, sequence, challenge: &challenge, dh_value }.to_bytes(transaction);
        self.state = State::Challenged(Box::new(Challenged { agreement, challenge, sequence, secret }));
        (payload, Step::Continue)
    }

    fn success1(&mut self, agreement: Agreement, response: Option<&Digest>) -> (Vec<u8>, Step) {
        let Agreement { transaction, hash, .. } = agreement;
        let payload = Success1 { response: response.map(AsRef::as_ref) }.to_bytes(transaction, hash);
        if response.is_some() {
            self.state = State::Confirming { transaction };
            (payload, Step::Continue)
        } else {
            (payload, Step::Authenticated)
        }
    }

    fn failure1(&mut self, transaction: u16, refusal: Refusal) -> (Vec<u8>, Step) {
        self.refuse(transaction, refusal);
        (Failure::bytes(Kind::Failure1, transaction, refusal.explanation), Step::Close(refusal))
    }
}

/// The best of the policy that the host proposes.
fn agree(policy: &Policy, payload: &[u8]) -> Result<(HashFunction, DhGroup), Refusal> {
    let proposal = Negotiate::parse(payload)?;
    if proposal.secure_channel != 0 {
        return Err(Refusal::new(
            Explanation::SecureChannelMismatch,
            "the host wants a secure channel, which is not offered; connect without --concat",
        ));
    }
    let (hashes, groups) = proposal.dh_hmac_chap()?;
    let hash = policy.hashes.iter().find(|hash| hashes.contains(&hash.id()));
    let group = policy.groups.iter().find(|group| groups.contains(&group.id()));
    let hash = hash.ok_or(Refusal::new(Explanation::HashNotUsable, "the host proposes no accepted hash function"))?;
    let group = group.ok_or(Refusal::new(Explanation::GroupNotUsable, "the host proposes no accepted group"))?;
    Ok((*hash, *group))
}
