//! The HTML page of `oomscope fit`: the report and its curves, without scripts.

use std::io::{self, Write};

use super::html::{Scripts, summary_len, write_head};
use crate::output::document::{Document, curve, html, html_literal};
use crate::output::report;
use crate::whatif::fit::FitReport;

/// Writes the page of `report` to `out`; `version` is that of this program.
///
/// # Errors
/// Those of `out`.
pub fn write_fit(report: &FitReport, version: &str, out: &mut dyn Write) -> io::Result<()> {
    write_head(&report.summary().answer, Scripts::None, version, out)?;
    let mut document = report::fit(report);
    let below = Document { blocks: document.blocks.split_off(summary_len(&document)) };
    write!(out, "<main id=\"first\">\n{}", html(&document))?;
    for (title, lines) in report::fit_curves(report) {
        write!(out, "<h2>{}</h2>\n{}", html_literal(&title), curve(&lines))?;
    }
    write!(out, "{}</main>\n</body>\n</html>\n", html(&below))
}
