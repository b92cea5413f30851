//! A zoned namespace of ours beside one of Linux's own target (nvmet), asked the same by one nvme-cli in one guest.
//!
//! What `nvmet.sh` asks is answered alike, line by line, except as `nvmet.txt` says: there each difference has its reason,
//! with what NVM Express says about it.

use super::zoned::{Limits, Shape, Zoned};
use super::{Linux, boots_here};
use crate::network::Network;
use std::fmt::Write;

/// As `nvmet.sh` makes those of Linux.
const SHAPE: Shape = Shape { width: 3, zones: 16, limits: Limits { open: 4, active: 6 } };

/// The lines that answer a question.
struct Answer<'a> {
    question: &'a str,
    lines: Vec<&'a str>,
}

/// All answers of a conversation, in its order.
fn answers(text: &str) -> Vec<Answer<'_>> {
    let mut answers: Vec<Answer<'_>> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("## "), answers.last_mut()) {
            (Some(question), _) => answers.push(Answer { question, lines: Vec::new() }),
            (None, Some(answer)) => answer.lines.push(line),
            (None, None) => panic!("a line before the first question: {line}"),
        }
    }
    answers
}

/// How answers differ: each line that one of them has alone, behind < or >, which names ours or theirs.
#[derive(PartialEq, Eq, Clone, Default)]
struct Difference {
    ours: Vec<String>,
    theirs: Vec<String>,
}

impl Difference {
    fn between(ours: &Answer<'_>, theirs: &Answer<'_>) -> Difference {
        let alone = |one: &Answer<'_>, other: &Answer<'_>| {
            let lines = one.lines.iter().filter(|line| !other.lines.contains(line));
            lines.map(|line| line.trim_end().to_owned()).collect()
        };
        let difference = Difference { ours: alone(ours, theirs), theirs: alone(theirs, ours) };
        let is_none = difference == Difference::default();
        assert!(!is_none || ours.lines == theirs.lines, "{}: the same lines in another order", ours.question);
        difference
    }

    /// Whether a difference that was found is this one, or less: another Linux may have come closer to NVM Express.
    fn covers(&self, found: &Difference, ours: &Answer<'_>) -> bool {
        let is_ours = self.ours.iter().all(|line| ours.lines.iter().any(|there| there.trim_end() == line));
        let includes = |all: &[String], some: &[String]| some.iter().all(|line| all.contains(line));
        is_ours && includes(&self.ours, &found.ours) && includes(&self.theirs, &found.theirs)
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.ours.iter().try_for_each(|line| writeln!(f, "{}", format!("< {line}").trim_end()))?;
        self.theirs.iter().try_for_each(|line| writeln!(f, "{}", format!("> {line}").trim_end()))
    }
}

/// The differences that there may be, by question. Each paragraph of `text` has a reason, behind #, and differences.
fn known(text: &str) -> Vec<(&str, Difference)> {
    let mut known: Vec<(&str, Difference)> = Vec::new();
    for paragraph in text.split("\n\n") {
        assert!(paragraph.starts_with("# "), "a paragraph without a reason: {paragraph}");
        for line in paragraph.lines().filter(|line| !line.starts_with("# ")) {
            if let Some(question) = line.strip_prefix("## ") {
                known.push((question, Difference::default()));
                continue;
            }
            let (_, difference) = known.last_mut().expect("a question comes first");
            let (side, rest) = line.split_at(1);
            let rest = rest.strip_prefix(' ').unwrap_or(rest).to_owned();
            match side {
                "<" => difference.ours.push(rest),
                ">" => difference.theirs.push(rest),
                _ => panic!("no such line: {line}"),
            }
        }
    }
    known
}

#[test]
fn zones_answer_as_those_of_linux_do_or_as_nvm_express_says() {
    if !boots_here(&["blkzone", "od", "uniq"]) {
        return;
    }
    let known = known(include_str!("nvmet.txt"));
    let (drive, network) = (Zoned::alone(&SHAPE), Network::new());
    let server = drive.serve(&network);
    let told = Linux::run(&network, include_str!("nvmet.sh")).succeeded();
    let (ours, theirs) = (told.text("ours"), told.text("theirs"));
    let (ours, theirs) = (answers(&ours), answers(&theirs));
    let questions =
        |answers: &[Answer<'_>]| answers.iter().map(|answer| answer.question.to_owned()).collect::<Vec<_>>();
    assert_eq!(questions(&ours), questions(&theirs));
    let mut unexpected = String::new();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let expected = known.iter().find(|(question, _)| *question == ours.question);
        let expected = expected.map(|(_, difference)| difference.clone()).unwrap_or_default();
        let found = Difference::between(ours, theirs);
        if !expected.covers(&found, ours) {
            write!(unexpected, "## {}\n{found}", ours.question).expect("a string grows");
        }
    }
    assert_eq!(unexpected, "", "differences that nvmet.txt does not have");
    let asked = |question: &str| ours.iter().any(|answer| answer.question == question);
    known.iter().for_each(|(question, _)| assert!(asked(question), "nobody asks: {question}"));
    server.stop();
    drive.check();
}

#[test]
fn a_difference_that_is_not_known_is_found_and_one_that_is_gone_is_not_missed() {
    let known = known("# Why.\n## q\n< a\n> b\n> c");
    let check = |ours: &str, theirs: &str| {
        let (ours, theirs) = (format!("## q\nsame\n{ours}"), format!("## q\nsame\n{theirs}"));
        let (ours, theirs) = (answers(&ours), answers(&theirs));
        known[0].1.covers(&Difference::between(&ours[0], &theirs[0]), &ours[0])
    };
    assert!(check("a", "b\nc") && check("a", "b") && check("a", "a"));
    assert!(!check("b", "b") && !check("a", "d") && !check("a\nd", "b\nc") && !check("d", "b\nc"));
}
