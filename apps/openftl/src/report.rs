//! What was measured, as a page that a person enjoys.

use crate::figures::Latency;
use crate::terminal::{Ink, Palette};
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, Geometry, Nanos};
use openftl_lab::Measured;
use openftl_lab::picture::{bar, strip, thousands};
use openftl_parts::{Care, GroupStatistics, Purpose, Statistics};
use std::fmt::Write;

/// A latency of no time.
const AT_ONCE: &str = "at once";

/// Cells of the longest bar.
const BAR_CELLS: usize = 36;

/// Whose seconds the drive's clock counts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Seconds {
    /// Those of the simulation.
    Simulated {
        /// How long that took.
        wall_seconds: f64,
    },
    /// Those of the wall clock.
    Real,
}

/// The whole page, without a title.
pub fn page(measured: &Measured, seconds: Seconds, palette: Palette) -> String {
    let mut text = String::new();
    write_speed(&mut text, measured, seconds, palette);
    write_latency(&mut text, measured, palette);
    write_amplification(&mut text, &measured.statistics, palette);
    write_map(&mut text, measured, palette);
    write_collection(&mut text, &measured.statistics, palette);
    if seconds != Seconds::Real || measured.utilisation().iter().any(|&share| share > 0.0) {
        write_dies(&mut text, &measured.utilisation(), &measured.geometry, palette);
    }
    write_care(&mut text, &measured.statistics, palette);
    write_mishaps(&mut text, &measured.statistics, palette);
    text
}

fn write_title(text: &mut String, title: &str, rest: &str, palette: Palette) {
    _ = writeln!(text, "\n{}{}", palette.paint(Ink::Bold, title), palette.paint(Ink::Dim, rest));
}

fn write_speed(text: &mut String, measured: &Measured, seconds: Seconds, palette: Palette) {
    write_title(text, "Speed", "", palette);
    let outcome = &measured.outcome;
    let bytes = (outcome.reads.blocks + outcome.writes.blocks) as f64 * BLOCK_BYTES as f64;
    let mut line = |whose: &str, seconds: f64| {
        if seconds > 0.0 {
            let rate = thousands((outcome.requests() as f64 / seconds) as u64);
            _ = writeln!(
                text,
                "  {whose:<10} {rate:>10} requests/s {:>9.1} MB/s  for {seconds:.2} s",
                bytes / seconds / 1e6
            );
        }
    };
    match seconds {
        Seconds::Simulated { wall_seconds } => {
            line("the drive", outcome.seconds());
            line("simulator", wall_seconds);
        }
        Seconds::Real => line("the drive", outcome.seconds()),
    }
}

fn write_latency(text: &mut String, measured: &Measured, palette: Palette) {
    let outcome = &measured.outcome;
    let rows = [
        ("reads", Latency::of_some(&outcome.reads)),
        ("writes", Latency::of_some(&outcome.writes)),
        ("reported", Latency::of_lateness(outcome)),
    ];
    if rows.iter().all(|(_, latency)| latency.is_none_or(|latency| latency.max == 0)) {
        return;
    }
    let header = format!("      {:>12}{:>12}{:>12}{:>12}", "p50", "p99", "p99.9", "max");
    write_title(text, "Latency", &header, palette);
    for (name, latency) in rows {
        if let Some(latency) = latency {
            let cell = |nanos| if nanos == 0 { AT_ONCE.to_owned() } else { Nanos(nanos).to_string() };
            let Latency { p50, p99, p999, max, .. } = latency;
            _ = writeln!(text, "  {name:<11}{:>12}{:>12}{:>12}{:>12}", cell(p50), cell(p99), cell(p999), cell(max));
        }
    }
    if rows.iter().filter_map(|(_, latency)| latency.as_ref()).any(|latency| latency.p50 == 0) {
        let note = format!("  {AT_ONCE}: the write buffer had the data, and no flash was waited for");
        _ = writeln!(text, "{}", palette.paint(Ink::Dim, &note));
    }
}

/// What blocks are programmed for, on drives of blocks and of zones, and the words of reports for it.
pub const PURPOSES: [(Purpose, &str); 8] = [
    (Purpose::Data, "data"),
    (Purpose::Relocation, "relocation"),
    (Purpose::Log, "log"),
    (Purpose::Checkpoint, "checkpoint"),
    (Purpose::Superblock, "superblock"),
    (Purpose::Padding, "padding"),
    (Purpose::Map, "map"),
    (Purpose::Tenant, "zones"),
];

/// The same on a store of pages.
const OF_PAGES: [(Purpose, &str); 9] = [
    (Purpose::Tenant, "pages"),
    (Purpose::Header, "headers"),
    (Purpose::Slack, "slack"),
    (Purpose::Relocation, "relocation"),
    (Purpose::Log, "log"),
    (Purpose::Data, "map"),
    (Purpose::Checkpoint, "checkpoint"),
    (Purpose::Superblock, "superblock"),
    (Purpose::Padding, "padding"),
];

/// What blocks were programmed for, in the words of reports.
pub fn programmed(statistics: &Statistics) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    let has_pages = statistics.programmed_for(Purpose::Header) + statistics.programmed_for(Purpose::Slack) > 0;
    let purposes = if has_pages { &OF_PAGES[..] } else { &PURPOSES[..] };
    purposes.iter().map(|(purpose, name)| (*name, statistics.programmed_for(*purpose)))
}

/// Write amplification, and where each byte on flash came from.
pub fn write_amplification(text: &mut String, statistics: &Statistics, palette: Palette) {
    let total = statistics.nand_blocks_written();
    if total == 0 {
        return;
    }
    let title = match statistics.host_blocks_written {
        0 => "Written to flash".to_owned(),
        _ => format!("Write amplification {:.3}", statistics.waf()),
    };
    write_title(text, &title, "   where each byte written to flash came from", palette);
    for (name, blocks) in programmed(statistics) {
        if blocks > 0 {
            let share = blocks as f64 / total as f64;
            let bar = palette.paint(Ink::Picture, bar(share, BAR_CELLS).trim_end());
            _ = writeln!(text, "  {name:<11} {:>5.1}%  {bar}", share * 100.0);
        }
    }
}

/// A map on media: how often its pages were read and written.
fn write_map(text: &mut String, measured: &Measured, palette: Palette) {
    let (statistics, bytes) = (&measured.statistics, measured.map_memory_bytes);
    if statistics.map_pages_read + statistics.map_pages_written == 0 {
        return;
    }
    write_title(text, "Map", &format!("   on media; {} of memory", ByteSize(bytes)), palette);
    let mut row = |what: &str, pages: u64, of: u64, whose: &str| {
        if pages > 0 {
            let ratio =
                if of > 0 { format!(", {:.3} for each {whose}", pages as f64 / of as f64) } else { String::new() };
            _ = writeln!(text, "  {what:<13} {}{ratio}", thousands(pages));
        }
    };
    row("pages read", statistics.map_pages_read, measured.outcome.requests(), "request");
    row("pages written", statistics.map_pages_written, statistics.host_blocks_written, "block that the host wrote");
    let changes = statistics.map_changes_merged as f64 / statistics.map_pages_written.max(1) as f64;
    if statistics.map_pages_written > 0 {
        _ = writeln!(text, "  changes       {changes:.1} in each page that was written");
    }
}

fn write_collection(text: &mut String, statistics: &Statistics, palette: Palette) {
    let groups = &statistics.groups;
    let victims: u64 = groups.iter().map(|group| group.victims).sum();
    if victims == 0 {
        return;
    }
    write_title(text, "Garbage collection", "   one cell for each group", palette);
    let mut row = |name: &str, of: &dyn Fn(&GroupStatistics) -> u64, total: String| {
        let max = groups.iter().map(of).max().unwrap_or(0).max(1) as f64;
        let cells = palette.paint(Ink::Picture, &strip(groups.iter().map(|group| of(group) as f64 / max)));
        _ = writeln!(text, "  {name:<18} {cells}  {total}");
    };
    let relocated: u64 = groups.iter().map(|group| group.relocated).sum();
    row("chunks collected", &|group| group.victims, thousands(victims));
    row("blocks moved", &|group| group.relocated, format!("{}, {} a chunk", thousands(relocated), relocated / victims));
    let marked: u64 = groups.iter().map(|group| group.marked).sum();
    row("times marked", &|group| group.marked, thousands(marked));
    let encounters = &statistics.encounters;
    if encounters.commands > 0 {
        _ = writeln!(
            text,
            "  {:<18} {:.1}% of reads and programs while collecting, {:.1}% of all {}",
            "to marked groups",
            encounters.share_while_collecting() * 100.0,
            encounters.marked_share() * 100.0,
            thousands(encounters.commands),
        );
    }
}

fn write_dies(text: &mut String, utilisation: &[f64], geometry: &Geometry, palette: Palette) {
    if utilisation.is_empty() {
        return;
    }
    write_title(text, "Dies at work", "   one cell for each, group by group", palette);
    let groups: Vec<String> =
        utilisation.chunks(geometry.pus_per_group as usize).map(|group| strip(group.iter().copied())).collect();
    let per_line = (60 / (geometry.pus_per_group as usize + 1)).max(1);
    let gap = if geometry.pus_per_group > 1 { " " } else { "" };
    for line in groups.chunks(per_line) {
        _ = writeln!(text, "  {}", palette.paint(Ink::Picture, &line.join(gap)));
    }
    let (low, high) =
        utilisation.iter().fold((f64::INFINITY, 0.0f64), |(low, high), &share| (low.min(share), high.max(share)));
    let mean = utilisation.iter().sum::<f64>() / utilisation.len() as f64;
    _ = writeln!(text, "  busy {:.0}% of the time ({:.0}% to {:.0}%)", mean * 100.0, low * 100.0, high * 100.0);
}

/// What was read and moved to keep the data safe and the wear level.
pub fn write_care(text: &mut String, statistics: &Statistics, palette: Palette) {
    let cared = Care::ALL.map(|care| (care.name(), statistics.cared_for(care)));
    let scrub = &statistics.scrub;
    if scrub.blocks == 0 && cared.iter().all(|(_, moved)| moved.chunks == 0) {
        return;
    }
    write_title(text, "Care", "", palette);
    if scrub.blocks > 0 {
        let passes = if scrub.passes == 1 { "pass" } else { "passes" };
        _ = writeln!(
            text,
            "  {:>12} blocks were scrubbed in {} whole {passes}: {} weak, {} of them lost",
            thousands(scrub.blocks),
            thousands(scrub.passes),
            thousands(scrub.weak),
            thousands(scrub.lost)
        );
    }
    for (name, moved) in cared.into_iter().filter(|(_, moved)| moved.chunks > 0) {
        let (chunks, blocks) = (thousands(moved.chunks), thousands(moved.blocks));
        _ = writeln!(text, "  {chunks:>12} chunks were {name}, with {blocks} blocks");
    }
}

/// What went wrong, and was borne.
pub fn write_mishaps(text: &mut String, statistics: &Statistics, palette: Palette) {
    let mishaps = [
        ("programs failed and were repeated elsewhere", statistics.program_failures),
        ("erases failed", statistics.reset_failures),
        ("reads failed or did not verify", statistics.read_failures),
        ("blocks were given up: their data were lost", statistics.lost_blocks),
        ("chunks went offline with all they held", statistics.offline_chunks),
        ("chunks are reported worn by the device", statistics.worn_chunks),
        ("chunks were taken out of use", statistics.retired_chunks),
        ("host requests ended in an error", statistics.host_errors),
    ];
    if mishaps.iter().all(|&(_, count)| count == 0) {
        return;
    }
    write_title(text, "Mishaps", "", palette);
    for (what, count) in mishaps {
        if count > 0 {
            _ = writeln!(text, "  {:>8} {what}", thousands(count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use openftl_lab::Outcome;
    use openftl_parts::Encounters;

    fn measured() -> Measured {
        let groups = [(1, 40, 4_000), (2, 60, 9_000), (1, 20, 1_000)]
            .map(|(marked, victims, relocated)| GroupStatistics { marked, victims, relocated, marked_time: Nanos(5) })
            .to_vec();
        let statistics = Statistics {
            host_blocks_written: 20_000,
            programmed: [20_000, 14_000, 300, 200, 4, 60, 0, 0, 0, 0],
            program_failures: 2,
            encounters: Encounters { commands: 30_000, collecting: 10_000, marked: 1_250, met: 2_000 },
            groups,
            ..Statistics::default()
        };
        Measured {
            outcome: Outcome::sample(),
            statistics,
            pu_busy: vec![Nanos::from_millis(900), Nanos::from_millis(500), Nanos::from_millis(450), Nanos(0)],
            geometry: Geometry::tiny(),
            effective_over_provisioning: 0.1,
            map_memory_bytes: 4096,
            resets: Vec::new(),
            samples: Vec::new(),
        }
    }

    #[test]
    fn the_page_of_a_simulated_drive() {
        expect![[r#"

            Speed
              the drive          30 requests/s       0.1 MB/s  for 1.00 s
              simulator         600 requests/s       2.5 MB/s  for 0.05 s

            Latency               p50         p99       p99.9         max
              reads           50.0 µs     60.0 µs     60.0 µs     60.0 µs
              writes         100.0 µs    200.0 µs    200.0 µs    200.0 µs

            Write amplification 1.728   where each byte written to flash came from
              data         57.9%  ████████████████████▉
              relocation   40.5%  ██████████████▋
              log           0.9%  ▎
              checkpoint    0.6%  ▎
              superblock    0.0%  ▏
              padding       0.2%  ▏

            Garbage collection   one cell for each group
              chunks collected   ▅█▃  120
              blocks moved       ▄█▁  14 000, 116 a chunk
              times marked       ▄█▄  4
              to marked groups   12.5% of reads and programs while collecting, 4.2% of all 30 000

            Dies at work   one cell for each, group by group
              ▇▄ ▄·
              busy 46% of the time (0% to 90%)

            Mishaps
                     2 programs failed and were repeated elsewhere
        "#]]
        .assert_eq(&page(&measured(), Seconds::Simulated { wall_seconds: 0.05 }, Palette::PLAIN));
    }

    #[test]
    fn a_drive_in_real_time_has_one_speed() {
        let page = page(&measured(), Seconds::Real, Palette::PLAIN);
        assert_eq!(page.matches("requests/s").count(), 1, "{page}");
    }
}
