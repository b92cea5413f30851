//! Which hash functions and groups one accepts.

use crate::group::DhGroup;
use crate::hash::HashFunction;

/// What one accepts, best first. The host proposes all of its policy; the controller takes the best of its own that was
/// proposed, whatever the order of the proposal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Hash functions, each at most once.
    pub hashes: Vec<HashFunction>,
    /// Groups, each at most once.
    pub groups: Vec<DhGroup>,
}

impl Default for Policy {
    /// Everything that the protocol knows. ffdhe3072, which gives 128 bits of security, comes first: a larger group
    /// costs the controller time before it knows whom it deals with, and ffdhe8192 seven times as much. No group at all
    /// comes last; it is as good as the secret is random.
    fn default() -> Policy {
        Policy {
            hashes: vec![HashFunction::Sha512, HashFunction::Sha384, HashFunction::Sha256],
            groups: vec![
                DhGroup::Ffdhe3072,
                DhGroup::Ffdhe4096,
                DhGroup::Ffdhe6144,
                DhGroup::Ffdhe8192,
                DhGroup::Ffdhe2048,
                DhGroup::Null,
            ],
        }
    }
}
