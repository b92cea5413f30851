//! What a terminal can do, and a few lines on it that are drawn again and again.
//!
//! Colour and redrawing only where a person looks: not in a pipe, not with NO_COLOR set or TERM=dumb. Elsewhere progress
//! is a plain line now and then.

use crate::failure::Failure;
use openftl_lab::picture::bar;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// What a process ends with that a second signal ends.
const EXIT_INTERRUPTED: i32 = 130;

/// Prints `text` on standard output. Whoever reads it may have gone (a pipe into `head`): that is no failure.
pub fn say(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { Ok(()) } else { stdout.write_all(b"\n") })
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format_args!("cannot write the output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A flag that the first SIGINT or SIGTERM sets, so that what was found so far is told. The second ends the process.
pub fn interrupted() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag not set yet.
        signal_hook::flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(Failure::failed)?;
    }
    Ok(flag)
}

/// A span of time in a word or two: `0.3 s`, `12 s`, `5 min`.
pub fn span(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 10..100 => format!("{seconds} s"),
        seconds @ 100..6000 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}

/// How a piece of text should stand out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ink {
    /// A title.
    Bold,
    /// Of less importance.
    Dim,
    /// Part of a picture.
    Picture,
    /// All is well.
    Good,
    /// Some of it is.
    Fair,
    /// Something is not.
    Bad,
}

/// Paints, or does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Palette {
    colour: bool,
}

impl Palette {
    /// For text without colour.
    pub const PLAIN: Palette = Palette { colour: false };

    /// For somebody else's terminal.
    pub fn with_colour(colour: bool) -> Palette {
        Palette { colour }
    }

    /// Whether it paints.
    pub fn has_colour(self) -> bool {
        self.colour
    }

    /// For standard output.
    pub fn of_stdout() -> Palette {
        Palette { colour: colour_is_wanted() && std::io::stdout().is_terminal() }
    }

    /// For standard error.
    pub fn of_stderr() -> Palette {
        Palette { colour: colour_is_wanted() && std::io::stderr().is_terminal() }
    }

    /// `text`, painted.
    pub fn paint(self, ink: Ink, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Picture => "36",
            Ink::Good => "32",
            Ink::Fair => "33",
            Ink::Bad => "1;31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

fn colour_is_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Between two redraws on a terminal.
const REDRAW: Duration = Duration::from_millis(100);

/// Between two plain lines elsewhere.
const PLAIN_LINE: Duration = Duration::from_secs(2);

/// A few lines at the bottom of standard error that show how things go.
pub struct Live {
    mode: Mode,
    lines: usize,
    next: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Redraw,
    PlainLines,
    Silent,
}

impl Live {
    /// Redraws on a terminal; elsewhere a plain line now and then if `plain_lines`.
    pub fn new(plain_lines: bool) -> Live {
        let terminal = std::io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let mode = match (terminal, plain_lines) {
            (true, _) => Mode::Redraw,
            (false, true) => Mode::PlainLines,
            (false, false) => Mode::Silent,
        };
        Live { mode, lines: 0, next: Instant::now() }
    }

    /// Shows nothing.
    pub fn silent() -> Live {
        Live { mode: Mode::Silent, lines: 0, next: Instant::now() }
    }

    /// Prints plain lines, wherever it is.
    #[cfg(test)]
    pub fn plain() -> Live {
        Live { mode: Mode::PlainLines, lines: 0, next: Instant::now() }
    }

    /// Whether it shows nothing.
    pub fn is_silent(&self) -> bool {
        self.mode == Mode::Silent
    }

    /// Where this is drawn.
    pub fn palette(&self) -> Palette {
        if self.mode == Mode::Redraw { Palette::of_stderr() } else { Palette::PLAIN }
    }

    /// Whether it is time to show something again.
    pub fn is_due(&self) -> bool {
        self.mode != Mode::Silent && Instant::now() >= self.next
    }

    /// Shows `lines` in place of those shown before; elsewhere than on a terminal, only the first.
    pub fn show(&mut self, lines: &[String]) {
        let mut stderr = std::io::stderr().lock();
        // A terminal that cannot be written to is no reason to stop.
        let _ = match self.mode {
            Mode::Silent => Ok(()),
            Mode::PlainLines => {
                self.next = Instant::now() + PLAIN_LINE;
                lines.first().map_or(Ok(()), |line| writeln!(stderr, "{}", line.trim_end()))
            }
            Mode::Redraw => {
                self.next = Instant::now() + REDRAW;
                let width = width();
                let mut text = self.rewind();
                for line in lines {
                    text.push_str(&clip(line, width));
                    text.push('\n');
                }
                self.lines = lines.len();
                stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush())
            }
        };
    }

    /// One line of progress: how much of `name` is done, and what stands behind it.
    pub fn show_share(&mut self, name: &str, share: f64, rest: &str) {
        let bar = self.palette().paint(Ink::Picture, &bar(share, 24));
        self.show(&[format!("{name:<10} {bar} {:>3.0}%  {rest}", (share * 100.0).min(100.0))]);
    }

    /// Takes away what is shown.
    pub fn clear(&mut self) {
        if self.mode == Mode::Redraw {
            let text = self.rewind();
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }

    fn rewind(&mut self) -> String {
        match std::mem::take(&mut self.lines) {
            0 => "\r\x1b[J".to_owned(),
            lines => format!("\r\x1b[{lines}A\x1b[J"),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Columns of the terminal behind standard error.
fn width() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => 80,
    }
}

/// The first `width` cells of `line`; escape sequences take no cell, and one that resets is added after a cut.
fn clip(line: &str, width: usize) -> String {
    let mut clipped = String::with_capacity(line.len());
    let (mut cells, mut escape) = (0, false);
    for character in line.chars() {
        if character == '\x1b' {
            escape = true;
        } else if escape {
            escape = character != 'm';
        } else if cells == width {
            clipped.push_str("\x1b[0m");
            return clipped;
        } else {
            cells += 1;
        }
        clipped.push(character);
    }
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_clipped_by_its_cells_not_its_bytes() {
        assert_eq!(clip("▇▇▇", 3), "▇▇▇");
        assert_eq!(clip("▇▇▇", 2), "▇▇\x1b[0m");
        assert_eq!(clip("\x1b[36m▇▇\x1b[0m", 2), "\x1b[36m▇▇\x1b[0m");
    }

    #[test]
    fn spans_are_told_in_a_word_or_two() {
        let told = |seconds| span(Duration::from_secs_f64(seconds));
        assert_eq!([told(0.26), told(99.0), told(100.0), told(6001.0)], ["0.3 s", "99 s", "2 min", "2 h"]);
    }

    #[test]
    fn plain_text_has_no_escapes() {
        assert_eq!(Palette::PLAIN.paint(Ink::Bad, "x"), "x");
        assert_eq!(Palette { colour: true }.paint(Ink::Bold, "x"), "\x1b[1mx\x1b[0m");
    }
}
