//! A namespace with logical blocks, as a host sees it.

use super::association::Association;
use super::channel::Channel;
use crate::cli::nvme::Subsystem;
use crate::failure::Failure;
use openftl_core::units::ByteSize;
use openftl_nvme::wire::identify::{IdentifyNamespace, LbaFormat, cns};
use openftl_nvme_tcp::client::Client;
use openftl_nvme_tcp::nvm::{BLOCKS_MAX, Blocks};
use zerocopy::FromBytes;

/// A namespace, and the association that it belongs to.
pub struct Disk {
    pub association: Association,
    pub namespace: u32,
    /// Which of the formats of its controller it has.
    pub format: usize,
    pub block_bytes: u64,
    pub bytes: u64,
    /// The most bytes of one command, whole blocks.
    pub command_bytes_max: u64,
}

/// The format that a namespace has.
pub fn format_of(data: &IdentifyNamespace) -> LbaFormat {
    data.lba_formats[format_index(data)]
}

/// Which one that is (FLBAS: bits 3 to 0, above them bits 6 and 5).
pub fn format_index(data: &IdentifyNamespace) -> usize {
    usize::from(data.format & 0xf | (data.format >> 5 & 0b11) << 4)
}

impl Disk {
    /// Connects to a controller and asks it about the namespace.
    pub fn open(subsystem: &Subsystem, namespace: u32) -> Result<Disk, Failure> {
        let association = Association::make(&subsystem.address, subsystem.nqn.as_str(), &subsystem.host)?;
        Disk::of(association, namespace)
    }

    /// Asks a controller about the namespace.
    pub fn of(mut association: Association, namespace: u32) -> Result<Disk, Failure> {
        let data = association.admin.identify(cns::NAMESPACE, namespace);
        let data = match data {
            Err(openftl_nvme_tcp::ClientError::Refused { .. }) => None,
            data => Some(data.map_err(|error| association.failure(error))?),
        };
        let data = data.map(|data| IdentifyNamespace::read_from_bytes(&data).expect("a data structure has 4096 bytes"));
        // Of an id that no namespace has, all is zero.
        let Some(data) = data.filter(|data| data.size.get() > 0) else {
            let (nqn, address) = (association.subsystem_nqn(), association.address());
            return Err(Failure::bad_input(format_args!("{nqn} has no namespace {namespace}"))
                .fix(format_args!("`openftl nvme identify {address} --nqn {nqn}` lists those that it has")));
        };
        let format = format_of(&data);
        if !(9..=31).contains(&format.block_bytes_log2) {
            return Err(Failure::failed(format_args!(
                "namespace {namespace} says that its blocks have 2^{} bytes",
                format.block_bytes_log2
            )));
        }
        if format.metadata_bytes.get() > 0 {
            return Err(Failure::bad_input(format_args!(
                "namespace {namespace} has {} bytes of metadata with each block, which this command does not move",
                format.metadata_bytes
            ))
            .fix("name a namespace without: `openftl nvme identify` shows them"));
        }
        let block_bytes = 1 << format.block_bytes_log2;
        let blocks_max = block_bytes * u64::from(BLOCKS_MAX);
        let command_bytes_max = association.transfer_bytes_max().unwrap_or(blocks_max).clamp(block_bytes, blocks_max);
        let bytes = data.size.get().checked_mul(block_bytes).ok_or_else(|| {
            Failure::failed(format_args!("namespace {namespace} says that it has {} blocks", data.size))
        })?;
        Ok(Disk { association, namespace, format: format_index(&data), block_bytes, bytes, command_bytes_max })
    }

    /// A queue for so many commands at a time, or as many as the controller allows if that is less.
    pub fn queue(&mut self, commands: u16) -> Result<Client<Channel>, Failure> {
        let commands = commands.min(self.association.commands_max()).max(1);
        self.association.io_queue(commands)
    }

    /// The blocks that lie there; both are whole blocks.
    pub fn blocks(&self, offset: u64, bytes: u64) -> Blocks {
        let (first, count) = (offset / self.block_bytes, (bytes / self.block_bytes) as u32);
        Blocks { namespace: self.namespace, first, count }
    }

    /// Whether a number of bytes is one of whole blocks.
    pub fn check_whole(&self, flag: &str, size: ByteSize) -> Result<(), Failure> {
        if size.0.is_multiple_of(self.block_bytes) {
            return Ok(());
        }
        let block = ByteSize(self.block_bytes);
        Err(Failure::bad_input(format_args!("{flag} {size} is no multiple of the namespace's blocks of {block}"))
            .fix(format_args!("write a multiple of {block}")))
    }

    /// Whether so many bytes lie inside the namespace.
    pub fn check_inside(&self, offset: u64, length: u64) -> Result<(), Failure> {
        if offset.checked_add(length).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        Err(Failure::bad_input(format_args!(
            "{} from offset {} on reach beyond the end of namespace {}, which has {}",
            ByteSize(length),
            ByteSize(offset),
            self.namespace,
            ByteSize(self.bytes)
        ))
        .fix("choose a smaller --offset or --length"))
    }
}
