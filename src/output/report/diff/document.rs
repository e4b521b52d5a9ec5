//! The page of `oomscope diff`: the result, the figures, the lines responsible.

use super::super::phrases::{frame_label, location_details, location_label, operation_label, python_frames};
use super::super::summary::summary;
use super::cells::{
    FIGURES, PHASES, RANKS, SETTINGS, SPACES, blocks, compared, figures, moments, moved, notes, phases, pools, ranks,
    settings, share, steps, streams, word,
};
use crate::base::units::{count, counted, signed_size, size};
use crate::compare::diff::{
    ComparedMoment, DeviceDiff, DiffReport, FailOn, LineChange, LiveChange, RanksDiff, StackChange, Status,
    VariableChange,
};
use crate::output::document::{Cell, Document, Item, Table, Text, alarm, code};
use crate::study::figures::Figure;

/// Maximum number of frames shown of a stack.
const FRAMES: usize = 5;

/// Lays out `report`.
pub fn diff(report: &DiffReport) -> Document {
    let mut document = Document::default();
    summary(&mut document, &report.summary());
    for message in report.fail_on.iter().flat_map(FailOn::messages) {
        document.paragraph(alarm(format!("FAILED: {message}")));
    }
    document.field("before", code(&*report.before));
    document.field("after", code(&*report.after));
    if let Some(ranks) = &report.ranks {
        all_ranks(&mut document, ranks);
    }
    if !report.settings_changed.is_empty() {
        document.heading("Settings that differ");
        let rows = settings(&report.settings_changed);
        document.table(Table::new(&SETTINGS, &[0, 1, 2], rows));
    }
    for device in &report.devices {
        self::device(&mut document, device, report.at, report.devices.len() > 1);
    }
    document.list_under("Notes", notes(report));
    document
}

fn all_ranks(document: &mut Document, of: &RanksDiff) {
    document.heading(format!(
        "{} in both, the worst first (allocated {})",
        counted(of.rows.len() as u64, "device"),
        of.rows.first().map_or("", |row| row.moment.as_str())
    ));
    document.table(Table::new(&RANKS, &[0], ranks(of)));
    if let Some(worst) = of.rows.first() {
        document.heading(Text::from("The worst in full: ").and(code(&*worst.name)));
    }
}

fn device(document: &mut Document, device: &DeviceDiff, at: ComparedMoment, is_one_of_several: bool) {
    document.heading(format!("Device {}", device.device));
    if is_one_of_several {
        document.paragraph(&*device.summary);
    }
    let peak = (device.at == ComparedMoment::Peak).then(|| format!("The peak: {}", moments(device)));
    for sentence in [compared(device), peak, moved(device)].into_iter().flatten() {
        document.paragraph(sentence);
    }
    document.table(Table::new(&FIGURES, &[0], figures(device, at)));
    lines(document, device);
    variables(document, device);
    if device.at == at && !device.by_phase.is_empty() {
        document.subheading("Peak allocated in each phase");
        document.table(Table::new(&PHASES, &[0], phases(device)).note(steps(device)));
    }
    stacks(document, device);
    for (title, first, rows) in [("Pools", "pool", pools(device)), ("Streams", "stream", streams(device))] {
        if !rows.is_empty() {
            document.subheading(title);
            let mut header = SPACES;
            header[0] = first;
            document.table(Table::new(&header, &[0], rows));
        }
    }
}

fn lines(document: &mut Document, device: &DeviceDiff) {
    const BLOCKS: usize = 4;
    if device.lines.is_empty() {
        return;
    }
    document.subheading(format!("Who holds more or less {}, by line", device.moment));
    let mut rows: Vec<Vec<Cell>> = device.lines.iter().map(line).collect();
    let others = &device.other_lines;
    if others.count > 0 {
        let share = share(others.held.before_bytes, others.held.delta_bytes);
        rows.push(row(&others.held, share, "everything else".into()));
    }
    let all = device.delta.change(Figure::Allocated);
    // A recording that lacks the device has nothing on it.
    let [before, after] =
        [device.before, device.after].map(|figures| figures.unwrap_or_default().number(Figure::Allocated));
    rows.push(vec![
        signed_size(all).into(),
        share(before, all).into(),
        size(before).into(),
        size(after).into(),
        "".into(),
        "total".into(),
    ]);
    let header = ["change", "", "before", "after", "blocks", "allocated by"];
    document.table(Table::new(&header, &[5], rows).optional_columns(&[BLOCKS]));
}

fn variables(document: &mut Document, device: &DeviceDiff) {
    const BLOCKS: usize = 4;
    let Some(changes) = device.variables.as_ref().filter(|changes| !changes.rows.is_empty()) else { return };
    document.subheading("What keeps more or less at the snapshot, by module and variable");
    let mut rows: Vec<Vec<Cell>> = changes.rows.iter().map(variable).collect();
    let others = &changes.other;
    if others.count > 0 {
        let share = share(others.held.before_bytes, others.held.delta_bytes);
        rows.push(row(&others.held, share, "everything else".into()));
    }
    let header = ["change", "", "before", "after", "blocks", "kept by"];
    document.table(Table::new(&header, &[5], rows).optional_columns(&[BLOCKS]));
}

fn variable(change: &VariableChange) -> Vec<Cell> {
    let held = &change.held;
    let name = if change.name.is_some() { code(change.holder()) } else { change.holder().into() };
    row(
        held,
        share_or_word(held, change.status),
        Cell::WithDetails(
            name,
            Some(change.details()).filter(|it| !it.is_empty()).map(Text::from).into_iter().collect(),
        ),
    )
}

/// The change in percent, or a word if one side has nothing.
fn share_or_word(held: &LiveChange, status: Status) -> String {
    if held.before_blocks > 0 && held.after_blocks > 0 {
        share(held.before_bytes, held.delta_bytes)
    } else {
        word(status).to_owned()
    }
}

fn row(held: &LiveChange, share: String, who: Cell) -> Vec<Cell> {
    vec![
        signed_size(held.delta_bytes).into(),
        share.into(),
        size(held.before_bytes).into(),
        size(held.after_bytes).into(),
        blocks(held).into(),
        who,
    ]
}

fn line(line: &LineChange) -> Vec<Cell> {
    let held = &line.held;
    let (who, below) = (location_label(&line.location), location_details(&line.location));
    let moved = line.location.moved_from.as_ref().map(|from| Text::from("was ").and(frame_label(from)));
    let operation = operation_label(line.operation.as_deref(), line.operation_share_ratio);
    let share = share_or_word(held, line.status);
    row(held, share, Cell::WithDetails(who, moved.into_iter().chain(below).chain(operation).collect()))
}

fn stacks(document: &mut Document, device: &DeviceDiff) {
    if device.stacks.iter().all(|stack| stack.frames.is_empty()) {
        return;
    }
    let counts = &device.stack_counts;
    let title = format!(
        "By stack: {} new, {} gone, {} grown, {} shrunk, {} unchanged",
        count(counts.new),
        count(counts.gone),
        count(counts.grown),
        count(counts.shrunk),
        count(counts.unchanged)
    );
    let others = &device.other_stacks;
    let rest = (others.count > 0).then(|| {
        let held = &others.held;
        Item::from(format!(
            "{}  everything else: {}, {} → {}",
            signed_size(held.delta_bytes),
            counted(others.count, "stack"),
            size(held.before_bytes),
            size(held.after_bytes)
        ))
    });
    let mut inside = Document::default();
    inside.list(device.stacks.iter().map(stack).chain(rest));
    document.details(title, inside);
}

fn stack(stack: &StackChange) -> Item {
    let held = &stack.held;
    let text = format!(
        "{}  {}: {} → {}, blocks {}",
        signed_size(held.delta_bytes),
        word(stack.status),
        size(held.before_bytes),
        size(held.after_bytes),
        blocks(held)
    );
    let (frames, _) = python_frames(&stack.frames);
    let mut below: Vec<Text> = frames.iter().take(FRAMES).map(|frame| frame_label(frame)).collect();
    if frames.is_empty() {
        below.push(match stack.frames.first() {
            None => "no stack recorded".into(),
            Some(frame) => code(&*frame.name),
        });
    }
    if let Some(more @ 1..) = frames.len().checked_sub(FRAMES) {
        below.push(format!("({} more)", counted(more as u64, "frame")).into());
    }
    Item { text: text.into(), details: below }
}
