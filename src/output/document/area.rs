//! The area of a chart: one series in front of another. With colours, the one in front is split into layers.

use super::glyphs::{Glyphs, LABEL_COLUMNS};
use super::width::display_width;
use crate::base::units::{escape_text, size};

const HEIGHT: u64 = 8;
/// Label of the bytes that are in no layer.
const UNLAYERED: &str = "other";

/// One value per column and series.
pub(super) struct AreaChart<'a> {
    pub(super) back: Vec<u64>,
    pub(super) front: Vec<u64>,
    /// Names of `front` and `back`.
    pub(super) names: [&'a str; 2],
    /// From the bottom up; their sum is at most `front`.
    pub(super) layers: Vec<(&'a str, Vec<u64>)>,
}

impl AreaChart<'_> {
    /// The lines of the area, legend first.
    pub(super) fn draw(&self, pens: Glyphs) -> Vec<String> {
        let indent = " ".repeat(LABEL_COLUMNS + 2);
        let legend = self.legend(pens);
        let top = self.back.iter().copied().fold(1, u64::max);
        let line = |row: u64| {
            let label = match row {
                0 => "0".to_owned(),
                _ if row + 1 == HEIGHT => size(top),
                _ if row == HEIGHT / 2 => size(top / 2),
                _ => String::new(),
            };
            let cells: Vec<AreaCell> = (0..self.front.len()).map(|column| self.cell(column, row, top)).collect();
            let painted = cells.chunk_by(|a, b| a == b).map(|run| render_run(run, pens));
            format!("{label:>LABEL_COLUMNS$} {}{}", pens.axis, painted.collect::<String>())
        };
        let legend = legend.iter().map(|line| format!("{indent}{line}"));
        legend.chain((0..HEIGHT).rev().map(line)).collect()
    }

    /// The legend, wrapped to the width of the area.
    fn legend(&self, pens: Glyphs) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for entry in self.legend_entries(pens) {
            match lines.last_mut() {
                Some(line) if display_width(line) + 2 + display_width(&entry) <= self.front.len() => {
                    line.push_str("  ");
                    line.push_str(&entry);
                }
                _ => lines.push(entry),
            }
        }
        lines
    }

    fn legend_entries(&self, pens: Glyphs) -> Vec<String> {
        let [front, back] = self.names;
        let behind = format!("{} {back}", pens.back);
        // Only their colours tell layers apart.
        let Some(paint) = pens.paint.filter(|_| !self.layers.is_empty()) else {
            return vec![format!("{} {front}", pens.front), behind];
        };
        let layers = self.layers.iter().enumerate();
        let layers =
            layers.map(|(layer, (name, _))| format!("{} {}", paint(layer, &pens.front.to_string()), escape_text(name)));
        let has_rest = (0..self.front.len()).any(|column| self.layered_bytes(column) < self.front[column]);
        let rest = has_rest.then(|| format!("{} {UNLAYERED}", pens.front));
        layers.chain(rest).chain([behind]).collect()
    }

    /// Sum of all layers in `column`.
    fn layered_bytes(&self, column: usize) -> u64 {
        let values = self.layers.iter().filter_map(|(_, values)| values.get(column));
        values.fold(0, |sum, value| sum.saturating_add(*value))
    }

    fn cell(&self, column: usize, row: u64, top: u64) -> AreaCell {
        // A cell is filled if the value reaches its middle. Any value above 0 fills the bottom row.
        let reaches = |value: u64| {
            let twice = u128::from(value) * u128::from(HEIGHT) * 2 / u128::from(top);
            twice > u128::from(row) * 2 || (row == 0 && value > 0)
        };
        match (reaches(self.front[column]), reaches(self.back[column])) {
            (false, false) => AreaCell::Empty,
            (false, true) => AreaCell::Back,
            (true, _) => {
                let mut sum = 0_u64;
                let layer = self.layers.iter().position(|(_, values)| {
                    sum = sum.saturating_add(values[column]);
                    reaches(sum)
                });
                layer.map_or(AreaCell::Front, AreaCell::Layer)
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AreaCell {
    Empty,
    Back,
    Front,
    Layer(usize),
}

/// A run of equal cells.
fn render_run(run: &[AreaCell], pens: Glyphs) -> String {
    let all = |pen: char| pen.to_string().repeat(run.len());
    match run.first() {
        Some(AreaCell::Front) => all(pens.front),
        Some(AreaCell::Back) => all(pens.back),
        Some(AreaCell::Layer(layer)) => {
            let cells = all(pens.front);
            pens.paint.map_or(cells.clone(), |paint| paint(*layer, &cells))
        }
        Some(AreaCell::Empty) | None => all(' '),
    }
}

#[cfg(test)]
mod tests {
    use super::super::glyphs::UNICODE;
    use super::*;

    fn lettered(layer: usize, cells: &str) -> String {
        cells.replace('█', ["a", "b"][layer.min(1)])
    }

    #[test]
    fn layers_lie_on_each_other_where_colours_are_seen() {
        let area = AreaChart {
            back: vec![80, 80],
            front: vec![40, 80],
            names: ["allocated", "reserved"],
            layers: vec![("first", vec![20, 10]), ("second", vec![20, 50])],
        };
        let plain = area.draw(UNICODE);
        assert_eq!([&plain[0], &plain[1]].map(|line| line.trim()), ["█ allocated", "░ reserved"]);
        let columns = |lines: &[String]| -> Vec<String> {
            let cells: Vec<Vec<char>> = lines[lines.len() - 8..].iter().map(|line| line.chars().collect()).collect();
            (LABEL_COLUMNS + 2..LABEL_COLUMNS + 4).map(|at| cells.iter().map(|line| line[at]).collect()).collect()
        };
        assert_eq!(columns(&plain), ["░░░░████", "████████"]);
        let painted = area.draw(Glyphs { paint: Some(lettered), ..UNICODE });
        let legend: Vec<&str> = painted[..4].iter().map(|line| line.trim()).collect();
        assert_eq!(legend, ["a first", "b second", "█ other", "░ reserved"]);
        assert_eq!(columns(&painted), ["░░░░bbaa", "██bbbbba"]);
    }
}
