//! Line charts of bytes over sizes, as SVG without scripts.

use std::fmt::Write as _;

use super::escape::escape_html;
use super::ticks::round_up;
use crate::base::units::{count, size};

/// Lines over one axis of whole numbers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curve {
    /// Label of the x axis.
    pub x_label: String,
    /// From the back to the front.
    pub lines: Vec<CurveLine>,
    /// Horizontal limits in bytes, with their labels; one without a label has no text.
    pub limits: Vec<(u64, String)>,
    /// Labelled positions on the x axis.
    pub marks: Vec<CurveMark>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CurveLine {
    pub name: String,
    pub role: LineRole,
    /// By ascending `x`.
    pub points: Vec<CurvePoint>,
}

/// Selects the style of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineRole {
    /// The subject of the chart.
    Main,
    /// Context for the main line.
    Secondary,
    /// The same under other settings.
    Alternative,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurvePoint {
    pub x: u64,
    pub bytes: u64,
    pub tooltip: String,
    /// Whether it was recorded rather than predicted.
    pub is_measured: bool,
    /// Whether it does not fit.
    pub fails: bool,
}

/// A labelled position on the x axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurveMark {
    pub x: u64,
    pub label: String,
    /// Role of the line that it marks.
    pub role: LineRole,
}

impl LineRole {
    fn class(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Secondary => "beside",
            Self::Alternative => "other",
        }
    }
}

const WIDTH: f64 = 900.0;
const LEFT: f64 = 86.0;
const RIGHT: f64 = 24.0;
/// Height of the plot, and of each row of marks above it.
const HEIGHT: f64 = 260.0;
const MARK_ROW_HEIGHT: f64 = 17.0;
/// Height of the axis below the plot: numbers and label.
const AXIS_HEIGHT: f64 = 40.0;
/// Maximum number of ticks on an axis.
const MAX_TICKS: u64 = 8;

/// `curve` as a figure.
pub fn curve(curve: &Curve) -> String {
    let points = || curve.lines.iter().flat_map(|line| &line.points);
    let limits = curve.limits.iter().map(|(bytes, _)| *bytes);
    let max_bytes = points().map(|point| point.bytes).chain(limits).fold(1, u64::max);
    let first = points().map(|point| point.x).min().unwrap_or(0); // no line has a point
    let last = points().map(|point| point.x).fold(first.saturating_add(1), u64::max);
    let top = MARK_ROW_HEIGHT * (curve.marks.len() as f64 + 0.5);
    let mut drawing =
        CurveSvg { out: String::new(), top, first, x_range: last - first, max_bytes: max_bytes as f64 * 1.04 };
    drawing.draw_axes(max_bytes, last, &curve.x_label);
    for (bytes, what) in &curve.limits {
        drawing.draw_limit(*bytes, what);
    }
    for line in &curve.lines {
        drawing.draw_line(line);
    }
    for (row, mark) in curve.marks.iter().enumerate() {
        drawing.draw_mark(row, mark, &curve.lines);
    }
    let height = top + HEIGHT + AXIS_HEIGHT;
    let has_failing = points().any(|point| point.fails);
    let keys = curve.lines.iter().map(legend_entry).chain([RECORDED_KEY.to_owned()]);
    let keys = keys.chain(has_failing.then(|| FAILS_KEY.to_owned()));
    format!(
        "<figure class=\"curve\">\n<div class=\"scroll\"><svg class=\"curve\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{}\">\n{}</svg></div>\n<figcaption>{}</figcaption>\n</figure>\n",
        escape_html(&aria_label(curve)),
        drawing.out,
        keys.collect::<String>()
    )
}

/// The chart as a sentence, for screen readers.
fn aria_label(curve: &Curve) -> String {
    let names = curve.lines.iter().map(|line| line.name.clone());
    let marks = curve.marks.iter().map(|mark| mark.label.clone());
    let limit = curve
        .limits
        .iter()
        .filter(|(_, what)| !what.is_empty())
        .map(|(bytes, what)| format!("{}, {what}", size(*bytes)));
    let all: Vec<String> = names.chain(limit).chain(marks).collect();
    format!("By {}: {}", curve.x_label, all.join("; "))
}

fn legend_entry(line: &CurveLine) -> String {
    format!(
        "<span><svg class=\"curve key\" viewBox=\"0 0 26 10\" aria-hidden=\"true\"><path class=\"{}\" d=\"M0 5H26\"/></svg>{}</span>\n",
        line.role.class(),
        escape_html(&line.name)
    )
}

const RECORDED_KEY: &str = "<span><svg class=\"curve key\" viewBox=\"0 0 26 10\" aria-hidden=\"true\"><circle \
                   class=\"measured main\" cx=\"13\" cy=\"5\" r=\"4\"/></svg>recorded</span>\n";

const FAILS_KEY: &str = "<span><svg class=\"curve key\" viewBox=\"0 0 26 10\" aria-hidden=\"true\"><circle \
                class=\"fails\" cx=\"13\" cy=\"5\" r=\"4\"/></svg>does not fit</span>\n";

struct CurveSvg {
    out: String,
    top: f64,
    first: u64,
    x_range: u64,
    /// Bytes at the upper end of the y axis.
    max_bytes: f64,
}

impl CurveSvg {
    fn x(&self, at: u64) -> f64 {
        let part = at.saturating_sub(self.first) as f64 / self.x_range as f64;
        LEFT + part.min(1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, bytes: u64) -> f64 {
        self.top + HEIGHT * (1.0 - bytes as f64 / self.max_bytes)
    }

    fn text(&mut self, [x, y]: [f64; 2], anchor: &str, class: &str, text: &str) {
        let text = escape_html(text);
        _ = writeln!(
            self.out,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    fn path(&mut self, class: &str, path: &str) {
        _ = writeln!(self.out, "<path class=\"{class}\" d=\"{path}\"/>");
    }

    fn draw_axes(&mut self, most: u64, last: u64, across: &str) {
        let end = WIDTH - RIGHT;
        // Powers of two make round labels in MiB and GiB.
        let step = (most / (MAX_TICKS - 2)).max(1).next_power_of_two();
        for bytes in (0..=most / step).map(|n| n * step) {
            let y = self.y(bytes);
            self.path("grid", &format!("M{LEFT} {y:.1}H{end}"));
            self.text([LEFT - 8.0, y + 4.0], "end", "", &size(bytes));
        }
        let bottom = self.top + HEIGHT;
        let step = round_up(self.x_range.div_ceil(MAX_TICKS));
        let numbers = (0..).map_while(|n| {
            let at = self.first.checked_next_multiple_of(step)?.checked_add(step.checked_mul(n)?)?;
            (at <= last).then_some(at)
        });
        for at in numbers.collect::<Vec<u64>>() {
            let x = self.x(at);
            self.path("grid", &format!("M{x:.1} {bottom:.1}V{:.1}", bottom + 4.0));
            self.text([x, bottom + 17.0], "middle", "", &count(at));
        }
        self.text([f64::midpoint(LEFT, end), bottom + 34.0], "middle", "", across);
    }

    fn draw_limit(&mut self, bytes: u64, label: &str) {
        let y = self.y(bytes);
        self.path("limit", &format!("M{LEFT} {y:.1}H{}", WIDTH - RIGHT));
        if !label.is_empty() {
            self.text([LEFT + 6.0, y - 5.0], "start", "limit", &format!("{}, {label}", size(bytes)));
        }
    }

    fn draw_line(&mut self, line: &CurveLine) {
        let class = line.role.class();
        let mut path = String::new();
        for point in &line.points {
            let letter = if path.is_empty() { 'M' } else { 'L' };
            _ = write!(path, "{letter}{:.1} {:.1}", self.x(point.x), self.y(point.bytes));
        }
        self.path(class, &path);
        for point in &line.points {
            let (x, y, tooltip) = (self.x(point.x), self.y(point.bytes), escape_html(&point.tooltip));
            let (kind, radius) = match point {
                CurvePoint { is_measured: true, .. } => ("measured", 4.5),
                CurvePoint { fails: true, .. } => ("fails", 3.5),
                _ => ("point", 2.5),
            };
            _ = writeln!(
                self.out,
                "<circle class=\"{kind} {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"><title>{tooltip}</title></circle>"
            );
        }
    }

    fn draw_mark(&mut self, row: usize, mark: &CurveMark, lines: &[CurveLine]) {
        let matching = lines.iter().filter(|line| line.role == mark.role);
        let point = matching.flat_map(|line| &line.points).find(|point| point.x == mark.x);
        let (x, class) = (self.x(mark.x), mark.role.class());
        let y = point.map_or(self.top + HEIGHT, |point| self.y(point.bytes));
        let above = MARK_ROW_HEIGHT * (row as f64 + 0.8);
        self.path(&format!("mark {class}"), &format!("M{x:.1} {above:.1}V{:.1}", self.top + HEIGHT));
        let (away, anchor) = if x > f64::midpoint(LEFT, WIDTH) { (-6.0, "end") } else { (6.0, "start") };
        self.text([x + away, above], anchor, class, &mark.label);
        _ = writeln!(self.out, "<circle class=\"mark {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"/>");
    }
}
