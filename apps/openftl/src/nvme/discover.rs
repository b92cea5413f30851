//! `openftl nvme discover`: the discovery log of a target.

use super::Address;
use super::association::Association;
use crate::cli::nvme::Discover;
use crate::failure::Failure;
use crate::terminal::{Ink, Palette, say};
use openftl_nvme::wire::fabrics::{DISCOVERY_NQN, DiscoveryEntry, DiscoveryHead};
use openftl_nvme::wire::{log, text_of};
use openftl_nvme_tcp::nvm::LogPart;
use serde::Serialize;
use std::fmt::Write as _;
use zerocopy::FromBytes;

/// The most records that are read of one target.
const RECORDS_MAX: u64 = 4096;

/// Times that a log which changes while it is read is read again.
const ATTEMPTS: u32 = 4;

/// What a target offers, at some moment.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
struct Offer {
    generation: u64,
    records: Vec<Record>,
}

/// A subsystem at one of its addresses.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
struct Record {
    transport: String,
    address_family: String,
    address: String,
    port: String,
    port_id: u16,
    subsystem_type: String,
    subsystem_nqn: String,
    /// Whether the connection is to be encrypted.
    security: &'static str,
}

pub fn run(arguments: &Discover) -> Result<(), Failure> {
    let mut association = Association::make(&arguments.address, DISCOVERY_NQN, &arguments.host)?;
    let offer = read(&mut association)?;
    if arguments.json {
        return say(&crate::json(&offer)?);
    }
    say(&page(&offer, &arguments.address, Palette::of_stdout()))
}

/// Reads the log; anew if it has changed meanwhile.
fn read(association: &mut Association) -> Result<Offer, Failure> {
    for _ in 0..ATTEMPTS {
        let head: DiscoveryHead = part(association, 0)?;
        let count = head.records.get();
        if head.record_format.get() != 0 || count > RECORDS_MAX {
            return Err(Failure::failed(format_args!(
                "the discovery log says that it has {count} records of format {}, where at most {RECORDS_MAX} of format 0 \
                 are read",
                head.record_format
            )));
        }
        let records = (0..count).map(|index| Ok(Record::of(&part(association, (index + 1) * RECORD_BYTES)?)));
        let records = records.collect::<Result<Vec<Record>, Failure>>()?;
        let now: DiscoveryHead = part(association, 0)?;
        if now.generation == head.generation {
            return Ok(Offer { generation: head.generation.get(), records });
        }
    }
    Err(Failure::failed("the discovery log changes faster than it can be read").fix("try again"))
}

/// What [`Record::security`] is where a connection without TLS is refused.
const TLS_REQUIRED: &str = "tls required";

/// Bytes of a record, and of the log's head.
const RECORD_BYTES: u64 = 1024;
const _: () = assert!(size_of::<DiscoveryHead>() as u64 == RECORD_BYTES);
const _: () = assert!(size_of::<DiscoveryEntry>() as u64 == RECORD_BYTES);

fn part<T: FromBytes>(association: &mut Association, offset: u64) -> Result<T, Failure> {
    let part = LogPart { page: log::id::DISCOVERY, namespace: 0, offset };
    let data = association.admin.log_page(part, vec![0; RECORD_BYTES as usize]);
    let data = data.map_err(|error| association.failure(error))?;
    Ok(T::read_from_bytes(&data).expect("head and records have 1024 bytes"))
}

impl Record {
    fn of(entry: &DiscoveryEntry) -> Record {
        let named = |names: &[(u8, &str)], code: u8| {
            let name = names.iter().find(|(known, _)| *known == code);
            name.map_or_else(|| format!("{code:#04x}"), |(_, name)| (*name).to_owned())
        };
        Record {
            transport: named(&[(1, "rdma"), (2, "fc"), (DiscoveryEntry::TCP, "tcp"), (254, "loop")], entry.transport),
            address_family: named(
                &[(DiscoveryEntry::IPV4, "ipv4"), (DiscoveryEntry::IPV6, "ipv6")],
                entry.address_family,
            ),
            address: ascii_of(&entry.address),
            port: ascii_of(&entry.service),
            port_id: entry.port_id.get(),
            subsystem_type: named(
                &[(1, "referral"), (DiscoveryEntry::NVM_SUBSYSTEM, "nvm"), (3, "discovery")],
                entry.subsystem_type,
            ),
            security: match (entry.transport_specific[0], entry.transport_requirements & 0b11) {
                (DiscoveryEntry::TLS_1_3, DiscoveryEntry::SECURE_CHANNEL_REQUIRED) => TLS_REQUIRED,
                (DiscoveryEntry::TLS_1_3, _) => "tls",
                _ => "none",
            },
            subsystem_nqn: printable(text_of(&entry.subsystem_nqn).unwrap_or("")),
        }
    }
}

/// The text in a field that is filled up with spaces, or with zeroes as some targets do.
pub fn ascii_of(field: &[u8]) -> String {
    printable(String::from_utf8_lossy(field).trim_end_matches(['\0', ' ']))
}

/// Without anything that could move a terminal's cursor.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

fn page(offer: &Offer, address: &Address, palette: Palette) -> String {
    let Offer { records, .. } = offer;
    if records.is_empty() {
        return format!("{address} offers this host no subsystem.");
    }
    let place = |record: &Record| match record.address.contains(':') {
        true => format!("{} [{}]:{}", record.transport, record.address, record.port),
        false => format!("{} {}:{}", record.transport, record.address, record.port),
    };
    let width = records.iter().map(|record| place(record).len()).max().unwrap_or(0).max(5);
    let mut text = palette.paint(Ink::Bold, &format!("{:<width$}  {:<9}  SUBSYSTEM", "WHERE", "TYPE"));
    text.push('\n');
    for record in records {
        _ = writeln!(text, "{:<width$}  {:<9}  {}", place(record), record.subsystem_type, record.subsystem_nqn);
    }
    _ = writeln!(text, "\nConnect the kernel's host with (as root)");
    for Record { transport, address, port, subsystem_nqn, security, .. } in
        records.iter().filter(|one| one.subsystem_type == "nvm")
    {
        let tls = if *security == TLS_REQUIRED { " --tls" } else { "" };
        _ = writeln!(text, "  nvme connect -t {transport} -a {address} -s {port} -n {subsystem_nqn}{tls}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use openftl_nvme::wire::{ascii, zero_ended};
    use zerocopy::FromZeros;

    fn entry(family: u8, address: &str) -> DiscoveryEntry {
        let mut entry = DiscoveryEntry::new_zeroed();
        (entry.transport, entry.address_family, entry.subsystem_type) = (3, family, 2);
        entry.address = ascii(address);
        entry.service = ascii("4420");
        entry.subsystem_nqn = zero_ended("nqn.2026-11.org.openftl:drive");
        entry
    }

    #[test]
    fn the_page_ends_with_the_lines_to_type() {
        let mut secure = entry(2, "::1");
        secure.transport_requirements = DiscoveryEntry::SECURE_CHANNEL_REQUIRED;
        secure.transport_specific[0] = DiscoveryEntry::TLS_1_3;
        let records = vec![Record::of(&entry(1, "127.0.0.1")), Record::of(&secure)];
        let offer = Offer { generation: 1, records };
        let address = "127.0.0.1:4420".parse().unwrap();
        expect![[r#"
            WHERE               TYPE       SUBSYSTEM
            tcp 127.0.0.1:4420  nvm        nqn.2026-11.org.openftl:drive
            tcp [::1]:4420      nvm        nqn.2026-11.org.openftl:drive

            Connect the kernel's host with (as root)
              nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.2026-11.org.openftl:drive
              nvme connect -t tcp -a ::1 -s 4420 -n nqn.2026-11.org.openftl:drive --tls
        "#]]
        .assert_eq(&page(&offer, &address, Palette::PLAIN));
        let nothing = Offer { generation: 1, records: Vec::new() };
        assert!(page(&nothing, &address, Palette::PLAIN).contains("no subsystem"));
    }

    #[test]
    fn what_a_target_says_moves_no_cursor() {
        let mut record = entry(9, "\x1b[2J");
        record.address[..4].copy_from_slice(b"\x1b[2J");
        let record = Record::of(&record);
        assert_eq!((record.address.as_str(), record.address_family.as_str()), ("?[2J", "0x09"));
    }
}
