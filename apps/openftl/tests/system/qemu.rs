//! QEMU's tools: `qemu-io` for patterns at any alignment, `qemu-img` for whole images.

use crate::drive::{CAPACITY_BYTES, Drive};
use crate::environment::{Need, runs_here};
use crate::pattern::write_image;
use crate::program::{Ended, run};
use crate::server::Server;

fn qemu_io(server: &Server, commands: &[&str]) -> Ended {
    let uri = server.uri();
    let words = commands.iter().flat_map(|command| ["-c", command]);
    let ended = run("qemu-io", ["-f", "raw", uri.as_str()].into_iter().chain(words)).succeeded();
    // Not every version lets a pattern that differs end in its exit code.
    assert!(!ended.stdout.contains("Pattern verification failed"), "{ended}");
    ended
}

#[test]
fn patterns_at_any_alignment_read_back() {
    if !runs_here(&[Need::Program("qemu-io")]) {
        return;
    }
    let drive = Drive::create();
    let server = drive.serve();
    let writes = [
        "write -P 0x11 0 1m",         // aligned
        "write -P 0x22 4k 64k",       // aligned, inside the first
        "write -P 0x33 1536 512",     // inside one block
        "write -P 0x44 102912 5k",    // unaligned head and tail
        "write -P 0x55 2097664 4096", // a block's length across two blocks, never written before
        "write -f -P 0x66 3m 512",    // force unit access
        "write -z 512k 6k",           // zeroes with an unaligned tail
        "discard 768k 64k",
        "flush",
    ];
    let reads = [
        "read -P 0x11 0 1536",
        "read -P 0x33 1536 512",
        "read -P 0x11 2048 2k",
        "read -P 0x22 4k 64k",
        "read -P 0x11 68k 32k",
        "read -P 0x11 100k 512",
        "read -P 0x44 102912 5k",
        "read -P 0x11 108032 416256",
        "read -P 0 512k 6k",
        "read -P 0x11 518k 250k",
        "read -P 0 768k 64k",
        "read -P 0 2096128 1536",
        "read -P 0x55 2097664 4096",
        "read -P 0 2101760 4k",
        "read -P 0x66 3m 512",
        "read -P 0 3146240 3584",
    ];
    qemu_io(&server, &writes);
    qemu_io(&server, &reads);
    server.stop();
    let server = drive.serve();
    qemu_io(&server, &reads);
    server.kill();
    let server = drive.serve();
    qemu_io(&server, &reads);
    server.stop();
    drive.check();
}

#[test]
fn an_image_converted_in_and_out_is_the_same() {
    if !runs_here(&[Need::Program("qemu-img")]) {
        return;
    }
    let drive = Drive::create();
    let (image, copy) = (drive.beside("image.raw"), drive.beside("copy.qcow2"));
    let (image, copy) = (image.to_str().unwrap(), copy.to_str().unwrap());
    write_image(image.as_ref(), CAPACITY_BYTES, 3);
    let server = drive.serve();
    let uri = server.uri();
    // What lay there before must not show through the image's holes.
    server.client().write(300 << 20, &[0xEE; 1 << 20]).unwrap();
    run("qemu-img", ["convert", "-n", "-f", "raw", "-O", "raw", image, &uri]).succeeded();
    run("qemu-img", ["compare", "-f", "raw", "-F", "raw", image, &uri]).succeeded();
    server.stop();
    let server = drive.serve();
    run("qemu-img", ["convert", "-f", "raw", "-O", "qcow2", &uri, copy]).succeeded();
    run("qemu-img", ["compare", "-f", "raw", "-F", "qcow2", image, copy]).succeeded();
    server.stop();
    drive.check();
}
