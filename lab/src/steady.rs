//! Brings a drive into its steady state: write amplification measured on a young drive means nothing.
//!
//! First the whole capacity is written once in order, then the load itself runs in windows until the write amplification
//! of the last windows agrees. Both write amplification and its slope swing for the first drive writes, so a few windows
//! are compared, not two.

use std::collections::VecDeque;

/// Windows to a drive write.
pub const WINDOWS_PER_DRIVE_WRITE: u64 = 4;

/// Windows that have to agree.
const WINDOWS: usize = 4;

/// Their spread, as a share of their mean.
const SPREAD_MAX: f64 = 0.02;

/// Watches the write amplification of window after window.
#[derive(Clone, Debug, Default)]
pub struct SteadyState {
    last: VecDeque<f64>,
}

impl SteadyState {
    /// Adds the write amplification of one more window; true when the last ones agree.
    pub fn is_steady_with(&mut self, waf: f64) -> bool {
        self.last.push_back(waf);
        if self.last.len() > WINDOWS {
            self.last.pop_front();
        }
        let (low, high) =
            self.last.iter().fold((f64::INFINITY, 0.0f64), |(low, high), &waf| (low.min(waf), high.max(waf)));
        self.last.len() == WINDOWS && high - low <= SPREAD_MAX * f64::midpoint(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swing_is_not_steady_and_a_plateau_is() {
        let mut state = SteadyState::default();
        for waf in [1.0, 3.0, 5.0, 6.0, 5.8, 5.6, 5.65, 5.66] {
            assert!(!state.is_steady_with(waf), "{waf}");
        }
        assert!(state.is_steady_with(5.64));
    }
}
