//! How long the server looks for more before it goes to sleep: *lingering* takes a core, and saves the time of waking up, which is some
//! microseconds, and in a virtual machine fifty to a hundred.
//!
//! ```text
//!            a request ──▶ silence ──▶ the next one
//!                          ├ lingers ┤ found: it was worth it
//!                          ├ lingers ┤ sleeps ───▶ in vain
//!                          ├ sleeps ─────────────▶ soon, or late: was it worth it?
//! ```
//!
//! If nobody says how long, the silences do. Those that ended soon count for it, those that it lingered through in vain count twice against
//! it, and one that was long ends it until the next are short again. So it never lingers for hosts that come now and then, nor while
//! nobody comes, and at most a third of the times in vain.

use openftl_core::units::Poll;
use openftl_core::{Nanos, Time};

/// A silence that is shorter is worth lingering for. The work on the request before is in it, and the time of waking up, twice where the host
/// sleeps as well.
const SOON: Nanos = Nanos(250_000);

/// Whoever was kept from looking for so long has lost the core to somebody else: cores are scarce, and it takes none of them.
const SCARCE: Nanos = Nanos(100_000);

/// The span is so many times what a silence took of late, in these bounds.
const TIMES: u64 = 4;
const SPAN_MIN: Nanos = Nanos(20_000);
const SPAN_MAX: Nanos = Nanos(250_000);

/// It looks no more often than that, as long as that takes: the clock of a test may stand still.
const LOOKS_MAX: u64 = 2_000;

/// Silences that speak for it, at most, and from how many on it lingers.
const POINTS_MAX: u32 = 16;
const POINTS_ENOUGH: u32 = 4;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lingering {
    poll: Poll,
    /// What speaks for it.
    points: u32,
    /// How long a silence took of late.
    silence: Nanos,
}

impl Lingering {
    pub fn new(poll: Poll) -> Lingering {
        Lingering { poll, points: 0, silence: Nanos::ZERO }
    }

    /// How long to linger.
    #[inline]
    fn span(&self) -> Nanos {
        match self.poll {
            Poll::For(span) => span,
            Poll::Auto if self.points < POINTS_ENOUGH => Nanos::ZERO,
            Poll::Auto => (self.silence * TIMES).clamp(SPAN_MIN, SPAN_MAX),
        }
    }

    /// When it goes to sleep, in a silence that it noticed at `now`; something was last heard at `heard`. Whoever says a span means from
    /// then on: timers are no reason to linger.
    #[inline]
    pub fn until(&self, now: Time, heard: Time) -> Time {
        match self.poll {
            Poll::For(span) => heard + span,
            Poll::Auto => now + self.span(),
        }
    }

    /// How often it looks, at most.
    #[inline]
    pub fn looks_max(&self) -> u64 {
        match self.poll {
            Poll::For(_) => u64::MAX,
            Poll::Auto => LOOKS_MAX,
        }
    }

    /// Whether it may linger if a drive is due after so long. It sleeps until then if silences say how long, and looks at the end of the wait.
    #[inline]
    pub fn may_linger(&self, due: Option<Nanos>) -> bool {
        let span = self.span();
        span > Nanos::ZERO && (self.poll != Poll::Auto || due.is_none_or(|due| due > span))
    }

    /// It lingered, and something came after so long.
    pub fn found(&mut self, silence: Nanos) {
        self.points = (self.points + 1).min(POINTS_MAX);
        self.learn(silence);
    }

    /// It lingered in vain.
    pub fn in_vain(&mut self) {
        self.points = self.points.saturating_sub(2);
    }

    /// It could not look for so long while it lingered. Returns whether it goes on.
    pub fn was_kept(&mut self, span: Nanos) -> bool {
        let is_scarce = self.poll == Poll::Auto && span > SCARCE;
        if is_scarce {
            self.points = 0;
        }
        !is_scarce
    }

    /// It slept, and something came after so long.
    pub fn slept(&mut self, silence: Nanos) {
        if silence > SOON {
            self.points = 0;
            return;
        }
        self.points = (self.points + 1).min(POINTS_MAX);
        self.learn(silence);
    }

    /// An eighth of what is learnt is the last silence.
    fn learn(&mut self, silence: Nanos) {
        self.silence = Nanos((self.silence.0 * 7 + silence.0).div_ceil(8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Nanos = Nanos(100_000);
    const LONG: Nanos = Nanos(1_000_000);

    fn after_short_silences(count: u32) -> Lingering {
        let mut lingering = Lingering::new(Poll::Auto);
        (0..count).for_each(|_| lingering.slept(SHORT));
        lingering
    }

    #[test]
    fn it_lingers_once_silences_are_short_and_no_more_after_a_long_one() {
        assert!(!Lingering::new(Poll::Auto).may_linger(None), "nobody has come yet");
        assert!(!after_short_silences(POINTS_ENOUGH - 1).may_linger(None));
        let mut lingering = after_short_silences(POINTS_ENOUGH);
        assert!(lingering.may_linger(None));
        lingering.slept(LONG);
        assert!(!lingering.may_linger(None));
    }

    #[test]
    fn hosts_that_come_now_and_then_cost_nothing() {
        let mut lingering = Lingering::new(Poll::Auto);
        for _ in 0..1_000 {
            // Three requests one behind the other, and a pause.
            for silence in [SHORT, SHORT, LONG] {
                assert!(!lingering.may_linger(None));
                lingering.slept(silence);
            }
        }
    }

    #[test]
    fn it_lingers_in_vain_no_more_than_half_as_often_as_not() {
        let mut lingering = after_short_silences(POINTS_MAX);
        let (mut found, mut vain) = (0, 0);
        for round in 0..10_000 {
            if !lingering.may_linger(None) {
                lingering.slept(SHORT);
            } else if round % 3 == 0 {
                lingering.found(SHORT);
                found += 1;
            } else {
                lingering.in_vain();
                vain += 1;
            }
        }
        // Silences that it slept through speak for it as well.
        assert!(vain < 10_000 / 2 && found > 0, "{found} found, {vain} in vain");
    }

    #[test]
    fn the_span_follows_silences_within_bounds() {
        let mut lingering = after_short_silences(100);
        assert_eq!(lingering.span(), SPAN_MAX, "a silence and its wake-ups");
        (0..100).for_each(|_| lingering.found(Nanos(15_000)));
        assert!((Nanos(60_000)..Nanos(65_000)).contains(&lingering.span()), "{}", lingering.span());
        (0..100).for_each(|_| lingering.found(Nanos(1_000)));
        assert_eq!(lingering.span(), SPAN_MIN);
    }

    #[test]
    fn it_sleeps_until_a_drive_is_due_and_where_cores_are_scarce() {
        let mut lingering = after_short_silences(100);
        assert!(!lingering.may_linger(Some(Nanos(60_000))) && lingering.may_linger(Some(LONG)));
        assert!(lingering.was_kept(Nanos(5_000)) && lingering.may_linger(None));
        assert!(!lingering.was_kept(SCARCE + Nanos(1)) && !lingering.may_linger(None));
    }

    #[test]
    fn what_somebody_has_said_counts_whatever_happens() {
        let mut lingering = Lingering::new(Poll::For(SHORT));
        lingering.in_vain();
        lingering.slept(LONG);
        assert!(lingering.was_kept(LONG));
        assert_eq!(lingering.span(), SHORT);
        assert!(lingering.may_linger(Some(Nanos(1))));
        assert!(!Lingering::new(Poll::For(Nanos::ZERO)).may_linger(None));
    }
}
