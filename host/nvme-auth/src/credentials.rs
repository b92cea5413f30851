//! Two names, one or two keys, and the responses that follow from them.

use crate::hash::{Digest, HashFunction};
use crate::secret::{Key, Secret};

/// What host and controller must agree on for a queue to be authenticated.
#[derive(Clone)]
pub struct Credentials {
    host_nqn: String,
    subsystem_nqn: String,
    host_key: Key,
    controller_key: Option<Key>,
}

/// A challenge, and what a response to it depends on besides the key.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub hash: HashFunction,
    pub challenge: &'a [u8],
    pub sequence: u32,
    pub transaction: u16,
    /// The secret of the Diffie-Hellman exchange, if there was one.
    pub dh_secret: Option<&'a [u8]>,
}

impl Credentials {
    /// The names are those of the Connect command. `host_secret` shows who the host is. `controller_secret` shows who
    /// the controller is: a host that has it insists on being shown, a controller that has it can.
    #[must_use]
    pub fn new(
        host_nqn: &str,
        subsystem_nqn: &str,
        host_secret: &Secret,
        controller_secret: Option<&Secret>,
    ) -> Credentials {
        Credentials {
            host_nqn: host_nqn.to_owned(),
            subsystem_nqn: subsystem_nqn.to_owned(),
            host_key: host_secret.key(host_nqn),
            controller_key: controller_secret.map(|secret| secret.key(subsystem_nqn)),
        }
    }

    /// Whether the controller can be asked who it is.
    pub(crate) fn are_mutual(&self) -> bool {
        self.controller_key.is_some()
    }

    /// R1, by which the host shows who it is (8.3.4.5.4).
    pub(crate) fn host_response(&self, question: Question<'_>) -> Digest {
        question.response(&self.host_key, "HostHost", &self.host_nqn, &self.subsystem_nqn)
    }

    /// R2, by which the controller shows who it is (8.3.4.5.5); `None` if no key says so.
    pub(crate) fn controller_response(&self, question: Question<'_>) -> Option<Digest> {
        let key = self.controller_key.as_ref()?;
        Some(question.response(key, "Controller", &self.subsystem_nqn, &self.host_nqn))
    }
}

impl Question<'_> {
    /// HMAC(key, Ca ‖ S ‖ T_ID ‖ SC_C ‖ role ‖ NQN of who answers ‖ 00h ‖ NQN of who asked). As the two roles differ, no
    /// response can be thrown back at who sent it.
    fn response(&self, key: &Key, role: &str, from: &str, to: &str) -> Digest {
        const NO_SECURE_CHANNEL: u8 = 0;
        let augmented = self.dh_secret.map(|secret| {
            // Ca = HMAC(KS, C) with KS = H(g^xy mod p).
            self.hash.hmac(self.hash.digest(secret).as_ref(), &[self.challenge])
        });
        let challenge = augmented.as_ref().map_or(self.challenge, AsRef::as_ref);
        self.hash.hmac(
            key.as_ref(),
            &[
                challenge,
                &self.sequence.to_le_bytes(),
                &self.transaction.to_le_bytes(),
                &[NO_SECURE_CHANNEL],
                role.as_bytes(),
                from.as_bytes(),
                &[0],
                to.as_bytes(),
            ],
        )
    }
}
