//! libnbd's tools: `nbdinfo` for what the server says of itself, `nbdcopy` for whole images over several connections.

use crate::drive::{CAPACITY_BYTES, Drive};
use crate::environment::{Need, runs_here};
use crate::pattern::write_image;
use crate::program::run;

#[test]
fn nbdinfo_sees_the_size_and_what_the_drive_can_do() {
    if !runs_here(&[Need::Program("nbdinfo")]) {
        return;
    }
    let drive = Drive::create();
    let server = drive.serve();
    let uri = server.uri();
    let size = run("nbdinfo", ["--size", &uri]).succeeded();
    assert_eq!(size.stdout.trim(), CAPACITY_BYTES.to_string());
    let info = run("nbdinfo", ["--json", &uri]).succeeded();
    let info: serde_json::Value = serde_json::from_str(&info.stdout).expect("nbdinfo prints JSON");
    assert_eq!(info["protocol"], "newstyle-fixed");
    let export = &info["exports"][0];
    let check = |name: &str, value: serde_json::Value| assert_eq!(export[name], value, "{name} in {export:#}");
    check("export-size", CAPACITY_BYTES.into());
    check("is_read_only", false.into());
    for can in ["can_flush", "can_fua", "can_trim", "can_zero", "can_multi_conn", "can_df"] {
        check(can, true.into());
    }
    check("block_size_minimum", 1.into());
    check("block_size_preferred", 4096.into());
    let list = run("nbdinfo", ["--list", "--json", &uri]).succeeded();
    let list: serde_json::Value = serde_json::from_str(&list.stdout).expect("nbdinfo prints JSON");
    assert_eq!(list["exports"].as_array().map(Vec::len), Some(1), "{list:#}");
    assert_eq!(list["exports"][0]["export-size"], CAPACITY_BYTES);
    server.stop();
}

#[test]
fn an_image_copied_in_and_out_is_the_same_byte_for_byte() {
    if !runs_here(&[Need::Program("nbdcopy"), Need::Program("cmp")]) {
        return;
    }
    let drive = Drive::create();
    let (image, copy) = (drive.beside("image"), drive.beside("copy"));
    let (image, copy) = (image.to_str().unwrap(), copy.to_str().unwrap());
    write_image(image.as_ref(), CAPACITY_BYTES, 1);
    let server = drive.serve();
    run("nbdcopy", ["--flush", image, &server.uri()]).succeeded();
    server.kill();
    let server = drive.serve();
    run("nbdcopy", [&server.uri(), copy]).succeeded();
    run("cmp", [image, copy]).succeeded();
    server.stop();
    drive.check();
}
