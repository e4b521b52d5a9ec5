//! Charts as pictures in SVG, with classes for their parts.

use std::fmt::Write as _;

use super::chart::{Chart, Layer, MILLION, RowNote, ChartRow, Shape, Band};
use super::markup::escape_html;
use super::stretches::draw;
use super::ticks::{column, placed, ticks};
use crate::base::units::{percent, size};

/// Where rows begin and how wide they are; names stand on the left, notes on the right.
const LEFT: f64 = 110.0;
const WIDTH: f64 = 760.0;
const RIGHT: f64 = 110.0;
/// How high rows are.
const AREA: f64 = 130.0;
const LINE: f64 = 26.0;
const SPANS: f64 = 14.0;
/// Columns that words are laid out in.
const COLUMNS: usize = 120;
/// Lines of labels.
const LABELS: usize = 3;
/// What no name has: where a stretch begins.
const BORDER: char = '\u{1f}';
/// Between one row and the next.
const GAP: f64 = 6.0;

/// `chart` as a figure.
pub(super) fn picture(chart: &Chart) -> String {
    let mut drawing = Drawing { chart, out: String::new(), captions: Vec::new(), y: 4.0 };
    for row in &chart.rows {
        drawing.row(row);
    }
    let captions = drawing.captions.concat();
    format!(
        "<figure>\n<svg class=\"chart\" viewBox=\"0 0 {} {:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n\
         <figcaption>{captions}</figcaption>\n</figure>\n",
        LEFT + WIDTH + RIGHT,
        drawing.y,
        escape_html(&said(chart)),
        drawing.out
    )
}

/// What a reader who does not see the picture is told.
fn said(chart: &Chart) -> String {
    let names = chart.rows.iter().map(|row| match &row.shape {
        Shape::Area { back, names: [_, front], .. } => {
            format!("{front}, of up to {}", size(back.iter().copied().max().unwrap_or(0)))
        }
        _ => row.name.clone(),
    });
    let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    format!("Over {} entries: {}", chart.entries, names.join("; "))
}

/// What `class` stands for: in a picture of its own, for its colour.
fn key(class: &str, name: &str) -> String {
    format!(
        "<span><svg class=\"chart key\" viewBox=\"0 0 1 1\" aria-hidden=\"true\"><rect class=\"{class}\" width=\"1\" \
         height=\"1\"/></svg>{}</span>\n",
        escape_html(name)
    )
}

/// A class after what a layer shows.
fn class_of(layer: &Layer) -> String {
    let letter = |c: char| if c.is_ascii_lowercase() { c } else { '-' };
    format!("layer of-{}", layer.name.chars().map(letter).collect::<String>())
}

struct Drawing<'a> {
    chart: &'a Chart,
    out: String,
    captions: Vec<String>,
    /// Where the next row begins.
    y: f64,
}

impl Drawing<'_> {
    fn row(&mut self, row: &ChartRow) {
        let height = match &row.shape {
            Shape::Area { back, front, names: [back_name, front_name], layers } => {
                let top = back.iter().copied().max().unwrap_or(0).max(1);
                let scale = |value: &u64| *value as f64 / top as f64;
                self.steps("back", AREA, back.iter().map(scale));
                self.steps("front", AREA, front.iter().map(scale));
                self.layers(layers, scale);
                self.text(LEFT - 6.0, 10.0, "end", &size(top));
                self.text(LEFT - 6.0, AREA, "end", "0");
                self.captions.push(key("front", front_name));
                self.captions.push(key("back", back_name));
                AREA
            }
            Shape::Amounts { values, max: highest } => {
                let top = (*highest).max(1) as f64;
                self.steps("amount", LINE, values.iter().map(|value| *value as f64 / top));
                LINE
            }
            Shape::Shares(values) => {
                self.steps("share", LINE, values.iter().map(|value| *value as f64 / MILLION));
                LINE
            }
            Shape::Marks(spans) => self.spans("mark", spans),
            Shape::Ranges(spans) => self.spans("range", spans),
            Shape::Axis => self.axis(),
            Shape::Labels(labels) => self.labels(labels),
            Shape::Bands { stretches, is_numbered } => self.stretches(stretches, *is_numbered),
            Shape::Empty => SPANS,
        };
        let middle = height / 2.0 + 4.0;
        self.text(LEFT - 6.0, middle, "end", &row.name);
        let extent = |values: &[u64]| {
            let ends = [values.iter().min(), values.iter().max()];
            ends.map(|end| percent(end.copied().unwrap_or(0) as f64 / MILLION))
        };
        match (&row.note, &row.shape) {
            (RowNote::Text(text), _) => self.text(LEFT + WIDTH + 6.0, middle, "start", text),
            (RowNote::MinMax, Shape::Shares(values)) => {
                self.text(LEFT + WIDTH + 6.0, middle, "start", &extent(values).join("-"));
            }
            (RowNote::MinMaxSentence(what), Shape::Shares(values)) => {
                let said = format!("{what}: {}", extent(values).join(" to "));
                self.captions.push(format!("<span>{}</span>\n", escape_html(&said)));
            }
            _ => {}
        }
        self.y += height + GAP;
    }

    fn text(&mut self, x: f64, below: f64, anchor: &str, text: &str) {
        if !text.is_empty() {
            let (y, text) = (self.y + below, escape_html(text));
            _ = writeln!(
                self.out,
                "<text x=\"{x:.0}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
            );
        }
    }

    /// Where entry `place` stands, counted from the first that is drawn.
    fn x(&self, place: u64) -> f64 {
        LEFT + place as f64 / self.chart.entries.max(1) as f64 * WIDTH
    }

    /// A value of each bucket, from 0 to 1, as an area.
    fn steps(&mut self, class: &str, height: f64, values: impl Iterator<Item = f64>) {
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

    /// Parts of the area in front, from the bottom up.
    fn layers(&mut self, layers: &[Layer], scale: impl Fn(&u64) -> f64) {
        let mut sums = vec![0_u64; self.chart.starts.len()];
        let mut drawn = Vec::new();
        for layer in layers {
            for (sum, value) in sums.iter_mut().zip(&layer.values) {
                *sum = sum.saturating_add(*value);
            }
            drawn.push(sums.clone());
        }
        // Each hides what it has in common with the one behind.
        for (at, sums) in drawn.iter().enumerate().rev() {
            let class = layers.get(at).map(class_of).unwrap_or_default();
            self.steps(&class, AREA, sums.iter().map(&scale));
        }
        for layer in layers {
            self.captions.push(key(&class_of(layer), &layer.name));
        }
    }

    fn axis(&mut self) -> f64 {
        for tick in ticks(self.chart, COLUMNS) {
            let x = LEFT + tick.column as f64 / COLUMNS as f64 * WIDTH;
            self.text(x, 10.0, "start", &tick.entry);
            if let Some(time) = &tick.time {
                self.text(x, 22.0, "start", time);
            }
        }
        LINE
    }

    /// What is said of entries, one below the other where there is no room beside.
    fn labels(&mut self, labels: &[(u64, String)]) -> f64 {
        let columns =
            labels.iter().map(|(place, text)| (column(self.chart, COLUMNS, *place), text.clone()));
        let lines = placed(columns.collect::<Vec<_>>(), COLUMNS, LABELS);
        for (line, text) in lines.iter().enumerate() {
            let below = 10.0 + line as f64 * SPANS;
            let mut at = 0;
            // Words of one label are a blank apart.
            for label in text.split("  ") {
                let indent = label.chars().take_while(|c| *c == ' ').count();
                let x = LEFT + (at + indent) as f64 / COLUMNS as f64 * WIDTH;
                self.text(x, below, "start", label.trim());
                at += label.chars().count() + 2;
            }
        }
        SPANS * lines.len().max(1) as f64
    }

    fn stretches(&mut self, stretches: &[Band], is_numbered: bool) -> f64 {
        if let Some(line) = draw(stretches, is_numbered, self.chart.entries, COLUMNS, BORDER) {
            let mut at = 0;
            for (n, run) in line.split(BORDER).enumerate() {
                let width = run.chars().count() + usize::from(n > 0);
                let x = |column: usize| LEFT + column as f64 / COLUMNS as f64 * WIDTH;
                if n > 0 {
                    let (y, from, wide) = (self.y, x(at), x(width) - LEFT);
                    _ = writeln!(
                        self.out,
                        "<rect class=\"stretch\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{SPANS}\"/>"
                    );
                    self.text(from + 3.0, 11.0, "start", run.trim());
                }
                at += width;
            }
        }
        SPANS
    }

    fn spans(&mut self, class: &str, spans: &[[u64; 2]]) -> f64 {
        for [from, to] in spans {
            let (x, end) = (self.x(*from), self.x((*to).max(*from)));
            let (y, width) = (self.y, (end - x).max(2.0));
            _ = writeln!(
                self.out,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{SPANS}\"/>"
            );
        }
        SPANS
    }
}
