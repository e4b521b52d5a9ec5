//! The three lines that an answer begins with: what happened, who holds most, what to do.

use serde::Serialize;

use super::device::DeviceReport;
use super::ranks::Ranks;
use super::snapshot::SnapshotReport;
use crate::failure::{OomReport, Remedy};
use crate::frames::FrameReport;
use crate::held::{ByCategory, Category, HeldAt};
use crate::memory::HeldByLine;
use crate::notice::{Code, RECORD};
use crate::units::{duration, percent, ratio, size};
use crate::verdict::Verdict;

/// Free memory that is stuck beside live blocks is worth a word from this share of what is reserved on.
const STRANDED_RATIO: f64 = 0.2;

/// What an answer comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// What failed, where and why; or that nothing did.
    pub answer: String,
    /// Who holds most; `None` where nobody holds anything.
    pub who: Option<String>,
    /// What to do; `None` where nothing needs doing.
    pub action: Option<String>,
    /// What to copy for it: a setting, a line of code to look at, a call to add.
    pub copy: Option<String>,
}

/// Of all `snapshots`, which `ranks` put side by side.
pub(super) fn of_all(snapshots: &[SnapshotReport], ranks: Option<&Ranks>) -> Summary {
    let worst = ranks.and_then(|ranks| ranks.rows.first());
    let shown = match worst {
        Some(worst) => snapshots.iter().find(|snapshot| snapshot.path == worst.path),
        None => snapshots.first(),
    };
    let summary = shown.map(|snapshot| of_snapshot(snapshot, worst.map(|row| row.device)));
    let mut summary = summary.unwrap_or_default();
    if let Some(ranks) = ranks.filter(|_| snapshots.len() > 1) {
        summary.answer.clone_from(&ranks.summary);
    }
    summary
}

/// Of `snapshot`, whose worst device is `worst`, if it has several.
fn of_snapshot(snapshot: &SnapshotReport, worst: Option<u64>) -> Summary {
    let device = match worst {
        Some(worst) => snapshot.devices.iter().find(|device| device.device == worst),
        None => snapshot.devices.first(),
    };
    let foreign = snapshot.warnings.iter().find(|warning| warning.code == Code::ForeignBackend);
    match (foreign, device) {
        (Some(foreign), _) => Summary { answer: foreign.message.clone(), ..Summary::default() },
        (None, Some(device)) => match device.ooms.last() {
            Some(oom) => of_failure(oom, device, snapshot),
            None => without_failure(device, snapshot),
        },
        (None, None) => Summary {
            answer: "the allocator held no memory and recorded nothing".to_owned(),
            ..Summary::default()
        },
    }
}

fn of_failure(oom: &OomReport, device: &DeviceReport, snapshot: &SnapshotReport) -> Summary {
    let why = match device.explained_by_growth(oom) {
        Some(growth) => format!("{growth} ({})", oom.verdict),
        None => oom.verdict.to_string(),
    };
    let answer = format!(
        "out of memory on device {} at {}: {why}; {} requested, {} free on the device, {} in the cache",
        device.device,
        oom.around.in_short(oom.culprit.as_ref()),
        size(oom.requested_bytes),
        size(oom.device_free_bytes),
        size(oom.cached_bytes)
    );
    let (action, copy) = against(oom, device, snapshot);
    let held = device.at_moment.as_ref().or(oom.held.as_ref());
    Summary { answer, who: held.and_then(who), action: Some(action), copy }
}

/// What to do against a failure, and what to copy for it.
fn against(
    oom: &OomReport,
    device: &DeviceReport,
    snapshot: &SnapshotReport,
) -> (String, Option<String>) {
    let lines = oom.held.iter().flat_map(|held| &held.by_line.rows);
    let largest = lines.filter_map(|line| line.frame.as_ref()).map(FrameReport::place).next();
    if device.explained_by_growth(oom).is_some() {
        let growing = device.leaks.suspects.first();
        let keeps = growing.map(|one| one.around.in_short(one.frame.as_ref()));
        let what = keeps.map_or_else(
            || "what is kept after each step".to_owned(),
            |line| format!("what {line} keeps after each step"),
        );
        return (
            format!("free {what}: no setting helps for long"),
            growing.and_then(|one| one.frame.as_ref()).map(FrameReport::place),
        );
    }
    // What comes after the request is known of some; of the others a verdict of capacity says that more comes.
    let lasting = |remedy: &&Remedy| {
        let goes_on = remedy.next_step.map(|next| !next.fails);
        remedy.avoids_oom && goes_on.unwrap_or(oom.verdict != Verdict::Capacity)
    };
    if let Some(remedy) = oom.remedies.iter().find(lasting).filter(|it| it.without.is_none()) {
        let all = match snapshot.settings_string.as_deref() {
            None | Some("") => remedy.settings.clone(),
            Some(recorded) => format!("{recorded},{}", remedy.settings),
        };
        let action = format!("set {}: in a replay the request then succeeds", remedy.settings);
        return (action, Some(format!("PYTORCH_CUDA_ALLOC_CONF={all}")));
    }
    let why = match oom.undisturbed {
        Some(own) if own.no_setting_helps => Some("no allocator setting helps"),
        Some(_) if oom.remedies.iter().any(|remedy| remedy.avoids_oom) => {
            Some("the settings that were replayed only postpone the failure")
        }
        Some(_) if !oom.remedies.is_empty() => {
            Some("no setting that was replayed serves the request")
        }
        _ => None,
    };
    // Where settings were replayed, advice to try one is stale.
    let is_stale = matches!(oom.verdict, Verdict::Fragmentation | Verdict::Capacity);
    if let Some(why) = why.filter(|_| is_stale) {
        let hold_less =
            "hold less at that moment, with a smaller batch or activation checkpointing";
        return (format!("{hold_less}: {why}"), largest);
    }
    let copy = match oom.verdict {
        Verdict::Capacity => largest,
        Verdict::NonPytorch => Some("nvidia-smi".to_owned()),
        _ => None,
    };
    (oom.verdict.advice().to_owned(), copy)
}

fn without_failure(device: &DeviceReport, snapshot: &SnapshotReport) -> Summary {
    let (memory, peak) = (&device.memory, &device.peak);
    // What the legacy call keeps is no history either.
    let timeline = device.timeline.as_ref().filter(|timeline| timeline.trace_events > 1);
    let Some(timeline) = timeline else {
        return Summary {
            answer: format!(
                "no history was kept, so failures and peak are not known; at the snapshot {} of {} reserved \
                 is allocated on device {}",
                size(memory.allocated_bytes),
                size(memory.reserved_bytes),
                device.device
            ),
            who: line_in_words(&device.top_lines, memory.allocated_bytes),
            action: Some("record a history to see the peak, and failures".to_owned()),
            copy: Some(RECORD.to_owned()),
        };
    };
    let lasted = timeline.duration_us.filter(|us| *us > 0);
    let lasted = lasted.map_or_else(String::new, |us| format!(" of {}", duration(us)));
    let lost = snapshot.warnings.iter().any(|warning| warning.code == Code::HistoryLost);
    let part = if lost { "what is left of this recording" } else { "this recording" };
    let least = if lost { "at least " } else { "" };
    let answer = format!(
        "no request failed in {part}{lasted}; peak of device {}: {least}{} allocated, {least}{} reserved",
        device.device,
        size(peak.allocated_bytes),
        size(peak.reserved_bytes)
    );
    let held = device.at_moment.as_ref().or(device.at_peak.as_ref());
    let stranded = memory.fragmentation.stranded_bytes;
    let (action, copy) = if let Some(leak) = device.leaks.suspects.first() {
        let line = leak.around.in_short(leak.frame.as_ref());
        let rate = size(device.leaks.bytes_per_step);
        let action = format!("look at {line}: memory grows by {rate} with every step");
        (Some(action), leak.frame.as_ref().map(FrameReport::place))
    } else if memory.fragmentation.stranded_ratio >= STRANDED_RATIO {
        let action = format!(
            "{} of free memory is stuck between live blocks: try expandable segments",
            size(stranded)
        );
        (Some(action), Some("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True".to_owned()))
    } else if lost {
        let action = "to see all of it, record again with more entries in the ring";
        (Some(action.to_owned()), Some(RECORD.to_owned()))
    } else if device.truncated {
        let action = "to see what was there before, begin to record before the model is built";
        (Some(action.to_owned()), Some(RECORD.to_owned()))
    } else {
        (None, None)
    };
    Summary { answer, who: held.and_then(who), action, copy }
}

/// Who held the memory of a moment: the two largest categories, and the largest line.
fn who(held: &HeldAt) -> Option<String> {
    let line = line_in_words(&held.by_line.rows, held.allocated_bytes)?;
    let share = |of: &ByCategory| {
        format!("{} {}", percent(of.held.share_ratio), of.category.word().replace('-', " "))
    };
    let known = held.by_category.iter().filter(|of| of.category != Category::Other);
    let categories: Vec<String> = known.take(2).map(share).collect();
    Some(match categories.join(", ") {
        none if none.is_empty() => line,
        categories => format!("{line}; of all: {categories}"),
    })
}

fn line_in_words(lines: &[HeldByLine], all: u64) -> Option<String> {
    let most = lines.first()?;
    Some(format!(
        "{}: {} of {} allocated ({})",
        most.around.in_short(most.frame.as_ref()),
        size(most.bytes),
        size(all),
        percent(ratio(most.bytes, all))
    ))
}
