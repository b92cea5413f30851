//! The host's half of an authentication, for one queue.
//!
//! ```text
//!  begin ─▶ Negotiate; AwaitingChallenge ── Challenge ─▶ Reply; AwaitingSuccess1 ── Success1 ─▶ authenticated
//!                           │                                       │                (Success2 first, if R2 was asked)
//!                           └──────── AUTH_Failure1, or anything ───┴─▶ AUTH_Failure2, close
//!                                     that is wrong
//! ```
//!
//! After `begin`, and whenever [`Next`] says so, the caller sends what it is given and then makes an Authentication
//! Receive of [`RECEIVE_BYTES_MAX`](crate::messages::RECEIVE_BYTES_MAX) bytes. How long it waits is the time-out of its
//! commands.

use rand_core::CryptoRng;

use crate::credentials::{Credentials, Question};
use crate::hash::{Digest, HashFunction};
use crate::messages::{Challenge, Failure, Kind, MessageHead, Reply, Success1, Success2, negotiate};
use crate::nonces::Nonces;
use crate::policy::Policy;
use crate::refusal::{Explanation, Refusal};

/// The host's half.
pub struct Host {
    credentials: Credentials,
    policy: Policy,
    transaction: u16,
    state: State,
}

/// What a message led to.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Next {
    /// Send this, then receive.
    Exchange(Vec<u8>),
    /// The queue is authenticated once this, if anything, is sent.
    Authenticated(Option<Vec<u8>>),
    /// It is over: send this, if anything, and close the connection.
    Close {
        /// Why.
        refusal: Refusal,
        /// AUTH_Failure2, unless it was the controller that was not content.
        last: Option<Vec<u8>>,
    },
}

enum State {
    Idle,
    AwaitingChallenge,
    AwaitingSuccess1 { hash: HashFunction, expected: Option<Digest> },
}

impl Host {
    /// Asks the controller who it is if the credentials have a controller secret.
    #[must_use]
    pub fn new(credentials: Credentials, policy: Policy) -> Host {
        Host { credentials, policy, transaction: 0, state: State::Idle }
    }

    /// The first message of a transaction, whose number no other under way in this association has. Begins anew if one
    /// is under way on this queue.
    #[must_use]
    pub fn begin(&mut self, transaction: u16) -> Vec<u8> {
        self.transaction = transaction;
        self.state = State::AwaitingChallenge;
        negotiate(transaction, &self.policy)
    }

    /// Takes what an Authentication Receive brought.
    pub fn receive<R: CryptoRng>(&mut self, payload: &[u8], nonces: &mut Nonces<R>) -> Next {
        let state = std::mem::replace(&mut self.state, State::Idle);
        self.take(state, payload, nonces).unwrap_or_else(|refusal| Next::Close {
            refusal,
            last: Some(Failure::bytes(Kind::Failure2, self.transaction, refusal.explanation)),
        })
    }

    fn take<R: CryptoRng>(&mut self, state: State, payload: &[u8], nonces: &mut Nonces<R>) -> Result<Next, Refusal> {
        let head = MessageHead::parse(payload)?;
        if head.kind() == Kind::Failure1 {
            let refusal = Refusal::new(Failure::explanation(payload)?, "the controller is not content");
            return Ok(Next::Close { refusal, last: None });
        }
        match (state, head.kind()) {
            (State::AwaitingChallenge, Kind::Challenge) => {
                head.belongs_to(self.transaction)?;
                self.reply(payload, nonces)
            }
            (State::AwaitingSuccess1 { hash, expected }, Kind::Success1) => {
                head.belongs_to(self.transaction)?;
                self.judge(Success1::parse(payload, hash)?, expected.as_ref())
            }
            _ => Err(Refusal::new(Explanation::IncorrectMessage, "another message was due")),
        }
    }

    fn reply<R: CryptoRng>(&mut self, payload: &[u8], nonces: &mut Nonces<R>) -> Result<Next, Refusal> {
        let Challenge { hash, group, sequence, challenge, dh_value } = Challenge::parse(payload)?;
        if !self.policy.hashes.contains(&hash) {
            return Err(Refusal::new(Explanation::HashNotUsable, "the controller chose a hash that was not proposed"));
        }
        if !self.policy.groups.contains(&group) {
            return Err(Refusal::new(
                Explanation::GroupNotUsable,
                "the controller chose a group that was not proposed",
            ));
        }
        let transaction = self.transaction;
        let dh_key = group.exponent(nonces).and_then(|exponent| group.key(&exponent));
        let dh_secret = match &dh_key {
            Some(key) => Some(
                key.agree(dh_value)
                    .map_err(|_| Refusal::payload("the controller's Diffie-Hellman value is out of range"))?,
            ),
            None => None,
        };
        let dh_secret = dh_secret.as_ref().map(|secret| secret.as_ref());
        let response = self.credentials.host_response(Question { hash, challenge, sequence, transaction, dh_secret });

        let asks = self.credentials.are_mutual();
        let challenge = asks.then(|| nonces.bytes(hash.length()));
        let challenge = challenge.as_ref().map(|challenge| challenge.as_slice());
        let sequence = nonces.sequence();
        let expected = challenge.and_then(|challenge| {
            self.credentials.controller_response(Question { hash, challenge, sequence, transaction, dh_secret })
        });
        let dh_value = dh_key.as_ref().map_or(&[][..], |key| key.public_value());
        let reply = Reply { response: response.as_ref(), challenge, sequence, dh_value };
        self.state = State::AwaitingSuccess1 { hash, expected };
        Ok(Next::Exchange(reply.to_bytes(transaction)))
    }

    fn judge(&self, success: Success1<'_>, expected: Option<&Digest>) -> Result<Next, Refusal> {
        let Some(expected) = expected else { return Ok(Next::Authenticated(None)) };
        let response = success.response.ok_or(Refusal::new(
            Explanation::Failed,
            "the controller was asked who it is, and does not say; has it a controller secret?",
        ))?;
        if !expected.equals(response) {
            return Err(Refusal::new(Explanation::Failed, "the controller does not know the controller secret"));
        }
        Ok(Next::Authenticated(Some(Success2::bytes(self.transaction))))
    }
}
