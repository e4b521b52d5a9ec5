//! The page of `oomscope replay`, and its summary: a row for each GPU, or what the job does then and six figures beside those recorded.

use super::notes::{add_action, add_notes, with_other_notes};
use super::phrases::add_failed_requests;
use crate::allocator::conf::shell_assignment;
use crate::allocator::device::GpuModel;
use crate::base::units::{count, counted, size};
use crate::output::document::{Cell, Document, Judgement, Table, TableOf, Text, alarm, amount, faint, strong};
use crate::output::wording::{
    ESTIMATE, POSTPONES, Summary, command_line, describe_outcome, frame_label, growth_clause, outcome_clause,
};
use crate::whatif::{JobOutcome, ReplayReport, ReplayedDevice, TriedMark, TriedRow, WhyUnknown};

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
    document.with_sections(with_other_notes(sections, &report.warnings))
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
            (location, format!(" requests {} at entry {}", size(failed.requested_bytes), count(failed.event as u64)))
        }
        JobOutcome::FailsAgain { location, .. } => (location, " makes that request".to_owned()),
        JobOutcome::GoesOn { .. } | JobOutcome::NotKnown { .. } => return None,
    };
    Some(frame_label(location.frame.as_ref()?).and(which))
}

/// How well each device is reproduced.
fn verified_table<'r>(devices: &[&'r ReplayedDevice]) -> TableOf<&'r ReplayedDevice> {
    Table::from_rows(devices.iter().copied().take(MAX_ROWS))
        .text("device", |device| Cell::marked(reproduced(device).0, format!("GPU {}", device.device)))
        .number("entries", |device| reproduced(device).1)
        .number("peak allocated", |device| amount(device.figures.peak_allocated_bytes))
        .number("peak reserved", |device| amount(device.figures.peak_reserved_bytes))
        .number("failed requests", |device| count(device.ooms.len() as u64))
        .wide()
}

/// How many entries are reproduced.
fn reproduced(device: &ReplayedDevice) -> (Judgement, String) {
    let recorded = count(device.events.recorded as u64);
    match (device.exact, device.events.matched) {
        (Some(false), Some(matched)) => (Judgement::Bad, format!("{} of {recorded}", count(matched as u64))),
        (None, _) => (Judgement::Perhaps, "nothing to reproduce".to_owned()),
        _ => (Judgement::Good, format!("all {recorded}")),
    }
}

/// The outcome on each device.
fn what_if_table(devices: &[&ReplayedDevice]) -> impl Into<Table> {
    let rows = devices.iter().take(MAX_ROWS);
    let rows = rows.filter_map(|device| Some((*device, device.then.as_ref()?, device.recorded.as_ref()?)));
    Table::from_rows(rows)
        .text("device", |(device, then, _)| {
            let mark = if then.goes_on() { Judgement::Good } else { Judgement::Bad };
            Cell::marked(mark, format!("GPU {}", device.device))
        })
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
    let end = device.end_differences.map(|differences| match differences {
        0 => "all segments and blocks as in the snapshot".to_owned(),
        n if device.exact == Some(true) => format!("{} differ from the snapshot's", counted(n as u64, "segment")),
        _ => "not compared: the replay stopped before the end".to_owned(),
    });
    document.fields("end", end);
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
    let trigger = assumed.collection_trigger_bytes.map(size);
    document
        .fields("inferred", trigger.map(|size| format!("garbage collection starts at {size} reserved (not recorded)")));
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

/// To do about settings with which the job goes on.
const SET_IT: &str = "set it in the job's environment";
/// To do about settings of which nothing shows what follows.
const TRY_IT: &str = "try it, and see which code holds the memory";

impl ReplayReport {
    /// Summarizes a replay by its worst device.
    pub fn summary(&self) -> Summary {
        let Some(worst) = self.worst() else { return Summary::from_answer("no trace to replay") };
        match (&worst.recorded, &worst.then) {
            (Some(recorded), Some(then)) if recorded.exact.is_some() => self.summarize_what_if(worst, recorded, then),
            _ => self.summarize_verification(worst),
        }
    }

    /// The devices with a trace.
    pub(crate) fn traced(&self) -> impl DoubleEndedIterator<Item = &ReplayedDevice> {
        self.devices.iter().filter(|device| device.events.recorded > 0)
    }

    /// The device that is reproduced worst, or on which the job does not get as far as on others.
    pub(crate) fn worst(&self) -> Option<&ReplayedDevice> {
        // A divergence is worse than nothing to reproduce.
        self.traced().min_by_key(|device| {
            (device.then.as_ref().map(JobOutcome::reach), device.exact != Some(false), device.exact.is_some())
        })
    }

    /// How well the model reproduces the recording.
    fn summarize_verification(&self, worst: &ReplayedDevice) -> Summary {
        let id = worst.device;
        let (answer, action) = match (worst.exact, &worst.first_divergence) {
            (None, _) => return Summary::from_ring_of_one(id),
            (Some(true), _) => {
                let entries = self.traced().map(|device| device.events.recorded as u64).sum();
                let gpus = self.traced().count() as u64;
                let on = if gpus == 1 { format!("GPU {id}") } else { counted(gpus, "GPU") };
                let answer = format!("reproduced: all {} of {on}", counted(entries, "recorded entry"));
                (answer, "try other settings: what-ifs of this recording are reliable")
            }
            (Some(false), divergence) => {
                let at = divergence.as_ref().map(|divergence| format!(" at entry {}", count(divergence.event as u64)));
                let at = at.unwrap_or_default();
                let answer = format!("the model diverges from the recording of GPU {id}{at}");
                (answer, "treat every what-if of this recording as an estimate")
            }
        };
        let copy = command_line("whatif", &self.path);
        Summary { action: Some(action.to_owned()), copy, ..Summary::from_answer(answer) }
    }

    /// The outcome of the job in the what-if of `worst`, compared with the `recorded` run.
    fn summarize_what_if(&self, worst: &ReplayedDevice, recorded: &ReplayedDevice, then: &JobOutcome) -> Summary {
        let estimate = if recorded.exact == Some(false) { ESTIMATE } else { "" };
        let is_on_all = then.goes_on() || self.traced().count() == 1;
        let on = if is_on_all { String::new() } else { format!(", on GPU {}", worst.device) };
        let mark = worst.tried.as_ref().map_or(TriedMark::NoHelp, |tried| tried.mark);
        let gains = mark != TriedMark::NoHelp;
        let settings = self.settings_string.as_deref().filter(|settings| !settings.is_empty() && gains);
        let (action, copy) = match then {
            JobOutcome::GoesOn { .. } => {
                let action = if mark == TriedMark::Helps { SET_IT } else { TRY_IT };
                (settings.map(|_| action), settings.map(|settings| shell_assignment(settings, None)))
            }
            JobOutcome::FailsAgain { .. } => (Some(POSTPONES), command_line("analyze", &self.path)),
            JobOutcome::NotKnown { why: WhyUnknown::ServedAsRecorded } => {
                (Some("see why the request failed"), command_line("analyze", &self.path))
            }
            JobOutcome::NotKnown { .. } => (Some(TRY_IT), command_line("analyze", &self.path)),
            JobOutcome::RequestFails { .. } => {
                (Some("try other settings, and changes of the program"), command_line("whatif", &self.path))
            }
        };
        let answer = match (&worst.tried, worst.assumed.capacity_bytes) {
            (None, Some(capacity)) => format!("{}{on}{estimate}", describe_fit(worst, then, capacity)),
            (tried, _) => {
                let then = tried.as_ref().map_or_else(|| describe_outcome(then), TriedRow::describe_then);
                format!("the job then{on}: {then}{estimate}")
            }
        };
        Summary { action: action.map(str::to_owned), copy, ..Summary::from_answer(answer) }
    }
}

/// `yes, it fits 14.5 GiB (t4): 9.55 GiB reserved at its peak, 2.60 GiB headroom`
fn describe_fit(device: &ReplayedDevice, then: &JobOutcome, capacity: u64) -> String {
    let gpu = GpuModel::with_usable_bytes(capacity).map_or_else(String::new, |gpu| format!(" ({})", gpu.name));
    let capacity = size(capacity);
    match then {
        JobOutcome::GoesOn { headroom_bytes, .. } => {
            let peak = size(device.figures.peak_reserved_bytes);
            let headroom = headroom_bytes.map(|bytes| format!("{} headroom", size(bytes)));
            let (so_far, room) = match device.growth_bytes_per_step {
                Some(bytes) => ("so far it fits", Some(growth_clause(bytes))),
                None => ("yes, it fits", headroom),
            };
            let room = room.map_or_else(String::new, |room| format!(", {room}"));
            format!("{so_far} {capacity}{gpu}: {peak} reserved at its peak{room}")
        }
        JobOutcome::NotKnown { .. } => format!("not known whether it fits {capacity}{gpu}: {}", outcome_clause(then)),
        _ => format!("no, it does not fit {capacity}{gpu}: {}", outcome_clause(then)),
    }
}
