//! The answers about the power say what a cut took, and how the drives came on again.

use super::cut::{ArmedCut, Toll};
use crate::namespaces::{Namespaces, with_ftl};
use openftl_control::Answer;
use openftl_core::Time;
use openftl_lab::picture::thousands;
use openftl_media::PowerLoss;
use openftl_parts::{ReadOnlyReason, RecoveryReport};

pub(super) fn cut_message(toll: &Toll) -> String {
    let Toll { connections, requests, loss } = toll;
    let PowerLoss { programs_lost, programs_torn, erases_cut_short } = loss;
    let mut text = format!(
        "The power is off. Connections dropped: {connections}, with {} requests under way.",
        thousands(*requests)
    );
    if *loss != PowerLoss::default() {
        text += &format!(
            "\nOn the flash: {programs_lost} programs lost, {programs_torn} torn, {erases_cut_short} erases cut short."
        );
    }
    text
}

pub(super) fn after_cut(answer: Answer, cut: &ArmedCut, now: Time, toll: &Toll) -> Answer {
    answer
        .with("connections_dropped", toll.connections)
        .with("requests_under_way", toll.requests)
        .with("torn", cut.torn)
        .with("device_commands_later", cut.commands_found - cut.commands_asked_at)
        .with("nanoseconds_later", now.since(cut.asked_at).0)
        .with("flash", toll.loss)
}

pub(super) fn on_message(namespaces: &Namespaces) -> String {
    let names = with_ftl(&namespaces.parts).map(|label| format!("{}: ", label.name));
    let mut text = "The power is on".to_owned();
    for (drive, name) in namespaces.ftls().zip(names.map(Some).chain(std::iter::repeat(None))) {
        let report = drive.recovery_report();
        text += if name.is_some() { ".\n  " } else { ": " };
        text += &format!(
            "{}{} in {}; {} log records replayed, {} of cut-off transactions dropped",
            name.unwrap_or_default(),
            crate::assembly::opened_how(report),
            crate::assembly::opened_in(report),
            thousands(report.replayed),
            thousands(report.dropped)
        );
        if let Some(reason) = drive.read_only_reason() {
            text += &format!(".\nThe drive takes no writes: {reason}");
        }
    }
    text + "."
}

/// How it came on: of several drives each.
pub(super) fn after_on(answer: Answer, namespaces: &Namespaces) -> Answer {
    #[derive(serde::Serialize)]
    struct On<'a> {
        name: &'a str,
        recovery: &'a RecoveryReport,
        read_only: Option<ReadOnlyReason>,
    }
    let answer = answer.with("power", "on");
    if let (true, Some(drive)) = (namespaces.parts.is_empty(), namespaces.ftls().next()) {
        return answer.with("recovery", drive.recovery_report()).with("read_only", drive.read_only_reason());
    }
    let labels = with_ftl(&namespaces.parts);
    let on: Vec<On<'_>> = labels
        .zip(namespaces.ftls())
        .map(|(label, drive)| On {
            name: label.name.as_str(),
            recovery: drive.recovery_report(),
            read_only: drive.read_only_reason(),
        })
        .collect();
    answer.with("namespaces", on)
}
