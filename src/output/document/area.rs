//! The area of a chart: one series in front of another.

use super::glyphs::{Glyphs, LABEL_COLUMNS};
use super::width::display_width;
use crate::base::units::size;

const HEIGHT: u64 = 8;

/// One value per column and series.
pub(super) struct AreaChart<'a> {
    pub(super) back: Vec<u64>,
    pub(super) front: Vec<u64>,
    /// Names of `front` and `back`.
    pub(super) names: [&'a str; 2],
}

impl AreaChart<'_> {
    /// The lines of the area, legend first.
    pub(super) fn draw(&self, pens: Glyphs) -> Vec<String> {
        let indent = " ".repeat(LABEL_COLUMNS + 2);
        let [front, back] = self.names;
        let legend = [format!("{} {front}", pens.front), format!("{} {back}", pens.back)];
        // Narrow areas have one name a line.
        let columns = self.front.len();
        let legend = match legend.join("  ") {
            line if display_width(&line) <= columns => vec![line],
            _ => legend.to_vec(),
        };
        let top = self.back.iter().copied().fold(1, u64::max);
        let line = |row: u64| {
            let label = match row {
                0 => "0".to_owned(),
                _ if row + 1 == HEIGHT => size(top),
                _ if row == HEIGHT / 2 => size(top / 2),
                _ => String::new(),
            };
            // A cell is filled if the value reaches its middle. Any value above 0 fills the bottom row.
            let reaches = |value: u64| {
                let twice = u128::from(value) * u128::from(HEIGHT) * 2 / u128::from(top);
                twice > u128::from(row) * 2 || (row == 0 && value > 0)
            };
            let cells =
                self.front.iter().zip(&self.back).map(|(front, back)| match (reaches(*front), reaches(*back)) {
                    (true, _) => pens.front,
                    (false, true) => pens.back,
                    (false, false) => ' ',
                });
            format!("{label:>LABEL_COLUMNS$} {}{}", pens.axis, cells.collect::<String>())
        };
        let legend = legend.iter().map(|line| format!("{indent}{line}"));
        legend.chain((0..HEIGHT).rev().map(line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::glyphs::UNICODE;
    use super::*;

    #[test]
    fn one_series_is_drawn_in_front_of_the_other() {
        let area = AreaChart { back: vec![80, 80], front: vec![40, 80], names: ["allocated", "reserved"] };
        let lines = area.draw(UNICODE);
        assert_eq!([&lines[0], &lines[1]].map(|line| line.trim()), ["█ allocated", "░ reserved"]);
        let cells: Vec<Vec<char>> = lines[lines.len() - 8..].iter().map(|line| line.chars().collect()).collect();
        let columns: Vec<String> =
            (LABEL_COLUMNS + 2..LABEL_COLUMNS + 4).map(|at| cells.iter().map(|line| line[at]).collect()).collect();
        assert_eq!(columns, ["░░░░████", "████████"]);
    }
}
