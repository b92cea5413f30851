//! What the log says of drives as they are opened and closed.

use crate::assembly::{Drive, ZonedDrive, opened_how, opened_in};
use openftl_blocks::Ftl;
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_drive::any_drive::AnyDrive;
use openftl_pages::PageFtl;
use openftl_parts::{BlockTarget, RecoveryReport};
use openftl_serving::flash::Flash;
use openftl_values::{ValueFtl, ValueTarget};
use tracing::{debug, info, warn};

/// A block drive is open: how that went, and what is unusual about it.
pub fn opened(name: &str, drive: &Drive) {
    let report = drive.recovery_report();
    steps(name, report);
    info!(
        target: "drive",
        drive = name,
        capacity_bytes = drive.blocks() * BLOCK_BYTES as u64,
        clean = is_clean(report),
        opened_us = opened_in(report).0 / 1000,
        replayed = report.replayed,
        dropped = report.dropped,
        single_copies = report.single_copies.len(),
        repaired = report.repair.is_some(),
        "{}",
        how(report)
    );
    warn_if_read_only(name, drive);
    if drive.config().lies_about_flush {
        warn!(target: "drive", drive = name, "the drive lies about flush: nothing that it promises is kept");
    }
}

/// The same of a drive that NVMe hosts alone can see.
pub fn other_opened(name: &str, drive: &AnyDrive<Flash>) {
    match drive {
        AnyDrive::Zones(drive) => zones_opened(name, drive),
        AnyDrive::Pages(drive) => pages_opened(name, drive),
        AnyDrive::Values(drive) => values_opened(name, drive),
        AnyDrive::Blocks(_) | AnyDrive::Tables(_) => unreachable!("these are told of otherwise"),
    }
}

fn pages_opened(name: &str, drive: &PageFtl<Flash>) {
    let report = drive.block().recovery_report();
    steps(name, report);
    info!(
        target: "drive",
        drive = name,
        pages = drive.pages(),
        used_bytes = drive.used_bytes(),
        capacity_bytes = drive.capacity_bytes(),
        clean = is_clean(report),
        opened_us = opened_in(report).0 / 1000,
        replayed = report.replayed,
        dropped = report.dropped,
        "{}",
        how(report)
    );
    warn_if_read_only(name, drive.block());
}

fn values_opened(name: &str, drive: &ValueFtl<Flash>) {
    let (report, known) = (drive.block().recovery_report(), drive.info());
    steps(name, report);
    info!(
        target: "drive",
        drive = name,
        keys = known.keys,
        used_bytes = known.used_bytes,
        capacity_bytes = known.capacity_bytes,
        clean = is_clean(report),
        opened_us = opened_in(report).0 / 1000,
        replayed = report.replayed,
        dropped = report.dropped,
        "{}",
        how(report)
    );
    warn_if_read_only(name, drive.block());
}

fn zones_opened(name: &str, drive: &ZonedDrive) {
    let report = drive.block().recovery_report();
    let layout = drive.layout();
    steps(name, report);
    info!(
        target: "drive",
        drive = name,
        zones = layout.zones,
        zone_capacity_bytes = u64::from(layout.capacity) * BLOCK_BYTES as u64,
        active_zones = drive.board().resources().1,
        clean = is_clean(report),
        opened_us = opened_in(report).0 / 1000,
        replayed = report.replayed,
        dropped = report.dropped,
        "{}",
        how(report)
    );
    warn_if_read_only(name, drive.block());
}

/// The same of a table drive.
pub fn tables_opened(name: &str, report: &RecoveryReport, free_bytes: u64, all_bytes: u64) {
    steps(name, report);
    info!(
        target: "drive",
        drive = name,
        free_bytes,
        all_bytes,
        clean = is_clean(report),
        opened_us = opened_in(report).0 / 1000,
        replayed = report.replayed,
        dropped = report.dropped,
        "{}",
        how(report)
    );
}

fn warn_if_read_only(name: &str, drive: &Drive) {
    if let Some(reason) = drive.read_only_reason() {
        warn!(target: "drive", drive = name, %reason, "the drive takes no writes");
    }
}

/// A drive that was just made took no steps to open.
fn how(report: &RecoveryReport) -> &'static str {
    if report.steps.is_empty() { "made anew" } else { opened_how(report) }
}

fn is_clean(report: &RecoveryReport) -> bool {
    report.clean || report.steps.is_empty()
}

fn steps(name: &str, report: &RecoveryReport) {
    for step in &report.steps {
        debug!(target: "drive", drive = name, step = step.name, us = step.time.0 / 1000, found = step.found, "recovery step");
    }
    if let Some(doubt) = &report.doubt {
        warn!(target: "drive", drive = name, "{doubt}");
    }
}

/// A drive is closed.
pub fn closed(name: &str, took: Nanos) {
    info!(target: "drive", drive = name, closed_us = took.0 / 1000, "closed, with a checkpoint");
}
