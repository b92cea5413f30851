//! The words of `openftl nvme`.

use super::number::{positive, whole};
use super::zones::Zones;
use crate::nvme::Address;
use clap::{Args, Subcommand, ValueEnum};
use openftl_core::Nanos;
use openftl_core::units::ByteSize;
use openftl_nvme::Nqn;
use std::path::PathBuf;

const NVME_EXAMPLES: &str = "\
Examples:
  openftl nvme discover 127.0.0.1:4420
  openftl nvme identify 127.0.0.1:4420 --nqn nqn.2026-11.org.openftl:drive
  openftl nvme read 127.0.0.1:4420 --length 1MiB --output first.bin
  openftl nvme bench 127.0.0.1:4420 --workload read --depth 32
  openftl nvme zones list 127.0.0.1:4420

For drives of `openftl serve --nvme-tcp` and any other NVMe/TCP target: no root, no kernel module, no device file.

Exit codes: 0 it worked; 1 it failed; 2 the command is wrong, or there is no such target, subsystem or namespace.";

#[derive(Args, Debug)]
#[command(after_help = NVME_EXAMPLES)]
pub struct Nvme {
    #[command(subcommand)]
    pub command: NvmeCommand,
}

#[derive(Subcommand, Debug)]
pub enum NvmeCommand {
    /// Makes a secret by which hosts and controllers authenticate themselves, or a key of TLS.
    GenKey(GenKey),
    /// Lists the subsystems that a target offers.
    Discover(Discover),
    /// Shows a controller, its namespaces and its health.
    Identify(Identify),
    /// Copies blocks of a namespace to a file.
    Read(Read),
    /// Copies a file to blocks of a namespace.
    Write(Write),
    /// Measures reads and writes of a namespace.
    Bench(NvmeBench),
    /// Lists the zones of a namespace, changes their states, appends to them.
    Zones(Zones),
}

const GEN_KEY_EXAMPLES: &str = "\
Examples:
  openftl nvme gen-key > host.key
  openftl nvme gen-key --hash sha512
  openftl nvme gen-key --nqn nqn.2014-08.org.example:host
  openftl nvme gen-key --tls --hash sha384 > host.tls

The secret is as long as a hash. Prints what `nvme gen-dhchap-key` prints: with the same --secret and --nqn, the same.
With --tls, it is what `nvme gen-tls-key` prints.";

#[derive(Args, Debug)]
#[command(after_help = GEN_KEY_EXAMPLES)]
pub struct GenKey {
    /// The hash function that makes a key of the secret.
    #[arg(long, value_enum, value_name = "HASH", default_value = "sha256")]
    pub hash: Hash,
    /// Make a key of TLS. Its hash is that of the cipher: sha256 or sha384.
    #[arg(long, conflicts_with = "nqn")]
    pub tls: bool,
    /// Derive the secret for the host of this name.
    #[arg(long, value_name = "NQN")]
    pub nqn: Option<Nqn>,
    /// Take this secret, in hexadecimal digits [default: a random one].
    #[arg(long, value_name = "HEX")]
    pub secret: Option<String>,
}

/// A hash function of in-band authentication.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// Who connects, and how.
#[derive(Args, Clone, Debug)]
pub struct HostFlags {
    /// The name to connect by; a target may allow only some.
    #[arg(long, value_name = "NQN", default_value = "nqn.2026-11.org.openftl:host", help_heading = "Host")]
    pub host_nqn: Nqn,
    /// The secret by which the host shows who it is, DHHC-1:…, or a file that holds it (others see a command line).
    #[arg(long, value_name = "KEY|@FILE", help_heading = "Host")]
    pub dhchap_key: Option<String>,
    /// The secret by which the controller has to show who it is.
    #[arg(long, value_name = "KEY|@FILE", requires = "dhchap_key", help_heading = "Host")]
    pub dhchap_ctrl_key: Option<String>,
    /// Encrypt the connection with TLS, by this key of the host, NVMeTLSkey-1:…, or a file that holds it.
    #[arg(long, value_name = "KEY|@FILE", help_heading = "Host")]
    pub tls_key: Option<String>,
    /// Ask for checksums of headers.
    #[arg(long, help_heading = "Host")]
    pub header_digest: bool,
    /// Ask for checksums of data.
    #[arg(long, help_heading = "Host")]
    pub data_digest: bool,
    /// Give up a target that says nothing for so long.
    #[arg(long, value_name = "TIME", default_value = "30s", help_heading = "Host")]
    pub timeout: Nanos,
}

const DISCOVER_EXAMPLES: &str = "\
Examples:
  openftl nvme discover 127.0.0.1:4420
  openftl nvme discover 127.0.0.1 --json         the port is 4420 unless you name another
  openftl nvme discover 192.0.2.7 --tls-key @host.tls";

#[derive(Args, Debug)]
#[command(after_help = DISCOVER_EXAMPLES)]
pub struct Discover {
    /// Where the target listens.
    #[arg(value_name = "ADDRESS")]
    pub address: Address,
    #[command(flatten)]
    pub host: HostFlags,
    /// Print the records as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A subsystem at an address.
#[derive(Args, Clone, Debug)]
pub struct Subsystem {
    /// Where the target listens.
    #[arg(value_name = "ADDRESS")]
    pub address: Address,
    /// The name of the subsystem.
    #[arg(long, value_name = "NQN", default_value = "nqn.2026-11.org.openftl:drive")]
    pub nqn: Nqn,
    #[command(flatten)]
    pub host: HostFlags,
}

const IDENTIFY_EXAMPLES: &str = "\
Examples:
  openftl nvme identify 127.0.0.1:4420
  openftl nvme identify 127.0.0.1:4420 --nqn nqn.2026-11.org.openftl:drive --namespace 2 --json
  openftl nvme identify 192.0.2.7 --tls-key @host.tls --dhchap-key @host.key";

#[derive(Args, Debug)]
#[command(after_help = IDENTIFY_EXAMPLES)]
pub struct Identify {
    #[command(flatten)]
    pub subsystem: Subsystem,
    /// Show only this namespace [default: all].
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, u64::from(u32::MAX)))]
    pub namespace: Option<u32>,
    /// Print as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Bytes of a namespace.
#[derive(Args, Clone, Debug)]
pub struct Place {
    #[command(flatten)]
    pub subsystem: Subsystem,
    /// The namespace.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1, u64::from(u32::MAX)))]
    pub namespace: u32,
    /// Where to begin, a multiple of the namespace's blocks.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub offset: ByteSize,
}

const READ_EXAMPLES: &str = "\
Examples:
  openftl nvme read 127.0.0.1:4420 --output image.bin
  openftl nvme read 127.0.0.1:4420 --namespace 1 --offset 8MiB --length 4KiB | xxd | head";

#[derive(Args, Debug)]
#[command(after_help = READ_EXAMPLES)]
pub struct Read {
    #[command(flatten)]
    pub place: Place,
    /// How much, a multiple of the namespace's blocks [default: to its end].
    #[arg(long, value_name = "SIZE")]
    pub length: Option<ByteSize>,
    /// The file to write, or - for standard output.
    #[arg(long, value_name = "FILE|-", default_value = "-")]
    pub output: PathBuf,
}

const WRITE_EXAMPLES: &str = "\
Examples:
  openftl nvme write 127.0.0.1:4420 --input image.bin
  openftl nvme write 127.0.0.1:4420 --input /dev/zero --length 64MiB --fua
  tar c folder | openftl nvme write 127.0.0.1:4420 --offset 1GiB
  openftl nvme write 127.0.0.1:4420 --input log.bin --placement 2";

#[derive(Args, Debug)]
#[command(after_help = WRITE_EXAMPLES)]
pub struct Write {
    #[command(flatten)]
    pub place: Place,
    /// How much, a multiple of the namespace's blocks [default: all of the input].
    #[arg(long, value_name = "SIZE")]
    pub length: Option<ByteSize>,
    /// The file to read, or - for standard input.
    #[arg(long, value_name = "FILE|-", default_value = "-")]
    pub input: PathBuf,
    /// Have every write durable when it is acknowledged.
    #[arg(long)]
    pub fua: bool,
    /// Write to this stream, on a drive with streams: what is in one stream is expected to end together.
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1, u64::from(u16::MAX)))]
    pub stream: Option<u16>,
    /// Write with this placement identifier, on a drive with Flexible Data Placement.
    #[arg(long, value_name = "N", value_parser = whole::<u16>(0, u64::from(u16::MAX)), conflicts_with = "stream")]
    pub placement: Option<u16>,
}

const NVME_BENCH_EXAMPLES: &str = "\
Examples:
  openftl nvme bench 127.0.0.1:4420 --workload read --depth 32 --block 4KiB --seconds 5
  openftl nvme bench 127.0.0.1:4420 --workload write --depth 1 --json
  openftl nvme bench 127.0.0.1:4420 --workload sequential-write --block 1MiB --depth 4

One queue, one thread. Workloads that write overwrite the namespace.";

#[derive(Args, Debug)]
#[command(after_help = NVME_BENCH_EXAMPLES)]
pub struct NvmeBench {
    #[command(flatten)]
    pub subsystem: Subsystem,
    /// The namespace.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1, u64::from(u32::MAX)))]
    pub namespace: u32,
    /// What is asked for.
    #[arg(long, value_enum, value_name = "NAME", default_value = "read")]
    pub workload: NvmeWorkload,
    /// Commands under way at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = whole::<u16>(1, 65_534))]
    pub depth: u16,
    /// Bytes of a command, a multiple of the namespace's blocks.
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    pub block: ByteSize,
    /// How long to measure.
    #[arg(long, value_name = "N", default_value_t = 5.0, value_parser = positive)]
    pub seconds: f64,
    /// Decides which blocks are asked for.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX), default_value_t = 1)]
    pub seed: u64,
    /// Look again and again for answers instead of sleeping until they come: less latency, for a whole core.
    #[arg(long)]
    pub poll: bool,
    /// Print the figures as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What `openftl nvme bench` asks for.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NvmeWorkload {
    /// Reads anywhere.
    Read,
    /// Writes anywhere.
    Write,
    /// Reads and writes anywhere, as many of each.
    Mixed,
    /// Reads of one block after the other.
    SequentialRead,
    /// Writes of one block after the other.
    SequentialWrite,
}
