//! `openftl compare`, as one types it; and its page in a real browser.

use crate::browser::{Browser, Look};
use crate::drive::run_openftl;
use crate::environment::{Need, runs_here};
use serde_json::Value;
use std::path::Path;

const SMALL: [&str; 10] = [
    "compare",
    "--drive",
    "cosmos:hot-cold",
    "--drive",
    "cosmos:flash-alloc,name=objects",
    "--capacity",
    "32MiB",
    "--drive-writes",
    "1",
    "--workload",
];

fn words<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SMALL[..], more].concat()
}

#[test]
fn drives_stand_side_by_side_in_a_table_a_csv_and_an_object() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("figures.csv");
    let csv = csv.to_str().unwrap();
    run_openftl(words(&["writers:4", "--csv", csv])).succeeded().printing(&[
        "cosmos:hot-cold",
        "objects",
        "allocate",
        "relocation WAF",
        "p99.99",
    ]);
    let text = std::fs::read_to_string(csv).unwrap();
    assert_eq!(text.lines().count(), 1 + 2, "{text}");
    let (header, rows) = text.split_once('\n').unwrap();
    assert!(header.ends_with(",version,commit,command"), "{header}");
    let made_by = format!(",{},", env!("CARGO_PKG_VERSION"));
    assert!(rows.lines().all(|row| row.contains(&made_by) && row.contains(",\"openftl compare --drive ")), "{rows}");
    assert!(text.starts_with("drive,profile,") && text.contains("\nobjects,cosmos,"), "{text}");

    let json = |seed| {
        let ended = run_openftl(words(&["writers:4", "--json", "--seed", seed])).succeeded();
        let object: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"));
        object
    };
    assert_eq!(json("1"), json("1"));
    assert_ne!(json("1")["drives"], json("2")["drives"]);
}

#[test]
fn what_cannot_be_compared_is_refused_with_field_value_and_fix() {
    let drive_descriptions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drives");
    let tenants = drive_descriptions.join("tenants.toml");
    for (line, said) in [
        (vec!["compare", "--drive", "cosmo", "--workload", "lsm"], ["drive cosmo", "`cosmo`", "fix: choose"]),
        (
            vec!["compare", "--drive", "cosmos:fpd", "--workload", "lsm"],
            ["--drive cosmos:fpd", "placement=fpd", "fix:"],
        ),
        (vec!["compare", "--drive", "none.toml", "--workload", "lsm"], ["none.toml", "no such file", "fix: name"]),
        (
            vec!["compare", "--drive", tenants.to_str().unwrap(), "--workload", "lsm"],
            ["tenants.toml", "divides", "fix:"],
        ),
        (words(&["lms"]), ["--workload lms", "no load", "fix: write"]),
        (words(&["lsm", "--fill", "99%"]), ["--workload lsm", "fill=99%", "95%"]),
        (
            vec!["compare", "--drive", "cosmos", "--workload", "lsm", "--capacity", "0"],
            ["capacity = 0", "4 KiB", "fix: choose"],
        ),
        (words(&["uniform", "--html", "/nowhere/page.html"]), ["/nowhere/page.html", "no such file", "fix: name"]),
        (words(&["trace:nowhere.csv"]), ["--workload trace:nowhere.csv", "no such file", "fix: name"]),
    ] {
        let ended = run_openftl(line).failed().saying(&said);
        assert_eq!(ended.status.code(), Some(2), "{ended}");
    }
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("frail.toml");
    let toml = run_openftl(["profiles", "tiny", "--toml"]).succeeded().stdout;
    std::fs::write(&profile, toml.replace("endurance = 3000", "endurance = 4")).unwrap();
    let frail = format!("{},name=frail", profile.display());
    let line = ["compare", "--drive", &frail, "--workload", "uniform", "--capacity", "8MiB", "--drive-writes", "40"];
    let ended = run_openftl(line).failed().saying(&["drive frail", "read-only", "fix:"]);
    assert_eq!(ended.status.code(), Some(1), "{ended}");
}

#[test]
fn the_page_reads_well_in_a_browser_light_and_dark_wide_and_narrow() {
    if !runs_here(&[Need::Program("chromium")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let long = "cosmos:streams,name=a drive with a name that is much longer than a phone is wide and then some";
    let line = words(&["writers:4,fill=80%", "--drive", long, "--html", page.to_str().unwrap()]);
    run_openftl(line).succeeded();
    let browser = Browser::new();
    let mut pictures = Vec::new();
    for look in [Look::Light, Look::Dark] {
        for width in [360, 768, 1280] {
            let found = browser.probe(&page, look, width);
            let name = format!("{look:?}, {width} wide: {found:?}");
            assert_eq!(found.width, width, "{name}");
            assert_eq!(found.overflow, 0, "{name}");
            assert_eq!((found.errors, found.requests), (0, 0), "{name}");
            // Seven pictures, three of them maps, and every one of them has words for those who do not see it.
            assert!(found.pictures >= 8 && found.pictures_without_words == 0, "{name}");
            assert!(found.least_contrast >= 4.5, "{name}");
            pictures.push((look, browser.screenshot(&page, look, width)));
        }
    }
    assert!(pictures.iter().all(|(_, picture)| picture.len() > 20_000), "pictures of a page are not empty");
    let (light, dark) = (&pictures[0].1, &pictures[3].1);
    assert_ne!(light, dark, "a dark page is another page");
}
