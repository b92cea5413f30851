//! Every input that is kept runs through its target, without a fuzzer.

use openftl_fuzz::TARGETS;
use std::collections::BTreeSet;
use std::path::PathBuf;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Longer inputs are for the fuzzer to make, not to keep.
const INPUT_BYTES_MAX: u64 = 8192;

#[test]
fn every_target_has_inputs_to_begin_with() {
    let folders: BTreeSet<String> =
        corpus().read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let targets: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(folders, targets);
}

#[test]
fn every_input_that_is_kept_passes() {
    for target in TARGETS {
        let mut inputs = 0;
        for entry in corpus().join(target.name).read_dir().unwrap() {
            let path = entry.unwrap().path();
            assert!(path.metadata().unwrap().len() <= INPUT_BYTES_MAX, "{}: too long to keep", path.display());
            println!("{}", path.display());
            (target.run)(&std::fs::read(&path).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "{} has no input", target.name);
    }
}

/// Those of another version of the format would be refused for it, and a fuzzer would have to begin with nothing.
#[test]
fn superblocks_that_are_kept_have_the_version_of_today() {
    for entry in corpus().join("superblock").read_dir().unwrap() {
        let path = entry.unwrap().path();
        let read = openftl_parts::Superblock::decode(&std::fs::read(&path).unwrap());
        assert!(read.is_ok(), "{}: {read:?}", path.display());
    }
}
