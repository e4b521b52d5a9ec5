//! The HTML file: the text, the data for the script, and the script.

use std::collections::HashMap;
use std::io::{self, Write};

use itertools::Itertools as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::picture::picture;
use super::screen::take_screen;
use super::{PageData, base64, sparkline, web};
use crate::analysis::{AnalyzeReport, DeviceReport};
use crate::base::units::{count, escape_name};
use crate::output::document::{Document, html, html_literal};
use crate::output::formats::json;
use crate::output::report;

/// Number of results on a page; each device has one in any case.
const MAX_RESULTS: usize = 64;

/// Number of devices on a page, so that browsers open it quickly.
const MAX_DEVICES: usize = 1000;

/// The order of the devices in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageOrder {
    /// The device with the worst failure or the highest peak first.
    WorstFirst,
    /// As given: the page opens with a comparison of the first snapshot with the second.
    Compared,
}

/// Writes the page of `report` to `out`, with its devices in `order`. `data` has the devices of its snapshots, in their order;
/// `version` is that of this program.
///
/// # Errors
/// Any error from `out`.
pub fn write(
    report: &AnalyzeReport,
    data: &[Vec<PageData>],
    order: PageOrder,
    version: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let script = web::script();
    let sources = format!("script-src{}; ", csp_hash(&script)?);
    let mut devices = in_order(report, data, order);
    let all = devices.len();
    devices.truncate(MAX_DEVICES);
    write_head(&title(report), &sources, &[web::STYLE], version, out)?;
    let mut document = report::analyze(report);
    let drawn = devices.first().and_then(|(_, device, _)| picture(device));
    let screen = take_screen(&mut document, &drawn.unwrap_or_default());
    let below = Document { blocks: std::mem::take(&mut document.sections), sections: Vec::new() };
    writeln!(out, "<main id=\"first\">")?;
    if all > MAX_DEVICES {
        let [shown, all] = [MAX_DEVICES, all].map(|devices| count(devices as u64));
        writeln!(
            out,
            "<p class=\"warning\">This page shows the worst {shown} of {all} devices, to limit its size. For others, name \
             their snapshots or --device.</p>"
        )?;
    }
    write!(out, "{screen}<div id=\"app\"></div>\n{}</main>\n", html(&below))?;
    data_block(out, "analysis", &json(report)?)?;
    if order == PageOrder::Compared {
        data_block(out, "compared", "true")?;
    }
    let rows = devices.iter().map(|(snapshot, device, _)| row(report, *snapshot, device));
    data_block(out, "pages", &rows.collect::<Value>().to_string())?;
    for (index, (.., data)) in devices.iter().enumerate() {
        write!(out, "<script type=\"text/plain\" class=\"data\" data-page=\"{index}\">")?;
        base64::write(&data.0, out)?;
        out.write_all(b"</script>\n")?;
    }
    let failures = (MAX_RESULTS / devices.len().max(1)).max(1);
    for (index, (snapshot, device, _)) in devices.iter().enumerate() {
        for failure in with_results(device, failures) {
            // As `analyze` shows it.
            let mut result = report::result(&report.snapshots[*snapshot], device, failure, report.top);
            let html = take_screen(&mut result, "");
            let failure = failure.map_or_else(String::new, |failure| failure.to_string());
            writeln!(
                out,
                "<template class=\"result\" data-page=\"{index}\" data-failure=\"{failure}\">{html}</template>"
            )?;
        }
    }
    write!(out, "<template id=\"skeleton\">{}</template>\n<script>{script}</script>\n</body>\n</html>\n", web::SKELETON)
}

/// A device of a page: index of the snapshot, analysis, data.
type PageDevice<'a> = (usize, &'a DeviceReport, &'a PageData);

/// All devices.
fn in_order<'a>(report: &'a AnalyzeReport, data: &'a [Vec<PageData>], order: PageOrder) -> Vec<PageDevice<'a>> {
    // Without the table of ranks the order is that of the snapshots.
    let ranks = report.ranks.iter().filter(|_| order == PageOrder::WorstFirst).flat_map(|ranks| &ranks.rows);
    let rank: HashMap<(&str, u64), usize> = ranks.map(|row| (&*row.path, row.device)).zip(0..).collect();
    let snapshots = report.snapshots.iter().zip(data).enumerate();
    let all = snapshots.flat_map(|(index, (snapshot, data))| {
        snapshot.devices.iter().zip(data).map(move |(device, data)| (index, device, data))
    });
    let sorted = all.sorted_by_key(|(index, device, _)| {
        rank.get(&(&*report.snapshots[*index].path, device.device)).copied().unwrap_or(usize::MAX)
    });
    sorted.collect()
}

/// The failed requests of `device` with a result of their own, the last `most`; `None` for one on its use of memory.
fn with_results(device: &DeviceReport, most: usize) -> Vec<Option<usize>> {
    let failures = device.ooms.len();
    // At a moment that the user chose there is one result.
    if failures == 0 || device.moment.is_some() {
        return vec![None];
    }
    (failures.saturating_sub(most)..failures).map(Some).collect()
}

/// Writes the head of a page. Its security policy allows what `sources` allow, and the inline `styles`, the first of which
/// is the page's.
pub(super) fn write_head(
    title: &str,
    sources: &str,
    styles: &[&str],
    version: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (title, style) = (html_literal(title), styles.first().copied().unwrap_or_default());
    let styles = styles.iter().map(|style| csp_hash(style)).collect::<io::Result<String>>()?;
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; {sources}style-src{styles}; \
         img-src data: blob:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"oomscope {version}\">\n<title>{title}</title>\n<style>{style}</style>\n\
         </head>\n<body>\n"
    )
}

/// The names of the files, as a browser's tab shows them.
fn title(report: &AnalyzeReport) -> String {
    let names = report.snapshots.iter().map(|snapshot| file_name(&snapshot.path));
    let others = names.len().saturating_sub(1);
    let first = names.into_iter().next().unwrap_or_default();
    if others > 0 { format!("{first} and {others} more") } else { first }
}

/// The name of the file at `path`, escaped.
fn file_name(path: &str) -> String {
    escape_name(path.rsplit(['/', '\\']).next().unwrap_or(path))
}

/// ` '..'`, the name of `text` in a content security policy.
pub(super) fn csp_hash(text: &str) -> io::Result<String> {
    let mut name = b" 'sha256-".to_vec();
    base64::write(&Sha256::digest(text.as_bytes()), &mut name)?;
    name.push(b'\'');
    String::from_utf8(name).map_err(io::Error::other)
}

/// Writes JSON for the script, escaped so that it cannot end the element.
fn data_block(out: &mut dyn Write, id: &str, json: &str) -> io::Result<()> {
    let json = json.split('<').format("\\u003c");
    writeln!(out, "<script type=\"application/json\" id=\"{id}\">{json}</script>")
}

/// One device in the list that the script reads before it unpacks any data.
fn row(report: &AnalyzeReport, snapshot: usize, device: &DeviceReport) -> Value {
    let (failed, history) = (device.ooms.last(), device.timeline.as_ref());
    json!({
        "device": device.device,
        "entries": history.map_or(0, |history| history.entries),
        "first_event": history.map_or(0, |history| history.first_entry),
        "peak_allocated_bytes": device.peak.allocated_bytes,
        "peak_reserved_bytes": device.peak.reserved_bytes,
        "failures": device.oom_count,
        "course": history.map(sparkline),
        "result": device.conclusion,
        "line": failed.map(|oom| oom.location.label()),
        "requested_bytes": failed.map(|oom| oom.requested_bytes),
        "capacity_bytes": device.capacity_bytes,
        "snapshot": snapshot,
        "title": format!("{}, GPU {}", file_name(&report.snapshots[snapshot].path), device.device),
    })
}
