//! The HTML pages of `oomscope fit` and `oomscope plan`: the report and its curves, without scripts.

use std::io::{self, Write};

use super::html::{Scripts, summary_len, write_head};
use crate::output::document::{Curve, Document, curve, html, html_literal};
use crate::output::report;
use crate::whatif::fit::FitReport;
use crate::whatif::plan::PlanReport;

/// Writes the page of `report` to `out`; `version` is that of this program.
///
/// # Errors
/// Those of `out`.
pub fn write_fit(report: &FitReport, version: &str, out: &mut dyn Write) -> io::Result<()> {
    let document = report::fit(report);
    write_with_curves(&report.summary().answer, document, &report::fit_curves(report), version, out)
}

/// Writes the page of a plan to `out`, with the limit of each GPU in its curves; `version` is that of this program.
///
/// # Errors
/// Those of `out`.
pub fn write_plan(report: &PlanReport, version: &str, out: &mut dyn Write) -> io::Result<()> {
    let limits = report.gpus.iter().map(|gpu| (gpu.usable_bytes, gpu.gpu.to_owned()));
    let limits: Vec<(u64, String)> = limits.collect();
    let curves = report::fit_curves(&report.fit);
    let curves = curves.into_iter().map(|(title, curve)| (title, Curve { limits: limits.clone(), ..curve }));
    write_with_curves(&report.summary().answer, report::plan(report), &curves.collect::<Vec<_>>(), version, out)
}

fn write_with_curves(
    title: &str,
    mut document: Document,
    curves: &[(String, Curve)],
    version: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    write_head(title, Scripts::None, version, out)?;
    let below = Document { blocks: document.blocks.split_off(summary_len(&document)) };
    write!(out, "<main id=\"first\">\n{}", html(&document))?;
    for (title, lines) in curves {
        write!(out, "<h2>{}</h2>\n{}", html_literal(title), curve(lines))?;
    }
    write!(out, "{}</main>\n</body>\n</html>\n", html(&below))
}
