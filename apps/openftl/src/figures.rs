//! What was measured, as figures for scripts.

use crate::report::PURPOSES;
use hdrhistogram::Histogram;
use openftl_core::Nanos;
use openftl_lab::outcome::Requests;
use openftl_lab::{Measured, Outcome};
use serde::Serialize;
use std::collections::BTreeMap;

/// Latency percentiles in nanoseconds.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency {
    pub mean: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub p9999: u64,
    pub max: u64,
}

impl Latency {
    /// Of `histogram`, whose greatest value is exactly `slowest`.
    fn of(histogram: &Histogram<u64>, slowest: Nanos) -> Latency {
        let at = |quantile| histogram.value_at_quantile(quantile).min(slowest.0);
        Latency {
            mean: histogram.mean().round() as u64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: slowest.0,
        }
    }

    /// How late the host was told of ends, if it was.
    pub fn of_lateness(outcome: &Outcome) -> Option<Latency> {
        let lateness = &outcome.lateness;
        (!lateness.is_empty()).then(|| Latency::of(lateness, Nanos(lateness.max())))
    }

    /// Of `requests`, if there were any.
    pub fn of_some(requests: &Requests) -> Option<Latency> {
        (requests.requests > 0).then(|| Latency::of(&requests.latency, requests.slowest))
    }
}

/// The figures. In virtual time everything but `wall_seconds` follows from the seed.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Figures {
    pub host_blocks_written: u64,
    pub host_blocks_read: u64,
    pub nand_blocks_written: u64,
    /// NAND writes over host writes; null if the host wrote nothing.
    pub waf: Option<f64>,
    /// Data and relocations only, without log, checkpoint and padding.
    pub relocation_waf: Option<f64>,
    /// Requests a second on the drive's clock; null if no time passed.
    pub iops: Option<f64>,
    pub virtual_seconds: f64,
    /// How long it took here, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_seconds: Option<f64>,
    pub latency_ns: Latency,
    pub read_latency_ns: Option<Latency>,
    pub write_latency_ns: Option<Latency>,
    /// How long after its end a request was reported; null in simulated time, where that takes no time.
    pub lateness_ns: Option<Latency>,
    pub pages_per_block: u32,
    pub effective_over_provisioning: f64,
    /// NAND writes by purpose.
    pub programmed: BTreeMap<&'static str, u64>,
    pub resets: u64,
    /// Bytes of memory that the map took at the end.
    pub map_memory_bytes: u64,
    /// Map pages that were read, for reads of the host and for merges; 0 if the whole map is in memory.
    pub map_pages_read: u64,
    /// Map pages that were written, each of them twice.
    pub map_pages_written: u64,
    pub checkpoints: u64,
    pub throttled: u64,
    pub throttled_ns: u64,
    pub program_failures: u64,
    pub reset_failures: u64,
    pub read_failures: u64,
    pub retired_chunks: u64,
    /// How often the host met garbage collection.
    pub encounters: openftl_parts::Encounters,
    pub groups: Vec<openftl_parts::GroupStatistics>,
    /// Share of the time that each die was busy, in the order of the parallel units.
    pub pu_utilisation: Vec<f64>,
    pub turned_read_only: bool,
    pub trace_hash: String,
}

impl Figures {
    /// Of one phase on one drive.
    pub fn of(measured: &Measured) -> Figures {
        let (outcome, statistics) = (&measured.outcome, &measured.statistics);
        let wrote = statistics.host_blocks_written > 0;
        Figures {
            host_blocks_written: statistics.host_blocks_written,
            host_blocks_read: statistics.host_blocks_read,
            nand_blocks_written: statistics.nand_blocks_written(),
            waf: wrote.then(|| statistics.waf()),
            relocation_waf: wrote.then(|| statistics.relocation_waf()),
            iops: outcome.iops(),
            virtual_seconds: outcome.seconds(),
            wall_seconds: None,
            latency_ns: Latency::of(&outcome.latency(), outcome.reads.slowest.max(outcome.writes.slowest)),
            read_latency_ns: Latency::of_some(&outcome.reads),
            write_latency_ns: Latency::of_some(&outcome.writes),
            lateness_ns: Latency::of_lateness(outcome),
            pages_per_block: measured.geometry.blocks_per_chunk,
            effective_over_provisioning: measured.effective_over_provisioning,
            programmed: PURPOSES.map(|(purpose, name)| (name, statistics.programmed_for(purpose))).into(),
            resets: statistics.resets,
            map_memory_bytes: measured.map_memory_bytes,
            map_pages_read: statistics.map_pages_read,
            map_pages_written: statistics.map_pages_written,
            checkpoints: statistics.checkpoints,
            throttled: statistics.throttled,
            throttled_ns: statistics.throttled_time.0,
            program_failures: statistics.program_failures,
            reset_failures: statistics.reset_failures,
            read_failures: statistics.read_failures,
            retired_chunks: statistics.retired_chunks,
            encounters: statistics.encounters,
            groups: statistics.groups.clone(),
            pu_utilisation: measured.utilisation(),
            turned_read_only: outcome.turned_read_only,
            trace_hash: outcome.trace_hash.to_string(),
        }
    }
}
