//! The HTML pages of `oomscope fit` and `oomscope plan`: the report and its curves, without scripts.

use std::io::{self, Write};

use super::html::{Scripts, write_head};
use crate::output::document::{Curve, CurveMark, Document, LineRole, curve, html, html_literal};
use crate::output::report;
use crate::whatif::fit::FitReport;
use crate::whatif::plan::{PlanChange, PlanReport};

/// How many labels fit in the height of a curve.
const LABELS_IN_HEIGHT: u64 = 16;

/// Writes the page of `report` to `out`; `version` is that of this program.
///
/// # Errors
/// Those of `out`.
pub fn write_fit(report: &FitReport, version: &str, out: &mut dyn Write) -> io::Result<()> {
    write_with_curves(&report.summary().answer, report::fit(report), &report::fit_curves(report), version, out)
}

/// Writes the page of a plan to `out`, with its curves below the table of sizes; `version` is that of this program.
///
/// # Errors
/// Those of `out`.
pub fn write_plan(report: &PlanReport, version: &str, out: &mut dyn Write) -> io::Result<()> {
    let curves = report::fit_curves(&report.fit);
    let curves = curves.into_iter().map(|(title, curve)| (title, plan_curve(report, curve)));
    write_with_curves(&report.summary().answer, report::plan(report), &curves.collect::<Vec<_>>(), version, out)
}

/// `curve` of the program as it is, with the limit of each GPU and the largest size on the largest of them.
fn plan_curve(report: &PlanReport, mut curve: Curve) -> Curve {
    curve.lines.retain(|line| line.role != LineRole::Alternative);
    let largest = report.gpus.last().and_then(|gpu| Some((gpu, gpu.cell(PlanChange::AsIs)?)));
    let largest = largest.and_then(|(gpu, cell)| Some((gpu, cell, cell.size.filter(|size| *size > 0)?)));
    let mark = largest.map(|(gpu, cell, size)| CurveMark {
        x: size,
        label: format!("{} fits {}", cell.label(), gpu.gpu),
        role: LineRole::Main,
    });
    Curve {
        x_label: report.name.clone(),
        limits: gpu_limits(report),
        marks: mark.into_iter().collect(),
        lines: curve.lines,
    }
}

/// A limit for each GPU. The labels of limits that are close to each other would overlap, so the highest has them all.
fn gpu_limits(report: &PlanReport) -> Vec<(u64, String)> {
    let highest = report.gpus.iter().map(|gpu| gpu.usable_bytes).fold(0, u64::max);
    let mut limits: Vec<(u64, String)> = Vec::new();
    for gpu in &report.gpus {
        let close = limits.last_mut().filter(|(bytes, _)| gpu.usable_bytes - *bytes < highest / LABELS_IN_HEIGHT);
        let before = close.map(|(_, label)| std::mem::take(label));
        let label = before.map_or_else(|| gpu.gpu.to_owned(), |names| format!("{names}, {}", gpu.gpu));
        limits.push((gpu.usable_bytes, label));
    }
    limits
}

/// Writes the first screen of `document`, then `curves`, then its sections.
fn write_with_curves(
    title: &str,
    mut document: Document,
    curves: &[(String, Curve)],
    version: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    document.shorten_locations();
    write_head(title, Scripts::None, version, out)?;
    write!(out, "<main id=\"first\">\n{}", html(&document))?;
    for (title, lines) in curves {
        write!(out, "<h2>{}</h2>\n{}", html_literal(title), curve(lines))?;
    }
    let below = Document { blocks: document.sections, sections: Vec::new() };
    write!(out, "{}</main>\n</body>\n</html>\n", html(&below))
}
