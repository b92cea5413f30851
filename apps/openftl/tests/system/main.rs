//! System tests: the `openftl` program, its servers and real clients, on drives that are stored in files.
//!
//! ```text
//!   nvme-cli  fio  ext4, xfs, btrfs, f2fs ── Linux as a process ──┐
//!                                      truenas_pynvmeof_client ──┴── NVMe over TCP ── openftl serve ── a stored drive
//!
//!   fio  qemu-io  qemu-img  nbdinfo  nbdcopy        ext4 ─ loop device ─ nbdfuse        a client of our own
//!      └───────────────┬──────────────────────────────────────┘                              │
//!                      └── NBD over a Unix socket ── openftl serve ── a stored drive ────────────┘
//! ```
//!
//! | module | noun |
//! |---|---|
//! | [`environment`] | what a test needs of the machine, and the list of tests left out |
//! | [`program`] | another program, run to its end within a bound |
//! | [`documents`] | the pages, every command block of which is run |
//! | [`drive`] | a drive in a file |
//! | [`server`] | a served drive: started, killed, stopped |
//! | [`client`] | an NBD client that can misbehave |
//! | [`nvme_host`] | an NVMe host with many commands under way |
//! | [`pattern`] | data to write |
//! | [`manual`] | completions in shells, and pages of the manual |
//! | [`mounted`] | ext4 on a served drive |
//! | [`power`] | what `openftl ctl` does to a served drive |
//! | [`network`] | a network of its own for one test |
//! | [`linux`] | a Linux kernel as an NVMe host |
//! | [`inspect`] | what is shown of a drive that is being served |
//! | [`log`] | the log of a server |
//! | [`pynvmeof`] | an NVMe host in user space that is not ours |
//! | [`rocksdb`] | RocksDB's own programs on a table drive |
//! | [`alfs`] | a file system that manages its own flash, mounted |
//! | [`file_systems`] | programs of others on such a mount |
//! | [`activation`] | sockets that a service manager passes, and what it is told |
//! | [`scripts`] | what scripts ask of a server |
//! | [`segments`] | a drive of append-only segments |
//! | [`pages`] | a store of pages whose server is killed |
//! | [`tables`] | a table drive that is served |
//! | [`sqlite`] | a database that must keep what it has committed |
//! | [`browser`] | Chromium, which looks at the page of a comparison |
//! | [`tenants`] | a device that is divided into namespaces |
//! | [`values`] | a key-value drive that is served to clients of Redis |
//! | [`witness`] | an honest client beside rude hosts |
//! | [`wrong_words`] | command lines that are wrong, and their answers |
//!
//! `cargo xtask test` runs them with the release build of `openftl`; plain `cargo test` with the build at hand.
//! Nothing here waits for time to pass: every wait is for a fact, and has a bound that only a hang reaches.

mod activation;
mod alfs;
mod bad_input;
mod browser;
mod client;
mod compare;
mod crash;
mod documents;
mod drive;
mod durability;
mod environment;
mod file_systems;
mod filesystem;
mod fio;
mod inspect;
mod libnbd;
mod linux;
mod log;
mod manual;
mod mounted;
mod network;
mod nvme_commands;
mod nvme_host;
mod nvme_tls;
mod pages;
mod pattern;
mod power;
mod program;
mod pynvmeof;
mod qemu;
mod repair;
mod rocksdb;
mod scripts;
mod segments;
mod server;
mod shared_databases;
mod sqlite;
mod sweep;
mod tables;
mod tenants;
mod values;
mod witness;
mod wrong_words;
