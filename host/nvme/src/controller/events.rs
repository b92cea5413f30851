//! Asynchronous events: requests that are held until there is something to tell (Base, "Asynchronous Event Request
//! command").
//!
//! ```text
//!   happened ──▶ pending ──(a request is held)──▶ told, masked ──(its log page is read)──▶ may be told again
//! ```

use crate::command::{Answer, Refusal};
use crate::namespace::NamespaceSet;
use crate::queue::CommandId;
use crate::wire::feature::event as enabled;
use crate::wire::log::{event, id, warning};
use crate::wire::status::Status;

/// The most requests that are held at a time (AERL + 1).
pub const EVENT_REQUESTS_MAX: usize = 4;

/// What may happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The drive wears out, or has become read-only.
    Reliability,
    /// It is too warm or too cold.
    Temperature,
    /// Few chunks more may go bad.
    Spare,
    /// A namespace was attached, detached or changed.
    NamespaceAttribute,
    /// The discovery log changed.
    DiscoveryLog,
    /// Chunks have something to say.
    ChunkNotification,
    /// There is a notification about a reservation.
    ReservationLog,
}

impl Event {
    const ALL: [Event; 7] = [
        Event::Reliability,
        Event::Temperature,
        Event::Spare,
        Event::NamespaceAttribute,
        Event::DiscoveryLog,
        Event::ChunkNotification,
        Event::ReservationLog,
    ];

    /// The log page that tells more, and whose reading takes the mask off.
    fn page(self) -> u8 {
        match self {
            Event::Reliability | Event::Temperature | Event::Spare => id::SMART,
            Event::NamespaceAttribute => id::CHANGED_NAMESPACES,
            Event::DiscoveryLog => id::DISCOVERY,
            Event::ChunkNotification => id::CHUNK_NOTIFICATIONS,
            Event::ReservationLog => id::RESERVATION_NOTIFICATION,
        }
    }

    /// DW0: type, information, log page.
    fn result(self) -> u64 {
        let (kind, information) = match self {
            Event::Reliability => (event::SMART, event::RELIABILITY),
            Event::Temperature => (event::SMART, event::TEMPERATURE),
            Event::Spare => (event::SMART, event::SPARE),
            Event::NamespaceAttribute => (event::NOTICE, event::NAMESPACE_ATTRIBUTE),
            Event::DiscoveryLog => (event::NOTICE, event::DISCOVERY_LOG),
            Event::ChunkNotification => (event::VENDOR, u32::from(id::CHUNK_NOTIFICATIONS)),
            Event::ReservationLog => (event::IO_COMMAND, event::RESERVATION_LOG),
        };
        u64::from(kind | information << 8 | u32::from(self.page()) << 16)
    }

    /// Whether a host with this Asynchronous Event Configuration wants to hear of it.
    fn is_wanted(self, configuration: u32) -> bool {
        let mask = match self {
            Event::Reliability => u32::from(warning::RELIABILITY | warning::READ_ONLY),
            Event::Temperature => u32::from(warning::TEMPERATURE),
            Event::Spare => u32::from(warning::SPARE),
            Event::NamespaceAttribute => enabled::NAMESPACE_ATTRIBUTE,
            Event::DiscoveryLog => enabled::DISCOVERY_LOG,
            // Open-Channel 2.0 has no switch for it: who wants none attaches no such namespace.
            Event::ChunkNotification => return true,
            // "Reservation Notification Mask" is its switch.
            Event::ReservationLog => return true,
        };
        configuration & mask != 0
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// DW0, and DW1: the namespace.
fn zones_changed_result(namespace: u32) -> u64 {
    let dword = event::NOTICE | event::ZONE_CHANGED << 8 | u32::from(id::CHANGED_ZONES) << 16;
    u64::from(namespace) << 32 | u64::from(dword)
}

/// The events of one controller. There is room for each event once, so nothing overflows.
#[derive(Default, Debug)]
pub struct Events {
    /// Requests held, oldest first.
    held: Vec<CommandId>,
    pending: u8,
    masked: u8,
    /// Held requests that ended without an event.
    ended: Vec<CommandId>,
    /// Namespaces whose zones have changed, each an event of its own; those that were told of.
    zoned_pending: NamespaceSet,
    zoned_masked: NamespaceSet,
}

impl Events {
    /// Holds a request.
    ///
    /// # Errors
    /// If as many are held as may be.
    pub fn hold(&mut self, request: CommandId) -> Result<(), Refusal> {
        if self.held.len() == EVENT_REQUESTS_MAX {
            return Err(Status::EVENT_LIMIT_EXCEEDED.into());
        }
        self.held.push(request);
        Ok(())
    }

    /// Something has happened.
    pub fn happened(&mut self, event: Event, configuration: u32) {
        if event.is_wanted(configuration) {
            self.pending |= event.bit();
        }
    }

    /// Zones of a namespace have changed, and the host did not do it.
    pub fn zones_changed(&mut self, namespace: u32, configuration: u32) {
        if configuration & enabled::ZONE_CHANGED != 0 {
            self.zoned_pending.insert(namespace);
        }
    }

    /// The changed zones of a namespace were read.
    pub fn zones_read(&mut self, namespace: u32) {
        self.zoned_pending.remove(namespace);
        self.zoned_masked.remove(namespace);
    }

    /// A log page was read: what it tells needs telling no more.
    pub fn page_read(&mut self, page: u8) {
        for event in Event::ALL.into_iter().filter(|event| event.page() == page) {
            self.masked &= !event.bit();
            self.pending &= !event.bit();
        }
    }

    /// Ends a held request, if it is held.
    pub fn abort(&mut self, request: CommandId) -> bool {
        let Some(index) = self.held.iter().position(|held| *held == request) else { return false };
        self.ended.push(self.held.remove(index));
        true
    }

    /// Ends all held requests and forgets what happened: the controller is reset.
    pub fn reset(&mut self) {
        self.ended.append(&mut self.held);
        self.pending = 0;
        self.masked = 0;
        (self.zoned_pending, self.zoned_masked) = (NamespaceSet::default(), NamespaceSet::default());
    }

    /// The next held request that ends, and how.
    pub fn take(&mut self) -> Option<(CommandId, Answer)> {
        if let Some(request) = self.ended.pop() {
            return Some((request, Answer::from(Status::ABORT_REQUESTED)));
        }
        if self.held.is_empty() {
            return None;
        }
        let tellable = self.pending & !self.masked;
        let Some(event) = Event::ALL.into_iter().find(|event| tellable & event.bit() != 0) else {
            let zoned = self.zoned_pending.iter().find(|id| !self.zoned_masked.contains(*id))?;
            self.zoned_pending.remove(zoned);
            self.zoned_masked.insert(zoned);
            return Some((self.held.remove(0), Answer::of(zones_changed_result(zoned))));
        };
        self.pending &= !event.bit();
        self.masked |= event.bit();
        Some((self.held.remove(0), Answer::of(event.result())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u32 = u32::MAX;

    #[test]
    fn an_event_is_told_once_until_its_page_is_read() {
        let mut events = Events::default();
        events.hold(CommandId(1)).unwrap();
        events.hold(CommandId(2)).unwrap();
        assert_eq!(events.take(), None);
        events.happened(Event::NamespaceAttribute, ALL);
        events.happened(Event::NamespaceAttribute, ALL);
        assert_eq!(events.take(), Some((CommandId(1), Answer::of(0x0004_0002))));
        events.happened(Event::NamespaceAttribute, ALL);
        assert_eq!(events.take(), None, "masked");
        events.page_read(id::CHANGED_NAMESPACES);
        assert_eq!(events.take(), None, "the page has told it");
        events.happened(Event::NamespaceAttribute, ALL);
        assert_eq!(events.take(), Some((CommandId(2), Answer::of(0x0004_0002))));
    }

    #[test]
    fn events_have_the_results_of_the_specification() {
        for (event, result) in [
            (Event::Reliability, 0x0002_0001),
            (Event::Temperature, 0x0002_0101),
            (Event::Spare, 0x0002_0201),
            (Event::DiscoveryLog, 0x0070_f002),
            (Event::ChunkNotification, 0x00d0_d007),
            (Event::ReservationLog, 0x0080_0006),
        ] {
            assert_eq!(event.result(), result, "{event:?}");
        }
    }

    #[test]
    fn changed_zones_are_an_event_of_each_namespace() {
        let mut events = Events::default();
        (0..3).for_each(|id| events.hold(CommandId(id)).unwrap());
        events.zones_changed(3, 0);
        assert_eq!(events.take(), None, "not wanted");
        for namespace in [3, 5, 3] {
            events.zones_changed(namespace, enabled::ZONE_CHANGED);
        }
        assert_eq!(events.take(), Some((CommandId(0), Answer::of(3 << 32 | 0x00bf_ef02))));
        assert_eq!(events.take(), Some((CommandId(1), Answer::of(5 << 32 | 0x00bf_ef02))));
        events.zones_changed(3, enabled::ZONE_CHANGED);
        assert_eq!(events.take(), None, "masked");
        events.zones_read(3);
        events.zones_changed(3, enabled::ZONE_CHANGED);
        assert_eq!(events.take(), Some((CommandId(2), Answer::of(3 << 32 | 0x00bf_ef02))));
    }

    #[test]
    fn what_is_not_wanted_is_not_told() {
        let mut events = Events::default();
        events.hold(CommandId(1)).unwrap();
        for event in Event::ALL {
            events.happened(event, 0);
        }
        assert_eq!(events.take(), Some((CommandId(1), Answer::of(Event::ChunkNotification.result()))));
        assert_eq!(events.take(), None);
    }

    #[test]
    fn an_event_waits_for_a_request() {
        let mut events = Events::default();
        events.happened(Event::Spare, ALL);
        assert_eq!(events.take(), None);
        events.hold(CommandId(1)).unwrap();
        assert_eq!(events.take(), Some((CommandId(1), Answer::of(Event::Spare.result()))));
    }

    #[test]
    fn requests_are_held_up_to_the_limit_and_end_when_aborted_or_reset() {
        let mut events = Events::default();
        for id in 0..4 {
            events.hold(CommandId(id)).unwrap();
        }
        assert_eq!(events.hold(CommandId(4)), Err(Status::EVENT_LIMIT_EXCEEDED.into()));
        assert!(events.abort(CommandId(2)) && !events.abort(CommandId(2)));
        assert_eq!(events.take(), Some((CommandId(2), Answer::from(Status::ABORT_REQUESTED))));
        assert_eq!(events.take(), None);
        events.reset();
        let mut ended: Vec<u16> = std::iter::from_fn(|| events.take()).map(|(id, _)| id.0).collect();
        ended.sort_unstable();
        assert_eq!(ended, [0, 1, 3]);
    }
}
