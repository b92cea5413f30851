//! What a server has done: shown at the end, and to whoever asks in between.

use crate::assembly::Drive;
use crate::report;
use crate::terminal::{Ink, Palette};
use openftl_control::Answer;
use openftl_core::units::ByteSize;
use openftl_ftl::{ReadOnlyReason, Statistics};
use openftl_lab::picture::thousands;
use openftl_server::Counters;
use serde::Serialize;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

/// The counts of a server and of the drive behind it.
pub struct Totals {
    counters: Arc<Counters>,
    started: Instant,
    power_cuts: u64,
    /// The drive's, as far as last looked at. They begin anew when its power comes on.
    statistics: Statistics,
    read_only: Option<ReadOnlyReason>,
    lies_about_flush: bool,
}

#[derive(Serialize)]
struct Served {
    connections: u64,
    /// NVMe hosts that did not know the key of the identity that they showed.
    tls_handshakes_failed: u64,
    /// NVMe hosts that did not use TLS where they have to.
    connections_without_tls: u64,
    reads: u64,
    writes: u64,
    trims: u64,
    flushes: u64,
    errors: u64,
    bytes_read: u64,
    bytes_written: u64,
    bytes_copied: u64,
    wall_seconds: f64,
    waf: f64,
    nand_blocks_written: u64,
    power_cuts: u64,
    statistics: Statistics,
    read_only: bool,
    lies_about_flush: bool,
}

impl Totals {
    /// The server begins.
    pub fn new(counters: Arc<Counters>) -> Totals {
        Totals {
            counters,
            started: Instant::now(),
            power_cuts: 0,
            statistics: Statistics::default(),
            read_only: None,
            lies_about_flush: false,
        }
    }

    /// Clients that were turned away so far.
    pub fn turned_away(&self) -> u64 {
        self.counters.connections_refused.get()
    }

    /// NVMe hosts that did not use TLS where they have to, and those whose handshake failed.
    pub fn insecure(&self) -> [u64; 2] {
        [self.counters.connections_without_tls.get(), self.counters.tls_handshakes_failed.get()]
    }

    /// Looks at the drive.
    pub fn look(&mut self, drive: &Drive) {
        self.statistics = drive.statistics().clone();
        self.read_only = drive.read_only_reason();
        self.lies_about_flush = drive.config().lies_about_flush;
    }

    /// Looks at the drive a last time before its power goes.
    pub fn power_cut(&mut self, drive: &Drive) {
        self.power_cuts += 1;
        self.look(drive);
    }

    fn served(&self) -> Served {
        let Totals { counters, statistics, .. } = self;
        Served {
            connections: counters.connections_accepted.get(),
            tls_handshakes_failed: counters.tls_handshakes_failed.get(),
            connections_without_tls: counters.connections_without_tls.get(),
            reads: counters.reads.get(),
            writes: counters.writes.get(),
            trims: counters.trims.get(),
            flushes: counters.flushes.get(),
            errors: counters.errors.get(),
            bytes_read: counters.bytes_read.get(),
            bytes_written: counters.bytes_written.get(),
            bytes_copied: counters.bytes_copied.get(),
            wall_seconds: self.started.elapsed().as_secs_f64(),
            waf: statistics.waf(),
            nand_blocks_written: statistics.nand_blocks_written(),
            power_cuts: self.power_cuts,
            statistics: statistics.clone(),
            read_only: self.read_only.is_some(),
            lies_about_flush: self.lies_about_flush,
        }
    }

    /// As one JSON object.
    pub fn json(&self) -> Result<String, crate::failure::Failure> {
        crate::json(&self.served())
    }

    /// As an answer to whoever operates the drive, which has no power if there is none.
    pub fn answer(&mut self, drive: Option<&Drive>) -> Answer {
        if let Some(drive) = drive {
            self.look(drive);
        }
        let served = self.served();
        let power = if drive.is_some() { "on" } else { "off" };
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
        if served.lies_about_flush {
            text += "\n  It lies about flush.";
        }
        let mut answer =
            Answer::new(text).with("power", power).with("connections_open", self.counters.connections.get());
        if let Ok(serde_json::Value::Object(facts)) = serde_json::to_value(&served) {
            answer.facts.extend(facts);
        }
        match drive {
            Some(drive) => answer.with("nand", drive.media().emulated().map(|device| device.statistics())),
            None => answer,
        }
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
