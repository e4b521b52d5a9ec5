//! The page of `oomscope diff`, and its summary: the peaks before and after, and the lines that changed; below it all other figures.

use itertools::Itertools as _;
use serde_json::Value;

use super::notes::changes_answer;
use super::phrases::{and_others, location_details, operation_label};
use crate::base::units::{count, counted, percent, ratio, signed_count, signed_difference, signed_size, size};
use crate::compare::diff::{
    ComparedMoment, DeviceDiff, DiffReport, LineChange, LiveChange, SettingChange, Status, VariableChange,
};
use crate::output::document::{Cell, Document, Item, Table, TableOf, Text, amount, code, faint, signed_amount, strong};
use crate::output::wording::{Summary, command_line, describe_position, frame_label, location_label};
use crate::stacks::frames::FrameReport;
use crate::study::figures::{Amount, Figure, Unit};

/// Rows of the table of lines, and of one beside a table of devices.
const MAX_LINES: usize = 10;
const MAX_LINES_BESIDE: usize = 5;
/// Settings and warnings on the first screen, at most.
const MAX_SETTINGS: usize = 4;
const MAX_NOTES: usize = 2;

/// Lays out `report`: the device that changed most, and the others below.
pub fn diff(report: &DiffReport) -> Document {
    let Some(most) = report.most_changed() else {
        return Document::with_headline(strong(report.summary().answer), "");
    };
    let mut document = Document::with_headline(headline(report, most), faint(context(most)));
    for of in report.warnings.iter().filter(|of| changes_answer(of.warning.code)).take(MAX_NOTES) {
        document.warning(of.warning.code.word(), format!("{}: {}", of.side, of.warning.message));
    }
    let are_several = report.devices.len() > 1;
    if are_several {
        document.table(devices(report));
    }
    lines(&mut document, most, if are_several { MAX_LINES_BESIDE } else { MAX_LINES });
    document.fields("why", why(most));
    let [before, after] = most.numbers(Figure::Ooms);
    let failed = format!("{} before, {} after", counted(before, "request"), count(after));
    document.fields("failed", (before + after > 0).then_some(failed));
    let settings = settings(&report.settings_changed);
    let others = and_others(settings.len(), MAX_SETTINGS, "other", ": --full");
    document.fields("settings", settings.into_iter().take(MAX_SETTINGS).chain(others));
    document.fields("next", command_line("analyze", &report.after).map(code));
    document.with_sections(sections(report, most))
}

/// `peak allocated 1.89 GiB → 3.44 GiB (+82%) · peak reserved 2.06 GiB → 3.85 GiB (+87%)`
fn headline(report: &DiffReport, device: &DeviceDiff) -> Text {
    let device_name = if report.devices.len() > 1 { format!("GPU {}: ", device.device) } else { String::new() };
    let figures = match device.at {
        ComparedMoment::Peak => [("peak allocated", Figure::PeakAllocated), ("peak reserved", Figure::PeakReserved)],
        ComparedMoment::Snapshot => [("allocated", Figure::Allocated), ("reserved", Figure::Reserved)],
    };
    let figures = figures.map(|(name, figure)| {
        let [before, after] = device.numbers(figure);
        let by = device.delta.change(figure);
        let change = if by == 0 { "same".to_owned() } else { share(before, by) };
        let change = if change.is_empty() { change } else { format!(" ({change})") };
        format!("{name} {} → {}{change}", size(before), size(after))
    });
    Text::from(device_name).and(figures.join(" · "))
}

/// The compared position, unless it is the peak, and the compared steps, unless they are all.
fn context(device: &DeviceDiff) -> String {
    let is_part = device.steps.is_some_and(|steps| steps.before_until.is_some() || steps.after_until.is_some());
    let steps =
        device.steps.filter(|_| is_part).map(|steps| format!("first {} only", counted(steps.compared_steps, "step")));
    let moment = (device.at == ComparedMoment::Snapshot && steps.is_none()).then(|| device.moment.clone());
    moment.or(steps).unwrap_or_default()
}

fn devices(report: &DiffReport) -> TableOf<ChangedRow> {
    const MAX_DEVICES: usize = 8;
    let rows = report.devices.iter().take(MAX_DEVICES).map(|device| {
        let [before, after] = device.numbers(Figure::Allocated);
        ChangedRow::new(format!("GPU {} {}", device.device, device.moment), before, after)
    });
    changes("allocated", rows).wide()
}

/// The lines that hold more or less, the `shown` largest changes first, and the sum of the others.
fn lines(document: &mut Document, device: &DeviceDiff, shown: usize) {
    if device.lines.is_empty() {
        return;
    }
    let rows = device.lines.iter().take(shown).map(|line| line_row(line, device));
    let mut rest = device.other_lines;
    device.lines.iter().skip(shown).for_each(|line| rest.add(&line.held));
    let rest = (rest.held.delta_bytes != 0).then(|| ChangedRow::of_rest(&rest.held));
    document.table(changes("line", rows.chain(rest)).wide());
}

/// A line; its caller too, if another line of the table has the same place.
fn line_row(line: &LineChange, device: &DeviceDiff) -> ChangedRow {
    let label = location_label(&line.location);
    let same = device.lines.iter().filter(|other| location_label(&other.location) == label).count();
    let caller = line.location.called_from.as_ref().filter(|_| same > 1);
    let file = line.location.frame.as_ref().map(|frame| &frame.file);
    let caller = caller.map(|caller| match file {
        Some(file) if *file == caller.file => faint(format!(" from :{} {}", caller.line, caller.name)),
        _ => faint(" from ").and(frame_label(caller)),
    });
    ChangedRow::of_holder(caller.into_iter().fold(label, Text::and), &line.held, line.status)
}

/// The variable that keeps more at the snapshot than before.
fn why(device: &DeviceDiff) -> Option<Text> {
    let grown = device.variables.as_ref()?.rows.iter().find(|row| row.held.delta_bytes > 0 && row.name.is_some())?;
    let details = Some(grown.details()).filter(|details| !details.is_empty());
    let details = details.map_or_else(String::new, |details| format!(" ({details})"));
    let more = format!("{details} keeps {} more at the snapshot", size(grown.held.delta_bytes.unsigned_abs()));
    Some(code(grown.holder()).and(more))
}

/// Everything below the first screen.
fn sections(report: &DiffReport, most: &DeviceDiff) -> Document {
    let mut document = Document::default();
    document.heading("Compared");
    document.field("before", code(&*report.before));
    document.field("after", code(&*report.after));
    document.fields("settings", settings(&report.settings_changed).into_iter().skip(MAX_SETTINGS));
    for device in &report.devices {
        self::device(&mut document, device, report.at, device.device == most.device);
    }
    let notes = report.warnings.iter();
    let notes = notes.map(|of| format!("{}: {}: {}", of.side, of.warning.code, of.warning.message));
    document.list_under("Notes", notes);
    document
}

fn device(document: &mut Document, device: &DeviceDiff, at: ComparedMoment, has_lines: bool) {
    document.heading(format!("GPU {}", device.device));
    document.fields("peak", (device.at == ComparedMoment::Peak).then(|| moments(device)));
    document.table(figures(device, at));
    if !has_lines {
        lines(document, device, usize::MAX);
    }
    let details = device.lines.iter().map(|line| Item { text: location_label(&line.location), details: details(line) });
    document.list(details.filter(|item| !item.details.is_empty()));
    variables(document, device);
    if device.at == at && !device.by_phase.is_empty() {
        document.subheading("Peak allocated in each phase");
        document.table(phases(device));
    }
}

/// Where a line was before, its caller, and its largest operation.
fn details(line: &LineChange) -> Vec<Text> {
    let moved = line.location.moved_from.as_ref().map(|from| Text::from("was ").and(frame_label(from)));
    let operation = operation_label(line.operation.as_deref(), line.operation_share_ratio);
    moved.into_iter().chain(location_details(&line.location)).chain(operation).collect()
}

fn variables(document: &mut Document, device: &DeviceDiff) {
    let Some(kept) = device.variables.as_ref().filter(|kept| !kept.rows.is_empty()) else { return };
    let rest = (kept.other.count > 0).then(|| ChangedRow::of_rest(&kept.other.held));
    document.table(changes("kept at the snapshot by", kept.rows.iter().map(variable).chain(rest)).wide());
}

fn variable(change: &VariableChange) -> ChangedRow {
    let name = if change.name.is_some() { code(change.holder()) } else { change.holder().into() };
    let details = Some(change.details()).filter(|details| !details.is_empty()).map(Text::from);
    ChangedRow::of_holder(Cell::with_details(name, details.into_iter().collect()), &change.held, change.status)
}

/// `+14%`, or `x25` for large growth; empty if the value was 0 or did not change.
pub(super) fn share(before: u64, by: i64) -> String {
    const MANY: u64 = 10;
    let difference = by.unsigned_abs();
    match (before, by.signum()) {
        (0, _) | (_, 0) => String::new(),
        (_, 1) if difference / before >= MANY => format!("x{}", count(difference / before + 1)),
        (_, sign) => {
            let share = percent(ratio(difference, before));
            let sign = if sign > 0 { "+" } else { "-" };
            if share.starts_with('<') { share } else { format!("{sign}{share}") }
        }
    }
}

/// A row of a table of changes.
pub(super) struct ChangedRow {
    name: Cell,
    amounts: [Text; 3],
    /// The change as a share, or a word.
    share: String,
}

impl ChangedRow {
    pub(super) fn new(name: impl Into<Cell>, before: u64, after: u64) -> Self {
        let by = signed_difference(before, after);
        let amounts = [amount(before), amount(after), signed_amount(by)];
        Self { name: name.into(), amounts, share: share(before, by) }
    }

    /// A holder; the word of its status if it has nothing on one side.
    pub(super) fn of_holder(name: impl Into<Cell>, held: &LiveChange, status: Status) -> Self {
        let row = Self::new(name, held.before_bytes, held.after_bytes);
        let is_on_both = held.before_blocks > 0 && held.after_blocks > 0;
        if is_on_both { row } else { Self { share: status.word().to_owned(), ..row } }
    }

    /// Bytes with the change in bytes, counts with that in counts, ratios with that in percentage points.
    fn of_figure(device: &DeviceDiff, name: Cell, figure: Figure) -> Self {
        let [before, after] = device.numbers(figure);
        let by = device.delta.change(figure);
        let (change, share) = match figure.unit() {
            Unit::Bytes => return Self::new(name, before, after),
            Unit::Count => (signed_count(by), share(before, by)),
            Unit::Ratio => (points(device.delta.amount(figure)), String::new()),
        };
        let [before, after] = [device.before, device.after].map(|side| side.unwrap_or_default().amount(figure));
        Self { name, amounts: [before.to_string(), after.to_string(), change].map(Text::from), share }
    }

    fn of_rest(held: &LiveChange) -> Self {
        Self::new(faint("everything else"), held.before_bytes, held.after_bytes)
    }
}

/// The table of `rows`, under `heading`.
pub(super) fn changes(heading: &'static str, rows: impl IntoIterator<Item = ChangedRow>) -> TableOf<ChangedRow> {
    Table::from_rows(rows)
        .text(heading, |row| row.name.clone())
        .number("before", |row| row.amounts[0].clone())
        .number("after", |row| row.amounts[1].clone())
        .number("change", |row| row.amounts[2].clone())
        .number("", |row| row.share.clone())
}

/// Totals, segments, blocks and fragmentation.
pub(super) fn figures(device: &DeviceDiff, at: ComparedMoment) -> TableOf<ChangedRow> {
    let peaks = [("peak allocated", Figure::PeakAllocated), ("peak reserved", Figure::PeakReserved)];
    // Otherwise one of the two recordings has no peak.
    let peaks = peaks.into_iter().filter(|_| device.at == at);
    let peaks = peaks.map(|(name, figure)| ChangedRow::of_figure(device, Cell::indented(0, name), figure));
    let moment = format!("{}:", device.moment).into();
    let moment = ChangedRow { name: moment, amounts: Default::default(), share: String::new() };
    let figures = [
        (1, "allocated", Figure::Allocated),
        (1, "reserved", Figure::Reserved),
        (1, "pending free", Figure::Pending),
        (1, "free", Figure::Free),
        (2, "releasable", Figure::Releasable),
        (2, "stranded", Figure::Stranded),
        (2, "largest block", Figure::LargestFreeBlock),
        (1, "rounding", Figure::Rounding),
        (1, "gap", Figure::GapRatio),
        (1, "segments", Figure::Segments),
        (1, "blocks in use", Figure::AllocatedBlocks),
        (1, "free blocks", Figure::FreeBlocks),
        (0, "failed requests", Figure::Ooms),
    ];
    let figures = figures.into_iter().filter(|(.., figure)| match figure {
        Figure::Pending => device.numbers(Figure::PendingBlocks) != [0, 0],
        Figure::Ooms => device.numbers(Figure::Ooms) != [0, 0],
        _ => true,
    });
    let rows = figures.map(|(depth, name, figure)| ChangedRow::of_figure(device, Cell::indented(depth, name), figure));
    changes("", peaks.chain([moment]).chain(rows))
}

/// A difference of ratios, in percentage points.
fn points(by: Amount) -> String {
    let by = by.as_f64();
    let sign = if by > 0.0 { "+" } else { "-" };
    match percent(by.abs()).as_str() {
        "0%" => "0".to_owned(),
        share => format!("{sign}{} points", share.trim_end_matches('%')),
    }
}

/// The peak of each phase.
pub(super) fn phases(device: &DeviceDiff) -> TableOf<ChangedRow> {
    let phases = device.by_phase.iter().filter_map(|change| {
        let (before, after) = (change.before_peak_allocated_bytes, change.after_peak_allocated_bytes);
        ((before, after) != (0, 0)).then(|| ChangedRow::new(change.phase.word(), before, after))
    });
    changes("phase", phases)
}

/// The positions of the peaks in both recordings.
pub(super) fn moments(device: &DeviceDiff) -> String {
    let sides = [("old", device.before_moment), ("new", device.after_moment)];
    let sides = sides.into_iter().filter_map(|(side, at)| Some((side, describe_position(at?))));
    sides.map(|(side, position)| format!("{position} in the {side} recording")).join(", ")
}

fn value(value: &Value) -> String {
    match value {
        Value::Null => "not recorded".to_owned(),
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) => text.replace(',', ", "),
        other => other.to_string(),
    }
}

/// The settings that differ: `expandable_segments false → true`.
pub(super) fn settings(changes: &[SettingChange]) -> Vec<String> {
    // The settings string repeats the settings that it changes.
    let is_repeated = changes.iter().any(|change| setting_name(&change.key) == change.key);
    let shown = changes.iter().filter(|change| !is_repeated || change.key != "settings_string");
    let lines = shown.map(|SettingChange { key, before, after }| {
        format!("{} {} → {}", setting_name(key), value(before), value(after))
    });
    lines.collect()
}

fn setting_name(key: &str) -> &str {
    match key {
        "torch_version" => "PyTorch",
        "settings_string" => "PYTORCH_CUDA_ALLOC_CONF",
        "found_settings" => "inferred by replay",
        key => key,
    }
}

impl DeviceDiff {
    /// `figure` before and after. A recording that lacks the device has nothing on it.
    pub(crate) fn numbers(&self, figure: Figure) -> [u64; 2] {
        [self.before, self.after].map(|side| side.unwrap_or_default().number(figure))
    }
}

impl DiffReport {
    /// Summarizes the device that grew most, or the one that changed most if none grew.
    pub fn summary(&self) -> Summary {
        let Some(most) = self.most_changed() else {
            return Summary::from_answer("neither snapshot holds memory or a trace");
        };
        let gpu = if self.devices.len() > 1 { format!("GPU {}: ", most.device) } else { String::new() };
        let answer = gpu + &most.summary;
        let most_held = most.lines.iter().max_by_key(|line| line.held.after_bytes);
        let who = most_held.filter(|line| line.held.after_bytes > 0).map(|line| {
            let place = line.location.label();
            let (held, by) = (size(line.held.after_bytes), signed_size(line.held.delta_bytes));
            format!("{place}: {held} after ({by})")
        });
        let [ooms_before, ooms_after] = most.numbers(Figure::Ooms);
        let grown = most.lines.iter().find(|line| line.held.delta_bytes > 0);
        let grown = grown.filter(|_| most.delta.change(Figure::Allocated) > 0);
        let place = grown.and_then(|line| line.location.frame.as_ref()).map(FrameReport::file_line);
        let (action, copy) = match place {
            _ if ooms_after > ooms_before => (Some("see why requests fail now"), command_line("analyze", &self.after)),
            Some(place) => (Some("look at what changed at that line"), Some(place)),
            None => (None, None),
        };
        Summary { answer, who, variable: None, action: action.map(str::to_owned), copy }
    }

    /// The device that grew most, or the one that changed most if none grew.
    pub(crate) fn most_changed(&self) -> Option<&DeviceDiff> {
        self.devices.iter().max_by_key(|device| {
            let by = device.delta.change(Figure::Allocated);
            (by.max(0), by.unsigned_abs(), std::cmp::Reverse(device.device))
        })
    }
}
