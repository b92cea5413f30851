//! What a host may set (Base, "Feature Values"; NVM, "Feature Identifiers").

/// Feature identifiers, bits 7 to 0 of dword 10.
pub mod id {
    /// "Arbitration".
    pub const ARBITRATION: u8 = 0x01;
    /// "Power Management".
    pub const POWER_MANAGEMENT: u8 = 0x02;
    /// "Temperature Threshold".
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    /// "Error Recovery" (NVM).
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// "Volatile Write Cache".
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    /// "Number of Queues".
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    /// "Interrupt Coalescing".
    pub const INTERRUPT_COALESCING: u8 = 0x08;
    /// "Interrupt Vector Configuration".
    pub const INTERRUPT_VECTOR: u8 = 0x09;
    /// "Write Atomicity Normal" (NVM).
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    /// "Asynchronous Event Configuration".
    pub const ASYNCHRONOUS_EVENTS: u8 = 0x0b;
    /// "Timestamp".
    pub const TIMESTAMP: u8 = 0x0e;
    /// "Keep Alive Timer".
    pub const KEEP_ALIVE: u8 = 0x0f;
    /// "Host Behavior Support".
    pub const HOST_BEHAVIOR: u8 = 0x16;
    /// "I/O Command Set Profile".
    pub const COMMAND_SET_PROFILE: u8 = 0x19;
    /// "Flexible Data Placement".
    pub const DATA_PLACEMENT: u8 = 0x1d;
    /// "Flexible Data Placement Events".
    pub const DATA_PLACEMENT_EVENTS: u8 = 0x1e;
    /// "Key Value Configuration" (KV).
    pub const VALUE_CONFIGURATION: u8 = 0x20;
    /// "Host Identifier".
    pub const HOST_ID: u8 = 0x81;
    /// "Reservation Notification Mask".
    pub const RESERVATION_MASK: u8 = 0x82;
    /// "Reservation Persistence".
    pub const RESERVATION_PERSISTENCE: u8 = 0x83;
    /// Open-Channel 2.0, "Media Feedback".
    pub const MEDIA_FEEDBACK: u8 = 0xca;
}

/// Dword 10 of Set Features, bit 31: SV, keep the value over resets and power cycles ("Set Features command").
pub const SAVE: u32 = 1 << 31;

/// Dword 10 of Get Features, bits 10 to 8: SEL, which value ("Get Features command").
pub mod select {
    /// 000b: the current value.
    pub const CURRENT: u8 = 0b000;
    /// 001b: the default value.
    pub const DEFAULT: u8 = 0b001;
    /// 010b: the saved value; the default where nothing can be saved.
    pub const SAVED: u8 = 0b010;
    /// 011b: what can be done with the feature.
    pub const CAPABILITIES: u8 = 0b011;
}

/// What can be done with a feature ("Get Features command", Supported Capabilities).
pub mod capability {
    /// Bit 1: each namespace has a value of its own.
    pub const PER_NAMESPACE: u32 = 1 << 1;
    /// Bit 2: the value can be changed.
    pub const CHANGEABLE: u32 = 1 << 2;
}

/// "Error Recovery" (NVM), dword 11 bit 16: DULBE.
pub const DEALLOCATED_ERROR: u32 = 1 << 16;

/// "Interrupt Vector Configuration", dword 11: IV in bits 15 to 0, and in bit 16 CD, no coalescing for this vector.
pub const COALESCING_DISABLED: u32 = 1 << 16;

/// "Volatile Write Cache", dword 11 bit 0: WCE.
pub const WRITE_CACHE_ENABLED: u32 = 1 << 0;

/// "Reservation Persistence", dword 11 bit 0: PTPL, reservations are kept over a loss of power.
pub const PERSISTENT_RESERVATIONS: u32 = 1 << 0;

/// "Key Value Configuration" (KV), dword 11 bit 0: EDNEK, a Delete of a key that does not exist is an error.
pub const DELETE_NEEDS_KEY: u32 = 1 << 0;

/// "Temperature Threshold", dword 11: TMPTH in bits 15 to 0, TMPSEL in 19 to 16, THSEL in 21 and 20.
pub mod temperature {
    /// THSEL 00b: too warm.
    pub const OVER: u32 = 0b00;
    /// THSEL 01b: too cold.
    pub const UNDER: u32 = 0b01;
}

/// "Asynchronous Event Configuration", dword 11.
pub mod event {
    /// Bits 7 to 0: the same as in the SMART log's critical warning.
    pub const SMART: u32 = 0xff;
    /// Bit 8: attached namespaces.
    pub const NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    /// Bit 27: zones have changed (ZNS).
    pub const ZONE_CHANGED: u32 = 1 << 27;
    /// Bit 31: the discovery log.
    pub const DISCOVERY_LOG: u32 = 1 << 31;
}

/// "Flexible Data Placement Events", dword 12 bit 0: FDPEE. Dword 11: PHNDL in bits 15 to 0, NOET in 23 to 16.
pub const PLACEMENT_EVENT_ENABLED: u32 = 1 << 0;

/// Bytes of data of the features that have some.
pub mod data_bytes {
    /// "Timestamp": milliseconds in bytes 0 to 5, attributes in 6.
    pub const TIMESTAMP: u32 = 8;
    /// "Host Behavior Support".
    pub const HOST_BEHAVIOR: u32 = 512;
    /// "Host Identifier", the long one.
    pub const HOST_ID: u32 = 16;
}

/// "Timestamp", byte 6 bits 3 to 1: where the time comes from. 001b: a host set it; 000b: it counts from a reset.
pub const TIMESTAMP_SET_BY_HOST: u8 = 0b001 << 1;
