//! A real Linux kernel as an NVMe host: one that runs as a process, on a cable to the server.
//!
//! The guest has this machine's files, but can write only to a folder of its own. There it finds a script, and there it
//! leaves what the script printed and made. It boots in about two seconds, so each test has one of its own; the machine
//! is never asked for its own kernel's NVMe host.

use crate::drive::Drive;
use crate::environment::{Need, kernel, runs_here};
use crate::network::{CABLES, Cable, Network};
use crate::program::{Ended, Running, wait_for};
use crate::server::Server;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use tempfile::TempDir;

mod authentication;
mod commands;
mod connection;
mod databases;
mod disk;
mod lifetimes;
mod namespaces;
mod nvmet;
mod pages;
mod reservations;
mod segments;
mod values;
mod zbd;
mod zoned;
mod zonefs;
mod zones;

const PORT: &str = "4420";
const NQN: &str = "nqn.2026-11.org.openftl:drive";
const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6b0a24c2-55f1-4d3a-9c8e-0f6d7a3b9e11";
const HOST_ID: &str = "6b0a24c2-55f1-4d3a-9c8e-0f6d7a3b9e11";

/// What every test with a guest needs.
const NEEDS: [Need; 6] = [
    Need::Linux,
    Need::Program("nvme"),
    Need::Program("fio"),
    Need::Program("ip"),
    Need::Program("unshare"),
    Need::Program("nsenter"),
];

/// Whether guests can run here, with more programs.
fn boots_here(programs: &[&'static str]) -> bool {
    let more: Vec<Need> = programs.iter().map(|name| Need::Program(name)).collect();
    runs_here(&[&NEEDS[..], &more].concat())
}

/// How often a test does what it repeats.
fn rounds() -> u32 {
    std::env::var("OPENFTL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2)
}

/// Serves `drive` to the guest of `network` on instant media, with more flags.
fn serve(drive: &Drive, network: &Network, flags: &[&str]) -> Server {
    let address = format!("{}:{PORT}", CABLES[0].server);
    let fixed =
        ["--timing", "instant", "--nqn", NQN, "--nvme-tcp", &address, "--allow-remote", "--allow-host", HOST_NQN];
    drive.serve_in(network, &[&fixed, flags].concat())
}

/// A guest at work.
struct Linux {
    running: Running,
    folder: TempDir,
}

/// What a guest left.
struct Told {
    ended: Ended,
    folder: TempDir,
}

impl Linux {
    /// Boots a guest and has it run `script`, in which the functions of `prelude.sh` are known.
    fn boot(network: &Network, script: &str) -> Linux {
        Linux::boot_on(network, &CABLES[0], script)
    }

    /// Boots a guest on this cable.
    fn boot_on(network: &Network, Cable { server, guest, tap }: &Cable, script: &str) -> Linux {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().to_str().expect("a path of plain letters");
        let names = format!(
            "SERVER={server} PORT={PORT} NQN={NQN} HOST_NQN={HOST_NQN} HOST_ID={HOST_ID} ROUNDS={}\n",
            rounds()
        );
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("room for a script");
        write("prelude", &[names.as_str(), include_str!("linux/prelude.sh")].concat());
        write("script", script);
        write("init", include_str!("linux/init.sh"));
        let kernel = kernel().expect("it was asked whether there is one");
        let kernel = kernel.to_str().expect("a path of plain letters");
        let files = [format!("uml_dir={path}"), format!("OPENFTL_FOLDER={path}"), format!("{path}/init")];
        let [uml_folder, script_folder, init] = files.each_ref().map(String::as_str);
        let card = format!("vec0:transport=tap,ifname={tap},depth=128,gro=1");
        let address = format!("OPENFTL_ADDRESS={guest}");
        // In a process namespace of its own, all of the guest's processes end with the first.
        let contain = ["--pid", "--fork", "--kill-child", kernel];
        // The kernel counts each attempt to send on a link that has just broken, and makes some ten before it takes the link
        // down (`init.sh`): more than the five of its own.
        let patient = "nvme_core.max_retries=100";
        let machine = ["mem=256M", uml_folder, "umid=guest", &card, "con=null", "con0=null,fd:1", "quiet", patient];
        let first_program =
            ["rootfstype=hostfs", "rootflags=/", "ro", script_folder, &address, "init=/bin/sh", "--", init];
        let running = network.start("unshare", &[&contain[..], &machine, &first_program].concat());
        Linux { running, folder }
    }

    /// Boots a guest and waits for the end of its script.
    fn run(network: &Network, script: &str) -> Told {
        Linux::boot(network, script).wait()
    }

    /// Waits until the script has made the file `name`.
    fn reaches(&mut self, name: &str) {
        let path = self.folder.path().join(name);
        self.brings_about(name, || path.exists().then_some(()));
    }

    /// Waits for an answer that the script brings about.
    fn brings_about<T>(&mut self, what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
        wait_for(what, || {
            // In this order: what is there when the guest has ended was there before.
            let has_ended = self.running.ended().is_some();
            let answered = answer();
            assert!(!has_ended || answered.is_some(), "the guest ended before {what}: {}", self.story());
            answered
        })
    }

    /// Ends the guest as a power cut would, and gives the file `name` that it has made.
    fn dies_leaving(self, name: &str) -> String {
        let Linux { running, folder } = self;
        drop(running);
        let path = folder.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("no {name}: {error}"))
    }

    /// Makes the file `name`, for which the script waits.
    fn tell(&self, name: &str) {
        std::fs::write(self.folder.path().join(name), "").expect("room for a file");
    }

    /// Waits for the end of the script.
    fn wait(mut self) -> Told {
        let started = std::time::Instant::now();
        // Now and then the process of a guest that has powered down stays: it is the kernel that is emulated, not what
        // a test is about. The script has ended, and its files are on this machine.
        while self.running.ended().is_none() && !self.is_powered_down() {
            assert!(started.elapsed() < crate::program::BOUND * rounds(), "the guest hangs: {}", self.story());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let ended = self.story();
        Told { ended, folder: self.folder }
    }

    /// Whether the guest's kernel has said its last words, after the end of the script.
    fn is_powered_down(&self) -> bool {
        [self.running.stdout(), self.running.stderr()].iter().any(|text| text.contains("reboot: Power down"))
    }

    /// What can be told so far, last what the script says of errors. A guest that ended without a status has failed.
    fn story(&self) -> Ended {
        let text = |name: &str| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        let code: Option<i32> = text("status").trim().parse().ok();
        Ended {
            line: format!("the script of a guest:\n{}\n", text("script").trim_end()),
            status: ExitStatus::from_raw(code.unwrap_or(255) << 8),
            stdout: text("stdout"),
            stderr: format!("{}{}--- of the script\n{}", self.running.stdout(), self.running.stderr(), text("stderr")),
        }
    }
}

impl Told {
    /// Asserts that the script succeeded.
    fn succeeded(self) -> Told {
        let Told { ended, folder } = self;
        Told { ended: ended.succeeded(), folder }
    }

    /// The file `name` that the script made.
    fn text(&self, name: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("no {name}: {error}: {}", self.ended))
    }

    /// The file `name` that the script made.
    fn bytes(&self, name: &str) -> Vec<u8> {
        let path: PathBuf = self.folder.path().join(name);
        std::fs::read(&path).unwrap_or_else(|error| panic!("no {name}: {error}: {}", self.ended))
    }

    /// The file `name` of JSON that the script made.
    fn json(&self, name: &str) -> Value {
        let text = self.text(name);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
    }
}
