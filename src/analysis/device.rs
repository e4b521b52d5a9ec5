//! Everything about one device.

use serde::Serialize;

use super::held::{self, HeldAt, Leaks, Moments, StepsReport};
use super::history::{self, DESCRIBED_OOMS, MAX_OOMS, Peak, Timeline};
use crate::frames::StackReader;
use crate::memory::{self, HeldByLine, HeldByStack, Memory, figures_of};

use super::oom::OomReport;
use super::remedies::remedies;
use super::request::{RequestReport, request};
use super::snapshot::Options;
use crate::conf::Settings;
use crate::notice::{Code, Warnings};
use crate::replay::Outcome;
use crate::snapshot::Device;
use crate::units::{counted, size};

/// One device of a snapshot.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceReport {
    /// Device number.
    pub device: u64,
    /// The memory at the snapshot.
    #[serde(flatten)]
    pub memory: Memory,
    /// The highest totals, of the recorded time and what was live before it.
    pub peak: Peak,
    /// Failed requests in all.
    pub oom_count: u64,
    /// Failed requests, oldest first; the last 1000 where there are more.
    pub ooms: Vec<OomReport>,
    /// What would become of one more request, if that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestReport>,
    /// Who holds the memory, by whole stack, most first.
    pub top_stacks: Vec<HeldByStack>,
    /// Who holds the memory, by line of the user's code, most first.
    pub top_lines: Vec<HeldByLine>,
    /// Where the memory was when allocated memory peaked; `None` without a trace.
    pub at_peak: Option<HeldAt>,
    /// How the training steps of the trace were told apart.
    pub steps: StepsReport,
    /// What grows with every training step.
    pub leaks: Leaks,
    /// Totals over the trace, for a chart; `None` when there is no trace.
    #[serde(skip)]
    pub timeline: Option<Timeline>,
    /// Whether the trace begins at an empty allocator; nothing to say without a trace.
    #[serde(skip)]
    pub truncated: bool,
}

/// Looks at one device; oddities of its trace go to `warnings`.
pub(super) fn report(
    device: Device<'_>,
    stacks: &StackReader<'_>,
    settings: &Settings,
    options: Options,
    warnings: &mut Warnings,
) -> DeviceReport {
    let memory = figures_of(device, settings, options.top);
    let (top_stacks, top_lines) = memory::holders(device, stacks, options.top);
    let request = options.request.map(|asked| request(device, stacks, settings, asked, options));
    let id = device.id();
    let Some(history) = history::history(device, stacks, settings, options) else {
        let peak = Peak {
            allocated_bytes: memory.allocated_bytes,
            reserved_bytes: memory.reserved_bytes,
            ..Peak::default()
        };
        return DeviceReport {
            device: id,
            memory,
            peak,
            oom_count: 0,
            ooms: Vec::new(),
            request,
            top_stacks,
            top_lines,
            at_peak: None,
            steps: StepsReport::default(),
            leaks: Leaks::default(),
            timeline: None,
            truncated: false,
        };
    };
    let outcome = history.outcome;
    let mut ooms = history.ooms;
    let last = ooms.len().saturating_sub(DESCRIBED_OOMS);
    let described = ooms.get_mut(last..).unwrap_or_default();
    if let Some(parted) = remedies(device, options.minor, described) {
        let (entry, why) = (parted.event, parted.why());
        warnings.add(
            Code::ModelParted,
            format!(
                "device {id}: no remedy is claimed, and verdicts are less certain, since the model and \
                 the recording part at entry {entry}: {why}"
            ),
        );
    }
    let mut peak = history.peak;
    let first = usize::try_from(history.timeline.first).unwrap_or(usize::MAX);
    let at_peak = peak.allocated_event.and_then(|event| usize::try_from(event).ok());
    let moments = Moments {
        // What comes before the part that is looked at counts as the state at its beginning.
        peak: at_peak.or(first.checked_sub(1)),
        failure: ooms.last().and_then(|oom| usize::try_from(oom.event).ok()),
    };
    let start = outcome.start.reserved;
    let found = held::whereabouts(device, stacks, settings, moments, start, options);
    if let Some(oom) = ooms.last_mut() {
        oom.held = found.at_failure;
    }
    // A trace that falls short of its own end state still ends there.
    let last = history.timeline.trace_events.checked_sub(1);
    let whole = history.timeline.events == history.timeline.trace_events;
    if whole && memory.allocated_bytes > peak.allocated_bytes {
        (peak.allocated_bytes, peak.allocated_event) = (memory.allocated_bytes, last);
    }
    if whole && memory.reserved_bytes > peak.reserved_bytes {
        (peak.reserved_bytes, peak.reserved_event) = (memory.reserved_bytes, last);
    }
    let truncated = outcome.start.reserved > 0;
    warn_of_options(id, &history.timeline, &peak, options, warnings);
    warn_of_trace(device, outcome, warnings);
    warn_of_failures(id, &memory, &ooms, history.oom_count, warnings);
    DeviceReport {
        device: id,
        memory,
        peak,
        oom_count: history.oom_count,
        ooms,
        request,
        top_stacks,
        top_lines,
        at_peak: found.at_peak,
        steps: found.steps,
        leaks: found.leaks,
        timeline: Some(history.timeline),
        truncated,
    }
}

/// Adds to `warnings` what was asked for and cannot be.
fn warn_of_options(
    device: u64,
    timeline: &Timeline,
    peak: &Peak,
    options: Options,
    warnings: &mut Warnings,
) {
    if timeline.events == 0 {
        warnings.add(
            Code::EmptyWindow,
            format!(
                "device {device}: none of the {} is in the part asked for, so there is no peak, no course over \
                 time and no failed request to see",
                counted(timeline.trace_events, "trace entry")
            ),
        );
    }
    if let Some(capacity) = options.capacity.filter(|capacity| *capacity < peak.reserved_bytes) {
        warnings.add(
            Code::SmallCapacity,
            format!(
                "device {device}: a capacity of {} was given, and {} was reserved at once",
                size(capacity),
                size(peak.reserved_bytes)
            ),
        );
    }
}

/// Adds to `warnings` what is not said of the failed requests, of which there are `oom_count`.
fn warn_of_failures(
    device: u64,
    memory: &Memory,
    ooms: &[OomReport],
    oom_count: u64,
    warnings: &mut Warnings,
) {
    if ooms.iter().any(|oom| oom.pool_id.is_none() && oom.kept_back_bytes.is_none())
        && memory.pools.iter().any(|pool| pool.pool_id != [0, 0])
    {
        warnings.add(
            Code::FailedPoolNotRecorded,
            format!(
                "device {device}: this release does not record which pool a failed request was for: it \
                 is taken to be the default one, though there are private pools (CUDA graphs, MemPool), and no \
                 setting is said to help one on a stream of theirs"
            ),
        );
    }
    if oom_count > MAX_OOMS as u64 {
        warnings.add(
            Code::ManyOoms,
            format!(
                "device {device} has {}: the last {MAX_OOMS} are described",
                counted(oom_count, "failed request")
            ),
        );
    }
}

/// Adds to `warnings` what a replay of `device`'s trace found to be odd about it.
pub(super) fn warn_of_trace(device: Device<'_>, outcome: Outcome, warnings: &mut Warnings) {
    let id = device.id();
    if outcome.start.reserved > 0 {
        warnings.add(
            Code::Truncated,
            format!(
                "the trace of device {id} does not begin at an empty allocator (recording began late, or its ring buffer of max_entries wrapped): it begins with {} reserved and {} allocated, rebuilt from the final segments",
                size(outcome.start.reserved),
                size(outcome.start.allocated)
            ),
        );
    }
    if outcome.lacks_completions {
        warnings.add(
            Code::FreesNotCompleted,
            format!(
                "the trace of device {id} has no free_completed entries (skip_actions): every block is \
                 taken to be free as soon as the program freed it, though another stream may still have used it"
            ),
        );
    }
    if outcome.contradictions > 0 || outcome.end_differences > 0 {
        let message = inconsistency(device, outcome);
        warnings.add(Code::TraceInconsistent, message);
    }
}

fn inconsistency(device: Device<'_>, outcome: Outcome) -> String {
    let mut found = Vec::new();
    if outcome.contradictions > 0 {
        let first = match outcome.first_contradiction {
            Some(index) => format!(", the first at entry {index}"),
            None => String::new(),
        };
        found.push(format!(
            "{} of {} contradict what came before{first}",
            outcome.contradictions,
            counted(device.len() as u64, "entry")
        ));
    }
    if outcome.end_differences > 0 {
        found.push(format!(
            "{} at the end differ from what the trace leads to",
            counted(outcome.end_differences, "block")
        ));
    }
    let why = if device.snapshot().settings.is_some() {
        "entries may be missing (skip_actions, a changed max_entries) or settings were changed on the way"
    } else {
        "this release records no allocator settings, and none that was tried leads to this trace; or entries \
         are missing (skip_actions, a changed max_entries)"
    };
    format!(
        "on device {} {}: figures over time are estimates; {why}",
        device.id(),
        found.join(", and ")
    )
}
