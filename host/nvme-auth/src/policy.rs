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

impl Policy {
    /// These groups, best first, and every hash function.
    #[must_use]
    pub fn with_groups(groups: Vec<DhGroup>) -> Policy {
        Policy { hashes: vec![HashFunction::Sha512, HashFunction::Sha384, HashFunction::Sha256], groups }
    }

    /// Everything that the protocol knows: what a host proposes, because its controller chooses.
    #[must_use]
    pub fn everything() -> Policy {
        Policy::with_groups(vec![
            DhGroup::Ffdhe3072,
            DhGroup::Ffdhe4096,
            DhGroup::Ffdhe6144,
            DhGroup::Ffdhe8192,
            DhGroup::Ffdhe2048,
            DhGroup::Null,
        ])
    }
}

impl Default for Policy {
    /// What a controller accepts unless its operator says otherwise: ffdhe3072, which gives 128 bits of security, then its
    /// neighbours. The larger groups are left out: a key costs the controller time before it knows whom it deals with, and
    /// one of ffdhe8192 seven times as much. No group at all comes last; it is as good as the secret is random.
    fn default() -> Policy {
        Policy::with_groups(vec![DhGroup::Ffdhe3072, DhGroup::Ffdhe4096, DhGroup::Ffdhe2048, DhGroup::Null])
    }
}
