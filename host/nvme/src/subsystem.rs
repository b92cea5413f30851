//! A subsystem: what its controllers share. Namespaces, names, and who may connect.
//!
//! ```text
//!   subsystem nqn.…     ┌ controller 1 (host A) ┐     ┌ namespace 1 ┐
//!                       │ controller 2 (host A) │ ◀─▶ │ namespace 2 │
//!                       └ controller 3 (host B) ┘     └ namespace 5 ┘
//! ```

use crate::controller::Controller;
use crate::hints::HintState;
use crate::namespace::{NAMESPACES_MAX, Namespace, NamespaceSet};
use crate::queue::ControllerName;
use crate::reservation::Reservation;
use std::fmt;

/// The most controllers of one subsystem at a time.
pub const CONTROLLERS_MAX: usize = 1024;

/// The longest qualified name, in bytes.
pub const NQN_BYTES_MAX: usize = 223;

/// An NVMe qualified name (Base, "NVMe Qualified Names").
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Nqn(String);

/// A text that is no qualified name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{text}` is no NVMe qualified name: it has to begin with `nqn.` and be at most {NQN_BYTES_MAX} bytes long, like \
     nqn.2014-08.org.nvmexpress:uuid:01234567-89ab-cdef-0123-456789abcdef"
)]
pub struct NqnError {
    text: String,
}

impl Nqn {
    /// The name that `text` is.
    ///
    /// # Errors
    /// If it is none.
    pub fn new(text: &str) -> Result<Nqn, NqnError> {
        let is_name = text.starts_with("nqn.") && (5..=NQN_BYTES_MAX).contains(&text.len());
        if is_name && !text.contains(|char: char| char.is_control()) {
            Ok(Nqn(text.to_owned()))
        } else {
            Err(NqnError { text: text.to_owned() })
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Nqn {
    type Err = NqnError;

    fn from_str(text: &str) -> Result<Nqn, NqnError> {
        Nqn::new(text)
    }
}

/// Which hosts may connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostsAllowed {
    /// Any.
    Any,
    /// Those of these names.
    Listed(Vec<Nqn>),
}

impl HostsAllowed {
    /// Whether a host of this name may connect.
    #[must_use]
    pub fn allows(&self, nqn: &str) -> bool {
        match self {
            HostsAllowed::Any => true,
            HostsAllowed::Listed(names) => names.iter().any(|name| name.as_str() == nqn),
        }
    }
}

/// What a subsystem says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubsystemConfig {
    /// Its name.
    pub nqn: Nqn,
    /// SN, up to 20 characters.
    pub serial: String,
    /// MN, up to 40 characters.
    pub model: String,
    /// FR, up to 8 characters.
    pub firmware: String,
    /// Who may connect.
    pub hosts: HostsAllowed,
    /// Whether hosts have to authenticate.
    pub requires_authentication: bool,
    /// Whether one host may have several controllers of it (multipath: CMIC). Namespaces are shared by several hosts in any case.
    pub is_shared: bool,
    /// Bytes of data that the transport takes in the capsule of an I/O command, a multiple of 16.
    pub in_capsule_bytes: u32,
}

impl SubsystemConfig {
    /// A subsystem that any host may connect to, and that is not shared.
    #[must_use]
    pub fn new(nqn: Nqn, serial: &str) -> SubsystemConfig {
        SubsystemConfig {
            nqn,
            serial: serial.to_owned(),
            model: "OpenFTL".to_owned(),
            firmware: env!("CARGO_PKG_VERSION").to_owned(),
            hosts: HostsAllowed::Any,
            requires_authentication: false,
            is_shared: false,
            in_capsule_bytes: 8192,
        }
    }
}

/// Who connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// HOSTNQN.
    pub nqn: String,
    /// HOSTID.
    pub id: [u8; 16],
}

/// A subsystem that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubsystemError {
    /// There is one of this name, or it is the discovery subsystem's.
    #[error("nqn = `{0}`: another subsystem has that name; choose another one")]
    NameTaken(Nqn),
    /// A text that its field cannot hold.
    #[error("{field} = `{value}`: must be at most {max} printable ASCII characters")]
    Text {
        /// The field.
        field: &'static str,
        /// What it was.
        value: String,
        /// The most characters.
        max: usize,
    },
    /// Capsules are counted in units of 16 bytes.
    #[error("in_capsule_bytes = {0}: must be a multiple of 16")]
    InCapsuleBytes(u32),
}

impl SubsystemConfig {
    /// Whether a subsystem can say this of itself.
    ///
    /// # Errors
    /// The first field that it cannot.
    pub fn validate(&self) -> Result<(), SubsystemError> {
        for (field, value, max) in
            [("serial", &self.serial, 20), ("model", &self.model, 40), ("firmware", &self.firmware, 8)]
        {
            if value.len() > max || !value.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
                return Err(SubsystemError::Text { field, value: value.clone(), max });
            }
        }
        if !self.in_capsule_bytes.is_multiple_of(16) {
            return Err(SubsystemError::InCapsuleBytes(self.in_capsule_bytes));
        }
        Ok(())
    }
}

/// A namespace that cannot be attached or detached.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NamespaceError {
    /// No id of a namespace.
    #[error("namespace id {0} is not between 1 and {NAMESPACES_MAX}")]
    IdImpossible(u32),
    /// There is one of this id.
    #[error("namespace {0} exists already; choose another id")]
    Exists(u32),
    /// There is none of this id.
    #[error("there is no namespace {0}")]
    Absent(u32),
}

/// One subsystem.
#[derive(Debug)]
pub struct Subsystem {
    pub(crate) config: SubsystemConfig,
    /// At their id less one.
    pub(crate) namespaces: Vec<Option<Namespace>>,
    /// What is remembered of the hints of each of them.
    pub(crate) hint_states: Vec<HintState>,
    /// The reservation of each of them.
    pub(crate) reservations: Vec<Reservation>,
    /// Namespaces whose reservation is held.
    pub(crate) reserved: NamespaceSet,
    /// Namespaces that a new controller has not attached.
    pub(crate) withheld: NamespaceSet,
    /// At their id less one.
    pub(crate) controllers: Vec<Option<Controller>>,
    /// Where the search for a free controller id begins, so that an id is not used again at once.
    next_slot: usize,
}

impl Subsystem {
    pub(crate) fn new(config: SubsystemConfig) -> Subsystem {
        let namespaces = vec![None; NAMESPACES_MAX as usize];
        let hint_states = std::iter::repeat_with(HintState::default).take(namespaces.len()).collect();
        let reservations = vec![Reservation::default(); namespaces.len()];
        let (reserved, withheld) = Default::default();
        Subsystem {
            config,
            namespaces,
            hint_states,
            reservations,
            reserved,
            withheld,
            controllers: Vec::new(),
            next_slot: 0,
        }
    }

    /// What it says of itself.
    #[must_use]
    pub fn config(&self) -> &SubsystemConfig {
        &self.config
    }

    /// Its namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.namespaces.iter().flatten()
    }

    /// The namespace `id`.
    #[must_use]
    pub fn namespace(&self, id: u32) -> Option<&Namespace> {
        self.namespaces.get((id as usize).checked_sub(1)?)?.as_ref()
    }

    /// Its controllers.
    pub fn controllers(&self) -> impl Iterator<Item = &Controller> {
        self.controllers.iter().flatten()
    }

    pub(crate) fn controllers_mut(&mut self) -> impl Iterator<Item = &mut Controller> {
        self.controllers.iter_mut().flatten()
    }

    /// The controller of this name, if it still lives.
    #[inline]
    pub(crate) fn controller_mut(&mut self, name: ControllerName) -> Option<&mut Controller> {
        let controller = self.controllers.get_mut(usize::from(name.id).checked_sub(1)?)?.as_mut()?;
        (controller.name == name).then_some(controller)
    }

    /// A controller id that is free.
    pub(crate) fn free_id(&mut self) -> Option<u16> {
        let slots = self.controllers.len();
        let free =
            (0..slots).map(|step| (self.next_slot + step) % slots).find(|slot| self.controllers[*slot].is_none());
        let slot = if slots < CONTROLLERS_MAX && free.is_none_or(|slot| slot < self.next_slot) {
            self.controllers.push(None);
            slots
        } else {
            free?
        };
        self.next_slot = slot + 1;
        Some(slot as u16 + 1)
    }

    /// Whether a controller that is made now has namespace `id` attached.
    #[must_use]
    pub fn offers(&self, id: u32) -> bool {
        self.namespace(id).is_some() && !self.withheld.contains(id)
    }

    /// Every namespace that a new controller has attached.
    pub(crate) fn offered(&self) -> NamespaceSet {
        let mut set = NamespaceSet::default();
        let offered = self.namespaces().filter(|namespace| !self.withheld.contains(namespace.id));
        offered.for_each(|namespace| set.insert(namespace.id));
        set
    }

    /// The other enabled controllers of a controller's host. A host identifier of zero is none.
    fn others_of_its_host(&mut self, name: ControllerName) -> impl Iterator<Item = &mut Controller> {
        let host_id = self.controller_mut(name).map_or([0; 16], |controller| controller.host.id);
        self.controllers_mut().filter(move |other| {
            other.name != name && other.is_ready() && other.host.id == host_id && host_id != [0; 16]
        })
    }

    /// A controller is enabled: it has the directives of the others of its host (Base, "Enable Directive").
    pub(crate) fn adopt_directives(&mut self, name: ControllerName) {
        let of_others = self.others_of_its_host(name).next().map(|other| other.directives);
        if let (Some(controller), Some(directives)) = (self.controller_mut(name), of_others) {
            controller.directives = directives;
        }
    }

    /// A host has enabled or disabled directives with one controller: so it has with its others.
    pub(crate) fn share_directives(&mut self, name: ControllerName) {
        let Some(directives) = self.controller_mut(name).map(|controller| controller.directives) else { return };
        self.others_of_its_host(name).for_each(|other| other.directives = directives);
        self.release_streams();
    }

    /// Releases the streams of namespaces where no host has them enabled any more.
    pub(crate) fn release_streams(&mut self) {
        for id in 1..=NAMESPACES_MAX {
            if !self.controllers().any(|controller| controller.directives.streams.contains(id)) {
                self.hint_states[id as usize - 1].streams.give_back();
            }
        }
    }

    pub(crate) fn slot_mut(&mut self, id: u32) -> Result<&mut Option<Namespace>, NamespaceError> {
        match (id as usize).checked_sub(1).and_then(|index| self.namespaces.get_mut(index)) {
            Some(slot) => Ok(slot),
            None => Err(NamespaceError::IdImpossible(id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qualified_name_is_told_from_other_texts() {
        assert_eq!(Nqn::new("nqn.2024-01.org.example:drive").unwrap().as_str(), "nqn.2024-01.org.example:drive");
        for text in ["", "nqn.", "iqn.2024", "nqn.a\0", &format!("nqn.{}", "a".repeat(220))] {
            let error = Nqn::new(text).unwrap_err().to_string();
            assert!(error.contains("nqn."), "{error}");
        }
    }

    #[test]
    fn an_allow_list_allows_whom_it_names() {
        let listed = HostsAllowed::Listed(vec![Nqn::new("nqn.a").unwrap()]);
        assert!(listed.allows("nqn.a") && !listed.allows("nqn.b") && !listed.allows("nqn.aa") && !listed.allows(""));
        assert!(HostsAllowed::Any.allows("nqn.b"));
    }
}
