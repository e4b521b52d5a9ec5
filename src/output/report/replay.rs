//! The page of `oomscope replay`: a row for each GPU, or what the job does then and six figures beside those recorded.

use super::notes::{add_action, add_notes, add_other_notes};
use super::phrases::add_failed_requests;
use crate::base::units::{count, counted, size};
use crate::output::document::{Cell, Document, Judgement, Table, TableOf, Text, alarm, amount, faint, strong};
use crate::output::wording::{describe_outcome, frame_label};
use crate::whatif::{JobOutcome, ReplayReport, ReplayedDevice};

/// Rows of a table of GPUs, at most.
const MAX_ROWS: usize = 10;

/// Lays out `report`.
pub fn replay(report: &ReplayReport) -> Document {
    let summary = report.summary();
    let traced: Vec<&ReplayedDevice> = report.traced().collect();
    let Some(worst) = report.worst() else {
        return Document::with_headline(strong(&*summary.answer), faint(rules(report)));
    };
    let goes_well = worst.exact != Some(false) && worst.then.as_ref().is_none_or(JobOutcome::goes_on);
    let answer = if goes_well { strong(&*summary.answer) } else { alarm(&*summary.answer) };
    let mut document = Document::with_headline(answer, faint(context(report, worst)));
    add_notes(&mut document, &report.warnings);
    match (&worst.then, &worst.recorded, &*traced) {
        (_, Some(recorded), [_]) if recorded.exact.is_none() => {}
        (Some(_), Some(recorded), [_]) => document.table(figures(worst, recorded)),
        (Some(_), ..) => document.table(what_if_table(&traced)),
        (None, ..) => document.table(verified_table(&traced)),
    }
    document.fields("why", worst.first_divergence.as_ref().map(|divergence| &*divergence.why));
    document.fields("fails", worst.then.as_ref().and_then(|then| first_failure(worst, then)));
    add_action(&mut document, &summary);
    let mut sections = Document::default();
    for device in &traced {
        add_details(&mut sections, device, traced.len() > 1);
    }
    add_other_notes(&mut sections, &report.warnings);
    document.with_sections(sections)
}

/// `PyTorch 2.15, default settings`
fn rules(report: &ReplayReport) -> String {
    let settings = match report.settings_string.as_deref() {
        Some("") => "default settings",
        Some(settings) => settings,
        None => "settings not recorded",
    };
    format!("PyTorch {}, {settings}", report.torch_version)
}

/// The same, and the memory of the device.
fn context(report: &ReplayReport, device: &ReplayedDevice) -> String {
    let capacity = device.assumed.capacity_bytes.filter(|_| device.then.is_some());
    let capacity = capacity.map(|capacity| format!(", {} within reach", size(capacity)));
    rules(report) + &capacity.unwrap_or_default()
}

/// Where the job fails then.
fn first_failure(device: &ReplayedDevice, then: &JobOutcome) -> Option<Text> {
    let (location, which) = match then {
        JobOutcome::RequestFails { location, event, .. } => {
            let failed = device.ooms.iter().find(|oom| Some(oom.event) == *event)?;
            let at = format!(" requests {} at entry {}", size(failed.requested_bytes), count(failed.event as u64));
            (location, at)
        }
        JobOutcome::FailsAgain { location, .. } => (location, " makes that request".to_owned()),
        JobOutcome::GoesOn { .. } | JobOutcome::NotKnown { .. } => return None,
    };
    Some(frame_label(location.frame.as_ref()?).and(which))
}

/// How well each device is reproduced.
fn verified_table<'r>(devices: &[&'r ReplayedDevice]) -> TableOf<&'r ReplayedDevice> {
    let reproduced = |device: &ReplayedDevice| {
        let recorded = device.events.recorded as u64;
        match (device.exact, device.events.matched) {
            (Some(false), Some(matched)) => {
                (Judgement::Bad, format!("{} of {}", count(matched as u64), count(recorded)))
            }
            (None, _) => (Judgement::Perhaps, "nothing to reproduce".to_owned()),
            _ => (Judgement::Good, format!("all {}", count(recorded))),
        }
    };
    Table::from_rows(devices.iter().copied().take(MAX_ROWS))
        .text("device", |device| Cell::marked(reproduced(device).0, format!("GPU {}", device.device)))
        .number("entries", |device| reproduced(device).1)
        .number("peak allocated", |device| amount(device.figures.peak_allocated_bytes))
        .number("peak reserved", |device| amount(device.figures.peak_reserved_bytes))
        .number("failed requests", |device| count(device.ooms.len() as u64))
        .wide()
}

/// The outcome on each device.
fn what_if_table<'r>(devices: &[&'r ReplayedDevice]) -> impl Into<Table> {
    let row = |device: &&'r ReplayedDevice| Some((*device, device.then.as_ref()?, device.recorded.as_ref()?));
    let rows = devices.iter().take(MAX_ROWS).filter_map(row);
    let mark = |then: &JobOutcome| if then.goes_on() { Judgement::Good } else { Judgement::Bad };
    Table::from_rows(rows)
        .text("device", |(device, then, _)| Cell::marked(mark(then), format!("GPU {}", device.device)))
        .text("the job then", |(_, then, _)| describe_outcome(then))
        .number("reserved as recorded", |(.., recorded)| amount(recorded.figures.peak_reserved_bytes))
        .number("what-if", |(device, ..)| amount(device.figures.peak_reserved_bytes))
        .wide()
}

/// Everything below the first screen about `device`.
fn add_details(document: &mut Document, device: &ReplayedDevice, are_several: bool) {
    document.heading(format!("GPU {}", device.device));
    let start = "not recorded; reconstructed by undoing the trace from the final segments, so totals and peaks count from \
                 there";
    document.fields("start", Some(start).filter(|_| device.start == "reconstructed"));
    let end = |differences: usize| match differences {
        0 => "all segments and blocks as in the snapshot".to_owned(),
        n if device.exact == Some(true) => format!("{} differ from the snapshot's", counted(n as u64, "segment")),
        _ => "not compared: the replay stopped before the end".to_owned(),
    };
    document.fields("end", device.end_differences.map(end));
    assumed(document, device);
    match &device.recorded {
        Some(recorded) if are_several => document.table(figures(device, recorded)),
        Some(_) => {}
        None => {
            let [allocs, frees] = [device.figures.device_allocs, device.figures.device_frees].map(count);
            let retries = counted(device.figures.retries, "retry");
            document.field("calls", format!("{allocs} allocate on the device, {frees} free; {retries}"));
        }
    }
    add_failed_requests(document, &device.ooms);
}

fn assumed(document: &mut Document, device: &ReplayedDevice) {
    let assumed = &device.assumed;
    let capacity = assumed.capacity_bytes.filter(|_| device.recorded.is_none());
    document.fields("device", capacity.map(|capacity| format!("{} within reach", size(capacity))));
    document.fields("limit", assumed.limit_bytes.map(|limit| format!("the process may reserve {}", size(limit))));
    if let Some(trigger) = assumed.collection_trigger_bytes {
        document.field("inferred", format!("garbage collection starts at {} reserved (not recorded)", size(trigger)));
    }
    for setting in &assumed.settings {
        document.field("inferred", format!("{setting} (not recorded by this release)"));
    }
}

/// Six figures, as recorded and in the what-if.
fn figures(device: &ReplayedDevice, recorded: &ReplayedDevice) -> impl Into<Table> {
    type Figure = (&'static str, fn(&ReplayedDevice) -> String);
    const FIGURES: [Figure; 6] = [
        ("peak reserved", |d| size(d.figures.peak_reserved_bytes)),
        ("peak allocated", |d| size(d.figures.peak_allocated_bytes)),
        ("device allocations", |d| count(d.figures.device_allocs)),
        ("device frees", |d| count(d.figures.device_frees)),
        ("retries", |d| count(d.figures.retries)),
        ("failed requests", |d| count(d.ooms.len() as u64)),
    ];
    let table =
        Table::from_rows(FIGURES).text("", |(name, _)| *name).number("recorded", |(_, figure)| figure(recorded));
    table.number("what-if", |(_, figure)| figure(device)).wide()
}
