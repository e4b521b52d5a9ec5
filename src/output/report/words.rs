//! Phrases that several answers share.

use crate::analysis::failure::{NextStep, OomReport, Remedy, Undisturbed};
use crate::analysis::{DeviceReport, SnapshotReport};
use crate::base::summary::Summary;
use crate::base::units::{count, counted, duration, percent, size};
use crate::base::warning::Warning;
use crate::output::document::{Document, Stack, Text, code, location};
use crate::stacks::frames::{CodeLocation, FrameReport, Origin, UNKNOWN_NODE};
use crate::study::{MemoryHistory, TracePosition};
use crate::whatif::FailedRequest;

/// `file:line in function`
pub(super) fn place_in(frame: &FrameReport) -> String {
    format!("{} in {}", frame.file_line(), frame.name)
}

/// What a stack is named by: of a backward pass its node, else the line; and what stands below that.
pub(super) fn named(location: &CodeLocation) -> (Text, Vec<Text>) {
    let frame = location.frame.as_ref();
    let caller = location.called_from.as_ref().map(called_from);
    let (name, line) = match (location.backward.as_deref(), frame) {
        (Some(UNKNOWN_NODE), Some(frame)) => {
            (location(place_in(frame)), Some("in its backward pass".into()))
        }
        (Some(node), _) => (code(format!("backward: {node}")), frame.map(called_from)),
        (None, Some(frame)) => (location(place_in(frame)), None),
        (None, None) if location.has_stack => ("no line of the user's code".into(), None),
        (None, None) => ("no stack recorded".into(), None),
    };
    let words = Text::from("for the forward line ");
    let forward = location.forward.as_ref().map(|frame| words.and(location(place_in(frame))));
    let region = location.compile_context.as_deref();
    let region =
        region.map(|region| region.strip_prefix("Torch-Compiled Region: ").unwrap_or(region));
    let compiled = region.map(|region| Text::from("in compiled region ").and(code(region)));
    (name, [line, forward, caller, compiled].into_iter().flatten().collect())
}

/// The line that a line was called from.
pub(super) fn called_from(frame: &FrameReport) -> Text {
    Text::from("called from ").and(location(place_in(frame)))
}

/// The same in one sentence.
pub(super) fn named_in_line(location: &CodeLocation) -> Text {
    let (mut name, below) = named(location);
    if location.frame.is_none() && !location.has_stack {
        name = "a stack that was not recorded".into();
    }
    let between = |index| if index == 0 { " (" } else { ", " };
    let end = if below.is_empty() { "" } else { ")" };
    let more = below.into_iter().enumerate();
    more.fold(name, |line, (index, more)| line.and(between(index)).and(more)).and(end)
}

/// An operation, with its share where it did not make all of it.
pub(super) fn operation(operation: Option<&str>, share: Option<f64>) -> Option<Text> {
    let share = share.filter(|share| *share < 1.0);
    let share = share.map(|share| format!(" ({} of it)", percent(share))).unwrap_or_default();
    operation.map(|operation| code(operation).and(share))
}

/// The Python frames that say something, innermost first, and how many others there are.
pub(super) fn telling_frames(frames: &[FrameReport]) -> (Vec<&FrameReport>, usize) {
    let telling: Vec<&FrameReport> = frames
        .iter()
        .filter(|f| matches!(f.origin(), Origin::User | Origin::Package | Origin::Torch))
        .collect();
    let folded = frames.len() - telling.len();
    (telling, folded)
}

/// A stack without the frames that say nothing.
pub(super) fn stack(name: &'static str, frames: &[FrameReport]) -> Stack {
    let (telling, folded) = telling_frames(frames);
    let frames = telling.into_iter().map(place_in).collect();
    Stack { name, frames, folded_frames: folded as u64 }
}

/// What file this is: release, entries, time, settings.
pub(super) fn provenance(snapshot: &SnapshotReport) -> String {
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
        let over = longest.map(|us| format!(" over {}", duration(us))).unwrap_or_default();
        parts.push(format!("{}{over}", counted(snapshot.events, "trace entry")));
    } else {
        parts.push("no trace".to_owned());
    }
    parts.push(match snapshot.settings_string.as_deref() {
        None if snapshot.found_settings.is_empty() => "allocator settings not recorded".to_owned(),
        None => format!(
            "allocator settings not recorded; inferred by replay: {}",
            snapshot.found_settings.join(",")
        ),
        Some("") => "default allocator settings".to_owned(),
        Some(settings) => format!("settings {settings}"),
    });
    parts.join(", ")
}

/// Begins a document on a replay: the file, what the model went by, what is odd.
pub(super) fn replayed(
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
    self::warnings(document, warnings);
}

/// What is odd about the file.
pub(super) fn warnings(document: &mut Document, warnings: &[Warning]) {
    for warning in warnings {
        document.warning(warning.code.word(), &*warning.message);
    }
}

/// Requests that failed in a replay.
pub(super) fn failed(document: &mut Document, ooms: &[FailedRequest]) {
    /// Those that are listed.
    const SHOWN: usize = 5;
    let request = |oom: &FailedRequest| {
        format!("{} at entry {}", size(oom.requested_bytes), count(oom.event as u64))
    };
    let more = ooms.len().checked_sub(SHOWN).filter(|more| *more > 0);
    let more = more.map(|more| format!("and {} more", count(more as u64)));
    document.fields("failed", ooms.iter().take(SHOWN).map(request).chain(more));
}

/// Which moment the figures, segments and holders of `device` are of.
pub(super) fn at(moment: TracePosition) -> String {
    match moment {
        TracePosition::Snapshot => "at the snapshot".to_owned(),
        TracePosition::Start => "before the first entry".to_owned(),
        TracePosition::Entry { event } => format!("at entry {}", count(event)),
    }
}

/// The same, and what is known to have come about then.
pub(super) fn at_in(device: &DeviceReport, moment: TracePosition) -> String {
    let TracePosition::Entry { event } = moment else { return at(moment) };
    let entry = format!("entry {}", count(event));
    if device.ooms.iter().any(|oom| oom.event == event) {
        format!("at a failed request ({entry})")
    } else if device.peak.allocated_event == Some(event) {
        format!("at the peak of allocated memory ({entry})")
    } else {
        at(moment)
    }
}

/// How many entries follow a failed request.
pub(super) fn entries_after(oom: &OomReport, device: &DeviceReport) -> u64 {
    let entries = device.timeline.as_ref().map_or(0, |timeline| timeline.trace_entries);
    entries.saturating_sub(oom.event.saturating_add(1))
}

/// Where in the trace a failed request is.
pub(super) fn when(oom: &OomReport, device: &DeviceReport) -> String {
    match entries_after(oom, device) {
        0 => format!("entry {}, the last of the trace", count(oom.event)),
        after => format!(
            "entry {}, {} before the end of the trace",
            count(oom.event),
            counted(after, "entry")
        ),
    }
}

/// How a failed request's memory was used at that moment.
pub(super) fn moment(oom: &OomReport) -> String {
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

/// What was missing.
pub(super) fn missing(oom: &OomReport) -> String {
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

/// Remedies that are shown, the best first.
const SHOWN_REMEDIES: usize = 3;
/// A remedy with this many times the recorded calls to the device is said to be slow; unless they are
/// few all the same.
const SLOW: u64 = 2;
/// See [`SLOW`].
const FEW_CALLS: u64 = 100;
/// A lack of less than this is not given in numbers: two sizes would look alike.
const LEAST_EXCESS: u64 = 1 << 20;

/// The settings that help, the best first; or why none does. Nothing where none was replayed.
pub(super) fn remedies(oom: &OomReport) -> Vec<String> {
    let Some(own) = oom.undisturbed else { return Vec::new() };
    let mut texts = decided(oom, &own);
    if own.undecided > 0 {
        texts.push(format!(
            "{} undecided: the result depends on whether a request was made in a graph capture or \
             in use_mem_pool, which is not recorded",
            counted(own.undecided, "more setting")
        ));
    }
    texts
}

/// What came of the settings that were replayed.
fn decided(oom: &OomReport, own: &Undisturbed) -> Vec<String> {
    if oom.remedies.is_empty() && !own.no_setting_helps {
        return Vec::new();
    }
    let helping: Vec<String> = oom
        .remedies
        .iter()
        .filter(|remedy| remedy.avoids_oom)
        .take(SHOWN_REMEDIES)
        .map(|remedy| remedy_in_words(remedy, own, oom.next_step))
        .collect();
    if !helping.is_empty() {
        return helping;
    }
    let (needed, reach) = (size(own.needed_bytes), size(own.reach_bytes));
    let tried = counted(oom.remedies.len() as u64, "setting");
    let excess = own.needed_bytes.saturating_sub(own.reach_bytes);
    vec![if own.no_setting_helps && excess < LEAST_EXCESS {
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

/// What there is to know of remedies, where one helps; the trace may end with the failure.
pub(super) fn of_remedies(oom: &OomReport, is_last: bool) -> Option<String> {
    if !oom.remedies.iter().any(|remedy| remedy.avoids_oom) {
        return None;
    }
    let before = oom.undisturbed.map_or(0, |own| own.reserved_before_bytes);
    let start = if before > 0 {
        format!("; the {} reserved before the recording stays as recorded", size(before))
    } else {
        String::new()
    };
    let pool = if oom.pool_id.is_none() {
        "; the request's pool is not recorded either, the default pool is assumed"
    } else {
        ""
    };
    let after = if is_last { "not recorded" } else { "not part of these replays" };
    Some(format!(
        "(settings of PYTORCH_CUDA_ALLOC_CONF; the requests after this one are {after}{pool}{start})"
    ))
}

fn remedy_in_words(remedy: &Remedy, own: &Undisturbed, next: Option<NextStep>) -> String {
    let settings = match (remedy.settings.as_str(), remedy.without) {
        (settings, None) => format!("with {settings}"),
        ("", Some(option)) => format!("without {option}"),
        (settings, Some(option)) => format!("with {settings} and without {option}"),
    };
    let calls = remedy.device_allocs.saturating_add(remedy.device_frees);
    let before = own.device_allocs.saturating_add(own.device_frees);
    let slow = if calls > FEW_CALLS && calls / SLOW >= before { ", which are slow" } else { "" };
    let succeeds = format!(
        "{settings} the request succeeds in a replay: peak reserved {}, {} for device memory{slow} \
         ({} when recorded)",
        size(remedy.peak_reserved_bytes),
        counted(calls, "call"),
        count(before)
    );
    succeeds + &leaves(remedy, next)
}

/// What a remedy leaves, and what becomes of one more step.
fn leaves(remedy: &Remedy, next: Option<NextStep>) -> String {
    let Some(spare) = remedy.spare_bytes else { return String::new() };
    let left = format!("; {} to spare", size(spare));
    let (Some(next), Some(then)) = (next, remedy.next_step) else { return left };
    if !then.fails {
        return match next.needed_bytes {
            0 => format!("{left}; one more step succeeds too"),
            needed => format!("{left}; one more step asks for {} and succeeds too", size(needed)),
        };
    }
    let fails = match then.served_requests {
        0 => "fails at its first request".to_owned(),
        served => format!("fails after {}", counted(served, "request")),
    };
    if next.needed_bytes > spare {
        format!("{left}, but one more step asks for {} and {fails}", size(next.needed_bytes))
    } else {
        // It would be enough in one piece, but is not in one: how much is asked for says nothing.
        format!("{left} in pieces, but one more step {fails}")
    }
}

/// The x axis of a chart in words.
pub(super) fn span(timeline: &MemoryHistory) -> String {
    extent(timeline.first_entry, timeline.entries, timeline.trace_entries, timeline.duration_us)
}

/// `events` entries from `first` on, of `all` that there are, in words.
pub(super) fn extent(first: u64, events: u64, all: u64, duration_us: Option<u64>) -> String {
    let time = duration_us.map(|us| format!(", {}", duration(us))).unwrap_or_default();
    let part = if events < all {
        format!("{} to {} of ", count(first), count(first + events))
    } else {
        String::new()
    };
    format!("{part}{}{time}", counted(all, "entry"))
}

/// A pool's id.
pub(super) fn pool(id: [u64; 2]) -> String {
    match id {
        [0, 0] => "default".to_owned(),
        [a, 0] => format!("graph {a}"),
        [a, b] => format!("({a}, {b})"),
    }
}
