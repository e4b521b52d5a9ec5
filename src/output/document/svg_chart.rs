//! Charts as SVG, styled by classes.

use std::fmt::Write as _;

use super::bands::draw_bands;
use super::chart::{Band, Chart, ChartRow, Layer, MILLION, RowNote, Shape};
use super::escape::escape_html;
use super::ticks::{column_at, lay_out_labels, ticks};
use crate::base::units::{percent, size};

/// Layout of a row: name, plot, note.
const LEFT: f64 = 110.0;
const WIDTH: f64 = 760.0;
const RIGHT: f64 = 110.0;
/// Row heights.
const AREA_HEIGHT: f64 = 130.0;
const SERIES_HEIGHT: f64 = 26.0;
const BAND_HEIGHT: f64 = 14.0;
/// Columns that text is laid out in.
const COLUMNS: usize = 120;
/// Maximum number of lines of labels.
const LABEL_LINES: usize = 3;
/// Marks the start of a band: a character that no name contains.
const BAND_BORDER: char = '\u{1f}';
/// Space between rows.
const GAP: f64 = 6.0;

/// Renders `chart` as an HTML figure.
pub(super) fn chart_svg(chart: &Chart) -> String {
    let mut drawing = SvgChart { chart, out: String::new(), captions: Vec::new(), y: 4.0 };
    for row in &chart.rows {
        drawing.draw_row(row);
    }
    let captions = drawing.captions.concat();
    format!(
        "<figure>\n<svg class=\"chart\" viewBox=\"0 0 {} {:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n\
         <figcaption>{captions}</figcaption>\n</figure>\n",
        LEFT + WIDTH + RIGHT,
        drawing.y,
        escape_html(&aria_label(chart)),
        drawing.out
    )
}

/// The chart as a sentence, for screen readers.
fn aria_label(chart: &Chart) -> String {
    let names = chart.rows.iter().map(|row| match &row.shape {
        Shape::Area { back, names: [_, front], .. } => {
            format!("{front}, of up to {}", size(back.iter().copied().fold(0, u64::max)))
        }
        _ => row.name.clone(),
    });
    let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    format!("Over {} entries: {}", chart.entries, names.join("; "))
}

/// A legend entry: a small SVG, so that `class` gives it its colour.
fn legend_entry(class: &str, name: &str) -> String {
    format!(
        "<span><svg class=\"chart key\" viewBox=\"0 0 1 1\" aria-hidden=\"true\"><rect class=\"{class}\" width=\"1\" \
         height=\"1\"/></svg>{}</span>\n",
        escape_html(name)
    )
}

/// The CSS class of a layer, from its name.
fn layer_class(layer: &Layer) -> String {
    let letter = |c: char| if c.is_ascii_lowercase() { c } else { '-' };
    format!("layer of-{}", layer.name.chars().map(letter).collect::<String>())
}

struct SvgChart<'a> {
    chart: &'a Chart,
    out: String,
    captions: Vec<String>,
    /// Top of the next row.
    y: f64,
}

impl SvgChart<'_> {
    fn draw_row(&mut self, row: &ChartRow) {
        let height = match &row.shape {
            Shape::Area { back, front, names: [back_name, front_name], layers } => {
                let top = back.iter().copied().fold(1, u64::max);
                let scale = |value: &u64| *value as f64 / top as f64;
                self.draw_steps("back", AREA_HEIGHT, back.iter().map(scale));
                self.draw_steps("front", AREA_HEIGHT, front.iter().map(scale));
                self.draw_layers(layers, scale);
                self.draw_text(LEFT - 6.0, 10.0, "end", &size(top));
                self.draw_text(LEFT - 6.0, AREA_HEIGHT, "end", "0");
                self.captions.push(legend_entry("front", front_name));
                self.captions.push(legend_entry("back", back_name));
                AREA_HEIGHT
            }
            Shape::Amounts { values, max: highest } => {
                let top = (*highest).max(1) as f64;
                self.draw_steps("amount", SERIES_HEIGHT, values.iter().map(|value| *value as f64 / top));
                SERIES_HEIGHT
            }
            Shape::Shares(values) => {
                self.draw_steps("share", SERIES_HEIGHT, values.iter().map(|value| *value as f64 / MILLION));
                SERIES_HEIGHT
            }
            Shape::Marks(spans) => self.draw_spans("mark", spans),
            Shape::Ranges(spans) => self.draw_spans("range", spans),
            Shape::Axis => self.draw_axis(),
            Shape::Labels(labels) => self.draw_labels(labels),
            Shape::Bands { bands, is_numbered } => self.draw_bands(bands, *is_numbered),
            Shape::Empty => BAND_HEIGHT,
        };
        let middle = height / 2.0 + 4.0;
        self.draw_text(LEFT - 6.0, middle, "end", &row.name);
        let min_max = |values: &[u64]| {
            let ends = [values.iter().min(), values.iter().max()];
            // A chart without buckets has no extremes.
            ends.map(|end| percent(end.copied().unwrap_or(0) as f64 / MILLION))
        };
        match (&row.note, &row.shape) {
            (RowNote::Text(text), _) => self.draw_text(LEFT + WIDTH + 6.0, middle, "start", text),
            (RowNote::MinMax, Shape::Shares(values)) => {
                self.draw_text(LEFT + WIDTH + 6.0, middle, "start", &min_max(values).join("-"));
            }
            _ => {}
        }
        self.y += height + GAP;
    }

    fn draw_text(&mut self, x: f64, below: f64, anchor: &str, text: &str) {
        if !text.is_empty() {
            let (y, text) = (self.y + below, escape_html(text));
            _ = writeln!(self.out, "<text x=\"{x:.0}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
        }
    }

    /// The x position of entry `place`, relative to the first entry drawn.
    fn x(&self, place: u64) -> f64 {
        LEFT + place as f64 / self.chart.entries.max(1) as f64 * WIDTH
    }

    /// Draws one value per bucket, from 0 to 1, as a step area.
    fn draw_steps(&mut self, class: &str, height: f64, values: impl Iterator<Item = f64>) {
        let bottom = self.y + height;
        let starts = &self.chart.starts;
        let next = starts.iter().skip(1).copied().chain([self.chart.entries]);
        let mut path = format!("M{LEFT:.1} {bottom:.1}");
        for ((start, next), value) in starts.iter().zip(next).zip(values) {
            let top = bottom - value.clamp(0.0, 1.0) * height;
            _ = write!(path, "L{:.1} {top:.1}H{:.1}", self.x(*start), self.x(next));
        }
        _ = writeln!(self.out, "<path class=\"{class}\" d=\"{path}V{bottom:.1}Z\"/>");
    }

    /// Draws the layers of the area in front, from the bottom up.
    fn draw_layers(&mut self, layers: &[Layer], scale: impl Fn(&u64) -> f64) {
        let mut sums = vec![0_u64; self.chart.starts.len()];
        let mut drawn = Vec::new();
        for layer in layers {
            for (sum, value) in sums.iter_mut().zip(&layer.values) {
                *sum = sum.saturating_add(*value);
            }
            drawn.push(sums.clone());
        }
        // Drawn as running sums from the back to the front: each covers the lower part of the one behind it.
        for (layer, sums) in layers.iter().zip(&drawn).rev() {
            self.draw_steps(&layer_class(layer), AREA_HEIGHT, sums.iter().map(&scale));
        }
        for layer in layers {
            self.captions.push(legend_entry(&layer_class(layer), &layer.name));
        }
    }

    fn draw_axis(&mut self) -> f64 {
        for tick in ticks(self.chart, COLUMNS) {
            let x = LEFT + tick.column as f64 / COLUMNS as f64 * WIDTH;
            self.draw_text(x, 10.0, "start", &tick.entry);
            if let Some(time) = &tick.time {
                self.draw_text(x, 22.0, "start", time);
            }
        }
        SERIES_HEIGHT
    }

    /// Draws the labels of entries, in several lines where they would overlap.
    fn draw_labels(&mut self, labels: &[(u64, String)]) -> f64 {
        let columns = labels.iter().map(|(place, text)| (column_at(self.chart, COLUMNS, *place), text.clone()));
        let lines = lay_out_labels(columns.collect::<Vec<_>>(), COLUMNS, LABEL_LINES);
        for (line, text) in lines.iter().enumerate() {
            let below = 10.0 + line as f64 * BAND_HEIGHT;
            let mut at = 0;
            // Words of a label are one space apart, labels two or more.
            for label in text.split("  ") {
                let indent = label.chars().take_while(|c| *c == ' ').count();
                let x = LEFT + (at + indent) as f64 / COLUMNS as f64 * WIDTH;
                self.draw_text(x, below, "start", label.trim());
                at += label.chars().count() + 2;
            }
        }
        BAND_HEIGHT * lines.len().max(1) as f64
    }

    fn draw_bands(&mut self, bands: &[Band], is_numbered: bool) -> f64 {
        if let Some(line) = draw_bands(bands, is_numbered, self.chart.entries, COLUMNS, BAND_BORDER) {
            let mut at = 0;
            for (n, run) in line.split(BAND_BORDER).enumerate() {
                let width = run.chars().count() + usize::from(n > 0);
                let x = |column: usize| LEFT + column as f64 / COLUMNS as f64 * WIDTH;
                if n > 0 {
                    let (y, from, wide) = (self.y, x(at), x(width) - LEFT);
                    _ = writeln!(
                        self.out,
                        "<rect class=\"stretch\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{BAND_HEIGHT}\"/>"
                    );
                    self.draw_text(from + 3.0, 11.0, "start", run.trim());
                }
                at += width;
            }
        }
        BAND_HEIGHT
    }

    fn draw_spans(&mut self, class: &str, spans: &[[u64; 2]]) -> f64 {
        for [from, to] in spans {
            let (x, end) = (self.x(*from), self.x((*to).max(*from)));
            let (y, width) = (self.y, (end - x).max(2.0));
            _ = writeln!(
                self.out,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAND_HEIGHT}\"/>"
            );
        }
        BAND_HEIGHT
    }
}
