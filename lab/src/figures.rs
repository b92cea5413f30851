//! Figures to look at: a table for people and for CSV, plots and bars as SVG, and the one HTML file that holds them all.
//!
//! | module | noun |
//! |---|---|
//! | [`table`](mod@table) | columns with units, and cells |
//! | [`plot`] | lines over an axis, with their spread |
//! | [`bars`] | one bar for each of a few |
//! | [`grid`] | a cell for each pair |
//! | [`page`] | statements, pictures and tables in one HTML file |

pub mod bars;
pub mod grid;
pub mod page;
pub mod plot;
pub mod table;

pub use bars::{Bar, Bars};
pub use grid::Grid;
pub use page::{Page, Section, Statement, Tone};
pub use plot::{Axis, Plot, Series, Spread};
pub use table::{Cell, Column, Table};
