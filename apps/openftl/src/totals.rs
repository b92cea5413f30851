//! What a server has done: shown at the end, and to whoever asks in between.

use crate::assembly::{Drive, ZonedDrive};
use crate::report;
use crate::terminal::{Ink, Palette};
use openftl_blocks::Ftl;
use openftl_control::Answer;
use openftl_core::units::ByteSize;
use openftl_drive::any_drive::AnyDrive;
use openftl_lab::picture::thousands;
use openftl_parts::{ReadOnlyReason, Statistics};
use openftl_server::{Counter, Counters};
use openftl_serving::flash::Flash;
use openftl_serving::redis_door::RedisCounters;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

/// The counts of a server and of the drives behind it.
pub struct Totals {
    counters: Arc<Counters>,
    started: Instant,
    power_cuts: u64,
    /// Each drive's, as far as last looked at.
    drives: Vec<DriveTotals>,
    /// What Redis clients have done, if there may be any.
    pub redis: Option<RedisCounters>,
    /// Requests in the recording, if one was made.
    pub recorded: Option<u64>,
}

/// The counts of one drive. They begin anew when its power comes on.
#[derive(Serialize, Clone, Default)]
pub struct DriveTotals {
    #[serde(skip)]
    name: String,
    waf: f64,
    nand_blocks_written: u64,
    read_only: Option<ReadOnlyReason>,
    /// The state in which it came to a standstill.
    #[serde(skip_serializing_if = "Option::is_none")]
    standstill: Option<String>,
    lies_about_flush: bool,
    statistics: Statistics,
}

#[derive(Serialize)]
struct Served {
    connections: u64,
    /// NVMe hosts that did not know the key of the identity that they showed.
    tls_handshakes_failed: u64,
    /// NVMe hosts that did not use TLS where they have to.
    connections_without_tls: u64,
    /// NVMe hosts that said no name, where any host may connect.
    hosts_without_name: u64,
    /// Drives that came to a standstill with requests under way.
    standstills: u64,
    reads: u64,
    writes: u64,
    trims: u64,
    flushes: u64,
    errors: u64,
    bytes_read: u64,
    bytes_written: u64,
    bytes_copied: u64,
    /// What reactors have moved beside the server's thread, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_by_reactors: Option<u64>,
    wall_seconds: f64,
    waf: f64,
    nand_blocks_written: u64,
    power_cuts: u64,
    statistics: Statistics,
    read_only: bool,
    lies_about_flush: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    redis: Option<RedisCounters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<u64>,
    /// Where there are several drives, what each has done; the figures above are those of all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    drives: BTreeMap<String, DriveTotals>,
}

impl Totals {
    /// The server begins.
    pub fn new(counters: Arc<Counters>) -> Totals {
        Totals { counters, started: Instant::now(), power_cuts: 0, drives: Vec::new(), redis: None, recorded: None }
    }

    /// Writes and flushes of hosts that have ended.
    pub fn ended(&self) -> (u64, u64) {
        (self.counters.writes.get(), self.counters.flushes.get())
    }

    /// Clients that were turned away so far.
    pub fn turned_away(&self) -> u64 {
        self.counters.connections_refused.get()
    }

    /// NVMe hosts that did not use TLS where they have to, those whose handshake failed, and those that say no name.
    pub fn unusual_hosts(&self) -> [u64; 3] {
        let Counters { connections_without_tls, tls_handshakes_failed, hosts_without_name, .. } = &*self.counters;
        [connections_without_tls, tls_handshakes_failed, hosts_without_name].map(Counter::get)
    }

    /// Looks at the drive in this place.
    pub fn look(&mut self, place: usize, name: &str, drive: &Drive) {
        if self.drives.len() <= place {
            self.drives.resize_with(place + 1, DriveTotals::default);
        }
        let statistics = drive.statistics().clone();
        self.drives[place] = DriveTotals {
            name: name.to_owned(),
            waf: statistics.waf(),
            nand_blocks_written: statistics.nand_blocks_written(),
            read_only: drive.read_only_reason(),
            standstill: drive.standstill().map(str::to_owned),
            lies_about_flush: drive.config().lies_about_flush,
            statistics,
        };
    }

    /// The same of a zoned drive.
    pub fn look_at_zones(&mut self, place: usize, name: &str, drive: &ZonedDrive) {
        self.look(place, name, drive.block());
        self.drives[place].lies_about_flush = drive.lies_about_flush();
    }

    /// The same of a drive that NVMe hosts alone can see.
    pub fn look_at_other(&mut self, place: usize, name: &str, drive: &AnyDrive<Flash>) {
        match drive.zones() {
            Some(zones) => self.look_at_zones(place, name, zones),
            None => self.look(place, name, drive.block()),
        }
    }

    /// The power goes: every drive was looked at a last time.
    pub fn power_cut(&mut self) {
        self.power_cuts += 1;
    }

    /// What the drive in this place had done when it was last looked at.
    pub fn drive(&self, place: usize) -> Option<&DriveTotals> {
        self.drives.get(place)
    }

    fn served(&self) -> Served {
        let Totals { counters, drives, redis, recorded, .. } = self;
        let mut statistics = drives.first().map(|drive| drive.statistics.clone()).unwrap_or_default();
        drives.iter().skip(1).for_each(|drive| statistics.add(&drive.statistics));
        let each = drives.iter().filter(|_| drives.len() > 1).map(|drive| (drive.name.clone(), drive.clone()));
        Served {
            connections: counters.connections_accepted.get(),
            tls_handshakes_failed: counters.tls_handshakes_failed.get(),
            connections_without_tls: counters.connections_without_tls.get(),
            hosts_without_name: counters.hosts_without_name.get(),
            standstills: counters.standstills.get(),
            reads: counters.reads.get(),
            writes: counters.writes.get(),
            trims: counters.trims.get(),
            flushes: counters.flushes.get(),
            errors: counters.errors.get(),
            bytes_read: counters.bytes_read.get(),
            bytes_written: counters.bytes_written.get(),
            bytes_copied: counters.bytes_copied.get(),
            bytes_by_reactors: Some(counters.bytes_by_reactors.get()).filter(|bytes| *bytes > 0),
            wall_seconds: self.started.elapsed().as_secs_f64(),
            waf: statistics.waf(),
            nand_blocks_written: statistics.nand_blocks_written(),
            power_cuts: self.power_cuts,
            read_only: drives.iter().any(|drive| drive.read_only.is_some()),
            lies_about_flush: drives.iter().any(|drive| drive.lies_about_flush),
            redis: *redis,
            recorded: *recorded,
            drives: each.collect(),
            statistics,
        }
    }

    /// As one JSON object.
    pub fn json(&self) -> Result<String, crate::failure::Failure> {
        crate::json(&self.served())
    }

    /// As an answer to whoever operates the device, which has power or not.
    pub fn answer(&self, is_on: bool) -> Answer {
        let served = self.served();
        let power = if is_on { "on" } else { "off" };
        let mut text = format!(
            "The power is {power}. {} connections, {} open now.",
            served.connections,
            self.counters.connections.get()
        );
        write_requests(&mut text, &served);
        let since = if self.power_cuts > 0 { "since its power last came on" } else { "since it was opened" };
        _ = write!(
            text,
            "  {since}: the host wrote {} blocks, the flash {}; write amplification {:.3}",
            thousands(served.statistics.host_blocks_written),
            thousands(served.nand_blocks_written),
            served.waf
        );
        for (name, drive) in &served.drives {
            let DriveTotals { waf, nand_blocks_written, statistics, .. } = drive;
            _ = write!(
                text,
                "\n    {name}: {} blocks, {}; {waf:.3}",
                thousands(statistics.host_blocks_written),
                thousands(*nand_blocks_written),
            );
        }
        if served.lies_about_flush {
            text += "\n  It lies about flush.";
        }
        let mut answer =
            Answer::new(text).with("power", power).with("connections_open", self.counters.connections.get());
        if let Ok(serde_json::Value::Object(facts)) = serde_json::to_value(&served) {
            answer.facts.extend(facts);
            // Whoever asks while they are served hears it of each namespace.
            answer.facts.remove("drives");
        }
        answer
    }

    /// The last words of the server.
    pub fn farewell(&self, palette: Palette) -> String {
        let served = self.served();
        let mut text = format!("\n{}", palette.paint(Ink::Bold, &format!("Served for {:.1} s", served.wall_seconds)));
        write_requests(&mut text, &served);
        _ = writeln!(text, "  {:<12} {:>12}", "connections", thousands(served.connections));
        for (what, count) in
            [("wrong key", served.tls_handshakes_failed), ("without TLS", served.connections_without_tls)]
        {
            if count > 0 {
                _ = writeln!(text, "  {what:<12} {:>12}", thousands(count));
            }
        }
        if let Some(redis) = served.redis {
            let of = format!("  of {} clients", thousands(redis.clients()));
            _ = writeln!(text, "  {:<12} {:>12}{of}", "Redis", thousands(redis.commands()));
        }
        if let Some(bytes) = served.bytes_by_reactors {
            _ = writeln!(text, "  {:<12} {:>12}", "by reactors", ByteSize(bytes >> 20 << 20).to_string());
        }
        if let Some(recorded) = served.recorded {
            _ = writeln!(text, "  {:<12} {:>12}", "recorded", thousands(recorded));
        }
        if served.power_cuts > 0 {
            _ = writeln!(text, "  {:<12} {:>12}", "power cuts", thousands(served.power_cuts));
        }
        report::write_amplification(&mut text, &served.statistics, palette);
        report::write_care(&mut text, &served.statistics, palette);
        report::write_mishaps(&mut text, &served.statistics, palette);
        text
    }
}

fn write_requests(text: &mut String, served: &Served) {
    text.push('\n');
    for (what, count, bytes) in [
        ("reads", served.reads, Some(served.bytes_read)),
        ("writes", served.writes, Some(served.bytes_written)),
        ("trims", served.trims, None),
        ("flushes", served.flushes, None),
        ("errors", served.errors, None),
    ] {
        let bytes = bytes.map_or(String::new(), |bytes| format!("  {}", ByteSize(bytes)));
        _ = writeln!(text, "  {what:<12} {:>12}{bytes}", thousands(count));
    }
}
