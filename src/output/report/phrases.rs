//! Phrases that several pages share.

use crate::analysis::failure::{OomReport, RecordedReplay, Remedy};
use crate::analysis::{DeviceReport, SnapshotReport};
use crate::base::units::{count, counted, duration, percent, size};
use crate::base::warning::Warning;
use crate::output::document::{Document, Stack, Text, code, source_location};
use crate::output::wording::{Summary, remedy_label};
use crate::stacks::frames::{CodeLocation, FrameReport, Origin, UNKNOWN_NODE};
use crate::study::{MemoryHistory, TracePosition};
use crate::whatif::{FailedRequest, ForecastVerdict};

/// `file:line in function`
pub(super) fn frame_label(frame: &FrameReport) -> String {
    format!("{} in {}", frame.file_line(), frame.name)
}

/// The label of a stack and the lines below it. The label is the autograd node of a backward pass, else the source
/// line.
pub(super) fn stack_label(code_location: &CodeLocation) -> (Text, Vec<Text>) {
    let frame = code_location.frame.as_ref();
    let caller = code_location.called_from.as_ref().map(caller_label);
    let (name, line) = match (code_location.backward.as_deref(), frame) {
        (Some(UNKNOWN_NODE), Some(frame)) => (source_location(frame_label(frame)), Some("in its backward pass".into())),
        (Some(node), _) => (code(format!("backward: {node}")), frame.map(caller_label)),
        (None, Some(frame)) => (source_location(frame_label(frame)), None),
        (None, None) if code_location.has_stack => ("no line of user code".into(), None),
        (None, None) => ("no stack recorded".into(), None),
    };
    let words = Text::from("for the forward line ");
    let forward = code_location.forward.as_ref().map(|frame| words.and(source_location(frame_label(frame))));
    let region = code_location.compile_context.as_deref();
    let region = region.map(|region| region.strip_prefix("Torch-Compiled Region: ").unwrap_or(region));
    let compiled = region.map(|region| Text::from("in compiled region ").and(code(region)));
    (name, [line, forward, caller, compiled].into_iter().flatten().collect())
}

pub(super) fn caller_label(frame: &FrameReport) -> Text {
    Text::from("called from ").and(source_location(frame_label(frame)))
}

/// The same as one phrase.
pub(super) fn stack_label_in_line(location: &CodeLocation) -> Text {
    let (mut name, below) = stack_label(location);
    if location.frame.is_none() && !location.has_stack {
        name = "a stack that was not recorded".into();
    }
    let between = |index| if index == 0 { " (" } else { ", " };
    let end = if below.is_empty() { "" } else { ")" };
    let more = below.into_iter().enumerate();
    more.fold(name, |line, (index, more)| line.and(between(index)).and(more)).and(end)
}

/// An operation, with its share of the bytes if that is below 100%.
pub(super) fn operation_label(operation: Option<&str>, share: Option<f64>) -> Option<Text> {
    let share = share.filter(|share| *share < 1.0).map(|share| format!(" ({} of it)", percent(share)));
    operation.map(|operation| share.into_iter().fold(code(operation), Text::and))
}

/// The Python frames outside the interpreter's internals, innermost first, and the number of other frames.
pub(super) fn python_frames(frames: &[FrameReport]) -> (Vec<&FrameReport>, usize) {
    let python: Vec<&FrameReport> =
        frames.iter().filter(|f| matches!(f.origin(), Origin::User | Origin::Package | Origin::Torch)).collect();
    let folded = frames.len() - python.len();
    (python, folded)
}

/// A stack of [`python_frames`]; `left_out` frames of it are not in the report.
pub(super) fn stack_block(name: &'static str, frames: &[FrameReport], left_out: u64) -> Stack {
    let (python, folded) = python_frames(frames);
    let frames = python.into_iter().map(frame_label).collect();
    Stack { name, frames, folded_frames: (folded as u64).saturating_add(left_out) }
}

/// The file in one line: release, size, entries, duration, settings.
pub(super) fn describe_file(snapshot: &SnapshotReport) -> String {
    let mut parts = vec![format!("written by PyTorch {}", snapshot.torch_version)];
    parts.push(size(snapshot.size_bytes));
    if snapshot.events > 0 {
        let longest = snapshot
            .devices
            .iter()
            .filter_map(|d| d.timeline.as_ref())
            .filter(|t| t.entries == t.trace_entries)
            .filter_map(|t| t.duration_us)
            .max();
        // Before PyTorch 2.2 entries have no times.
        let over = longest.map(|us| format!(" over {}", duration(us))).unwrap_or_default();
        parts.push(format!("{}{over}", counted(snapshot.events, "trace entry")));
    } else {
        parts.push("no trace".to_owned());
    }
    parts.push(match snapshot.settings_string.as_deref() {
        None if snapshot.found_settings.is_empty() => "allocator settings not recorded".to_owned(),
        None => format!("allocator settings not recorded; inferred by replay: {}", snapshot.found_settings.join(",")),
        Some("") => "default allocator settings".to_owned(),
        Some(settings) => format!("settings {settings}"),
    });
    parts.join(", ")
}

/// Appends the start of a replay page: the file, the rules and settings, the warnings.
pub(super) fn begin_replay_page(
    document: &mut Document,
    path: &str,
    summary: Option<&Summary>,
    torch_version: &str,
    settings_string: Option<&str>,
    warnings: &[Warning],
) {
    document.title(code(path));
    if let Some(summary) = summary {
        super::summary::summary(document, summary);
    }
    let settings = match settings_string {
        Some("") => "default settings".into(),
        Some(settings) => Text::from("settings ").and(code(settings)),
        None => "settings not recorded by this release".into(),
    };
    document.paragraph(Text::from(format!("Rules of PyTorch {torch_version}, ")).and(settings));
    self::add_warnings(document, warnings);
}

pub(super) fn add_warnings(document: &mut Document, warnings: &[Warning]) {
    for warning in warnings {
        document.warning(warning.code.word(), &*warning.message);
    }
}

/// Appends the requests that failed in a replay.
pub(super) fn add_failed_requests(document: &mut Document, ooms: &[FailedRequest]) {
    const SHOWN: usize = 5;
    let request = |oom: &FailedRequest| format!("{} at entry {}", size(oom.requested_bytes), count(oom.event as u64));
    let more = ooms.len().checked_sub(SHOWN).filter(|more| *more > 0);
    let more = more.map(|more| format!("and {} more", count(more as u64)));
    document.fields("failed", ooms.iter().take(SHOWN).map(request).chain(more));
}

/// The point in the trace that figures belong to.
pub(super) fn describe_position(moment: TracePosition) -> String {
    match moment {
        TracePosition::Snapshot => "at the snapshot".to_owned(),
        TracePosition::Start => "before the first entry".to_owned(),
        TracePosition::Entry { event } => format!("at entry {}", count(event)),
    }
}

/// The same, naming a failed request or the peak if it is there.
pub(super) fn describe_position_on(device: &DeviceReport, moment: TracePosition) -> String {
    let TracePosition::Entry { event } = moment else { return describe_position(moment) };
    let entry = format!("entry {}", count(event));
    if device.ooms.iter().any(|oom| oom.event == event) {
        format!("at a failed request ({entry})")
    } else if device.peak.allocated_event == Some(event) {
        format!("at the peak of allocated memory ({entry})")
    } else {
        describe_position(moment)
    }
}

/// The number of entries after a failed request.
pub(super) fn entries_after(oom: &OomReport, device: &DeviceReport) -> u64 {
    let entries = device.timeline.as_ref().map_or(0, |timeline| timeline.trace_entries);
    entries.saturating_sub(oom.event.saturating_add(1))
}

/// The entry index of a failed request, and its distance from the end of the trace.
pub(super) fn describe_oom_position(oom: &OomReport, device: &DeviceReport) -> String {
    match entries_after(oom, device) {
        0 => format!("entry {}, the last of the trace", count(oom.event)),
        after => format!("entry {}, {} before the end of the trace", count(oom.event), counted(after, "entry")),
    }
}

/// The use of memory when the request failed.
pub(super) fn describe_memory(oom: &OomReport) -> String {
    let pending = oom.reserved_bytes - oom.allocated_bytes - oom.cached_bytes;
    let pending = match pending {
        0 => String::new(),
        bytes => format!(" + {} pending", size(bytes)),
    };
    format!(
        "{} reserved = {} allocated + {} free in the cache{pending}; the device had {} free",
        size(oom.reserved_bytes),
        size(oom.allocated_bytes),
        size(oom.cached_bytes),
        size(oom.device_free_bytes)
    )
}

/// Why neither the device nor the cache could serve the request.
pub(super) fn describe_shortage(oom: &OomReport) -> String {
    let cache = match oom.largest_free_block_bytes {
        0 => "no usable free block in the cache".to_owned(),
        enough if enough >= oom.requested_bytes => {
            format!("the largest free block of its pool and stream is {}", size(enough))
        }
        largest => format!("the largest usable free block is {}", size(largest)),
    };
    let device = if oom.device_free_bytes >= oom.segment_bytes {
        format!("the device has room for the segment of {}", size(oom.segment_bytes))
    } else {
        format!(
            "the device lacks {} for a new segment of {}",
            size(oom.segment_bytes - oom.device_free_bytes),
            size(oom.segment_bytes)
        )
    };
    format!("{device}; {cache}")
}

/// Maximum number of remedies shown.
const SHOWN_REMEDIES: usize = 3;
/// A remedy is called slow if it makes this many times the recorded device calls, and more than [`FEW_DEVICE_CALLS`].
const SLOW_FACTOR: u64 = 2;
const FEW_DEVICE_CALLS: u64 = 100;
/// A smaller shortage is not shown in numbers: the two sizes would look equal.
const MIN_SHOWN_EXCESS: u64 = 1 << 20;

/// The settings that help, best first, or why none does. Empty if none was replayed.
pub(super) fn describe_remedies(oom: &OomReport) -> Vec<String> {
    let Some(undisturbed) = oom.as_recorded else { return Vec::new() }; // no replay
    let mut texts = describe_tried_settings(oom, &undisturbed);
    if undisturbed.undecided > 0 {
        texts.push(format!(
            "{} undecided: the result depends on whether a request was made in a graph capture or \
             in use_mem_pool, which is not recorded",
            counted(undisturbed.undecided, "more setting")
        ));
    }
    texts
}

/// The result of the settings whose replay is conclusive.
fn describe_tried_settings(oom: &OomReport, own: &RecordedReplay) -> Vec<String> {
    if oom.remedies.is_empty() && !own.no_setting_helps {
        return Vec::new();
    }
    let shown: Vec<&Remedy> = oom.remedies.iter().filter(|remedy| remedy.avoids_oom).take(SHOWN_REMEDIES).collect();
    let before = [None].into_iter().chain(shown.iter().map(Some));
    let helping: Vec<String> =
        shown.iter().zip(before).map(|(remedy, before)| describe_remedy(remedy, before.copied(), own)).collect();
    if !helping.is_empty() {
        return helping;
    }
    let (needed, reach) = (size(own.needed_bytes), size(own.reach_bytes));
    let tried = counted(oom.remedies.len() as u64, "setting");
    let excess = own.needed_bytes.saturating_sub(own.reach_bytes);
    vec![if own.no_setting_helps && excess < MIN_SHOWN_EXCESS {
        format!(
            "no allocator setting avoids this: live memory and the request need {needed}, and less \
             is within reach"
        )
    } else if own.no_setting_helps {
        format!(
            "no allocator setting avoids this: live memory and the request need {needed}, {} more \
             than the {reach} within reach",
            size(excess)
        )
    } else if own.is_rounded_up && excess > 0 {
        format!(
            "{tried} replayed, none avoids it: live memory and the request, rounded up by \
             roundup_power2_divisions, need {needed}, more than the {reach} within reach; the size \
             before rounding is not recorded and may be smaller"
        )
    } else if own.reserved_before_bytes > 0 {
        format!(
            "{tried} replayed, none avoids it. Each replay keeps the {} reserved before the \
             recording as recorded; a setting in effect from the program's start may still help \
             (record from the start to replay that)",
            size(own.reserved_before_bytes)
        )
    } else {
        format!(
            "{tried} replayed, none avoids it: live memory and the request need {needed} of the \
             {reach} within reach, but no setting tried produces a layout that fits"
        )
    }]
}

/// Limits of the replays, if a remedy helps.
pub(super) fn remedies_note(oom: &OomReport) -> Option<String> {
    if !oom.remedies.iter().any(|remedy| remedy.avoids_oom) {
        return None;
    }
    let before = oom.as_recorded.map_or(0, |own| own.reserved_before_bytes);
    let start = if before > 0 {
        format!("; the {} reserved before the recording stays as recorded", size(before))
    } else {
        String::new()
    };
    let pool =
        if oom.pool_id.is_none() { "; the request's pool is not recorded, the default pool is assumed" } else { "" };
    let known = |remedy: &Remedy| !matches!(remedy.forecast, None | Some(ForecastVerdict::Unknown { .. }));
    let is_predicted = oom.remedies.iter().any(known);
    let after = if is_predicted { "; the requests after this one are predicted from earlier steps" } else { "" };
    Some(format!("(replays of settings of PYTORCH_CUDA_ALLOC_CONF{after}{pool}{start})"))
}

/// `before` is the remedy described before it.
fn describe_remedy(remedy: &Remedy, before: Option<&Remedy>, own: &RecordedReplay) -> String {
    let calls = remedy.device_allocs.saturating_add(remedy.device_frees);
    let recorded = own.device_allocs.saturating_add(own.device_frees);
    let slow = if calls > FEW_DEVICE_CALLS && calls / SLOW_FACTOR >= recorded { ", which are slow" } else { "" };
    let outcome = remedy.outcome(own.reach_bytes);
    let is_same = remedy.forecast.is_some() && before.is_some_and(|before| before.outcome(own.reach_bytes) == outcome);
    let outcome = if is_same { "the same".to_owned() } else { outcome };
    format!(
        "with {}: {outcome}; peak reserved {}, {}{slow} ({} recorded)",
        remedy_label(remedy),
        size(remedy.peak_reserved_bytes),
        counted(calls, "device call"),
        count(recorded)
    )
}

/// The entries of a timeline.
pub(super) fn timeline_range(timeline: &MemoryHistory) -> String {
    entry_range(timeline.first_entry, timeline.entries, timeline.trace_entries, timeline.duration_us)
}

/// Describes a range of `events` entries from `first` on, of `all` entries.
pub(super) fn entry_range(first: u64, events: u64, all: u64, duration_us: Option<u64>) -> String {
    // Before PyTorch 2.2 entries have no times.
    let time = duration_us.map(|us| format!(", {}", duration(us))).unwrap_or_default();
    let part = if events < all { format!("{} to {} of ", count(first), count(first + events)) } else { String::new() };
    format!("{part}{}{time}", counted(all, "entry"))
}

pub(super) fn pool_label(id: [u64; 2]) -> String {
    match id {
        [0, 0] => "default".to_owned(),
        [a, 0] => format!("graph {a}"),
        [a, b] => format!("({a}, {b})"),
    }
}
