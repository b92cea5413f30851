//! Several loads side by side, each on an equal part of the drive; chance decides whose turn it is.

use crate::load::{Access, Load, Operation};
use crate::trace::TraceError;
use crate::workload::below;
use openftl_parts::target::Extent;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

struct Tenant {
    name: String,
    load: Box<dyn Load>,
    first: u64,
    first_kind: u8,
}

/// Loads that share a drive.
pub struct Tenants {
    rng: Xoshiro256PlusPlus,
    tenants: Vec<Tenant>,
    /// Those that have not come to their end, and those that still fill their part.
    running: Vec<usize>,
    filling: Vec<usize>,
    /// Whose turn it was.
    last: usize,
}

impl Tenants {
    /// These loads by name, each on `part_blocks` blocks. Kinds beyond the 256th share the last.
    #[must_use]
    pub fn new(loads: Vec<(String, Box<dyn Load>)>, part_blocks: u64, seed: u64) -> Tenants {
        let mut kinds = 0usize;
        let tenants: Vec<Tenant> = (0..)
            .zip(loads)
            .map(|(index, (name, load))| {
                let first_kind = kinds.min(255) as u8;
                kinds += load.kinds().len();
                Tenant { name, load, first: index * part_blocks, first_kind }
            })
            .collect();
        let all: Vec<usize> = (0..tenants.len()).collect();
        Tenants { rng: Xoshiro256PlusPlus::seed_from_u64(seed), tenants, running: all.clone(), filling: all, last: 0 }
    }

    fn turn(&mut self, fill: bool) -> Option<Access> {
        let count = self.tenants.len() as u64;
        let draw = self.rng.next_u64();
        let those = if fill { &mut self.filling } else { &mut self.running };
        while !those.is_empty() {
            let place = below(draw, those.len() as u64) as usize;
            let index = those[place];
            let tenant = &mut self.tenants[index];
            let step = if fill { tenant.load.fill_step() } else { tenant.load.step() };
            let Some(mut access) = step else {
                those.remove(place);
                continue;
            };
            self.last = index;
            if access.operation != Operation::Flush {
                access.first += tenant.first;
            }
            access.hint.kind = access.hint.kind.saturating_add(tenant.first_kind);
            if access.hint.object > 0 {
                // Each tenant has numbers of its own, so that its objects go round the handles as if it were alone.
                let number = u64::from(access.hint.object - 1) * count + index as u64;
                access.hint.object = (number % u64::from(u32::MAX)) as u32 + 1;
            }
            return Some(access);
        }
        None
    }
}

impl Load for Tenants {
    fn step(&mut self) -> Option<Access> {
        self.turn(false)
    }

    fn fill_step(&mut self) -> Option<Access> {
        self.turn(true)
    }

    fn extents(&self) -> Vec<Extent> {
        let Tenant { load, first, .. } = &self.tenants[self.last];
        load.extents().into_iter().map(|extent| Extent { first: first + extent.first, ..extent }).collect()
    }

    fn kinds(&self) -> Vec<String> {
        let named = (1..).zip(&self.tenants).flat_map(|(number, tenant)| {
            let kinds = tenant.load.kinds();
            kinds.into_iter().map(move |kind| format!("{number} {}: {kind}", tenant.name))
        });
        named.take(256).collect()
    }

    fn live_blocks_max(&self) -> u64 {
        self.tenants.iter().map(|tenant| tenant.load.live_blocks_max()).sum()
    }

    fn access_blocks_max(&self) -> u32 {
        self.tenants.iter().map(|tenant| tenant.load.access_blocks_max()).max().unwrap_or(1)
    }

    fn failure(&self) -> Option<&TraceError> {
        self.tenants.iter().find_map(|tenant| tenant.load.failure())
    }
}
