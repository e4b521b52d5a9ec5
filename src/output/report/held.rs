//! Where the memory was at the failure, else at the peak: what for, from which phase, how old; what grows with
//! every step; and who holds it at the snapshot.

use super::words::{self, named, named_in_line, operation};
use crate::analysis::DeviceReport;
use crate::base::units::{count, counted, percent, ratio, size};
use crate::output::document::{Cell, Document, Table, Text, strong};
use crate::stacks::phases::Phase;
use crate::study::attribution::{Age, Category, Confidence, Leaks, MemoryBreakdown};
use crate::study::memory::LiveByLine;

/// Lines of code that are shown.
const SHOWN_LINES: usize = 4;

/// Where the memory was.
pub(super) fn held(document: &mut Document, device: &DeviceReport) {
    let Some((held, moment)) = telling(device) else { return };
    document.heading(heading(held, &moment));
    let rows = rows(held);
    if !rows.is_empty() {
        document.table(Table::new(&["", "", "bytes", "share", "", ""], &[0, 1, 4, 5], rows));
    }
    document.fields("kept", kept(held));
    // Beside a failure it stands there.
    if device.ooms.is_empty() {
        document.fields("grows", growth(&device.leaks, true, true).map(strong));
    }
    let lines = lines(held, device);
    if !lines.is_empty() {
        document.table(by_line(lines, held.allocated_bytes, held.blocks));
    }
}

/// Who holds the memory at the moment that is shown.
pub(super) fn holders(document: &mut Document, device: &DeviceReport) {
    let all = &device.memory.blocks.active_allocated;
    if all.bytes > 0 {
        document.heading(match device.moment {
            None => "Who holds the allocated memory, by line".to_owned(),
            Some(at) => {
                format!("Who held the allocated memory {}, by line", words::at_in(device, at))
            }
        });
        document.table(by_line(&device.top_lines, all.bytes, all.count));
    }
}

/// Lines of code with what they hold of `bytes` in `blocks`.
fn by_line(lines: &[LiveByLine], bytes: u64, blocks: u64) -> Table {
    let mut rows: Vec<Vec<Cell>> = lines
        .iter()
        .map(|held| {
            let share = percent(held.share_ratio);
            vec![size(held.bytes).into(), share.into(), count(held.blocks).into(), holder(held)]
        })
        .collect();
    let others = bytes - lines.iter().map(|line| line.bytes).fold(0, u64::saturating_add);
    let other_blocks = blocks - lines.iter().map(|line| line.blocks).sum::<u64>();
    if other_blocks > 0 {
        let cells = [size(others), percent(ratio(others, bytes)), count(other_blocks)];
        let name = "all other lines".to_owned();
        rows.push(cells.into_iter().chain([name]).map(Cell::from).collect());
    }
    Table::new(&["bytes", "share", "blocks", "allocated by"], &[3], rows)
}

/// A line of code, with what was done there.
fn holder(held: &LiveByLine) -> Cell {
    let (line, below) = named(&held.location);
    let operation = operation(held.operation.as_deref(), held.operation_share_ratio);
    Cell::WithDetails(line, below.into_iter().chain(operation).collect())
}

fn category(category: Category) -> &'static str {
    match category {
        Category::OptimizerState => "optimizer state",
        other => other.word(),
    }
}

fn phase(phase: Option<Phase>) -> &'static str {
    match phase {
        Some(Phase::Init) => "building the model",
        Some(Phase::Data) => "before a forward pass",
        Some(Phase::Forward) => "the forward pass",
        Some(Phase::Backward) => "the backward pass",
        Some(Phase::Optimizer) => "the optimizer's step",
        Some(Phase::Other) => "other code",
        None => "before the recording",
    }
}

fn age(age: Age) -> &'static str {
    match age {
        Age::BeforeRecording => "before the recording",
        Age::BeforeFirstStep => "before the first step",
        Age::FirstStep => "the first step",
        Age::EarlierStep => "an earlier step",
        Age::ThisStep => "the same step",
        Age::Recorded => "the recording",
    }
}

/// The state to show: that asked for, else that of the last failure, else that of the peak, with a name for it.
fn telling(device: &DeviceReport) -> Option<(&MemoryBreakdown, String)> {
    let asked = device.at_moment.as_ref().zip(device.moment.map(|at| words::at_in(device, at)));
    let failure = device.ooms.last().and_then(|oom| oom.held.as_ref());
    let failure = || failure.map(|held| (held, "at the failure".to_owned()));
    let peak = || device.at_peak.as_ref().map(|held| (held, "at its peak".to_owned()));
    let found = asked.or_else(failure).or_else(peak)?;
    let lines = lines(found.0, device);
    let tells = lines.iter().any(|line| line.location.frame.is_some()) || !rows(found.0).is_empty();
    tells.then_some(found)
}

/// The lines that held most; none where it is the moment whose lines stand in a table of their own.
fn lines<'a>(held: &'a MemoryBreakdown, device: &DeviceReport) -> &'a [LiveByLine] {
    let last = device.timeline.as_ref().and_then(|t| t.trace_entries.checked_sub(1));
    let is_told = device.moment.map_or(held.event == last, |_| true);
    let rows = if is_told { &[] } else { held.by_line.rows.as_slice() };
    rows.get(..SHOWN_LINES).unwrap_or(rows)
}

/// Which moment it is, and in what course of things.
fn heading(held: &MemoryBreakdown, moment: &str) -> String {
    let during = match held.phase {
        Phase::Other => None,
        Phase::Data => Some(phase(Some(Phase::Data)).to_owned()),
        other => Some(format!("in {}", phase(Some(other)))),
    };
    let after = held.step.map(|step| match step {
        0 => "of the first step".to_owned(),
        step => format!("after {}", counted(u64::from(step), "step")),
    });
    let when: Vec<String> = during.into_iter().chain(after).collect();
    match when.join(" ").as_str() {
        "" => format!("Where the memory was {moment}"),
        when => format!("Where the memory was {moment} ({when})"),
    }
}

/// The table of where the memory was; groups that tell nothing are left out.
fn rows(held: &MemoryBreakdown) -> Vec<Vec<Cell>> {
    let sure = |confidence| match confidence {
        Confidence::High => "",
        Confidence::Medium => "probably",
        Confidence::Low => "a guess",
    };
    let categories = held.by_category.iter().map(|of| {
        let note = if of.category == Category::Other { "" } else { sure(of.confidence) };
        (category(of.category), of.share, note)
    });
    let phases = held.by_phase.iter().map(|of| (phase(of.phase), of.share, ""));
    let ages = held.by_age.iter().map(|of| (age(of.age), of.share, ""));
    let has_categories = held.by_category.iter().any(|row| row.category != Category::Other);
    let has_phases =
        held.by_phase.iter().any(|row| row.phase.is_some_and(|phase| phase != Phase::Other));
    let rules = held.by_rule.iter();
    let rules = rules.map(|of| (of.name.as_deref().unwrap_or("no rule"), of.share, ""));
    let groups: [(&str, bool, Vec<_>); 4] = [
        ("for", has_categories, categories.collect()),
        ("by rule", !held.by_rule.is_empty(), rules.collect()),
        ("allocated in", has_phases, phases.collect()),
        ("held since", held.step.is_some(), ages.collect()),
    ];
    let groups = groups.into_iter().filter(|(_, tells, _)| *tells);
    groups
        .flat_map(|(group, _, rows)| {
            rows.into_iter().enumerate().map(move |(index, (name, share, note))| {
                vec![
                    if index == 0 { group.into() } else { "".into() },
                    name.into(),
                    size(share.bytes).into(),
                    percent(share.share_ratio).into(),
                    Cell::Bar(ratio(share.bytes, held.allocated_bytes)),
                    note.into(),
                ]
            })
        })
        .collect()
}

/// What was never freed since the beginning.
fn kept(held: &MemoryBreakdown) -> Option<Text> {
    let first = held.kept_since_start.rows.first()?;
    let rest = held.kept_since_start.rest;
    let rows = held.kept_since_start.rows.iter().map(|row| row.bytes);
    let bytes = rows.fold(rest.bytes, u64::saturating_add);
    let most = format!(
        "{} from before the second step was still there; most of it, {}, is from ",
        size(bytes),
        size(first.bytes)
    );
    Some(Text::from(most).and(named_in_line(&first.location)))
}

/// What grows with every step. Beside a failure something else says how it ended, so that how long what is left
/// lasts is told only `with_end`, and may say by how much memory grew in all, so that this is told only `with_total`.
pub(super) fn growth(leaks: &Leaks, with_total: bool, with_end: bool) -> Option<Text> {
    let first = leaks.suspects.first()?;
    let lines = leaks.suspects.len() as u64 + leaks.other_suspects;
    let by = match first.every_steps {
        0 | 1 => format!(
            "by {} a step in each of {}",
            size(first.bytes_per_step),
            counted(u64::from(first.steps), "step")
        ),
        every => format!(
            "by {} every {every} steps, {} so far",
            size(first.bytes_per_step.saturating_mul(u64::from(every))),
            counted(u64::from(first.steps), "time")
        ),
    };
    let most = named_in_line(&first.location);
    let is_even = leaks.suspects.iter().all(|one| one.every_steps <= 1);
    let more = if is_even { "more after every step" } else { "more and more" };
    let what = if lines == 1 {
        format!("one line holds {more}: ")
    } else if with_total {
        format!("{lines} lines hold {more}, {} a step in all; most: ", size(leaks.bytes_per_step))
    } else {
        format!("{lines} lines hold {more}; most: ")
    };
    let last = match (leaks.steps_left, leaks.remaining_bytes) {
        (Some(steps @ 1..), Some(bytes)) if with_end => format!(
            "; at this rate the {} left after the last step is used up in {}",
            size(bytes),
            counted(steps, "more step")
        ),
        _ => String::new(),
    };
    Some(Text::from(what).and(most).and(format!(", {by}{last}")))
}
