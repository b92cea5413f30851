//! A comparison as a page with charts.

use super::Findings;
use crate::chunk_map::{Cell, Mark};
use crate::contender::Contender;
use crate::metrics::GROUPS;
use crate::provenance::{Provenance, VERSION};
use crate::report::PURPOSES;
use crate::trial::Tried;
use openftl_lab::figures::{Axis, Bar, Bars, Grid, Page, Plot, Section, Series};
use openftl_lab::outcome::Requests;
use openftl_lab::picture::thousands;
use openftl_lab::trial::Sample;

/// From so many samples before to so many later a point of a line is taken: what is programmed comes in bursts, and what is
/// buffered at either end would be most of what is seen.
const SAMPLES_OF_POINT: usize = 8;

/// The part of the measured phase that a speed is the mean of, and points of its line.
const SPEED_WINDOW: f64 = 0.08;
const SPEED_POINTS: u32 = 80;

/// From so many drives on each has a picture of its own, with the lines of the others behind.
const MULTIPLES_MIN: usize = 4;

/// Points of a curve of latencies.
const CURVE_POINTS: u32 = 160;

/// Cells of a row of a map, and rows.
const COLUMNS_MAX: usize = 96;
const ROWS_MAX: usize = 64;

/// The page.
pub fn page(findings: &Findings) -> Page {
    let names: Vec<String> = findings.drives.iter().map(|(contender, _)| contender.name.clone()).collect();
    let mut sections = vec![
        amplification(findings),
        purposes(findings),
        throughput(findings),
        latency(findings, "writes", |tried| &tried.measured.outcome.writes),
    ];
    if findings.drives.iter().any(|(_, tried)| tried.measured.outcome.reads.requests > 0) {
        sections.push(latency(findings, "reads", |tried| &tried.measured.outcome.reads));
    }
    sections.push(erases(findings));
    sections.push(chunks(findings));
    let mut lead: Vec<String> = findings.verdicts().map(|verdict| format!("{verdict}.")).collect();
    lead.extend([
        format!("{}.", findings.conditions()),
        "Time is simulated. Every drive got the same writes, and the same seed gives the same figures again."
            .to_owned(),
    ]);
    lead.extend(findings.notes());
    let verified: u64 = findings.drives.iter().map(|(_, tried)| tried.blocks_verified).sum();
    Page {
        title: format!("{} on {} drives", findings.task.load, names.len()),
        lead,
        statements: Vec::new(),
        series: names,
        sections,
        tables: GROUPS.iter().filter_map(|group| group.table(&findings.drives)).collect(),
        foot: format!(
            "Made by openftl {VERSION}: {}. {} blocks were read and compared, none was wrong.",
            Provenance::of_this_run().command(),
            thousands(verified)
        ),
    }
}

fn lines(
    findings: &Findings,
    title: &str,
    [x, y]: [Axis; 2],
    points: impl Fn(&Tried) -> Vec<(f64, f64)>,
) -> Vec<(String, String)> {
    let series = findings.drives.iter();
    let series = series.map(|(contender, tried)| Series::new(contender.name.clone(), points(tried)));
    let plot = Plot { name: "plot", title: title.to_owned(), x, y, series: series.collect(), caption: vec![] };
    if findings.drives.len() < MULTIPLES_MIN {
        return vec![(String::new(), plot.inline_svg())];
    }
    let one =
        |(index, (contender, _)): (usize, &(Contender, Tried))| (contender.name.clone(), plot.inline_svg_of(index));
    findings.drives.iter().enumerate().map(one).collect()
}

/// Samples between which the points of a line are taken.
fn steps(samples: &[Sample]) -> impl Iterator<Item = (Sample, Sample)> + '_ {
    let apart = SAMPLES_OF_POINT.min(samples.len().saturating_sub(1)).max(1);
    samples.iter().copied().zip(samples.iter().skip(apart).copied())
}

fn amplification(findings: &Findings) -> Section {
    let capacity = findings.capacity.0 as f64 / openftl_core::BLOCK_BYTES as f64;
    let title = "Write amplification over time";
    let axes = [Axis::even("written by the host", "drive writes"), Axis::even("WAF", "")];
    let pictures = lines(findings, title, axes, |tried| {
        let point = |(one, next): (Sample, Sample)| {
            let written = next.written - one.written;
            let middle = (one.written + next.written) as f64 / 2.0 / capacity;
            (written > 0).then(|| (middle, (next.programmed - one.programmed) as f64 / written as f64))
        };
        steps(&tried.measured.samples).filter_map(point).collect()
    });
    Section {
        title: title.to_owned(),
        pictures,
        caption: "Blocks programmed for each block that the host wrote, as a moving mean. Lower is better.".to_owned(),
        ..Section::default()
    }
}

fn throughput(findings: &Findings) -> Section {
    let title = "Throughput over time";
    let axes = [Axis::even("simulated time", "s"), Axis::even("throughput", "thousand blocks/s")];
    let pictures = lines(findings, title, axes, |tried| speeds(&tried.measured.samples));
    Section {
        title: title.to_owned(),
        pictures,
        caption:
            "Blocks of 4 KiB that the host read and wrote. A line that ends sooner is that of a drive that was done \
                  with the same work sooner."
                .to_owned(),
        ..Section::default()
    }
}

/// Thousand blocks a second at moments of the measured phase, as a mean over a part of it. By time and not by what was written:
/// what an empty buffer takes at once is a moment and not a share of the work.
fn speeds(samples: &[Sample]) -> Vec<(f64, f64)> {
    let whole = samples.last().map_or(0.0, |last| last.seconds);
    if whole <= 0.0 {
        return Vec::new();
    }
    let window = whole * SPEED_WINDOW;
    let point = |index| {
        let begin = (whole - window) * f64::from(index) / f64::from(SPEED_POINTS);
        let moved = moved_by(samples, begin + window) - moved_by(samples, begin);
        (begin + window / 2.0, moved / window / 1000.0)
    };
    (0..=SPEED_POINTS).map(point).collect()
}

/// Blocks that were moved by a moment, evenly from one sample to the next.
fn moved_by(samples: &[Sample], seconds: f64) -> f64 {
    let next = samples.partition_point(|sample| sample.seconds <= seconds);
    match (next.checked_sub(1).map(|before| samples[before]), samples.get(next)) {
        (Some(before), Some(after)) => {
            let share = (seconds - before.seconds) / (after.seconds - before.seconds);
            before.moved as f64 + share * (after.moved - before.moved) as f64
        }
        (Some(last), None) => last.moved as f64,
        (None, _) => 0.0,
    }
}

fn latency(findings: &Findings, what: &str, of: fn(&Tried) -> &Requests) -> Section {
    let title = format!("Latency of {what}");
    let axes = [Axis::decades("latency", "µs"), Axis::nines("share of requests that took no longer")];
    let pictures = lines(findings, &title, axes, |tried| curve(of(tried)));
    Section {
        title,
        pictures,
        caption:
            "Both axes stretch the rare: each step to the right is ten times as long, each step up leaves a tenth \
                  as many requests. A curve further left is better."
                .to_owned(),
        ..Section::default()
    }
}

/// Latencies in microseconds and the share of the requests that took no longer, up to 99.99%.
fn curve(requests: &Requests) -> Vec<(f64, f64)> {
    if requests.requests == 0 {
        return Vec::new();
    }
    let nines = (0..=CURVE_POINTS).map(|point| 4.0 * f64::from(point) / f64::from(CURVE_POINTS));
    let quantiles = nines.map(|nines| 1.0 - 10f64.powf(-nines));
    let at = |quantile| requests.latency.value_at_quantile(quantile).min(requests.slowest.0) as f64 / 1000.0;
    let mut points: Vec<(f64, f64)> = quantiles.map(|quantile| (at(quantile), quantile)).collect();
    // A buffered write may take no time at all, which has no place on an axis of decades.
    points.retain(|(latency, _)| *latency > 0.0);
    points
}

fn purposes(findings: &Findings) -> Section {
    let title = "Where each programmed byte came from";
    let bars = findings.drives.iter().map(|(contender, tried)| {
        let statistics = &tried.measured.statistics;
        let host = statistics.host_blocks_written.max(1) as f64;
        Bar {
            name: contender.name.clone(),
            value: format!("WAF {:.3}", statistics.waf()),
            parts: PURPOSES.map(|(purpose, _)| statistics.programmed_for(purpose) as f64 / host).into(),
        }
    });
    let svg = Bars { title: title.to_owned(), bars: bars.collect() }.inline_svg();
    Section {
        title: title.to_owned(),
        key: (0..).zip(PURPOSES).map(|(at, (_, name)): (u32, _)| (format!("p{at}"), name.to_owned())).collect(),
        pictures: vec![(String::new(), svg)],
        caption:
            "For each byte that the host wrote; the length of a bar is the write amplification. The figures are in \
                  the tables below."
                .to_owned(),
    }
}

fn erases(findings: &Findings) -> Section {
    let title = "Erases of each chunk";
    let axes = [Axis::even("chunks, the least erased first", "%"), Axis::even("erases", "")];
    let pictures = lines(findings, title, axes, |tried| {
        let mut erases = tried.erases.clone();
        erases.sort_unstable();
        let count = erases.len().max(2) as f64 - 1.0;
        let step = (erases.len() / 200).max(1);
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (index, erases) in erases.iter().enumerate().filter(|(index, _)| index % step == 0) {
            points.push((index as f64 / count * 100.0, f64::from(*erases)));
        }
        points.extend(erases.last().map(|most| (100.0, f64::from(*most))));
        points
    });
    Section {
        title: title.to_owned(),
        pictures,
        caption:
            "While it was measured. The lower a line the longer the drive lives, and the flatter the more evenly it \
                  wears."
                .to_owned(),
        ..Section::default()
    }
}

fn chunks(findings: &Findings) -> Section {
    const KEY: [(&str, &str); 11] = [
        ("c-free", "free"),
        ("c-v0", "up to 20% valid"),
        ("c-v1", "40%"),
        ("c-v2", "60%"),
        ("c-v3", "80%"),
        ("c-v4", "100%"),
        ("c-open", "open"),
        ("c-collected", "being collected"),
        ("c-metadata", "log, checkpoint, map"),
        ("c-superblock", "superblock"),
        ("c-bad", "bad"),
    ];
    let pictures = findings.drives.iter().map(|(contender, tried)| {
        let (rows, bucket) = map(&tried.cells, tried.measured.geometry.chunks_per_pu as usize);
        let scale = if bucket > 1 { format!(", {bucket} chunks a cell") } else { String::new() };
        let grid = Grid { title: format!("Chunks of {}", contender.name), rows };
        (format!("{}{scale}", contender.name), grid.inline_svg())
    });
    Section {
        title: "Chunks, by how much of them is valid".to_owned(),
        key: KEY.map(|(class, name)| (class.to_owned(), name.to_owned())).into(),
        pictures: pictures.collect(),
        caption:
            "At the end, a row for each parallel unit. Chunks that are either full or nearly empty are what makes \
                  garbage collection cheap."
                .to_owned(),
    }
}

/// Rows of a map, and chunks that share a cell. The first parallel units, where there are many.
fn map(cells: &[Cell], chunks_per_pu: usize) -> (Vec<Vec<&'static str>>, usize) {
    let bucket = chunks_per_pu.div_ceil(COLUMNS_MAX).max(1);
    let row = |cells: &[Cell]| cells.chunks(bucket).map(class).collect();
    (cells.chunks(chunks_per_pu.max(1)).take(ROWS_MAX).map(row).collect(), bucket)
}

/// The class of neighbouring chunks: that of most of them, the rarer if there is a tie; data as valid as their mean.
fn class(cells: &[Cell]) -> &'static str {
    let word = |cell: &Cell| match cell.mark {
        Mark::Free => "c-free",
        Mark::Open => "c-open",
        Mark::Data | Mark::Table => "data",
        Mark::Collected => "c-collected",
        Mark::Log | Mark::Checkpoint | Mark::Map => "c-metadata",
        Mark::Superblock => "c-superblock",
        Mark::Bad => "c-bad",
    };
    const FROM_COMMON_TO_RARE: [&str; 7] =
        ["data", "c-free", "c-open", "c-collected", "c-metadata", "c-superblock", "c-bad"];
    let count = |class: &str| cells.iter().filter(|cell| word(cell) == class).count();
    let most = FROM_COMMON_TO_RARE.into_iter().max_by_key(|class| count(class)).expect("there are classes");
    if most != "data" {
        return most;
    }
    let data = cells.iter().filter(|cell| cell.mark == Mark::Data);
    let mean = data.map(|cell| cell.valid).sum::<f64>() / count("data") as f64;
    ["c-v0", "c-v1", "c-v2", "c-v3", "c-v4"][((mean * 5.0).ceil() as usize).clamp(1, 5) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::ChunkId;
    use openftl_core::Nanos;

    fn cell(mark: Mark, valid: f64) -> Cell {
        Cell { chunk: ChunkId(0), mark, valid }
    }

    #[test]
    fn a_map_shows_what_most_chunks_of_a_cell_are_and_data_by_their_mean() {
        let data = |valid| cell(Mark::Data, valid);
        assert_eq!(class(&[data(0.0)]), "c-v0");
        assert_eq!(class(&[data(0.21)]), "c-v1");
        assert_eq!(class(&[data(1.0), data(0.0), cell(Mark::Free, 0.0)]), "c-v2");
        assert_eq!(class(&[data(1.0), cell(Mark::Bad, 0.0)]), "c-bad", "the rarer of two");
        let (rows, bucket) = map(&vec![data(1.0); 2 * 200], 200);
        assert_eq!((rows.len(), rows[0].len(), bucket), (2, 67, 3));
    }

    #[test]
    fn a_speed_is_a_mean_over_time_whatever_the_samples() {
        let sample = |seconds, moved| Sample { seconds, moved, written: moved, programmed: 0 };
        // All of it at once, and then nothing: a tenth of the window's 80 ms has it.
        let burst = speeds(&[sample(0.0, 0), sample(0.008, 8000), sample(1.0, 8000)]);
        assert!((burst[0].1 - 100.0).abs() < 1e-9 && burst[80].1.abs() < 1e-9, "{burst:?}");
        let even = speeds(&[sample(0.0, 0), sample(0.5, 500), sample(0.5, 500), sample(2.0, 2000)]);
        assert!(even.iter().all(|(_, speed)| (speed - 1.0).abs() < 1e-9), "{even:?}");
        assert_eq!((speeds(&[]), speeds(&[sample(0.0, 5)])), (vec![], vec![]));
    }

    #[test]
    fn a_curve_rises_to_four_nines_and_leaves_out_what_took_no_time() {
        let mut requests = Requests::default();
        assert_eq!(curve(&requests), []);
        for request in 0..100_000 {
            requests.count(1, Nanos(request * 1000));
        }
        let points = curve(&requests);
        assert!(points.is_sorted_by(|one, next| one.0 <= next.0 && one.1 < next.1), "{points:?}");
        let (latency, share) = points[points.len() - 1];
        assert!((share - 0.9999).abs() < 1e-9 && (99_900.0..100_000.0).contains(&latency), "{latency} {share}");
        assert!(points.len() > 150 && points[0].0 > 0.0);
    }
}
