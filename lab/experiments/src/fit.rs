//! A straight line through points, and how straight they lie.

/// `y = intercept + slope · x`, by least squares.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Line {
    /// How much `y` grows with each `x`.
    pub slope: f64,
    /// `y` where `x` is zero.
    pub intercept: f64,
    /// The share of the variance of `y` that the line explains: 1 for points on a line.
    pub r_squared: f64,
}

impl Line {
    /// The line through `points`; `None` if they do not differ in `x`.
    #[must_use]
    pub fn through(points: &[(f64, f64)]) -> Option<Line> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(x - mean_x, y - mean_y)).sum::<f64>();
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        if points.len() < 2 || xx == 0.0 {
            return None;
        }
        let slope = xy / xx;
        // Points on a level line lie on a line, whatever the variance says.
        let r_squared = if yy == 0.0 { 1.0 } else { slope * xy / yy };
        Some(Line { slope, intercept: mean_y - slope * mean_x, r_squared })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_give_that_line() {
        let line = Line::through(&[(0.0, 1.0), (1.0, 3.0), (5.0, 11.0)]).unwrap();
        assert!((line.slope - 2.0).abs() < 1e-12 && (line.intercept - 1.0).abs() < 1e-12, "{line:?}");
        assert!((line.r_squared - 1.0).abs() < 1e-12, "{line:?}");
    }

    #[test]
    fn a_curve_is_less_straight_and_a_zigzag_not_at_all() {
        let curve: Vec<(f64, f64)> = (0..6).map(|x| (f64::from(x), f64::from(x * x * x))).collect();
        let straightness = Line::through(&curve).unwrap().r_squared;
        assert!((0.7..0.9).contains(&straightness), "{straightness}");
        assert!(Line::through(&[(0.0, 0.0), (1.0, 1.0), (2.0, 0.0)]).unwrap().r_squared < 1e-12);
    }

    #[test]
    fn where_there_is_no_line_there_is_none() {
        assert_eq!(Line::through(&[]), None);
        assert_eq!(Line::through(&[(1.0, 1.0)]), None);
        assert_eq!(Line::through(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }
}
