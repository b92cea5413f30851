//! Messages byte for byte, on machines with little-endian numbers.
#![cfg(target_endian = "little")]

use crate::memory::Memory;
use crate::sessions::Host;
use openftl_core::Nanos;
use openftl_fuse::Body;
use openftl_fuse::request::FuseRequest;

/// Bytes from text: `10 00 00 00`.
fn hex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("two hex digits")).collect()
}

#[test]
fn rename2_is_read_as_the_kernel_writes_it() {
    let bytes = hex("3c 00 00 00 2d 00 00 00 88 77 66 55 44 33 22 11 05 00 00 00 00 00 00 00 e8 03 00 00 e9 03 00 00 \
         2a 00 00 00 00 00 00 00 06 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 61 00 62 00");
    let request = FuseRequest::parse(&bytes).expect("a request");
    assert_eq!(request.head.unique, 0x1122_3344_5566_7788);
    assert_eq!((request.head.nodeid, request.head.uid, request.head.gid), (5, 1000, 1001));
    assert_eq!(request.body, Body::Rename { name: b"a", to: 6, to_name: b"b", flags: 1 });
}

#[test]
fn init_agrees_on_a_version_features_and_big_writes() {
    let mut host = Host::unopened(Memory::new(Nanos::ZERO));
    let request =
        hex("38 00 00 00 1a 00 00 00 02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 \
         00 00 00 00 00 00 00 00 07 00 00 00 2c 00 00 00 00 00 02 00 fb ff ff 7f");
    let wanted =
        hex("50 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 07 00 00 00 26 00 00 00 00 00 02 00 39 e0 c5 10 \
         00 02 80 01 00 00 10 00 01 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 \
         00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00");
    assert_eq!(host.raw(&request), wanted);
}

#[test]
fn write_that_drops_privileges_has_the_kernel_ask_for_attributes() {
    let mut host = Host::new(Memory::new(Nanos::ZERO));
    let file = host.make("f", 0o104_755);
    assert_eq!(file, 2);
    // WRITE of one byte with FUSE_WRITE_KILL_SUIDGID.
    let request =
        hex("51 00 00 00 10 00 00 00 06 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 e8 03 00 00 e9 03 00 00 \
         2a 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 04 00 00 00 \
         00 00 00 00 00 00 00 00 01 84 00 00 00 00 00 00 61");
    assert_eq!(host.raw(&request), hex("18 00 00 00 00 00 00 00 06 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00"));
    let wanted = hex("28 00 00 00 02 00 00 00 00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 \
         ff ff ff ff ff ff ff ff 00 00 00 00 00 00 00 00");
    assert_eq!(host.answer.notice().expect("a notification").to_vec(), wanted);
}

#[test]
fn entry_and_error_are_written_as_the_kernel_reads_them() {
    let mut host = Host::new(Memory::new(Nanos::ZERO));
    // MKNOD of a regular file `f` with mode 640, by user 1000 and group 1001.
    let request =
        hex("3a 00 00 00 08 00 00 00 04 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 e8 03 00 00 e9 03 00 00 \
         2a 00 00 00 00 00 00 00 a0 81 00 00 00 00 00 00 12 00 00 00 00 00 00 00 66 00");
    let wanted =
        hex("90 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 07 00 00 00 00 00 00 00 \
         80 33 e1 01 00 00 00 00 80 33 e1 01 00 00 00 00 00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 \
         00 00 00 00 00 00 00 00 08 00 00 00 00 00 00 00 e8 03 00 00 00 00 00 00 e8 03 00 00 00 00 00 00 \
         e8 03 00 00 00 00 00 00 05 00 00 00 05 00 00 00 05 00 00 00 a0 81 00 00 01 00 00 00 e8 03 00 00 \
         e9 03 00 00 00 00 00 00 00 10 00 00 00 00 00 00");
    assert_eq!(host.raw(&request), wanted);
    // Once more: EEXIST.
    assert_eq!(host.raw(&request), hex("10 00 00 00 ef ff ff ff 04 00 00 00 00 00 00 00"));
}
