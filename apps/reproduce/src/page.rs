//! A report as a page: verdicts, pictures, tables.

use super::{listing, totals};
use openftl_command_line::provenance::{Provenance, VERSION};
use openftl_experiments::{Report, Verdict};
use openftl_lab::figures::{Page, Plot, Section, Statement, Tone};

/// The page.
pub fn page(report: &Report) -> Page {
    let paper = report.paper.iter().map(|paper| format!("{}, {}: {}", paper.title, paper.place, paper.found));
    let parameters = report.parameters.iter().map(|parameter| format!("{}: {}.", parameter.name, parameter.value));
    let scale = if report.quick { ", on a small scale, which shows that it works, not what is so" } else { "" };
    let clock = match report.in_virtual_time {
        true => "Time is simulated: the same seeds give the same figures again.",
        false => "On a real clock: this machine has a part in the figures.",
    };
    let seeds = format!("seeds: {}{scale}. {clock}", listing(&report.seeds));
    Page {
        title: report.question.to_owned(),
        lead: paper.chain(parameters).chain([seeds]).collect(),
        statements: findings(report).chain(checks(report)).collect(),
        series: Vec::new(),
        sections: report.plots.iter().map(section).collect(),
        tables: report.tables.clone(),
        foot: format!(
            "{} {} Made by openftl {VERSION}: {}.",
            report.notes.join(" "),
            totals(report).collect::<Vec<_>>().join(" "),
            Provenance::of_this_run().command()
        ),
    }
}

fn findings(report: &Report) -> impl Iterator<Item = Statement> + '_ {
    report.findings.iter().map(|finding| Statement {
        tone: match finding.verdict {
            Verdict::Reproduced => Tone::Good,
            Verdict::DirectionOnly => Tone::Fair,
            Verdict::NotReproduced => Tone::Bad,
        },
        verdict: finding.headline(),
        claim: finding.claim.to_owned(),
        grounds: vec![
            ("paper", finding.paper.clone()),
            ("ours", finding.ours.clone()),
            ("asked", finding.asked.clone()),
            ("why", finding.why.to_owned()),
        ],
    })
}

fn checks(report: &Report) -> impl Iterator<Item = Statement> + '_ {
    report.checks.iter().map(|check| Statement {
        tone: if check.holds { Tone::Good } else { Tone::Bad },
        verdict: check.headline(),
        claim: check.claim.to_owned(),
        grounds: vec![
            ("measured", check.measured.clone()),
            ("checked", check.check.to_owned()),
            ("why", check.why.to_owned()),
        ],
    })
}

fn section(plot: &Plot) -> Section {
    Section {
        title: plot.title.clone(),
        key: plot.key(),
        pictures: vec![(String::new(), plot.inline_svg())],
        caption: plot.caption.join(" "),
    }
}
