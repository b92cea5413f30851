//! What hosts and controllers say to each other of reservations (Base, "Reservation Report command" and the log page "Reservation
//! Notification").

use super::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Dword 10 of Reservation Register, Acquire and Release, bit 3: IEKEY.
pub const IGNORE_KEY: u32 = 1 << 3;

/// RREGA, bits 2 to 0 of dword 10 of Reservation Register.
pub mod register {
    /// 000b.
    pub const REGISTER: u32 = 0b000;
    /// 001b.
    pub const UNREGISTER: u32 = 0b001;
    /// 010b.
    pub const REPLACE: u32 = 0b010;
}

/// CPTPL, bits 31 and 30 of dword 10 of Reservation Register: whether reservations are kept over a loss of power.
pub mod persistence {
    /// 00b: as before.
    pub const NO_CHANGE: u32 = 0b00;
    /// 10b: they are not kept.
    pub const CLEAR: u32 = 0b10;
    /// 11b: they are kept.
    pub const SET: u32 = 0b11;
}

/// RACQA, bits 2 to 0 of dword 10 of Reservation Acquire.
pub mod acquire {
    /// 000b.
    pub const ACQUIRE: u32 = 0b000;
    /// 001b.
    pub const PREEMPT: u32 = 0b001;
    /// 010b.
    pub const PREEMPT_AND_ABORT: u32 = 0b010;
}

/// RRELA, bits 2 to 0 of dword 10 of Reservation Release.
pub mod release {
    /// 000b.
    pub const RELEASE: u32 = 0b000;
    /// 001b.
    pub const CLEAR: u32 = 0b001;
}

/// Dword 11 of Reservation Report, bit 0: EDS, the data structure for host identifiers of 128 bits.
pub const EXTENDED_REPORT: u32 = 1 << 0;

/// Data of Reservation Register and Reservation Acquire; those of Reservation Release are the first of both.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct ReservationKeys {
    /// 0: CRKEY, the key of the host.
    pub current: U64,
    /// 8: NRKEY, its new key; PRKEY, the key of another host.
    pub other: U64,
}

/// The head of a report, of the extended data structure ("Reservation Status Extended Data Structure").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct ReportHead {
    /// 0: GEN.
    pub generation: U32,
    /// 4: RTYPE; 0: none is held.
    pub kind: u8,
    /// 5: REGCTL, how many [`RegisteredController`] follow in all.
    pub controllers: U16,
    /// 7.
    pub reserved_7: U16,
    /// 9: PTPLS.
    pub persistence: u8,
    /// 10.
    pub reserved_10: [u8; 54],
}

/// A controller whose host is registered ("Registered Controller Extended Data Structure").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct RegisteredController {
    /// 0: CNTLID; [`RegisteredController::NONE`]: the host has none at the moment.
    pub controller: U16,
    /// 2: RCSTS, bit 0: its host holds the reservation.
    pub status: u8,
    /// 3.
    pub reserved_3: [u8; 5],
    /// 8: RKEY.
    pub key: U64,
    /// 16: HOSTID.
    pub host: [u8; 16],
    /// 32.
    pub reserved_32: [u8; 32],
}

impl RegisteredController {
    /// CNTLID of a host without a controller, where controllers are made for hosts (the dynamic controller model).
    pub const NONE: u16 = 0xffff;
    /// RCSTS bit 0.
    pub const HOLDER: u8 = 1 << 0;

    /// Whether its host holds the reservation.
    #[must_use]
    pub fn is_holder(&self) -> bool {
        self.status & RegisteredController::HOLDER != 0
    }

    /// The head of a report, and as many controllers as there are in it.
    #[must_use]
    pub fn listed(report: &[u8]) -> Option<(&ReportHead, &[RegisteredController])> {
        let (head, rest) = ReportHead::ref_from_prefix(report).ok()?;
        let count = usize::from(head.controllers.get()).min(rest.len() / size_of::<RegisteredController>());
        let (controllers, _) = <[RegisteredController]>::ref_from_prefix_with_elems(rest, count).ok()?;
        Some((head, controllers))
    }
}

/// What a host is told of (log page "Reservation Notification", Reservation Notification Log Page Type).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notification {
    /// Another host has removed its registration.
    RegistrationPreempted = 1,
    /// The reservation by which it could do more than others is released.
    ReservationReleased = 2,
    /// Another host has cleared the reservation and all registrations.
    ReservationPreempted = 3,
}

impl Notification {
    /// Its bit in the feature "Reservation Notification Mask".
    #[must_use]
    pub fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Every bit of that feature.
    pub const BITS: u32 = 0b1110;
}

/// Log page "Reservation Notification": one notification.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct NotificationPage {
    /// 0: counts the notifications of the controller, from 1 on; 0 of an empty page.
    pub count: U64,
    /// 8: [`Notification`]; 0 of an empty page.
    pub kind: u8,
    /// 9: NALP, how many come after this one; 255: as many or more.
    pub available: u8,
    /// 10.
    pub reserved_10: U16,
    /// 12: NSID.
    pub namespace: U32,
    /// 16.
    pub reserved_16: [u8; 48],
}

const _: () = {
    assert!(size_of::<ReservationKeys>() == 16);
    assert!(size_of::<ReportHead>() == 64);
    assert!(size_of::<RegisteredController>() == 64);
    assert!(size_of::<NotificationPage>() == 64);
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use zerocopy::FromZeros;

    #[test]
    fn a_report_lies_where_the_specification_says() {
        assert_eq!(offset_of!(ReportHead, controllers), 5);
        assert_eq!(offset_of!(ReportHead, persistence), 9);
        let controller = RegisteredController {
            controller: 0x0102.into(),
            status: 1,
            key: 0x0304.into(),
            host: [7; 16],
            ..RegisteredController::new_zeroed()
        };
        let mut golden = [0; 64];
        golden[..3].copy_from_slice(&[2, 1, 1]);
        golden[8..10].copy_from_slice(&[4, 3]);
        golden[16..32].fill(7);
        assert_eq!(controller.as_bytes(), golden);
        let head = ReportHead { kind: 1, controllers: 2.into(), ..ReportHead::new_zeroed() };
        let report = [head.as_bytes(), &golden].concat();
        let (_, listed) = RegisteredController::listed(&report).unwrap();
        assert_eq!(listed, [controller], "as many as there are bytes for");
        assert!(RegisteredController::listed(&report[..63]).is_none());
    }

    #[test]
    fn a_notification_lies_where_the_specification_says() {
        let page = NotificationPage {
            count: 3.into(),
            kind: Notification::ReservationReleased as u8,
            available: 2,
            namespace: 5.into(),
            ..NotificationPage::new_zeroed()
        };
        let mut golden = [0; 64];
        (golden[0], golden[8], golden[9], golden[12]) = (3, 2, 2, 5);
        assert_eq!(page.as_bytes(), golden);
        assert_eq!([1, 2, 3].map(|code| 1_u32 << code).iter().sum::<u32>(), Notification::BITS);
    }
}
