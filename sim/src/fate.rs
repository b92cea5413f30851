//! What a power cut leaves beyond a prefix in time: each die stops at a point of its own, a unit that was being programmed can
//! be read in part or only once, and an interrupted erase has taken all, some or nothing.
//!
//! Whatever the device has promised holds all the same: no die stops before the power goes, so what was done then is done, and each
//! die works in order.

use crate::swarm::Dice;
use openftl_core::{PuId, Time};
use openftl_media::{BlockMask, DieFate, EmulatedDevice, EraseFate, Media, ProgramFate, Remains};
use std::fmt;
use std::ops::AddAssign;

/// The fates of all dies, drawn from a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fates(pub u32);

impl Fates {
    /// Cuts the power of `device` at `at`. Gives what that left, and whether dies stopped at different points of their queues.
    ///
    /// # Panics
    /// If the store of the device fails.
    pub fn cut(self, device: &mut EmulatedDevice, at: Time) -> (Remains, bool) {
        let pus: Vec<PuId> = device.geometry().pu_ids().collect();
        let mut dice = Dice::new(u64::from(self.0));
        // One die that differs shows what several would hide, and the other way round.
        let alone = dice.once_in(2).then(|| dice.one_of(&pus));
        let usual = DieFate { until: at, program: ProgramFate::Unwritten, erase: EraseFate::Lost };
        let fates: Vec<(PuId, DieFate)> = pus
            .iter()
            .map(|pu| {
                let fate = draw(device, *pu, at, &mut dice);
                let differs = alone.is_none_or(|alone| alone == *pu);
                (*pu, if differs { fate } else { usual })
            })
            .collect();
        let apart = fates.iter().any(|(_, fate)| fate.until > at);
        // There are addresses without a die.
        let of = |pu: PuId| fates.iter().find(|(other, _)| *other == pu).map_or(usual, |(_, fate)| *fate);
        (device.power_cut_by_die(at, of).expect("a store in memory"), apart)
    }
}

fn draw(device: &EmulatedDevice, pu: PuId, at: Time, dice: &mut Dice) -> DieFate {
    let mut instants = device.instants_of(pu);
    instants.retain(|instant| *instant >= at);
    instants.push(at);
    let mask = dice.one_of(&[0x5555_5555_5555_5555, 0x3333_3333_3333_3333, !1, 1, !0 << 2]);
    let mask = BlockMask(if dice.once_in(2) { mask } else { !mask });
    let fading = ProgramFate::Fading { reads: dice.one_of(&FADING_READS) };
    DieFate {
        until: dice.one_of(&instants),
        program: dice.one_of(&[ProgramFate::Unwritten, ProgramFate::Torn, ProgramFate::Partly(mask), fading]),
        erase: dice.one_of(&[EraseFate::Lost, EraseFate::Partly(mask), EraseFate::Kept]),
    }
}

/// Reads that a fading block stands.
const FADING_READS: [u32; 2] = [1, 2];

/// States that power cuts have left, by what is particular about them. One may count in several rows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct States {
    /// A prefix in time, all dies at the same moment.
    pub prefix: u64,
    /// Dies stopped at different points of their queues.
    pub dies_apart: u64,
    /// A unit can be read in part.
    pub programs_partly: u64,
    /// A unit can be read once or twice.
    pub programs_fading: u64,
    /// An interrupted erase has left some of the chunk.
    pub erases_partly: u64,
    /// An interrupted erase has left all of the chunk.
    pub erases_kept: u64,
}

impl States {
    /// None.
    pub const NONE: States =
        States { prefix: 0, dies_apart: 0, programs_partly: 0, programs_fading: 0, erases_partly: 0, erases_kept: 0 };

    /// Of one state that [`Fates::cut`] left.
    #[must_use]
    pub fn of((remains, apart): (Remains, bool)) -> States {
        let one = |is: bool| u64::from(is);
        let mut states = States {
            prefix: 0,
            dies_apart: one(apart),
            programs_partly: one(remains.programs_partly > 0),
            programs_fading: one(remains.programs_fading > 0),
            erases_partly: one(remains.erases_partly > 0),
            erases_kept: one(remains.erases_kept > 0),
        };
        states.prefix = one(states == States::default());
        states
    }

    /// Of one state that a cut at one moment left.
    #[must_use]
    pub fn prefix() -> States {
        States { prefix: 1, ..States::default() }
    }
}

impl AddAssign<States> for States {
    fn add_assign(&mut self, other: States) {
        self.prefix += other.prefix;
        self.dies_apart += other.dies_apart;
        self.programs_partly += other.programs_partly;
        self.programs_fading += other.programs_fading;
        self.erases_partly += other.erases_partly;
        self.erases_kept += other.erases_kept;
    }
}

impl fmt::Display for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} a prefix in time, {} with dies apart, {} with units readable in part, {} with fading units, {} with \
             erases that left a part, {} with erases that left all",
            self.prefix,
            self.dies_apart,
            self.programs_partly,
            self.programs_fading,
            self.erases_partly,
            self.erases_kept
        )
    }
}
