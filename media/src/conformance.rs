//! The conformance suite: every rule of the contract as a named check that any device can be run through.
//!
//! ```
//! # use openftl_media::{EmulatedDevice, Profile, Store, Timing, conformance};
//! conformance::suite(|| {
//!     let profile = Profile::builtin("tiny").unwrap();
//!     EmulatedDevice::new(profile, 8, Store::Ram, Timing::Modelled, 1).unwrap()
//! });
//! ```
//!
//! Each check gets a device of its own, fresh, and asks of it what its geometry promises: a device without vector copy
//! has to refuse it, one with MW_CUNITS has to hide that many blocks. So a suite says most when it is run on several
//! geometries. Checks that need faults ([`suite_with_faults`]) need a device that can be made to fail, [`Inject`].

mod commands;
mod faults;
mod host;
mod reading;
mod resetting;
mod writing;

pub use host::Host;

use crate::contract::Media;
use crate::device::{EmulatedDevice, ProgramFailure};
use openftl_core::{ChunkId, Ppa};

/// One rule.
pub struct Check<M> {
    /// The fact that it shows.
    pub name: &'static str,
    /// Shows it on a fresh device; panics where the device does otherwise.
    pub run: fn(&mut Host<M>),
}

macro_rules! checks {
    ($($module:ident: $($name:ident),+;)+) => {
        vec![$($(Check { name: stringify!($name), run: $module::$name::<M> }),+),+]
    };
}

/// The rules that any device can be asked to show.
#[must_use]
pub fn checks<M: Media>() -> Vec<Check<M>> {
    checks![
        writing:
            a_new_device_reports_every_chunk_once_and_none_in_use,
            a_chunk_goes_from_free_over_open_to_closed,
            a_write_away_from_the_write_pointer_is_out_of_order,
            a_write_that_is_no_multiple_of_ws_min_is_refused,
            a_closed_chunk_takes_no_more_writes,
            a_write_never_leaves_its_chunk,
            a_vector_write_may_hold_runs_in_several_chunks,
            a_bad_run_of_a_vector_write_fails_alone,
            no_more_chunks_are_opened_than_the_geometry_allows;
        reading:
            what_was_written_comes_back_with_its_out_of_band_bytes,
            a_vector_read_takes_blocks_in_any_order,
            the_last_mw_cunits_blocks_of_an_open_chunk_cannot_be_read,
            nothing_reads_as_zeroes_unless_dulbe_is_set,
            each_unreadable_block_has_its_bit,
            bytes_and_stamps_are_two_forms_of_one_block,
            an_address_that_does_not_exist_is_out_of_range;
        resetting:
            a_reset_chunk_is_free_and_can_be_written_again,
            an_open_chunk_cannot_be_reset,
            a_free_chunk_can_be_reset_only_if_the_geometry_says_so,
            a_chunk_that_does_not_exist_cannot_be_reset,
            each_chunk_that_is_not_reset_has_its_bit,
            a_scalar_reset_covers_whole_chunks;
        commands:
            a_command_of_no_or_too_many_blocks_is_invalid,
            frames_that_do_not_match_are_invalid,
            a_copy_carries_payload_and_out_of_band_bytes,
            a_copy_keeps_the_rules_of_reading_and_of_writing,
            a_flush_completes_no_earlier_than_the_writes_before_it,
            a_forced_write_is_safe_when_it_completes,
            nothing_is_delivered_before_its_time,
            a_full_queue_refuses_and_does_nothing;
    ]
}

/// The rules about failure.
#[must_use]
pub fn fault_checks<M: Media + Inject>() -> Vec<Check<M>> {
    checks![
        faults:
            an_offline_chunk_is_neither_written_nor_reset_nor_read,
            a_chunk_that_goes_offline_is_notified_once,
            after_a_failed_program_the_next_unit_can_be_written,
            a_failed_program_may_close_the_chunk_early,
            a_lost_block_fails_alone_and_is_notified,
            a_read_that_fails_for_a_while_is_good_again,
            a_misdirected_block_is_read_without_complaint,
            high_ecc_is_a_warning_about_good_data,
            notifications_count_from_one_and_are_not_repeated,
            the_wear_index_follows_the_resets_to_the_end,
            a_wear_index_above_the_threshold_is_notified_once;
    ]
}

/// A device that can be made to fail. All of it takes effect at once.
pub trait Inject {
    /// A written block can no longer be read.
    fn lose(&mut self, ppa: Ppa);
    /// The next `times` reads of a written block fail, and then no more.
    fn fail_reads(&mut self, ppa: Ppa, times: u32);
    /// A written block is read with high ECC.
    fn weaken(&mut self, ppa: Ppa);
    /// Each of two written blocks is found at the other's place.
    fn misdirect(&mut self, one: Ppa, other: Ppa);
    /// The next program operation on `chunk` fails.
    fn fail_program(&mut self, chunk: ChunkId, failure: ProgramFailure);
    /// `chunk` goes offline.
    fn take_offline(&mut self, chunk: ChunkId);
    /// `chunk` has been reset so often.
    fn wear_out(&mut self, chunk: ChunkId, resets: u32);
    /// How many resets a chunk stands.
    fn endurance(&self) -> u32;
}

impl Inject for EmulatedDevice {
    fn lose(&mut self, ppa: Ppa) {
        self.inject_read_failure(ppa).expect("the store notes it");
    }

    fn fail_reads(&mut self, ppa: Ppa, times: u32) {
        self.inject_transient_read_failure(ppa, times);
    }

    fn weaken(&mut self, ppa: Ppa) {
        self.inject_high_ecc(ppa);
    }

    fn misdirect(&mut self, one: Ppa, other: Ppa) {
        EmulatedDevice::misdirect(self, one, other).expect("the store works");
    }

    fn fail_program(&mut self, chunk: ChunkId, failure: ProgramFailure) {
        self.inject_program_failure(chunk, failure);
    }

    fn take_offline(&mut self, chunk: ChunkId) {
        EmulatedDevice::take_offline(self, chunk).expect("the store notes it");
    }

    fn wear_out(&mut self, chunk: ChunkId, resets: u32) {
        self.set_wear(chunk, resets).expect("the store notes it");
    }

    fn endurance(&self) -> u32 {
        EmulatedDevice::endurance(self)
    }
}

/// Runs a device through [`checks()`]; `make` makes a fresh one for each.
///
/// # Panics
/// At the first rule that the device breaks; the check's name is printed.
pub fn suite<M: Media>(make: impl FnMut() -> M) {
    run(checks(), make);
}

/// Runs a device through [`checks()`] and [`fault_checks`].
///
/// # Panics
/// At the first rule that the device breaks; the check's name is printed.
pub fn suite_with_faults<M: Media + Inject>(mut make: impl FnMut() -> M) {
    run(checks(), &mut make);
    run(fault_checks(), make);
}

fn run<M: Media>(checks: Vec<Check<M>>, mut make: impl FnMut() -> M) {
    for check in checks {
        let _named = Named(check.name);
        (check.run)(&mut Host::new(make()));
    }
}

/// Prints which check it was, if it panics.
struct Named(&'static str);

impl Drop for Named {
    #[expect(clippy::print_stderr, reason = "a suite that panics says in which rule")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the device breaks the rule `{}`", self.0);
        }
    }
}
