//! The page of `oomscope diff`: the peaks before and after, and the lines that changed; below it all other figures.

use super::super::notes::changes_answer;
use super::super::phrases::{location_details, operation_label};
use super::cells::{figures, first_of, moments, phases, settings, share, steps, word};
use crate::base::units::{count, counted, size};
use crate::compare::diff::{ComparedMoment, DeviceDiff, DiffReport, LineChange, LiveChange, Status, VariableChange};
use crate::output::document::{Cell, Document, Item, Table, TableOf, Text, amount, code, faint, signed_amount, strong};
use crate::output::wording::{command_line, frame_label, location_label};
use crate::study::figures::Figure;

/// Rows of the table of lines, and of one beside a table of devices.
const MAX_LINES: usize = 10;
const MAX_LINES_BESIDE: usize = 5;
/// Settings and warnings on the first screen, at most.
const MAX_SETTINGS: usize = 4;
const MAX_NOTES: usize = 2;

/// Lays out `report`: the device that changed most, and the others below.
pub fn diff(report: &DiffReport) -> Document {
    let mut document = Document::default();
    let Some(most) = report.most_changed() else {
        document.headline(strong(report.summary().answer), "");
        return document;
    };
    document.headline(headline(report, most), faint(context(most)));
    let warnings = report.warnings.iter().filter(|of| changes_answer(of.warning.code)).take(MAX_NOTES);
    for of in warnings {
        document.warning(of.warning.code.word(), format!("{}: {}", of.side, of.warning.message));
    }
    if let Some(table) = devices(report) {
        document.table(table);
        lines(&mut document, most, MAX_LINES_BESIDE);
    } else {
        lines(&mut document, most, MAX_LINES);
    }
    document.fields("why", why(most));
    // A snapshot without the device has no failures there.
    let [before, after] = [most.before, most.after].map(|side| side.unwrap_or_default().number(Figure::Ooms));
    if before + after > 0 {
        document.field("failed", format!("{} before, {} after", counted(before, "request"), count(after)));
    }
    document.fields("settings", first_of(settings(&report.settings_changed), MAX_SETTINGS));
    document.fields("next", command_line("analyze", &report.after).map(code));
    document.add_sections(sections(report, most));
    document
}

/// `peak allocated 1.89 GiB → 3.44 GiB (+82%) · peak reserved 2.06 GiB → 3.85 GiB (+87%)`
fn headline(report: &DiffReport, device: &DeviceDiff) -> Text {
    let device_name = if report.devices.len() > 1 { format!("GPU {}: ", device.device) } else { String::new() };
    let figures = match device.at {
        ComparedMoment::Peak => [("peak allocated", Figure::PeakAllocated), ("peak reserved", Figure::PeakReserved)],
        ComparedMoment::Snapshot => [("allocated", Figure::Allocated), ("reserved", Figure::Reserved)],
    };
    let figures = figures.map(|(name, figure)| {
        // A recording that lacks the device has nothing on it.
        let [before, after] = [device.before, device.after].map(|side| side.unwrap_or_default().number(figure));
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

fn devices(report: &DiffReport) -> Option<Table> {
    const MAX_DEVICES: usize = 8;
    let amounts = |device: &DeviceDiff| {
        [device.before, device.after].map(|side| side.unwrap_or_default().number(Figure::Allocated))
    };
    let change = |device: &DeviceDiff| device.delta.change(Figure::Allocated);
    let table = || {
        Table::from_rows(report.devices.iter().take(MAX_DEVICES))
            .text("allocated", |device| format!("GPU {} {}", device.device, device.moment))
            .number("before", |device| amount(amounts(device)[0]))
            .number("after", |device| amount(amounts(device)[1]))
            .number("change", |device| signed_amount(change(device)))
            .number("", |device| share(amounts(device)[0], change(device)))
            .wide()
            .into()
    };
    (report.devices.len() > 1).then(table)
}

/// The lines that hold more or less, the `shown` largest changes first, and the sum of the others.
fn lines(document: &mut Document, device: &DeviceDiff, shown: usize) {
    if device.lines.is_empty() {
        return;
    }
    let mut rows: Vec<ChangedRow> = device.lines.iter().take(shown).map(|line| line_row(line, device)).collect();
    let mut rest = device.other_lines;
    device.lines.iter().skip(shown).for_each(|line| rest.add(&line.held));
    if rest.held.delta_bytes != 0 {
        rows.push(ChangedRow::of_rest(rest.held));
    }
    document.table(changes("line", rows));
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
    let holder = caller.into_iter().fold(label, Text::and).into();
    ChangedRow { holder, held: line.held, share: share_or_word(&line.held, line.status) }
}

/// A row of a table of changes.
struct ChangedRow {
    holder: Cell,
    held: LiveChange,
    /// The change as a share, or a word.
    share: String,
}

impl ChangedRow {
    fn of_rest(held: LiveChange) -> Self {
        Self { holder: faint("everything else").into(), held, share: share(held.before_bytes, held.delta_bytes) }
    }
}

fn changes(by: &'static str, rows: Vec<ChangedRow>) -> TableOf<ChangedRow> {
    Table::from_rows(rows)
        .text(by, |row| row.holder.clone())
        .number("before", |row| size(row.held.before_bytes))
        .number("after", |row| size(row.held.after_bytes))
        .number("change", |row| signed_amount(row.held.delta_bytes))
        .number("", |row| row.share.clone())
        .wide()
}

/// The change in percent, or a word if one side has nothing.
fn share_or_word(held: &LiveChange, status: Status) -> String {
    if held.before_blocks > 0 && held.after_blocks > 0 {
        share(held.before_bytes, held.delta_bytes)
    } else {
        word(status).to_owned()
    }
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
    document.list_under(
        "Notes",
        report.warnings.iter().map(|of| format!("{}: {}: {}", of.side, of.warning.code, of.warning.message)),
    );
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
        document.table(phases(device).note(steps(device)));
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
    let mut rows: Vec<ChangedRow> = kept.rows.iter().map(variable).collect();
    if kept.other.count > 0 {
        rows.push(ChangedRow::of_rest(kept.other.held));
    }
    document.table(changes("kept at the snapshot by", rows));
}

fn variable(change: &VariableChange) -> ChangedRow {
    let name = if change.name.is_some() { code(change.holder()) } else { change.holder().into() };
    let details = Some(change.details()).filter(|details| !details.is_empty()).map(Text::from);
    let holder = Cell::WithDetails(name, details.into_iter().collect());
    ChangedRow { holder, held: change.held, share: share_or_word(&change.held, change.status) }
}
