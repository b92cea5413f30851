//! The page of `openftl nvme zones list`.

use super::{Shape, ZoneFacts, name_of};
use crate::nvme::identify::line;
use crate::terminal::{Ink, Palette};
use openftl_core::units::ByteSize;
use openftl_lab::picture::{bar, strip, thousands};
use openftl_nvme::wire::zoned::attribute;
use openftl_zones::ZoneState;
use serde::Serialize;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

/// Cells of the picture of all zones.
const PICTURE_CELLS: usize = 64;

/// Cells of the bar of a zone.
const BAR_CELLS: usize = 12;

/// The most runs of zones in a line of text.
const RUNS_MAX: usize = 12;

/// The one object that `--json` prints.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Findings {
    #[serde(flatten)]
    shape: Shape,
    /// Of all zones.
    capacity_blocks: u64,
    /// Zones that hold an open resource, and those that hold an active one.
    open: u64,
    active: u64,
    states: Vec<Count>,
    /// Those that were asked for.
    zones: Vec<ZoneFacts>,
}

/// How many zones are in a state.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    state: ZoneState,
    zones: u64,
}

impl Findings {
    /// Of all zones, and of those that were asked for.
    pub fn of(shape: Shape, all: &[ZoneFacts], zones: Vec<ZoneFacts>) -> Findings {
        Findings {
            shape,
            capacity_blocks: all.iter().map(|zone| zone.capacity_blocks).fold(0, u64::saturating_add),
            open: all.iter().filter(|zone| zone.state.is_open()).count() as u64,
            active: all.iter().filter(|zone| zone.state.is_active()).count() as u64,
            states: count(all),
            zones,
        }
    }
}

/// How many zones are in each state.
pub fn count(zones: &[ZoneFacts]) -> Vec<Count> {
    let of = |state| Count { state, zones: zones.iter().filter(|zone| zone.state == state).count() as u64 };
    ZoneState::ALL.into_iter().map(of).collect()
}

/// The states in which there are zones, in a line.
pub fn counts(counts: &[Count]) -> String {
    let told = counts.iter().filter(|count| count.zones > 0);
    told.map(|count| format!("{} {}", thousands(count.zones), name_of(count.state))).collect::<Vec<_>>().join(", ")
}

/// The page for people. So many zones more than those of the findings are as asked for.
pub fn page(findings: &Findings, all: &[ZoneFacts], left_out: usize, palette: Palette) -> String {
    let mut text = String::new();
    write_shape(&mut text, findings, all, palette);
    write_resources(&mut text, findings, all, palette);
    write_zones(&mut text, &findings.zones, palette);
    if left_out > 0 {
        let more = format!("and {} more", thousands(left_out as u64));
        _ = writeln!(text, "{}", palette.paint(Ink::Dim, &more));
    }
    text
}

fn write_shape(text: &mut String, findings: &Findings, all: &[ZoneFacts], palette: Palette) {
    let Shape { namespace, block_bytes, zone_count, zone_size_blocks, .. } = findings.shape;
    let size = |blocks: u64| ByteSize(blocks.saturating_mul(block_bytes));
    _ = writeln!(text, "{}", palette.paint(Ink::Bold, &format!("Namespace {namespace}, zoned")));
    let capacity = findings.capacity_blocks;
    let blocks = format!("{} blocks of {block_bytes} bytes", thousands(capacity));
    line(text, "capacity", format_args!("{}, {blocks}", size(capacity)));
    let zone_capacity = all.first().map_or(0, |zone| zone.capacity_blocks);
    let apart = match all.iter().all(|zone| zone.capacity_blocks == zone_capacity) {
        true if zone_capacity == zone_size_blocks => String::new(),
        true => format!(", {} blocks from one to the next", thousands(zone_size_blocks)),
        false => ", not all of one capacity".to_owned(),
    };
    let each = format!("{} ({} blocks)", size(zone_capacity), thousands(zone_capacity));
    line(text, "zones", format_args!("{} of {each}{apart}", thousands(zone_count)));
    line(text, "states", counts(&findings.states));
    line(text, "written", palette.paint(Ink::Picture, &picture(all)));
}

/// How full the zones are, from the first to the last; several share a cell if there are many.
fn picture(zones: &[ZoneFacts]) -> String {
    let zones_per_cell = zones.len().div_ceil(PICTURE_CELLS).max(1);
    let share = |zones: &[ZoneFacts]| zones.iter().map(ZoneFacts::share).sum::<f64>() / zones.len() as f64;
    strip(zones.chunks(zones_per_cell).map(share))
}

fn write_resources(text: &mut String, findings: &Findings, all: &[ZoneFacts], palette: Palette) {
    let Findings { shape: Shape { max_open, max_active, .. }, open, active, .. } = findings;
    let mut write = |name: &str, used: u64, max: Option<u64>, is_held: fn(ZoneState) -> bool| {
        let of = max.map_or_else(|| "without limit".to_owned(), |max| format!("of {}", thousands(max)));
        let holders = match used {
            0 => String::new(),
            _ => format!(": {}", names(all.iter().filter(|zone| is_held(zone.state)))),
        };
        let value = format!("{} {of}{holders}", thousands(used));
        let is_at_limit = max.is_some_and(|max| used >= max);
        line(text, name, if is_at_limit { palette.paint(Ink::Fair, &value) } else { value });
    };
    write("open", *open, *max_open, ZoneState::is_open);
    write("active", *active, *max_active, ZoneState::is_active);
    if max_active.is_some_and(|max| *active >= max) {
        line(text, "", "no empty zone can be written before an active one is finished or reset");
    }
}

/// The numbers of zones: `zones 0, 3-5`.
fn names<'a>(zones: impl Iterator<Item = &'a ZoneFacts>) -> String {
    let numbers: Vec<u64> = zones.map(|zone| zone.number).collect();
    let runs: Vec<&[u64]> = numbers.chunk_by(|one, next| one + 1 == *next).collect();
    let shown = runs.iter().take(RUNS_MAX).map(|run| run_name(run[0]..=run[run.len() - 1]));
    let mut names = shown.collect::<Vec<_>>();
    if runs.len() > RUNS_MAX {
        names.push("…".to_owned());
    }
    format!("{} {}", if numbers.len() == 1 { "zone" } else { "zones" }, names.join(", "))
}

fn run_name(numbers: RangeInclusive<u64>) -> String {
    match (numbers.start(), numbers.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}

/// Whether two neighbours may be one line.
fn are_alike(one: &ZoneFacts, next: &ZoneFacts) -> bool {
    let what = |zone: &ZoneFacts| (zone.state, zone.capacity_blocks, zone.written_blocks, zone.attributes);
    one.number + 1 == next.number && what(one) == what(next)
}

/// What a zone says beside its state.
pub fn attributes(attributes: u8) -> impl Iterator<Item = &'static str> {
    let names = [
        (attribute::FINISHED_BY_CONTROLLER, "finished by the controller"),
        (attribute::FINISH_RECOMMENDED, "finish recommended"),
        (attribute::RESET_RECOMMENDED, "reset recommended"),
        (attribute::ZRWA_VALID, "with random write area"),
        (attribute::EXTENSION_VALID, "with extension"),
    ];
    names.into_iter().filter(move |(bit, _)| attributes & bit != 0).map(|(_, name)| name)
}

fn write_zones(text: &mut String, zones: &[ZoneFacts], palette: Palette) {
    if zones.is_empty() {
        text.push_str("\nNo zone is as asked for.\n");
        return;
    }
    let header = format!("{:<15}  {:>15}  {:>11}  {:<BAR_CELLS$}  STATE", "ZONE", "FIRST BLOCK", "WRITTEN", "");
    _ = writeln!(text, "\n{}", palette.paint(Ink::Bold, &header));
    for run in zones.chunk_by(are_alike) {
        let (first, last) = (run[0], run[run.len() - 1]);
        let numbers = run_name(first.number..=last.number);
        let written = first.written_blocks.map_or("?".to_owned(), thousands);
        let full = palette.paint(Ink::Picture, &bar(first.share(), BAR_CELLS));
        let state = match first.state {
            ZoneState::ReadOnly | ZoneState::Offline => palette.paint(Ink::Bad, name_of(first.state)),
            state => name_of(state).to_owned(),
        };
        let state = std::iter::once(state).chain(attributes(first.attributes).map(str::to_owned));
        let state = state.collect::<Vec<_>>().join(", ");
        let first_block = thousands(first.first_block);
        _ = writeln!(text, "{numbers:<15}  {first_block:>15}  {written:>11}  {full}  {state}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn shape() -> Shape {
        Shape {
            namespace: 2,
            block_bytes: 4096,
            zone_count: 47_168,
            zone_size_blocks: 8192,
            max_open: Some(2),
            max_active: Some(3),
            zrwa_blocks: 0,
        }
    }

    fn zones() -> Vec<ZoneFacts> {
        let zone = |number| {
            let (state, written_blocks) = match number {
                0 => (ZoneState::ExplicitlyOpen, Some(12)),
                1..=3 => (ZoneState::Full, Some(6144)),
                4 => (ZoneState::Closed, Some(3000)),
                5 => (ZoneState::Closed, Some(6143)),
                47_167 => (ZoneState::ReadOnly, None),
                _ => (ZoneState::Empty, Some(0)),
            };
            let first_block = number * 8192;
            let attributes = match number {
                2 => attribute::RESET_RECOMMENDED | attribute::EXTENSION_VALID,
                4 => attribute::FINISH_RECOMMENDED,
                _ => 0,
            };
            ZoneFacts { number, state, first_block, capacity_blocks: 6144, written_blocks, attributes }
        };
        (0..47_168).map(zone).collect()
    }

    #[test]
    fn the_page_shows_runs_of_zones_and_the_holders_of_resources() {
        let zones = zones();
        let findings = Findings::of(shape(), &zones, zones.clone());
        expect![[r#"
            Namespace 2, zoned
              capacity         1.08 TiB, 289 800 192 blocks of 4096 bytes
              zones            47 168 of 24 MiB (6 144 blocks), 8 192 blocks from one to the next
              states           47 161 empty, 1 explicitly open, 2 closed, 3 full, 1 read-only
              written          ▁·······························································
              open             1 of 2: zone 0
              active           3 of 3: zones 0, 4-5
                               no empty zone can be written before an active one is finished or reset

            ZONE                 FIRST BLOCK      WRITTEN                STATE
            0                              0           12  ▏             explicitly open
            1                          8 192        6 144  ████████████  full
            2                         16 384        6 144  ████████████  full, reset recommended, with extension
            3                         24 576        6 144  ████████████  full
            4                         32 768        3 000  █████▉        closed, finish recommended
            5                         40 960        6 143  ████████████  closed
            6-47166                   49 152            0                empty
            47167                386 392 064            ?                read-only
        "#]]
        .assert_eq(&page(&findings, &zones, 0, Palette::PLAIN));
    }

    #[test]
    fn zones_that_are_not_asked_for_count_above_the_table() {
        let zones = zones();
        let findings = Findings::of(Shape { max_active: None, ..shape() }, &zones, zones[4..6].to_vec());
        expect![[r#"
            Namespace 2, zoned
              capacity         1.08 TiB, 289 800 192 blocks of 4096 bytes
              zones            47 168 of 24 MiB (6 144 blocks), 8 192 blocks from one to the next
              states           47 161 empty, 1 explicitly open, 2 closed, 3 full, 1 read-only
              written          ▁·······························································
              open             1 of 2: zone 0
              active           3 without limit: zones 0, 4-5

            ZONE                 FIRST BLOCK      WRITTEN                STATE
            4                         32 768        3 000  █████▉        closed, finish recommended
            5                         40 960        6 143  ████████████  closed
            and 9 more
        "#]]
        .assert_eq(&page(&findings, &zones, 9, Palette::PLAIN));
        let none = Findings::of(shape(), &zones, Vec::new());
        assert!(page(&none, &zones, 0, Palette::PLAIN).ends_with("\nNo zone is as asked for.\n"));
    }

    #[test]
    fn json_has_every_zone_as_an_object_of_numbers() {
        let zones = zones();
        let findings = Findings::of(shape(), &zones, vec![zones[4], zones[47_167]]);
        expect![[r#"
            {
              "namespace": 2,
              "block_bytes": 4096,
              "zone_count": 47168,
              "zone_size_blocks": 8192,
              "max_open": 2,
              "max_active": 3,
              "zrwa_blocks": 0,
              "capacity_blocks": 289800192,
              "open": 1,
              "active": 3,
              "states": [
                {
                  "state": "empty",
                  "zones": 47161
                },
                {
                  "state": "implicitly-open",
                  "zones": 0
                },
                {
                  "state": "explicitly-open",
                  "zones": 1
                },
                {
                  "state": "closed",
                  "zones": 2
                },
                {
                  "state": "full",
                  "zones": 3
                },
                {
                  "state": "read-only",
                  "zones": 1
                },
                {
                  "state": "offline",
                  "zones": 0
                }
              ],
              "zones": [
                {
                  "number": 4,
                  "state": "closed",
                  "first_block": 32768,
                  "capacity_blocks": 6144,
                  "written_blocks": 3000,
                  "attributes": 2
                },
                {
                  "number": 47167,
                  "state": "read-only",
                  "first_block": 386392064,
                  "capacity_blocks": 6144,
                  "written_blocks": null,
                  "attributes": 0
                }
              ]
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&findings).unwrap());
    }

    #[test]
    fn many_holders_are_not_all_named() {
        let every_second = |count: u64| {
            let zones = zones();
            names((0..count).map(|index| &zones[index as usize * 2]).collect::<Vec<_>>().into_iter())
        };
        assert_eq!(every_second(1), "zone 0");
        assert_eq!(every_second(2), "zones 0, 2");
        assert!(every_second(13).ends_with("20, 22, …"));
    }
}
