//! Bytes over a number as lines: a picture in SVG that needs no script.

use std::fmt::Write as _;

use super::markup::escape_html;
use super::ticks::round_up;
use crate::base::units::{count, size};

/// Lines over one axis of whole numbers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curve {
    /// What the numbers along the axis are.
    pub x_label: String,
    /// From the back to the front.
    pub lines: Vec<CurveLine>,
    /// Bytes that no line may pass, and what they are.
    pub limit: Option<(u64, String)>,
    /// Numbers that something is said of.
    pub marks: Vec<CurveMark>,
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct CurveLine {
    /// What it shows.
    pub name: String,
    /// How it is drawn.
    pub look: LineRole,
    /// In ascending order.
    pub points: Vec<CurvePoint>,
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineRole {
    /// What the picture is about.
    Main,
    /// What belongs to it.
    Secondary,
    /// What it might be.
    Alternative,
}

/// A point of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurvePoint {
    /// The number.
    pub x: u64,
    /// Bytes there.
    pub bytes: u64,
    /// What is said of it, where a pointer rests.
    pub tooltip: String,
    /// Whether it was measured.
    pub is_measured: bool,
}

/// A number, what is said of it, and the look of the line it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurveMark {
    /// The number.
    pub at: u64,
    /// A few words.
    pub said: String,
    /// Of the line that it belongs to.
    pub look: LineRole,
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
/// How high the lines are, and what stands above them: a row for each mark.
const HEIGHT: f64 = 260.0;
const MARK_ROW_HEIGHT: f64 = 17.0;
/// What stands below: numbers, and what they are.
const AXIS_HEIGHT: f64 = 40.0;
/// Marks on the axes, at most.
const MAX_TICKS: u64 = 8;

/// `curve` as a figure.
pub fn curve(curve: &Curve) -> String {
    let points = || curve.lines.iter().flat_map(|line| &line.points);
    let limit = curve.limit.as_ref().map(|(bytes, _)| *bytes);
    let most = points().map(|point| point.bytes).chain(limit).max().unwrap_or(0).max(1);
    let first = points().map(|point| point.x).min().unwrap_or(0);
    let last = points().map(|point| point.x).max().unwrap_or(0).max(first.saturating_add(1));
    let top = MARK_ROW_HEIGHT * (curve.marks.len() as f64 + 0.5);
    let mut drawing =
        CurveSvg { out: String::new(), top, first, x_range: last - first, max_bytes: most as f64 * 1.04 };
    drawing.axes(most, last, &curve.x_label);
    if let Some((bytes, what)) = &curve.limit {
        drawing.limit(*bytes, what);
    }
    for line in &curve.lines {
        drawing.line(line);
    }
    for (row, mark) in curve.marks.iter().enumerate() {
        drawing.mark(row, mark, &curve.lines);
    }
    let height = top + HEIGHT + AXIS_HEIGHT;
    let keys = curve.lines.iter().map(legend_entry).chain([RECORDED_KEY.to_owned()]);
    format!(
        "<figure class=\"curve\">\n<div class=\"scroll\"><svg class=\"curve\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{}\">\n{}</svg></div>\n<figcaption>{}</figcaption>\n</figure>\n",
        escape_html(&aria_label(curve)),
        drawing.out,
        keys.collect::<String>()
    )
}

/// What a reader who does not see the picture is told.
fn aria_label(curve: &Curve) -> String {
    let names = curve.lines.iter().map(|line| line.name.clone());
    let marks = curve.marks.iter().map(|mark| mark.said.clone());
    let limit = curve.limit.iter().map(|(bytes, what)| format!("{}, {what}", size(*bytes)));
    let all: Vec<String> = names.chain(limit).chain(marks).collect();
    format!("By {}: {}", curve.x_label, all.join("; "))
}

fn legend_entry(line: &CurveLine) -> String {
    format!(
        "<span><svg class=\"curve key\" viewBox=\"0 0 26 10\" aria-hidden=\"true\"><path class=\"{}\" d=\"M0 5H26\"/></svg>{}</span>\n",
        line.look.class(),
        escape_html(&line.name)
    )
}

const RECORDED_KEY: &str = "<span><svg class=\"curve key\" viewBox=\"0 0 26 10\" aria-hidden=\"true\"><circle \
                   class=\"measured main\" cx=\"13\" cy=\"5\" r=\"4\"/></svg>recorded</span>\n";

struct CurveSvg {
    out: String,
    top: f64,
    first: u64,
    x_range: u64,
    /// Bytes at the upper end.
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

    fn axes(&mut self, most: u64, last: u64, across: &str) {
        let end = WIDTH - RIGHT;
        // Memory comes in powers of two.
        let step = (most / (MAX_TICKS - 2)).max(1).next_power_of_two();
        for bytes in (0..=most / step).map(|n| n * step) {
            let y = self.y(bytes);
            self.path("grid", &format!("M{LEFT} {y:.1}H{end}"));
            self.text([LEFT - 8.0, y + 4.0], "end", "", &size(bytes));
        }
        let bottom = self.top + HEIGHT;
        let step = round_up(self.x_range.div_ceil(MAX_TICKS));
        let numbers = (0..).map_while(|n| {
            let at =
                self.first.checked_next_multiple_of(step)?.checked_add(step.checked_mul(n)?)?;
            (at <= last).then_some(at)
        });
        for at in numbers.collect::<Vec<u64>>() {
            let x = self.x(at);
            self.path("grid", &format!("M{x:.1} {bottom:.1}V{:.1}", bottom + 4.0));
            self.text([x, bottom + 17.0], "middle", "", &count(at));
        }
        self.text([f64::midpoint(LEFT, end), bottom + 34.0], "middle", "", across);
    }

    fn limit(&mut self, bytes: u64, what: &str) {
        let y = self.y(bytes);
        self.path("limit", &format!("M{LEFT} {y:.1}H{}", WIDTH - RIGHT));
        self.text([LEFT + 6.0, y - 5.0], "start", "limit", &format!("{}, {what}", size(bytes)));
    }

    fn line(&mut self, line: &CurveLine) {
        let class = line.look.class();
        let mut path = String::new();
        for point in &line.points {
            let letter = if path.is_empty() { 'M' } else { 'L' };
            _ = write!(path, "{letter}{:.1} {:.1}", self.x(point.x), self.y(point.bytes));
        }
        self.path(class, &path);
        for point in &line.points {
            let (x, y, said) = (self.x(point.x), self.y(point.bytes), escape_html(&point.tooltip));
            let (kind, radius) = if point.is_measured { ("measured", 4.5) } else { ("point", 2.5) };
            _ = writeln!(
                self.out,
                "<circle class=\"{kind} {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"><title>{said}</title></circle>"
            );
        }
    }

    fn mark(&mut self, row: usize, mark: &CurveMark, lines: &[CurveLine]) {
        let of = lines.iter().filter(|line| line.look == mark.look);
        let point = of.flat_map(|line| &line.points).find(|point| point.x == mark.at);
        let (x, class) = (self.x(mark.at), mark.look.class());
        let y = point.map_or(self.top + HEIGHT, |point| self.y(point.bytes));
        let above = MARK_ROW_HEIGHT * (row as f64 + 0.8);
        self.path(
            &format!("mark {class}"),
            &format!("M{x:.1} {above:.1}V{:.1}", self.top + HEIGHT),
        );
        let (away, anchor) =
            if x > f64::midpoint(LEFT, WIDTH) { (-6.0, "end") } else { (6.0, "start") };
        self.text([x + away, above], anchor, class, &mark.said);
        _ = writeln!(
            self.out,
            "<circle class=\"mark {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"/>"
        );
    }
}
