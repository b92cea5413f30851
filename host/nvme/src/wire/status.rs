//! How a command ended: type, code, and what the host should do about it, in 15 bits.
//!
//! ```text
//!   14   13   12 11   10  8   7      0
//!   DNR │ M │ CRD   │ type  │ code     (Base, "Status Field Definition"; one bit further left in a completion)
//! ```

use openftl_media::Status as MediaStatus;
use openftl_parts::target::{AppendError, IoError, ObjectError};
use std::fmt;

/// A status field without the phase tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(u16);

const DO_NOT_RETRY: u16 = 1 << 14;
const MORE: u16 = 1 << 13;

macro_rules! statuses {
    ($($(#[$doc:meta])* $fate:ident $name:ident = $code:literal, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* #[doc = concat!("\"", $text, "\".")] pub const $name: Status = Status::$fate($code);)*

            /// Every status that a controller here or its server gives, and what the specification calls it.
            pub const ALL: &[(Status, &str)] = &[$((Status::$name, $text)),*];
        }
    };
}

statuses! {
    // Generic (type 0h).
    transient SUCCESS = 0x000, "Successful Completion";
    permanent INVALID_OPCODE = 0x001, "Invalid Command Opcode";
    permanent INVALID_FIELD = 0x002, "Invalid Field in Command";
    permanent COMMAND_ID_CONFLICT = 0x003, "Command ID Conflict";
    transient DATA_TRANSFER_ERROR = 0x004, "Data Transfer Error";
    transient ABORTED_POWER_LOSS = 0x005, "Commands Aborted due to Power Loss Notification";
    transient INTERNAL_ERROR = 0x006, "Internal Error";
    transient ABORT_REQUESTED = 0x007, "Command Abort Requested";
    transient ABORTED_QUEUE_DELETED = 0x008, "Command Aborted due to SQ Deletion";
    permanent FAILED_FUSED = 0x009, "Command Aborted due to Failed Fused Command";
    permanent MISSING_FUSED = 0x00a, "Command Aborted due to Missing Fused Command";
    permanent INVALID_NAMESPACE = 0x00b, "Invalid Namespace or Format";
    permanent COMMAND_SEQUENCE_ERROR = 0x00c, "Command Sequence Error";
    permanent DATA_SGL_LENGTH_INVALID = 0x00f, "Data SGL Length Invalid";
    permanent SGL_TYPE_INVALID = 0x011, "SGL Descriptor Type Invalid";
    permanent ATOMIC_UNIT_EXCEEDED = 0x014, "Atomic Write Unit Exceeded";
    permanent SGL_OFFSET_INVALID = 0x016, "SGL Offset Invalid";
    permanent HOST_ID_FORMAT = 0x018, "Host Identifier Inconsistent Format";
    permanent ABORTED_PREEMPTED = 0x01b, "Command Aborted due to Preempt and Abort";
    transient TRANSIENT_TRANSPORT_ERROR = 0x022, "Transient Transport Error";
    permanent FDP_DISABLED = 0x029, "FDP Disabled";
    permanent LBA_OUT_OF_RANGE = 0x080, "LBA Out of Range";
    permanent CAPACITY_EXCEEDED = 0x081, "Capacity Exceeded";
    transient NAMESPACE_NOT_READY = 0x082, "Namespace Not Ready";
    permanent RESERVATION_CONFLICT = 0x083, "Reservation Conflict";
    // Generic, of key-value namespaces.
    permanent INVALID_VALUE_SIZE = 0x085, "Invalid Value Size";
    permanent INVALID_KEY_SIZE = 0x086, "Invalid Key Size";
    permanent KEY_NOT_FOUND = 0x087, "KV Key Does Not Exist";
    permanent VALUE_UNRECOVERED = 0x088, "Unrecovered Error";
    permanent KEY_EXISTS = 0x089, "Key Exists";
    // Command specific (type 1h).
    transient EVENT_LIMIT_EXCEEDED = 0x105, "Asynchronous Event Request Limit Exceeded";
    permanent INVALID_LOG_PAGE = 0x109, "Invalid Log Page";
    permanent FEATURE_NOT_SAVEABLE = 0x10d, "Feature Identifier Not Saveable";
    permanent FEATURE_NOT_CHANGEABLE = 0x10e, "Feature Not Changeable";
    permanent FEATURE_NOT_NAMESPACE_SPECIFIC = 0x10f, "Feature Not Namespace Specific";
    permanent COMMAND_SET_REJECTED = 0x12b, "I/O Command Set Combination Rejected";
    permanent INVALID_COMMAND_SET = 0x12c, "Invalid I/O Command Set";
    permanent STREAM_RESOURCES_FAILED = 0x17f, "Stream Resource Allocation Failed";
    permanent INVALID_ZONE_OPERATION = 0x1b6, "Invalid Zone Operation Request";
    permanent ZRWA_UNAVAILABLE = 0x1b7, "ZRWA Resources Unavailable";
    permanent ZONE_BOUNDARY = 0x1b8, "Zone Boundary Error";
    permanent ZONE_FULL = 0x1b9, "Zone Is Full";
    permanent ZONE_READ_ONLY = 0x1ba, "Zone Is Read Only";
    permanent ZONE_OFFLINE = 0x1bb, "Zone Is Offline";
    permanent ZONE_INVALID_WRITE = 0x1bc, "Zone Invalid Write";
    permanent TOO_MANY_ACTIVE_ZONES = 0x1bd, "Too Many Active Zones";
    permanent TOO_MANY_OPEN_ZONES = 0x1be, "Too Many Open Zones";
    permanent ZONE_INVALID_TRANSITION = 0x1bf, "Invalid Zone State Transition";
    permanent TOO_MANY_OBJECTS = 0x1c0, "Too Many Objects";
    permanent TOO_MANY_REGISTRANTS = 0x1c1, "Too Many Registrants";
    // Command specific, of our own commands for pages ([`crate::wire::pages`]).
    permanent INVALID_DIRECTORY = 0x1d0, "Invalid Page Directory";
    permanent INVALID_PAGE_LENGTH = 0x1d1, "Invalid Page Length";
    permanent PAGE_MAP_FULL = 0x1d2, "Page Map Full";
    permanent BATCH_TOO_LONG = 0x1d3, "Batch Too Long";
    permanent SESSION_NOT_OPEN = 0x1d4, "Session Not Open";
    permanent SESSION_IN_USE = 0x1d5, "Session In Use";
    permanent TOO_MANY_SESSIONS = 0x1d6, "Too Many Sessions";
    permanent BATCH_TOO_EARLY = 0x1d7, "Batch Too Early";
    permanent BATCH_DIFFERS = 0x1d8, "Batch Differs From The Committed One";
    permanent BATCH_TOO_LATE = 0x1d9, "Batch Too Late";
    permanent BATCH_COMMITTING = 0x1da, "Batch Is Being Committed";
    permanent BATCH_ABORTED = 0x1db, "Batch Aborted";
    permanent PAGE_VERSION_MISMATCH = 0x1dc, "Page Version Mismatch";
    permanent PAGE_NOT_FOUND = 0x1dd, "Page Not Found";
    permanent PAGE_OFFSET_OUT_OF_RANGE = 0x1de, "Page Offset Out of Range";
    permanent WRITE_TO_READ_ONLY = 0x182, "Attempted Write to Read Only Range";
    permanent COMMAND_SIZE_EXCEEDED = 0x183, "Command Size Limit Exceeded";
    // Media and data integrity (type 2h).
    transient WRITE_FAULT = 0x280, "Write Fault";
    permanent UNRECOVERED_READ = 0x281, "Unrecovered Read Error";
    permanent COMPARE_FAILURE = 0x285, "Compare Failure";
    permanent DEALLOCATED_BLOCK = 0x287, "Deallocated or Unwritten Logical Block";
    permanent OFFLINE_CHUNK = 0x2c0, "Offline Chunk";
    permanent INVALID_RESET = 0x2c1, "Invalid Reset";
    permanent HIGH_ECC = 0x2d0, "Read With High ECC";
    permanent WRITE_NEXT_UNIT = 0x2f0, "Write Failed, Write Next Unit";
    permanent CHUNK_CLOSED_EARLY = 0x2f1, "Write Failed, Chunk Closed Early";
    permanent OUT_OF_ORDER_WRITE = 0x2f2, "Out of Order Write";
    // Vendor specific (type 7h): what segments refuse.
    permanent SEGMENT_OVERWRITE = 0x7c0, "Segment Overwrite";
    permanent SEGMENT_GAP = 0x7c1, "Segment Gap";
    permanent SEGMENT_BOUNDARY = 0x7c2, "Segment Boundary Error";
    permanent TOO_MANY_OPEN_SEGMENTS = 0x7c3, "Too Many Open Segments";
    permanent SEGMENT_READ_ONLY = 0x7c4, "Segment Is Read Only";
}

/// Status codes of fabrics commands, which share numbers with those of the NVM command set (Base, "Fabrics Command Set").
impl Status {
    /// "Connect Incompatible Format".
    pub const CONNECT_INCOMPATIBLE_FORMAT: Status = Status::permanent(0x180);
    /// "Connect Controller Busy".
    pub const CONNECT_CONTROLLER_BUSY: Status = Status::transient(0x181);
    /// "Connect Invalid Parameters".
    pub const CONNECT_INVALID_PARAMETERS: Status = Status::permanent(0x182);
    /// "Connect Invalid Host".
    pub const CONNECT_INVALID_HOST: Status = Status::permanent(0x184);
    /// "Disconnect Invalid Queue Type".
    pub const DISCONNECT_INVALID_QUEUE: Status = Status::permanent(0x185);
    /// "Authentication Required".
    pub const AUTHENTICATION_REQUIRED: Status = Status::permanent(0x191);

    /// What the specification calls those that only fabrics commands end with.
    pub const FABRICS: [(Status, &str); 6] = [
        (Status::CONNECT_INCOMPATIBLE_FORMAT, "Connect Incompatible Format"),
        (Status::CONNECT_CONTROLLER_BUSY, "Connect Controller Busy"),
        (Status::CONNECT_INVALID_PARAMETERS, "Connect Invalid Parameters"),
        (Status::CONNECT_INVALID_HOST, "Connect Invalid Host"),
        (Status::DISCONNECT_INVALID_QUEUE, "Disconnect Invalid Queue Type"),
        (Status::AUTHENTICATION_REQUIRED, "Authentication Required"),
    ];

    /// The status of a fabrics command, as [`fmt::Display`] shows those of others.
    #[must_use]
    pub fn of_fabrics(self) -> String {
        match Status::FABRICS.iter().find(|(status, _)| status.code() == self.code()) {
            Some((_, name)) => format!("{:04X}h {name}", self.code()),
            None => self.to_string(),
        }
    }
}

impl Status {
    /// Sending the command again would end the same way.
    const fn permanent(code: u16) -> Status {
        Status(code | DO_NOT_RETRY)
    }

    /// Sending the command again may help.
    const fn transient(code: u16) -> Status {
        Status(code)
    }

    /// A status field as it is read from a completion, shifted past the phase tag.
    #[must_use]
    pub fn from_field(field: u16) -> Status {
        Status(field & 0x7fff)
    }

    /// The 15 bits.
    #[inline]
    #[must_use]
    pub fn field(self) -> u16 {
        self.0
    }

    /// Type and code, without the advice: what the specification writes as 2, and here as 0281h.
    #[must_use]
    pub fn code(self) -> u16 {
        self.0 & 0x7ff
    }

    /// Whether the command did what it was asked.
    #[inline]
    #[must_use]
    pub fn is_success(self) -> bool {
        self.code() == 0
    }

    /// Whether the host is told not to send the command again (DNR).
    #[must_use]
    pub fn is_permanent(self) -> bool {
        self.0 & DO_NOT_RETRY != 0
    }

    /// The same, and the error log says more (M).
    #[must_use]
    pub fn with_more(self) -> Status {
        Status(self.0 | MORE)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Status::ALL.iter().find(|(status, _)| status.code() == self.code()) {
            Some((_, name)) => write!(f, "{:04X}h {name}", self.code()),
            None => write!(f, "{:04X}h", self.code()),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.0 & MORE != 0 { ", more in the log" } else { "" };
        let advice = if self.is_permanent() { ", do not retry" } else { "" };
        write!(f, "Status({self}{more}{advice})")
    }
}

impl From<IoError> for Status {
    fn from(error: IoError) -> Status {
        match error {
            IoError::OutOfRange { .. } => Status::LBA_OUT_OF_RANGE,
            IoError::QueueFull => Status::NAMESPACE_NOT_READY,
            IoError::ReadOnly => Status::WRITE_TO_READ_ONLY,
            IoError::Object(ObjectError::TooMany { .. }) => Status::TOO_MANY_OBJECTS,
            IoError::Object(ObjectError::NotKept) => Status::INVALID_OPCODE,
            IoError::Object(ObjectError::Extents { .. } | ObjectError::Overlap { .. }) => Status::INVALID_FIELD,
            IoError::Append(AppendError::Overwrite { .. }) => Status::SEGMENT_OVERWRITE,
            IoError::Append(AppendError::Gap { .. }) => Status::SEGMENT_GAP,
            IoError::Append(AppendError::Crossing { .. }) => Status::SEGMENT_BOUNDARY,
            IoError::Append(AppendError::TooManyOpen { .. }) => Status::TOO_MANY_OPEN_SEGMENTS,
            IoError::Append(AppendError::SegmentReadOnly { .. }) => Status::SEGMENT_READ_ONLY,
            IoError::Append(AppendError::NoSuchRequest) => Status::INVALID_OPCODE,
            // A block that is not what was written is as lost as one that cannot be read; the codes for failed end-to-end
            // checks (0282h to 0284h) speak of protection information, which no namespace here has.
            IoError::Unrecovered { .. } | IoError::WrongBlock { .. } | IoError::Uncorrectable { .. } => {
                Status::UNRECOVERED_READ
            }
        }
    }
}

/// What a device says, and how a controller says it: the same numbers.
const OF_MEDIUM: [(MediaStatus, Status); 12] = [
    (MediaStatus::Success, Status::SUCCESS),
    (MediaStatus::InvalidField, Status::INVALID_FIELD),
    (MediaStatus::LbaOutOfRange, Status::LBA_OUT_OF_RANGE),
    (MediaStatus::OfflineChunk, Status::OFFLINE_CHUNK),
    (MediaStatus::InvalidReset, Status::INVALID_RESET),
    (MediaStatus::WriteFailedWriteNextUnit, Status::WRITE_NEXT_UNIT),
    (MediaStatus::WriteFailedChunkClosedEarly, Status::CHUNK_CLOSED_EARLY),
    (MediaStatus::OutOfOrderWrite, Status::OUT_OF_ORDER_WRITE),
    (MediaStatus::HighEcc, Status::HIGH_ECC),
    (MediaStatus::WriteFault, Status::WRITE_FAULT),
    (MediaStatus::UnrecoveredRead, Status::UNRECOVERED_READ),
    (MediaStatus::DeallocatedOrUnwritten, Status::DEALLOCATED_BLOCK),
];

impl From<MediaStatus> for Status {
    fn from(status: MediaStatus) -> Status {
        let (_, status) = OF_MEDIUM.iter().find(|(medium, _)| *medium == status).expect("every status is listed");
        *status
    }
}

impl Status {
    /// What the device behind an Open-Channel namespace said, if this is such a status.
    #[must_use]
    pub fn of_medium(self) -> Option<MediaStatus> {
        OF_MEDIUM.iter().find(|(_, status)| status.code() == self.code()).map(|(medium, _)| *medium)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_its_code_its_name_and_what_to_do() {
        assert_eq!(Status::SUCCESS.field(), 0);
        assert_eq!(Status::INVALID_FIELD.field(), 0x4002);
        assert_eq!(Status::INVALID_FIELD.with_more().field(), 0x6002);
        assert_eq!(Status::UNRECOVERED_READ.to_string(), "0281h Unrecovered Read Error");
        assert_eq!(Status::from_field(0x3ff).to_string(), "03FFh");
        assert_eq!(Status::from_field(0x4182).of_fabrics(), "0182h Connect Invalid Parameters");
        assert_eq!(Status::INVALID_OPCODE.of_fabrics(), Status::INVALID_OPCODE.to_string());
        assert_eq!(
            format!("{:?}", Status::INVALID_OPCODE.with_more()),
            "Status(0001h Invalid Command Opcode, more in the log, do not retry)"
        );
        assert!(Status::SUCCESS.is_success() && !Status::WRITE_FAULT.is_success());
    }

    #[test]
    fn no_code_is_named_twice() {
        let mut codes: Vec<u16> = Status::ALL.iter().map(|(status, _)| status.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Status::ALL.len());
    }

    #[test]
    fn statuses_of_the_medium_keep_their_numbers() {
        for (medium, status) in OF_MEDIUM {
            assert_eq!(status.code(), medium as u16);
            assert_eq!(Status::from(medium).of_medium(), Some(medium));
        }
        assert_eq!(Status::INVALID_OPCODE.of_medium(), None);
    }
}
