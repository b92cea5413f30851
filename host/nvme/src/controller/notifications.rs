//! What a host is to be told of reservations, until it reads it ("Reservation Notification").
//!
//! The log page has the oldest notification, and reading it brings the next one to its place.

use crate::wire::reservation::{Notification, NotificationPage};
use std::collections::VecDeque;
use zerocopy::FromZeros;

/// The most notifications that wait to be read: as many as the page can count. Beyond, the oldest is lost, as a gap in the counts shows.
const NOTIFICATIONS_MAX: usize = 256;

/// Those of one controller.
#[derive(Default, Debug)]
pub(super) struct Notifications {
    waiting: VecDeque<(u64, u32, Notification)>,
    /// How many there were since the controller was reset.
    count: u64,
}

impl Notifications {
    /// Something has become of a registration or reservation of a namespace.
    pub fn add(&mut self, namespace: u32, notification: Notification) {
        if self.waiting.len() == NOTIFICATIONS_MAX {
            self.waiting.pop_front();
        }
        self.count += 1;
        self.waiting.push_back((self.count, namespace, notification));
    }

    /// The log page.
    pub fn page(&self) -> NotificationPage {
        let mut page = NotificationPage::new_zeroed();
        if let Some((count, namespace, notification)) = self.waiting.front() {
            page.count = (*count).into();
            page.kind = *notification as u8;
            page.available = (self.waiting.len() - 1).min(u8::MAX.into()) as u8;
            page.namespace = (*namespace).into();
        }
        page
    }

    /// The host has read the page. Returns whether there is another one.
    pub fn read(&mut self) -> bool {
        self.waiting.pop_front();
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(notifications: &mut Notifications) -> (u64, u8, u8, u32) {
        let page = notifications.page();
        notifications.read();
        (page.count.get(), page.kind, page.available, page.namespace.get())
    }

    #[test]
    fn the_oldest_is_read_first_and_each_says_how_many_follow() {
        let mut notifications = Notifications::default();
        assert_eq!(read(&mut notifications), (0, 0, 0, 0), "an empty page");
        notifications.add(1, Notification::RegistrationPreempted);
        notifications.add(3, Notification::ReservationReleased);
        assert_eq!(read(&mut notifications), (1, 1, 1, 1));
        assert_eq!(read(&mut notifications), (2, 2, 0, 3));
        assert_eq!(read(&mut notifications), (0, 0, 0, 0));
    }

    #[test]
    fn a_host_that_reads_none_loses_the_oldest_and_sees_a_gap() {
        let mut notifications = Notifications::default();
        (0..NOTIFICATIONS_MAX + 3).for_each(|_| notifications.add(1, Notification::ReservationPreempted));
        assert_eq!(read(&mut notifications), (4, 3, 255, 1));
        assert_eq!(notifications.waiting.len(), NOTIFICATIONS_MAX - 1);
    }
}
