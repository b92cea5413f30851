//! Bars, strips and sparklines for a terminal, in plain Unicode. Colour is for those who print them.

/// Eighths of a cell, from nothing to full, filling from the left.
const LEFT_EIGHTHS: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// Eighths of a cell, filling from the bottom.
const LOWER_EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A bar of `width` cells, `share` (0 to 1) of it full. Anything above nothing can be seen.
#[must_use]
pub fn bar(share: f64, width: usize) -> String {
    let eighths = eighths(share, width).max(usize::from(share > 0.0 && width > 0));
    let mut bar: String = std::iter::repeat_n('█', eighths / 8).collect();
    if eighths / 8 < width {
        bar.push(LEFT_EIGHTHS[eighths % 8]);
        bar.extend(std::iter::repeat_n(' ', width - eighths / 8 - 1));
    }
    bar
}

/// One cell for each share (0 to 1): how high it is. Anything above nothing can be seen; nothing is a dot.
#[must_use]
pub fn strip(shares: impl IntoIterator<Item = f64>) -> String {
    shares
        .into_iter()
        .map(|share| match eighths(share, 1) {
            0 if share > 0.0 => LOWER_EIGHTHS[1],
            0 => '·',
            eighths => LOWER_EIGHTHS[eighths],
        })
        .collect()
}

/// One cell for each value, scaled from zero to the greatest of them.
#[must_use]
pub fn sparkline(values: &[f64]) -> String {
    let max = values.iter().copied().fold(0.0f64, f64::max);
    strip(values.iter().map(|value| if max > 0.0 { value / max } else { 0.0 }))
}

fn eighths(share: f64, width: usize) -> usize {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    (share * width as f64 * 8.0).round() as usize
}

/// A whole number with its thousands set apart: `1 234 567`.
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202F}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_its_width_and_its_share() {
        assert_eq!(bar(0.0, 4), "    ");
        assert_eq!(bar(0.5, 4), "██  ");
        assert_eq!(bar(0.53, 4), "██▏ ");
        assert_eq!(bar(0.001, 4), "▏   ");
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(7.0, 4), "████");
        assert_eq!(bar(f64::NAN, 2), "  ");
    }

    #[test]
    fn a_strip_shows_even_the_smallest_share() {
        assert_eq!(strip([0.0, 0.001, 0.5, 1.0]), "·▁▄█");
    }

    #[test]
    fn a_sparkline_is_scaled_to_its_greatest_value() {
        assert_eq!(sparkline(&[1.0, 2.0, 4.0]), "▂▄█");
        assert_eq!(sparkline(&[0.0, 0.0]), "··");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(thousands(1_234_567), "1\u{202F}234\u{202F}567");
        assert_eq!(thousands(999), "999");
    }
}
