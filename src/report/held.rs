//! Where the memory was at the failure, else at the peak: what for, from which phase, how old; and what
//! grows with every step.

use super::page::line_rows;
use super::sheet::Page;
use super::style::Style;
use super::words::place_in;
use crate::analysis::DeviceReport;
use crate::held::{Age, Category, Confidence, HeldAt, Leaks};
use crate::memory::{HeldByLine, Share};
use crate::phases::Phase;
use crate::units::{counted, percent, size};

/// Columns of the longest bar, and those that the rest of the table takes.
const BAR: usize = 20;
const BESIDE_BAR: usize = 70;
/// Lines of code that are shown.
const SHOWN_LINES: usize = 4;

/// One line of the table of where the memory was.
pub(super) struct Part {
    /// What the table goes by here; empty after the first of a group.
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    pub(super) held: Share,
    /// How sure it is.
    pub(super) note: &'static str,
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

/// The state to show: that of the last failure, else that of the peak, with a name for it.
pub(super) fn telling(device: &DeviceReport) -> Option<(&HeldAt, &'static str)> {
    let failure = device.ooms.last().and_then(|oom| oom.held.as_ref());
    let found = failure
        .map(|held| (held, "at the failure"))
        .or_else(|| device.at_peak.as_ref().map(|held| (held, "at its peak")))?;
    let lines = lines(found.0, device);
    let tells = lines.iter().any(|line| line.frame.is_some()) || !parts(found.0).is_empty();
    tells.then_some(found)
}

/// The lines that held most; none where it is the end of the trace, whose lines stand in a table of their own.
pub(super) fn lines<'a>(held: &'a HeldAt, device: &DeviceReport) -> &'a [HeldByLine] {
    let last = device.timeline.as_ref().and_then(|t| t.trace_events.checked_sub(1));
    let rows = if held.event == last { &[] } else { held.by_line.rows.as_slice() };
    rows.get(..SHOWN_LINES).unwrap_or(rows)
}

/// Which moment it is, and in what course of things.
pub(super) fn heading(held: &HeldAt, moment: &str) -> String {
    let during = match held.phase {
        Phase::Other => None,
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
pub(super) fn parts(held: &HeldAt) -> Vec<Part> {
    let note = |confidence| match confidence {
        Confidence::High => "",
        Confidence::Medium => "probably",
        Confidence::Low => "a guess",
    };
    let categories = held.by_category.iter().map(|row| Part {
        group: "",
        name: category(row.category),
        held: row.held,
        note: if row.category == Category::Other { "" } else { note(row.confidence) },
    });
    let part = |name, held| Part { group: "", name, held, note: "" };
    let phases = held.by_phase.iter().map(|row| part(phase(row.phase), row.held));
    let ages = held.by_age.iter().map(|row| part(age(row.age), row.held));
    let mut parts: Vec<Part> = Vec::new();
    let mut add = |group, tells: bool, rows: Vec<Part>| {
        if tells {
            let first = parts.len();
            parts.extend(rows);
            if let Some(part) = parts.get_mut(first) {
                part.group = group;
            }
        }
    };
    let tells = held.by_category.iter().any(|row| row.category != Category::Other);
    add("for", tells, categories.collect());
    let tells = held.by_phase.iter().any(|r| r.phase.is_some_and(|phase| phase != Phase::Other));
    add("allocated in", tells, phases.collect());
    add("held since", held.step.is_some(), ages.collect());
    parts
}

/// What was never freed since the beginning.
pub(super) fn kept(held: &HeldAt) -> Option<String> {
    let first = held.kept_since_start.rows.first()?;
    let rest = held.kept_since_start.rest;
    let rows = held.kept_since_start.rows.iter().map(|row| row.bytes);
    let bytes = rows.fold(rest.bytes, u64::saturating_add);
    Some(format!(
        "{} from before the second step was still there; most of it, {}, is from {}",
        size(bytes),
        size(first.bytes),
        place_of(first.frame.as_ref().map(place_in))
    ))
}

/// What grows with every step.
pub(super) fn growth(leaks: &Leaks) -> Option<String> {
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
    let most = format!("{}, {by}", place_of(first.frame.as_ref().map(place_in)));
    let is_even = leaks.suspects.iter().all(|one| one.every_steps <= 1);
    let more = if is_even { "more after every step" } else { "more and more" };
    let what = if lines == 1 {
        format!("one line holds {more}: {most}")
    } else {
        format!(
            "{lines} lines hold {more}, {} a step in all; most: {most}",
            size(leaks.bytes_per_step)
        )
    };
    let last = match (leaks.steps_left, leaks.remaining_bytes) {
        (Some(steps @ 1..), Some(bytes)) => format!(
            "; at this rate the {} that the program did not hold after the last step last {}",
            size(bytes),
            counted(steps, "more step")
        ),
        _ => String::new(),
    };
    Some(what + &last)
}

fn place_of(line: Option<String>) -> String {
    line.unwrap_or_else(|| "stacks without a line of the user's code".to_owned())
}

/// A bar as long as `share` is of the whole.
fn bar(share: Share, whole: u64, style: Style) -> String {
    let room = style.width.saturating_sub(BESIDE_BAR).min(BAR) as u128;
    let (part, whole) = (u128::from(share.bytes), u128::from(whole));
    let columns = (part * room + whole / 2).checked_div(whole).unwrap_or(0);
    style.pick("█", "#").repeat(usize::try_from(columns).unwrap_or(0))
}

impl Page {
    pub(super) fn held(&mut self, device: &DeviceReport) {
        let Some((held, moment)) = telling(device) else { return };
        self.heading(&heading(held, moment));
        let style = self.style;
        let rows: Vec<Vec<String>> = parts(held)
            .into_iter()
            .map(|part| {
                vec![
                    part.group.to_owned(),
                    part.name.to_owned(),
                    size(part.held.bytes),
                    percent(part.held.share_ratio),
                    bar(part.held, held.allocated_bytes, style),
                    part.note.to_owned(),
                ]
            })
            .collect();
        let is_parted = !rows.is_empty();
        if is_parted {
            self.table(&["", "", "bytes", "share", "", ""], &[0, 1, 4, 5], rows);
        }
        if let Some(kept) = kept(held) {
            self.named("kept", &kept);
        }
        if let Some(growth) = growth(&device.leaks) {
            self.named("grows", &style.strong(&growth));
        }
        let lines = lines(held, device);
        if !lines.is_empty() {
            if is_parted {
                self.line("");
            }
            self.out.push_str(&line_rows(lines, held.allocated_bytes, held.blocks, style));
        }
    }
}
