//! Both halves of an NVMe/TCP connection. The first byte says how the rest is cut into pieces, the second who listens
//! and what came before.

#[path = "../../host/nvme-tcp/tests/support/exercise.rs"]
#[expect(dead_code, reason = "the seeded tests use more of it")]
mod exercise;

use exercise::{Controller, Host, exercise as hear, greeting_of_a_host};
use openftl_nvme_tcp::{InitiatorConfig, TargetConfig};

pub fn run(data: &[u8]) {
    let [cut, mode, stream @ ..] = data else { return };
    let mut turn = 0_usize;
    let piece = || {
        turn = turn.wrapping_mul(31).wrapping_add(usize::from(*cut));
        1 + turn % (1 + usize::from(*cut))
    };
    // Bit 0: a host listens. Bit 1: the controller has heard ICReq and Connect. Bit 2: without flow control. Bit 3: data
    // digests, which need not be right.
    let flow_control = mode & 4 == 0;
    if mode & 1 == 1 {
        let data_digest = mode & 8 != 0;
        let config =
            InitiatorConfig { data_digest, r2ts_max: 3, in_capsule_bytes_max: 512, ..InitiatorConfig::default() };
        hear(|| Host::new(config, flow_control), stream, piece);
        return;
    }
    let config = TargetConfig { h2c_data_bytes_max: 4096, header_digest: false, ..TargetConfig::default() };
    let before = if mode & 2 != 0 { greeting_of_a_host(flow_control) } else { Vec::new() };
    hear(|| Controller::new(config), &[&before, stream].concat(), piece);
}
