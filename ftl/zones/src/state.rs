//! The states that a zone can be in, and what a host may do with it beside reading and writing.

/// The state of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneState {
    /// Nothing is written to it.
    #[default]
    Empty,
    /// A write has opened it.
    ImplicitlyOpen,
    /// The host has opened it.
    ExplicitlyOpen,
    /// It can be written, once it is opened again.
    Closed,
    /// It can be read, and written after a reset.
    Full,
    /// It can be read, as far as the medium has it.
    ReadOnly,
    /// It can be neither read nor written, for ever.
    Offline,
}

impl ZoneState {
    /// Every state.
    pub const ALL: [ZoneState; 7] = [
        ZoneState::Empty,
        ZoneState::ImplicitlyOpen,
        ZoneState::ExplicitlyOpen,
        ZoneState::Closed,
        ZoneState::Full,
        ZoneState::ReadOnly,
        ZoneState::Offline,
    ];

    /// Whether it holds an open resource.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen)
    }

    /// Whether it holds an active resource.
    #[must_use]
    pub fn is_active(self) -> bool {
        self.is_open() || self == ZoneState::Closed
    }
}

/// What a host may do with a zone beside reading and writing it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Gives back its open resource.
    Close,
    /// Nothing more is written to it.
    Finish,
    /// Opens it until it is closed.
    Open,
    /// Everything in it is gone.
    Reset,
    /// A read-only zone is given up.
    Offline,
}

impl Action {
    /// Every action.
    pub const ALL: [Action; 5] = [Action::Close, Action::Finish, Action::Open, Action::Reset, Action::Offline];

    /// Whether the action is taken on a zone in this state where it is taken on all zones.
    #[must_use]
    pub fn is_for(self, state: ZoneState) -> bool {
        match self {
            Action::Close => state.is_open(),
            Action::Finish => state.is_active(),
            Action::Open => state == ZoneState::Closed,
            Action::Reset => state.is_active() || state == ZoneState::Full,
            Action::Offline => state == ZoneState::ReadOnly,
        }
    }
}
