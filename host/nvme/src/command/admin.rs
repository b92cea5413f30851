//! The commands of the admin queue (Base, "Admin Command Set").

use super::{Refusal, Transfer, check_data_pointer, check_flags};
use crate::namespace::TRANSFER_BYTES_MAX;
use crate::queue::CommandId;
use crate::wire::directive;
use crate::wire::entry::SubmissionEntry;
use crate::wire::feature::{self, select};
use crate::wire::identify::IDENTIFY_BYTES;
use crate::wire::opcode::admin as opcodes;
use crate::wire::status::Status;

/// What a host wants of a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdminCommand {
    /// "Identify command".
    Identify(Identify),
    /// "Get Log Page command".
    GetLogPage(GetLogPage),
    /// "Set Features command".
    SetFeature(SetFeature),
    /// "Get Features command".
    GetFeature(GetFeature),
    /// "Asynchronous Event Request command".
    EventRequest,
    /// "Keep Alive command".
    KeepAlive,
    /// "Abort command".
    Abort {
        /// SQID.
        queue: u16,
        /// CID.
        command: CommandId,
    },
    /// "Directive Send command" or "Directive Receive command".
    Directive(Directive),
    /// Open-Channel 2.0, "Geometry".
    Geometry {
        /// NSID.
        namespace: u32,
    },
}

/// The fields of an Identify command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identify {
    /// CNS, [`crate::wire::identify::cns`].
    pub structure: u8,
    /// NSID.
    pub namespace: u32,
    /// CNTID.
    pub controller: u16,
    /// CNS Specific Identifier.
    pub specific: u16,
    /// CSI.
    pub command_set: u8,
}

/// The fields of a Get Log Page command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetLogPage {
    /// LID, [`crate::wire::log::id`].
    pub page: u8,
    /// NSID.
    pub namespace: u32,
    /// RAE: leave the event that led to the page as it is.
    pub retain_event: bool,
    /// LPO, bytes.
    pub offset: u64,
    /// NUMD in bytes, at least 4.
    pub bytes: u32,
    /// LSP, bits 14 to 8 of dword 10.
    pub parameter: u8,
    /// LSI, bits 31 to 16 of dword 11.
    pub specific: u16,
    /// UUID Index, 0 for none.
    pub uuid: u8,
    /// CSI, bits 31 to 24 of dword 14.
    pub command_set: u8,
}

/// The fields of a Set Features command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetFeature {
    /// FID, [`crate::wire::feature::id`].
    pub feature: u8,
    /// NSID.
    pub namespace: u32,
    /// SV.
    pub save: bool,
    /// Dword 11.
    pub value: u32,
    /// Dword 12.
    pub second_value: u32,
}

/// The fields of a Get Features command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetFeature {
    /// FID, [`crate::wire::feature::id`].
    pub feature: u8,
    /// NSID.
    pub namespace: u32,
    /// SEL, [`crate::wire::feature::select`].
    pub select: u8,
    /// Dword 11.
    pub value: u32,
}

/// The fields of Directive Send and Directive Receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Directive {
    /// Which of the two commands it is.
    pub is_send: bool,
    /// DTYPE, [`crate::wire::directive::kind`].
    pub kind: u8,
    /// DOPER, [`crate::wire::directive::send`] or [`crate::wire::directive::receive`].
    pub operation: u8,
    /// DSPEC.
    pub specific: u16,
    /// Dword 12.
    pub value: u32,
    /// NSID.
    pub namespace: u32,
    /// NUMD in bytes, at least 4.
    pub bytes: u32,
}

impl AdminCommand {
    /// What the 64 bytes say.
    ///
    /// # Errors
    /// The status of what they say wrong.
    pub fn parse(entry: &SubmissionEntry) -> Result<AdminCommand, Refusal> {
        check_flags(entry)?;
        let namespace = entry.namespace.get();
        let command = match entry.opcode {
            opcodes::IDENTIFY => AdminCommand::Identify(Identify {
                structure: entry.dword(10) as u8,
                namespace,
                controller: (entry.dword(10) >> 16) as u16,
                specific: entry.dword(11) as u16,
                command_set: (entry.dword(11) >> 24) as u8,
            }),
            opcodes::GET_LOG_PAGE => AdminCommand::GetLogPage(GetLogPage::parse(entry)?),
            opcodes::SET_FEATURES => AdminCommand::SetFeature(SetFeature {
                feature: entry.dword(10) as u8,
                namespace,
                save: entry.dword(10) & feature::SAVE != 0,
                value: entry.dword(11),
                second_value: entry.dword(12),
            }),
            opcodes::GET_FEATURES => AdminCommand::GetFeature(GetFeature {
                feature: entry.dword(10) as u8,
                namespace,
                select: (entry.dword(10) >> 8) as u8 & 0b111,
                value: entry.dword(11),
            }),
            opcodes::ASYNCHRONOUS_EVENT_REQUEST => AdminCommand::EventRequest,
            opcodes::KEEP_ALIVE => AdminCommand::KeepAlive,
            opcodes::ABORT => AdminCommand::Abort {
                queue: entry.dword(10) as u16,
                command: CommandId((entry.dword(10) >> 16) as u16),
            },
            opcodes::DIRECTIVE_SEND | opcodes::DIRECTIVE_RECEIVE => AdminCommand::Directive(Directive::parse(entry)?),
            opcodes::GEOMETRY => AdminCommand::Geometry { namespace },
            _ => return Err(Status::INVALID_OPCODE.at(0)),
        };
        check_data_pointer(entry, command.transfer())?;
        Ok(command)
    }

    /// Its data.
    #[must_use]
    pub fn transfer(&self) -> Transfer {
        match self {
            AdminCommand::Identify(_) | AdminCommand::Geometry { .. } => Transfer::ToHost(IDENTIFY_BYTES as u32),
            AdminCommand::GetLogPage(log) => Transfer::ToHost(log.bytes),
            // A host identifier is said with Connect; the one who sets it here is refused unheard.
            AdminCommand::SetFeature(SetFeature { feature: feature::id::DATA_PLACEMENT_EVENTS, value, .. }) => {
                match event_types(*value) {
                    0 => Transfer::None,
                    types => Transfer::ToController(types),
                }
            }
            AdminCommand::SetFeature(SetFeature { feature, .. }) => match data_bytes(*feature) {
                Some(bytes) if *feature != feature::id::HOST_ID => Transfer::ToController(bytes),
                _ => Transfer::None,
            },
            // A host that wants a short identifier (EXHID 0) is refused, whatever room it has.
            AdminCommand::GetFeature(GetFeature { feature: feature::id::HOST_ID, value, .. }) if value & 1 == 0 => {
                Transfer::None
            }
            AdminCommand::GetFeature(GetFeature {
                feature: feature::id::DATA_PLACEMENT_EVENTS, select, value, ..
            }) => match event_types(*value) {
                0 => Transfer::None,
                _ if *select == select::CAPABILITIES => Transfer::None,
                types => Transfer::ToHost(types * 2),
            },
            AdminCommand::GetFeature(GetFeature { feature, select, .. }) => match data_bytes(*feature) {
                Some(bytes) if *select != select::CAPABILITIES => Transfer::ToHost(bytes),
                _ => Transfer::None,
            },
            AdminCommand::Directive(directive) if directive.returns_data() => Transfer::ToHost(directive.bytes),
            AdminCommand::Directive(_)
            | AdminCommand::EventRequest
            | AdminCommand::KeepAlive
            | AdminCommand::Abort { .. } => Transfer::None,
        }
    }
}

impl Directive {
    fn parse(entry: &SubmissionEntry) -> Result<Directive, Refusal> {
        let directive = Directive {
            is_send: entry.opcode == opcodes::DIRECTIVE_SEND,
            kind: (entry.dword(11) >> 8) as u8,
            operation: entry.dword(11) as u8,
            specific: (entry.dword(11) >> 16) as u16,
            value: entry.dword(12),
            namespace: entry.namespace.get(),
            bytes: entry.dword(10).saturating_add(1).saturating_mul(4),
        };
        if directive.returns_data() && directive.bytes > TRANSFER_BYTES_MAX {
            return Err(Status::INVALID_FIELD.at(40));
        }
        Ok(directive)
    }

    fn returns_data(&self) -> bool {
        use directive::{kind, receive};
        let with_data = [
            (kind::IDENTIFY, receive::PARAMETERS),
            (kind::STREAMS, receive::PARAMETERS),
            (kind::STREAMS, receive::STREAMS_STATUS),
        ];
        !self.is_send && with_data.contains(&(self.kind, self.operation))
    }
}

impl GetLogPage {
    fn parse(entry: &SubmissionEntry) -> Result<GetLogPage, Refusal> {
        let dwords = u64::from(entry.dword(10) >> 16) | u64::from(entry.dword(11) & 0xffff) << 16;
        let bytes = (dwords + 1) * 4;
        if bytes > u64::from(TRANSFER_BYTES_MAX) {
            return Err(Status::INVALID_FIELD.at(42));
        }
        let offset = entry.dword_pair(12);
        if !offset.is_multiple_of(4) {
            return Err(Status::INVALID_FIELD.at(48));
        }
        // OT: offsets that count entries are announced for no page.
        if entry.dword(14) & 1 << 23 != 0 {
            return Err(Status::INVALID_FIELD.at(58).bit(7));
        }
        Ok(GetLogPage {
            page: entry.dword(10) as u8,
            namespace: entry.namespace.get(),
            retain_event: entry.dword(10) & 1 << 15 != 0,
            offset,
            bytes: bytes as u32,
            parameter: (entry.dword(10) >> 8) as u8 & 0x7f,
            specific: (entry.dword(11) >> 16) as u16,
            uuid: entry.dword(14) as u8 & 0x7f,
            command_set: (entry.dword(14) >> 24) as u8,
        })
    }
}

/// NOET of "Flexible Data Placement Events", bits 23 to 16 of dword 11.
fn event_types(value: u32) -> u32 {
    value >> 16 & 0xff
}

/// Bytes of data of a feature that has some.
fn data_bytes(id: u8) -> Option<u32> {
    match id {
        feature::id::TIMESTAMP => Some(feature::data_bytes::TIMESTAMP),
        feature::id::HOST_BEHAVIOR => Some(feature::data_bytes::HOST_BEHAVIOR),
        feature::id::HOST_ID => Some(feature::data_bytes::HOST_ID),
        _ => None,
    }
}
