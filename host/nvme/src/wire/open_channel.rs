//! What Open-Channel 2.0 adds: the geometry, and two log pages. Section names are those of that specification.

use super::{U16, U32, U64};
use openftl_core::geometry::Latency;
use openftl_core::{AddressFormat, Geometry, Nanos, Ppa};
use openftl_media::{ChunkDescriptor, ChunkState, Notification, NotifiedScope, NotifiedState};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Answer to the Geometry command, E2h ("Geometry").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct GeometryData {
    /// 0: MJR, 2.
    pub major: u8,
    /// 1: MNR, 0.
    pub minor: u8,
    /// 2.
    pub reserved: [u8; 6],
    /// 8: LBAF, bits of the group field.
    pub group_bits: u8,
    /// 9: bits of the parallel unit field.
    pub pu_bits: u8,
    /// 10: bits of the chunk field.
    pub chunk_bits: u8,
    /// 11: bits of the logical block field.
    pub block_bits: u8,
    /// 12.
    pub reserved_2: [u8; 4],
    /// 16: MCCAP; bit 0 vector copy, bit 1 a free chunk may be reset.
    pub capabilities: U32,
    /// 20.
    pub reserved_3: [u8; 12],
    /// 32: WIT.
    pub wear_index_threshold: u8,
    /// 33.
    pub reserved_4: [u8; 31],
    /// 64: NUM_GRP.
    pub groups: U16,
    /// 66: NUM_PU.
    pub pus_per_group: U16,
    /// 68: NUM_CHK.
    pub chunks_per_pu: U32,
    /// 72: CLBA.
    pub blocks_per_chunk: U32,
    /// 76.
    pub reserved_5: [u8; 52],
    /// 128: WS_MIN.
    pub ws_min: U32,
    /// 132: WS_OPT.
    pub ws_opt: U32,
    /// 136: MW_CUNITS.
    pub mw_cunits: U32,
    /// 140: MAXOC, 0 for no limit.
    pub open_chunks_max: U32,
    /// 144: MAXOCPU, 0 for no limit.
    pub open_chunks_per_pu_max: U32,
    /// 148.
    pub reserved_6: [u8; 44],
    /// 192: tRDT, tRDM, tWRT, tWRM, tCRST, tCRSM: typical and greatest nanoseconds of a read, a write and a reset.
    pub durations_ns: [U32; 6],
    /// 216.
    pub reserved_7: [u8; 2856],
    /// 3072.
    pub vendor: [u8; 1024],
}

/// MCCAP bit 0.
pub const VECTOR_COPY: u32 = 1 << 0;
/// MCCAP bit 1.
pub const RESET_OF_FREE: u32 = 1 << 1;

impl From<&Geometry> for GeometryData {
    fn from(geometry: &Geometry) -> GeometryData {
        let format = geometry.format();
        let ns = |span: Nanos| U32::new(u32::try_from(span.0).unwrap_or(u32::MAX));
        let mut data = GeometryData::new_zeroed();
        data.major = 2;
        data.group_bits = format.group_bits;
        data.pu_bits = format.pu_bits;
        data.chunk_bits = format.chunk_bits;
        data.block_bits = format.block_bits;
        let copy = if geometry.vector_copy { VECTOR_COPY } else { 0 };
        let reset = if geometry.reset_of_free { RESET_OF_FREE } else { 0 };
        data.capabilities = (copy | reset).into();
        data.wear_index_threshold = geometry.wear_index_threshold;
        data.groups = (geometry.groups as u16).into();
        data.pus_per_group = (geometry.pus_per_group as u16).into();
        data.chunks_per_pu = geometry.chunks_per_pu.into();
        data.blocks_per_chunk = geometry.blocks_per_chunk.into();
        data.ws_min = geometry.ws_min.into();
        data.ws_opt = geometry.ws_opt.into();
        data.mw_cunits = geometry.mw_cunits.into();
        data.open_chunks_max = geometry.open_chunks_max.into();
        data.open_chunks_per_pu_max = geometry.open_chunks_per_pu_max.into();
        let spans = [geometry.read, geometry.write, geometry.reset];
        for (pair, latency) in data.durations_ns.chunks_exact_mut(2).zip(spans) {
            pair.copy_from_slice(&[ns(latency.typical), ns(latency.max)]);
        }
        data
    }
}

impl GeometryData {
    /// The geometry that these bytes say. The out-of-band bytes are those of the namespace's format, and whether the cache
    /// is volatile, the controller says.
    #[must_use]
    pub fn geometry(&self, oob_bytes: u32, volatile_cache: bool) -> Geometry {
        let latency = |index: usize| Latency {
            typical: Nanos(u64::from(self.durations_ns[index].get())),
            max: Nanos(u64::from(self.durations_ns[index + 1].get())),
        };
        Geometry {
            groups: u32::from(self.groups.get()),
            pus_per_group: u32::from(self.pus_per_group.get()),
            chunks_per_pu: self.chunks_per_pu.get(),
            blocks_per_chunk: self.blocks_per_chunk.get(),
            oob_bytes,
            ws_min: self.ws_min.get(),
            ws_opt: self.ws_opt.get(),
            mw_cunits: self.mw_cunits.get(),
            open_chunks_max: self.open_chunks_max.get(),
            open_chunks_per_pu_max: self.open_chunks_per_pu_max.get(),
            vector_copy: self.capabilities.get() & VECTOR_COPY != 0,
            reset_of_free: self.capabilities.get() & RESET_OF_FREE != 0,
            wear_index_threshold: self.wear_index_threshold,
            volatile_cache,
            read: latency(0),
            write: latency(2),
            reset: latency(4),
        }
    }
}

/// One entry of the chunk information log, CAh ("Chunk Information Log Page").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct ChunkInformation {
    /// 0: CS.
    pub state: u8,
    /// 1: CT, bit 0: written in order.
    pub kind: u8,
    /// 2: WLI.
    pub wear_index: u8,
    /// 3.
    pub reserved: [u8; 5],
    /// 8: SLBA.
    pub first_block: U64,
    /// 16: CNLB.
    pub blocks: U64,
    /// 24: WP, a block within the chunk.
    pub write_pointer: U64,
}

/// CT bit 0: sequential write.
pub const SEQUENTIAL: u8 = 0x01;

impl ChunkInformation {
    /// What `descriptor` says of a chunk of a device of this shape.
    #[must_use]
    pub fn of(geometry: &Geometry, descriptor: &ChunkDescriptor) -> ChunkInformation {
        ChunkInformation {
            state: descriptor.state as u8,
            kind: SEQUENTIAL,
            wear_index: descriptor.wear_index,
            reserved: [0; 5],
            first_block: geometry.format().ppa(descriptor.chunk, 0).0.into(),
            blocks: u64::from(descriptor.blocks).into(),
            write_pointer: u64::from(descriptor.write_pointer).into(),
        }
    }
}

impl ChunkInformation {
    /// The descriptor that these bytes say, if its state is one.
    #[must_use]
    pub fn descriptor(&self, format: AddressFormat) -> Option<ChunkDescriptor> {
        let states = [ChunkState::Free, ChunkState::Closed, ChunkState::Open, ChunkState::Offline];
        Some(ChunkDescriptor {
            chunk: format.chunk_of(Ppa(self.first_block.get())),
            state: states.into_iter().find(|state| *state as u8 == self.state)?,
            wear_index: self.wear_index,
            blocks: self.blocks.get() as u32,
            write_pointer: self.write_pointer.get() as u32,
        })
    }
}

/// One entry of the chunk notification log, D0h ("Chunk Notification Log").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct ChunkNotification {
    /// 0: NC, counts from 1; an entry of zeroes is none.
    pub count: U64,
    /// 8: LBA.
    pub block: U64,
    /// 16: NSID.
    pub namespace: U32,
    /// 20: state.
    pub state: U16,
    /// 22: mask; bit 0 logical blocks, bit 1 the chunk, bit 2 the parallel unit.
    pub scope: u8,
    /// 23.
    pub reserved: [u8; 9],
    /// 32: NLB, 0-based, with bit 0 of the mask.
    pub blocks: U16,
    /// 34.
    pub reserved_2: [u8; 30],
}

impl ChunkNotification {
    /// What `notification` of the namespace's device says.
    #[must_use]
    pub fn of(namespace: u32, notification: &Notification) -> ChunkNotification {
        let (scope, blocks) = match notification.scope {
            NotifiedScope::Blocks(blocks) => (1 << 0, blocks.saturating_sub(1).min(0xffff) as u16),
            NotifiedScope::Chunk => (1 << 1, 0),
            NotifiedScope::ParallelUnit => (1 << 2, 0),
        };
        ChunkNotification {
            count: notification.count.into(),
            block: notification.ppa.0.into(),
            namespace: namespace.into(),
            state: (notification.state as u16).into(),
            scope,
            reserved: [0; 9],
            blocks: blocks.into(),
            reserved_2: [0; 30],
        }
    }
}

impl ChunkNotification {
    /// The notification that these bytes say, if they say one.
    #[must_use]
    pub fn notification(&self) -> Option<Notification> {
        let states = [
            NotifiedState::ErrorRateLow,
            NotifiedState::ErrorRateMedium,
            NotifiedState::ErrorRateHigh,
            NotifiedState::Unrecoverable,
            NotifiedState::Refreshed,
            NotifiedState::WearIndexHigh,
        ];
        let scope = match self.scope {
            0b001 => NotifiedScope::Blocks(u32::from(self.blocks.get()) + 1),
            0b010 => NotifiedScope::Chunk,
            0b100 => NotifiedScope::ParallelUnit,
            _ => return None,
        };
        let state = states.into_iter().find(|state| *state as u16 == self.state.get())?;
        Some(Notification { count: self.count.get(), ppa: Ppa(self.block.get()), state, scope })
    }
}

const _: () = {
    assert!(size_of::<GeometryData>() == 4096);
    assert!(size_of::<ChunkInformation>() == 32);
    assert!(size_of::<ChunkNotification>() == 64);
};

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::ChunkId;

    #[test]
    fn a_geometry_lies_where_the_specification_says() {
        let latency = |ns| Latency { typical: Nanos(ns), max: Nanos(ns + 1) };
        let geometry = Geometry {
            groups: 3,
            chunks_per_pu: 5,
            mw_cunits: 8,
            open_chunks_max: 9,
            open_chunks_per_pu_max: 10,
            reset_of_free: true,
            wear_index_threshold: 77,
            read: latency(1),
            write: latency(3),
            reset: latency(u64::from(u32::MAX)),
            ..Geometry::tiny()
        };
        let data = GeometryData::from(&geometry);
        let bytes = data.as_bytes();
        assert_eq!(bytes[..20], [2, 0, 0, 0, 0, 0, 0, 0, 2, 1, 3, 4, 0, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(bytes[32], 77);
        assert_eq!(bytes[64..76], [3, 0, 2, 0, 5, 0, 0, 0, 16, 0, 0, 0]);
        assert_eq!(bytes[128..148], [4, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 10, 0, 0, 0]);
        assert_eq!(bytes[192..208], [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
        assert_eq!(bytes[208..216], [0xff; 8], "longer than the field can say");
        let said = data.geometry(geometry.oob_bytes, geometry.volatile_cache);
        let max = Nanos(u64::from(u32::MAX));
        assert_eq!(said, Geometry { reset: Latency { typical: max, max }, ..geometry });
    }

    #[test]
    fn a_chunk_and_a_notification_lie_where_the_specification_says() {
        let geometry = Geometry::tiny();
        let descriptor =
            ChunkDescriptor { chunk: ChunkId(3), state: ChunkState::Open, wear_index: 9, blocks: 16, write_pointer: 4 };
        let chunk = ChunkInformation::of(&geometry, &descriptor);
        let golden = [4, 1, 9, 0, 0, 0, 0, 0, 48, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(chunk.as_bytes(), golden);
        assert_eq!(chunk.descriptor(geometry.format()), Some(descriptor));
        assert_eq!(ChunkInformation { state: 3, ..chunk }.descriptor(geometry.format()), None);
        let notification = Notification {
            count: 5,
            ppa: Ppa(0x0102),
            state: NotifiedState::WearIndexHigh,
            scope: NotifiedScope::Blocks(3),
        };
        let entry = ChunkNotification::of(7, &notification);
        let mut golden = [0; 64];
        golden[..34].copy_from_slice(&[
            5, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0,
        ]);
        assert_eq!(entry.as_bytes(), golden);
        assert_eq!(entry.notification(), Some(notification));
        assert_eq!(ChunkNotification::new_zeroed().notification(), None);
    }
}
