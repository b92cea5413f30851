//! libFuzzer on the target that the environment variable `OPENFTL_FUZZ_TARGET` names.

#![no_main]

use libfuzzer_sys::fuzz_target;
use openftl_fuzz::TARGETS;
use std::sync::LazyLock;

static RUN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("OPENFTL_FUZZ_TARGET").unwrap_or_default();
    let target = TARGETS.iter().find(|target| target.name == name);
    target.unwrap_or_else(|| panic!("OPENFTL_FUZZ_TARGET = {name:?}: there is no such target")).run
});

fuzz_target!(|data: &[u8]| RUN(data));
