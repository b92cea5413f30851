//! What the first byte of a command says. Bits 1 and 0 are the direction of its data: 00b none, 01b to the controller,
//! 10b to the host, 11b both.

/// The fabrics command set, on any queue (Base, "Fabrics Command Set"); byte 4 says which.
pub const FABRICS: u8 = 0x7f;

/// Types of fabrics commands; bits 1 and 0 are the direction of the data.
pub mod fabrics {
    /// "Property Set Command".
    pub const PROPERTY_SET: u8 = 0x00;
    /// "Connect Command".
    pub const CONNECT: u8 = 0x01;
    /// "Property Get Command".
    pub const PROPERTY_GET: u8 = 0x04;
    /// "Authentication Send Command".
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// "Authentication Receive Command".
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// "Disconnect Command".
    pub const DISCONNECT: u8 = 0x08;
}

/// Opcodes on the admin queue (Base, "Admin Command Set").
pub mod admin {
    /// "Get Log Page command".
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// "Identify command".
    pub const IDENTIFY: u8 = 0x06;
    /// "Abort command".
    pub const ABORT: u8 = 0x08;
    /// "Set Features command".
    pub const SET_FEATURES: u8 = 0x09;
    /// "Get Features command".
    pub const GET_FEATURES: u8 = 0x0a;
    /// "Asynchronous Event Request command".
    pub const ASYNCHRONOUS_EVENT_REQUEST: u8 = 0x0c;
    /// "Keep Alive command".
    pub const KEEP_ALIVE: u8 = 0x18;
    /// "Directive Send command".
    pub const DIRECTIVE_SEND: u8 = 0x19;
    /// "Directive Receive command".
    pub const DIRECTIVE_RECEIVE: u8 = 0x1a;
    /// Open-Channel 2.0, "Geometry".
    pub const GEOMETRY: u8 = 0xe2;
}

/// Opcodes on the other queues (NVM, "NVM Command Set Commands"; KV, "Key Value Command Set Commands"; Open-Channel 2.0,
/// "I/O Commands").
pub mod io {
    /// "Flush command" (Base).
    pub const FLUSH: u8 = 0x00;
    /// "Write command".
    pub const WRITE: u8 = 0x01;
    /// "Read command".
    pub const READ: u8 = 0x02;
    /// "Write Uncorrectable command".
    pub const WRITE_UNCORRECTABLE: u8 = 0x04;
    /// "Compare command".
    pub const COMPARE: u8 = 0x05;
    /// "Write Zeroes command".
    pub const WRITE_ZEROES: u8 = 0x08;
    /// "Dataset Management command"; on an Open-Channel namespace, deallocation is the scalar chunk reset.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// "Verify command".
    pub const VERIFY: u8 = 0x0c;
    /// "Reservation Register command" (Base).
    pub const RESERVATION_REGISTER: u8 = 0x0d;
    /// "Reservation Report command" (Base).
    pub const RESERVATION_REPORT: u8 = 0x0e;
    /// "Reservation Acquire command" (Base).
    pub const RESERVATION_ACQUIRE: u8 = 0x11;
    /// "Reservation Release command" (Base).
    pub const RESERVATION_RELEASE: u8 = 0x15;
    /// "I/O Management Receive command" (Base).
    pub const MANAGEMENT_RECEIVE: u8 = 0x12;
    /// "Copy command".
    pub const COPY: u8 = 0x19;
    /// "I/O Management Send command" (Base).
    pub const MANAGEMENT_SEND: u8 = 0x1d;
    /// Open-Channel 2.0, "Vector Chunk Reset".
    pub const VECTOR_RESET: u8 = 0x90;
    /// Open-Channel 2.0, "Vector Chunk Write".
    pub const VECTOR_WRITE: u8 = 0x91;
    /// Open-Channel 2.0, "Vector Chunk Read".
    pub const VECTOR_READ: u8 = 0x92;
    /// Open-Channel 2.0, "Vector Chunk Copy".
    pub const VECTOR_COPY: u8 = 0x93;
    /// ZNS, "Zone Management Send command".
    pub const ZONE_SEND: u8 = 0x79;
    /// ZNS, "Zone Management Receive command".
    pub const ZONE_RECEIVE: u8 = 0x7a;
    /// ZNS, "Zone Append command".
    pub const ZONE_APPEND: u8 = 0x7d;
    /// KV, "Store command".
    pub const VALUE_STORE: u8 = 0x01;
    /// KV, "Retrieve command".
    pub const VALUE_RETRIEVE: u8 = 0x02;
    /// KV, "List command".
    pub const VALUE_LIST: u8 = 0x06;
    /// KV, "Delete command".
    pub const VALUE_DELETE: u8 = 0x10;
    /// KV, "Exist command".
    pub const VALUE_EXIST: u8 = 0x14;
    /// Write pages, our own ([`crate::wire::pages`]).
    pub const PAGE_WRITE: u8 = 0xa1;
    /// Read a page, our own ([`crate::wire::pages`]).
    pub const PAGE_READ: u8 = 0xa2;
    /// Sessions and batches of pages, our own ([`crate::wire::pages`]).
    pub const PAGE_CONTROL: u8 = 0xa5;
    /// What is known of pages, our own ([`crate::wire::pages`]).
    pub const PAGE_REPORT: u8 = 0xa6;
    /// FlashAlloc of ranges, our own: [`crate::command::io::IoCommand::FlashAlloc`].
    pub const FLASH_ALLOC: u8 = 0xc1;
    /// FlashAlloc of one range, as the firmware that its authors published has it:
    /// [`crate::command::io::IoCommand::FlashAllocRange`].
    pub const FLASH_ALLOC_RANGE: u8 = 0x82;
}
