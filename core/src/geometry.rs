//! The shape of an Open-Channel device, as its Geometry command (E2h) reports it.

use crate::address::{Address, AddressFormat, ChunkId, ChunkName, PuId};
use crate::time::Nanos;
use crate::{BLOCK_BYTES, OOB_BYTES_MIN};

/// Typical and greatest duration of one kind of media operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Latency {
    /// Typical.
    pub typical: Nanos,
    /// Greatest.
    pub max: Nanos,
}

/// The shape of a device. The comment of each field names its place in the 4096-byte Geometry payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Geometry {
    /// Groups; operations in different groups never interfere. Bytes 64-65, NUM_GRP.
    pub groups: u32,
    /// Parallel units in a group. Bytes 66-67, NUM_PU.
    pub pus_per_group: u32,
    /// Chunks in a parallel unit. Bytes 68-71, NUM_CHK.
    pub chunks_per_pu: u32,
    /// Logical blocks in a chunk. Bytes 72-75, CLBA.
    pub blocks_per_chunk: u32,
    /// Out-of-band bytes of a block: the metadata size of the namespace's LBA format.
    pub oob_bytes: u32,
    /// Smallest write in blocks; every write is a multiple of it. Bytes 128-131, WS_MIN.
    pub ws_min: u32,
    /// Best write in blocks, a multiple of WS_MIN. Bytes 132-135, WS_OPT.
    pub ws_opt: u32,
    /// Blocks behind the write pointer of an open chunk that cannot be read yet. Bytes 136-139, MW_CUNITS.
    pub mw_cunits: u32,
    /// Chunks that may be open at a time on the device; 0 means no limit. Bytes 144-147, MAXOC.
    pub open_chunks_max: u32,
    /// Chunks that may be open at a time on one parallel unit; 0 means no limit. Bytes 148-151, MAXOCPU.
    pub open_chunks_per_pu_max: u32,
    /// Whether the device copies blocks itself. Bytes 16-19, MCCAP bit 0.
    pub vector_copy: bool,
    /// Whether a free chunk may be reset. Bytes 16-19, MCCAP bit 1.
    pub reset_of_free: bool,
    /// Wear-level index threshold of the notifications. Byte 32, WIT.
    pub wear_index_threshold: u8,
    /// Whether acknowledged writes may be lost with the power (Identify Controller, VWC bit 0). If so, a write is
    /// durable once a FUA write has completed and the write pointer is MW_CUNITS ahead of it, or its chunk is closed.
    pub volatile_cache: bool,
    /// Reads of one block. Bytes 192-199, tRD.
    pub read: Latency,
    /// Writes of WS_MIN blocks. Bytes 200-207, tWR.
    pub write: Latency,
    /// Chunk resets. Bytes 208-215, tCRS.
    pub reset: Latency,
}

/// A geometry that no device can have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} = {value}: {reason}")]
pub struct GeometryError {
    /// The field.
    pub field: &'static str,
    /// What it was.
    pub value: u64,
    /// Why that is impossible, and what would do.
    pub reason: String,
}

impl Geometry {
    /// A device of a few blocks, for tests: 2 groups × 2 PUs × 8 chunks × 16 blocks, written four blocks at a time.
    #[must_use]
    pub fn tiny() -> Geometry {
        Geometry {
            groups: 2,
            pus_per_group: 2,
            chunks_per_pu: 8,
            blocks_per_chunk: 16,
            oob_bytes: 16,
            ws_min: 4,
            ws_opt: 4,
            mw_cunits: 0,
            open_chunks_max: 0,
            open_chunks_per_pu_max: 0,
            vector_copy: true,
            reset_of_free: false,
            wear_index_threshold: 0,
            volatile_cache: false,
            read: Latency::default(),
            write: Latency::default(),
            reset: Latency::default(),
        }
    }

    /// The bit lengths of this device's addresses.
    #[must_use]
    pub fn format(&self) -> AddressFormat {
        AddressFormat::of(self)
    }

    /// Parallel units of the device.
    #[must_use]
    pub fn pus(&self) -> u32 {
        self.groups * self.pus_per_group
    }

    /// Chunks of the device.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        u64::from(self.pus()) * u64::from(self.chunks_per_pu)
    }

    /// Logical blocks of the device.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.chunks() * u64::from(self.blocks_per_chunk)
    }

    /// Bytes of the device, out-of-band bytes not counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks() * BLOCK_BYTES as u64
    }

    /// Every parallel unit, in address order.
    pub fn pu_ids(&self) -> impl Iterator<Item = PuId> + use<> {
        let (format, pus) = (self.format(), self.pus_per_group);
        (0..self.groups).flat_map(move |group| (0..pus).map(move |pu| format.pu_id(group, pu)))
    }

    /// Every chunk, in address order.
    pub fn chunk_ids(&self) -> impl Iterator<Item = ChunkId> + use<> {
        self.chunk_ids_from(0)
    }

    /// The same without the first `skipped` of them, which costs nothing.
    pub fn chunk_ids_from(&self, skipped: usize) -> impl Iterator<Item = ChunkId> + use<> {
        let (format, chunks) = (self.format(), self.chunks_per_pu);
        let in_pu = (chunks as usize).max(1);
        let (first_pu, first_chunk) = (skipped / in_pu, (skipped % in_pu) as u32);
        self.pu_ids().enumerate().skip(first_pu).flat_map(move |(number, pu)| {
            let first = if number == first_pu { first_chunk } else { 0 };
            (first..chunks).map(move |chunk| format.chunk_id(pu, chunk))
        })
    }

    /// Every chunk from `first` on, which the device has.
    pub fn chunk_ids_starting_at(&self, first: ChunkId) -> impl Iterator<Item = ChunkId> + use<> {
        let Address { group, pu, chunk, .. } = self.format().unpack_chunk(first);
        let pu = group as usize * self.pus_per_group as usize + pu as usize;
        self.chunk_ids_from(pu * self.chunks_per_pu as usize + chunk as usize)
    }

    /// Whether `chunk` exists on the device.
    #[must_use]
    pub fn has_chunk(&self, chunk: ChunkId) -> bool {
        let address = self.format().unpack_chunk(chunk);
        address.group < self.groups && address.pu < self.pus_per_group && address.chunk < self.chunks_per_pu
    }

    /// The chunk with this name, if the device has it.
    #[must_use]
    pub fn chunk_named(&self, name: ChunkName) -> Option<ChunkId> {
        let exists = name.group < self.groups && name.pu < self.pus_per_group && name.chunk < self.chunks_per_pu;
        let format = self.format();
        exists.then(|| format.chunk_id(format.pu_id(name.group, name.pu), name.chunk))
    }

    /// Whether a device can have this shape.
    ///
    /// # Errors
    /// The first field that is impossible, with the reason.
    pub fn validate(&self) -> Result<(), GeometryError> {
        let fail = |field, value: u32, reason: String| Err(GeometryError { field, value: u64::from(value), reason });
        for (field, value, max) in [
            ("groups", self.groups, 65_535),
            ("pus_per_group", self.pus_per_group, 65_535),
            ("chunks_per_pu", self.chunks_per_pu, u32::MAX),
            ("blocks_per_chunk", self.blocks_per_chunk, u32::MAX),
            ("ws_min", self.ws_min, crate::VECTOR_BLOCKS_MAX as u32),
            ("ws_opt", self.ws_opt, self.blocks_per_chunk),
        ] {
            if value == 0 || value > max {
                return fail(field, value, format!("must be between 1 and {max}"));
            }
        }
        if !self.blocks_per_chunk.is_multiple_of(self.ws_min) {
            return fail(
                "blocks_per_chunk",
                self.blocks_per_chunk,
                format!("must be a multiple of ws_min = {}", self.ws_min),
            );
        }
        if !self.ws_opt.is_multiple_of(self.ws_min) {
            return fail("ws_opt", self.ws_opt, format!("must be a multiple of ws_min = {}", self.ws_min));
        }
        if !self.mw_cunits.is_multiple_of(self.ws_min) || self.mw_cunits >= self.blocks_per_chunk {
            let reason = format!(
                "must be a multiple of ws_min = {} below blocks_per_chunk = {}",
                self.ws_min, self.blocks_per_chunk
            );
            return fail("mw_cunits", self.mw_cunits, reason);
        }
        if (self.oob_bytes as usize) < OOB_BYTES_MIN || self.oob_bytes > 4096 {
            return fail("oob_bytes", self.oob_bytes, format!("must be between {OOB_BYTES_MIN} and 4096"));
        }
        let bits = self.format().bits();
        if bits > 40 || bits - u32::from(self.format().block_bits) > 31 {
            return fail(
                "chunks_per_pu",
                self.chunks_per_pu,
                format!("addresses would need {bits} bits; at most 40 are supported"),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tiny_geometry_is_possible() {
        Geometry::tiny().validate().unwrap();
    }

    #[test]
    fn chunks_may_be_counted_from_any_on() {
        let geometry = Geometry { groups: 2, pus_per_group: 3, chunks_per_pu: 5, ..Geometry::tiny() };
        for skipped in 0..=31 {
            assert!(geometry.chunk_ids_from(skipped).eq(geometry.chunk_ids().skip(skipped)), "{skipped}");
        }
        assert_eq!(geometry.chunk_ids().count(), 30);
        for (before, first) in geometry.chunk_ids().enumerate() {
            assert!(geometry.chunk_ids_starting_at(first).eq(geometry.chunk_ids_from(before)), "{first:?}");
        }
    }

    #[test]
    fn an_impossible_geometry_names_its_field() {
        let check = |geometry: Geometry, field| assert_eq!(geometry.validate().unwrap_err().field, field);
        check(Geometry { groups: 0, ..Geometry::tiny() }, "groups");
        check(Geometry { ws_min: 65, ..Geometry::tiny() }, "ws_min");
        check(Geometry { ws_min: 5, ws_opt: 5, ..Geometry::tiny() }, "blocks_per_chunk");
        check(Geometry { ws_opt: 6, ..Geometry::tiny() }, "ws_opt");
        check(Geometry { mw_cunits: 16, ..Geometry::tiny() }, "mw_cunits");
        check(Geometry { oob_bytes: 8, ..Geometry::tiny() }, "oob_bytes");
        check(Geometry { chunks_per_pu: u32::MAX, blocks_per_chunk: 1 << 20, ..Geometry::tiny() }, "chunks_per_pu");
    }
}
