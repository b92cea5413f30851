//! Who has reserved a namespace.

use super::line;
use crate::nvme::association::Association;
use crate::nvme::channel::Channel;
use openftl_nvme::ReservationType;
use openftl_nvme::command::ReservationCommand;
use openftl_nvme::wire::identify::controller;
use openftl_nvme::wire::reservation::RegisteredController;
use openftl_nvme_tcp::client::{Client, Payload};
use serde::Serialize;
use zerocopy::IntoBytes;

/// Bytes of a report: as many controllers of registrants are told of.
const REPORT_BYTES: u32 = 64 + 128 * 64;

/// See the module.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct ReservationFacts {
    /// Null: hosts are registered, and none has reserved it.
    kind: Option<&'static str>,
    registrants: Vec<RegistrantFacts>,
}

#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
struct RegistrantFacts {
    /// HOSTID, in hexadecimal digits.
    host: String,
    /// Its key, in hexadecimal digits.
    key: String,
    /// Null: it is not connected.
    controller_id: Option<u16>,
    holder: bool,
}

impl ReservationFacts {
    /// Asks who it is; `None` if no host is registered, or the target does not say it. `queue` is made where it is needed.
    pub fn ask(
        association: &mut Association,
        queue: &mut Option<Client<Channel>>,
        namespace: u32,
    ) -> Option<ReservationFacts> {
        if association.controller.optional_io_commands.get() & controller::RESERVATIONS == 0 {
            return None;
        }
        let queue = match queue {
            Some(queue) => queue,
            None => queue.insert(association.io_queue(1).ok()?),
        };
        let entry = ReservationCommand::Report { bytes: REPORT_BYTES }.entry(namespace);
        let entry = entry.as_bytes().try_into().expect("an entry has 64 bytes");
        let report = queue.call("Reservation Report", entry, Payload::ToHost(vec![0; REPORT_BYTES as usize])).ok()?;
        ReservationFacts::of(&report.data)
    }

    fn of(report: &[u8]) -> Option<ReservationFacts> {
        let (head, listed) = RegisteredController::listed(report)?;
        let registrant = |entry: &RegisteredController| RegistrantFacts {
            host: entry.host.iter().map(|byte| format!("{byte:02x}")).collect(),
            key: format!("{:x}", entry.key.get()),
            controller_id: Some(entry.controller.get()).filter(|id| *id != RegisteredController::NONE),
            holder: entry.is_holder(),
        };
        let kind = ReservationType::of(head.kind).map(ReservationType::name);
        let registrants: Vec<RegistrantFacts> = listed.iter().map(registrant).collect();
        (!registrants.is_empty()).then_some(ReservationFacts { kind, registrants })
    }

    pub fn write(&self, text: &mut String) {
        line(text, "reservation", self.kind.unwrap_or("none"));
        for RegistrantFacts { host, key, controller_id, holder } in &self.registrants {
            let role = if *holder { "holder" } else { "registrant" };
            let place = controller_id.map_or("not connected".to_owned(), |id| format!("controller {id}"));
            line(text, role, format_args!("host {host}, key {key}, {place}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_nvme::wire::reservation::ReportHead;
    use zerocopy::FromZeros;

    #[test]
    fn registrants_are_shown_with_the_holder_and_whether_they_are_connected() {
        let of = |controller: u16, status, key: u64| RegisteredController {
            controller: controller.into(),
            status,
            key: key.into(),
            host: [0xab; 16],
            ..RegisteredController::new_zeroed()
        };
        let head = ReportHead { kind: 3, controllers: 2.into(), ..ReportHead::new_zeroed() };
        let report = [head.as_bytes(), of(0xffff, 1, 0x1f).as_bytes(), of(7, 0, 2).as_bytes(), &[0; 64]].concat();
        let mut text = String::new();
        ReservationFacts::of(&report).unwrap().write(&mut text);
        let host = "ab".repeat(16);
        let expected = [
            "  reservation      Write Exclusive - Registrants Only",
            "  holder           host HOST, key 1f, not connected",
            "  registrant       host HOST, key 2, controller 7",
        ];
        assert_eq!(text.replace(&host, "HOST").lines().collect::<Vec<_>>(), expected);
        assert_eq!(ReservationFacts::of(&[0; 64]), None);
        assert_eq!(ReservationFacts::of(&[0; 63]), None);
    }
}
