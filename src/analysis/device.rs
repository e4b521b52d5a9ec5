//! The report on one device, with what could be gained where no request failed.

use serde::{Serialize, Serializer};

use super::advice::{Advice, explaining_growth};
use super::local_tensors::LocalTensors;
use super::step_requests::StepRequests;
use crate::allocator::conf::EXPANDABLE_SEGMENTS;
use crate::allocator::verdict::Verdict;
use crate::analysis::failure::{FailureCollector, OomReport, RequestReport, request};
use crate::base::details::promised;
use crate::base::threads;
use crate::base::units::{GIB, counted, ratio};
use crate::base::warning::{Code, Warnings};
use crate::replay::literal::Tracking;
use crate::replay::model::simulate;
use crate::replay::ops::device_frees;
use crate::stacks::phases::{Phase, Phases};
use crate::study::annotations::by_annotation;
use crate::study::attribution::{
    self, Attribution, BlockLives, Category, CategoryRule, Leaks, MemoryBreakdown, StepsReport,
};
use crate::study::lifetimes::MemoryLifetimes;
use crate::study::memory::{Holder, LiveByStack, MemoryReport, NamedShare, SizedCount, TopRows};
use crate::study::sleep::SleepReport;
use crate::study::variables::KeptReport;
use crate::study::{
    DeviceStudy, MemoryHistory, Peak, PositionSelector, SERIES_ALLOCATED, Scope, TracePosition, warn_about_trace,
};
use crate::whatif::program::{ProgramRow, best_optimizer_change};
use crate::whatif::{NOTICEABLE_PARTS, Overrides, TriedOn, TriedRow, apply_option, hypothesis_with};

/// One device of a snapshot.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(remote = "Self")]
pub struct DeviceReport {
    /// Device number.
    pub device: u64,
    /// The position requested with `--at`. Figures up to `top_stacks` and `top_lines` apply to it;
    /// `peak`, `ooms`, `at_peak`, `steps` and `leaks` always cover the trace. The snapshot without `--at`, and if the device
    /// lacks the position (warning `no-moment`).
    #[serde(serialize_with = "moment_or_snapshot")]
    pub moment: Option<TracePosition>,
    /// The memory at that position.
    #[serde(flatten)]
    pub memory: MemoryReport,
    /// Device memory in bytes, as given or recorded; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Peaks of the totals over the recording, including the state at its start.
    pub peak: Peak,
    /// Number of failed requests, including those not in `ooms`.
    pub oom_count: u64,
    /// Failed requests, oldest first; only the last if there are more than 1000, or with more than 4 devices more than
    /// 4000 on all devices.
    pub ooms: Vec<OomReport>,
    /// The tensors of the failing function; absent if the recorder saw no failure on this device, or no tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_tensors: Option<LocalTensors>,
    /// Why the last of them failed, after what was replayed and what grows: the word of a page. `verdict` is by free bytes
    /// alone. Absent if none failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conclusion: Option<Verdict>,
    /// Recommended actions for the last failed request, most useful first; absent if none failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Advice>,
    /// The changes to the program that serve the last failed request in a replay, the best first; absent if a setting helps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ProgramRow>,
    /// The settings and the changes that were replayed for the last failed request, the best first; absent if none was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<TriedRow>,
    /// The result of `--request`; absent without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestReport>,
    /// The stacks that hold the most memory, largest first, `--top` of them.
    pub top_stacks: Vec<LiveByStack>,
    /// The holders of most memory by line of code and category, largest first, `--top` of them.
    pub top_lines: Vec<Holder>,
    /// The variables that keep the memory of the snapshot alive; absent with `--at`, and if the recorder did not look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_by: Option<KeptReport>,
    /// Live memory that the program annotated (`torch.cuda.memory._annotate_tensor`); absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotated: Option<TopRows<NamedShare>>,
    /// Attribution of the memory at the peak of allocated memory; null without a trace.
    pub at_peak: Option<MemoryBreakdown>,
    /// Attribution of the memory at the requested position, or without a trace at the snapshot; else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_moment: Option<MemoryBreakdown>,
    /// Number of failed requests after the last of `ooms`: 0 unless this is about an earlier one.
    #[serde(skip)]
    pub later_failures: u64,
    /// The training steps of the trace.
    pub steps: StepsReport,
    /// Memory that grows with every training step.
    pub leaks: Leaks,
    /// Memory that vLLM's sleep mode unmapped; absent if the recorder saw none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep: Option<SleepReport>,
    /// Totals over the trace; `None` without a trace.
    #[serde(skip)]
    pub timeline: Option<MemoryHistory>,
    /// The lifetime of every allocation, if a page needs it.
    #[serde(skip)]
    pub lives: Option<MemoryLifetimes>,
    /// The gain of expandable segments where no request failed; `None` if nothing is worth gaining.
    #[serde(skip)]
    pub expandable_gain: Option<ExpandableGain>,
    /// Reserved memory that the program has stopped using; absent if there is little.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_cache: Option<IdleCache>,
    /// The requests of the step of the last failure, or else of the peak; empty without a trace.
    #[serde(skip)]
    pub(super) step_requests: StepRequests,
    /// Requests for which the allocator released cached memory, and the bytes released; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_flushes: Option<SizedCount>,
    /// The change to the optimizer's step with which its peak reserves least, if no request failed.
    #[serde(skip)]
    pub optimizer_change: Option<ProgramRow>,
    /// The replay with which those for a failed request are compared; `None` if none failed.
    #[serde(skip)]
    pub(super) tried_on: Option<TriedOn>,
}

promised! {
    DeviceReport {
        device, moment, reserved_bytes, allocated_bytes, active_bytes, requested_bytes, fragmentation, capacity_bytes, peak,
        oom_count, ooms, conclusion, advice, tried, top_lines, at_peak, at_moment, steps,
    }
}

#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
fn moment_or_snapshot<S: Serializer>(moment: &Option<TracePosition>, serializer: S) -> Result<S::Ok, S::Error> {
    moment.unwrap_or_default().serialize(serializer)
}

/// Growth below this part of the peak is not worth a look.
const MIN_GROWTH_PARTS: u64 = 100;

impl DeviceReport {
    /// The trace. The legacy recording API keeps a single entry, which is no history.
    pub fn history(&self) -> Option<&MemoryHistory> {
        self.timeline.as_ref().filter(|timeline| timeline.trace_entries > 1)
    }

    /// The attribution of the memory at the last failure, else at the peak.
    pub(super) fn held(&self) -> Option<&MemoryBreakdown> {
        self.ooms.last().and_then(|oom| oom.held.as_ref()).or(self.at_peak.as_ref())
    }

    /// Bytes of `category` in that attribution.
    pub(super) fn category_bytes(&self, category: Category) -> u64 {
        let rows = self.held().into_iter().flat_map(|held| &held.by_category);
        rows.filter(|row| row.category == category).fold(0, |sum, row| sum.saturating_add(row.share.bytes))
    }

    /// Whether the position requested with `--at` is that of the last failed request.
    pub fn is_at_last_failure(&self) -> bool {
        let failure = self.ooms.last().map(|oom| TracePosition::Entry { event: oom.event });
        failure.is_some() && failure == self.moment
    }

    /// The most bytes of the device that PyTorch's segments occupied at once.
    pub fn peak_on_device(&self) -> u64 {
        self.sleep.as_ref().map_or(self.peak.reserved_bytes, |sleep| sleep.peak_on_device_bytes)
    }

    /// Bytes of growth per step that explain `oom`; `None` if growth is not the reason.
    pub fn explaining_growth(&self, oom: &OomReport) -> Option<u64> {
        explaining_growth(oom, &self.leaks)
    }

    /// Whether `bytes` matter on this device: a notable part of the peak, and of the device if its size is known.
    pub fn is_notable(&self, bytes: u64) -> bool {
        let of_device = self.capacity_bytes.map_or(0, |capacity| capacity / NOTICEABLE_PARTS);
        ratio(bytes, self.peak.reserved_bytes) >= MIN_PEAK_RATIO && bytes >= of_device
    }

    /// Bytes that were allocated before the recording began.
    pub fn allocated_before_bytes(&self) -> u64 {
        self.timeline.as_ref().map_or(0, |history| history.outcome.initial_totals.allocated)
    }

    /// Whether the line that grows most holds a notable part of the peak.
    pub fn is_growth_notable(&self) -> bool {
        self.leaks.suspects.first().is_some_and(|leak| leak.bytes >= self.peak.allocated_bytes / MIN_GROWTH_PARTS)
    }
}

/// Analyzes one device, except for the reason of its last failure. Returns the report and the warnings about its trace.
pub(super) fn report(device: DeviceStudy<'_, '_>, options: Options<'_>) -> (DeviceReport, Warnings) {
    let mut warnings = Warnings::default();
    let mut failures = FailureCollector::new(device);
    let mut lives = options.keeps_lifetimes.then(MemoryLifetimes::default);
    let tracking = if options.keeps_lifetimes { Tracking::Changes } else { Tracking::Totals };
    // The replay and the stacks are independent: two cores share them.
    let ((history, cache_flushes), lifetimes) = threads::join(
        || {
            let history = device.replay(tracking, |step| {
                failures.observe(step);
                if let Some(lives) = &mut lives {
                    lives.add_step(step, device);
                }
            });
            (history, history.and_then(|history| cache_flushes(device, history)))
        },
        || {
            device.read_stacks();
            BlockLives::from_trace(device)
        },
    );
    let moment = options.at.and_then(|selector| device.position(selector));
    if let Some(selector) = options.at.filter(|_| moment.is_none()) {
        warnings.add(Code::NoMoment, missing_position_warning(device, selector));
    }
    let position = moment.unwrap_or_default();
    let (rules, top) = (options.rules, options.top);
    let ((attribution, lifetimes), annotated) = threads::join(
        || attribution::attribute_memory(device, lifetimes, position, rules, top),
        || if moment.is_none() { by_annotation(device, top) } else { None },
    );
    let lives = lives.map(|lives| lives.finish(device, &lifetimes));
    drop(lifetimes);
    let Attribution { at_peak, at_failure, at_position: held, steps, leaks } = attribution;
    let entry = at_failure.as_ref().and_then(|held| held.event).or_else(|| at_peak.as_ref()?.event);
    let step_requests = entry.map(|entry| StepRequests::new(device, entry)).unwrap_or_default();
    let ooms = failures.reports(at_failure, !leaks.suspects.is_empty(), &mut warnings);
    warn_about_trace(device, &mut warnings);
    let memory = device.memory_at(position);
    let (figures, is_at_snapshot) = (&memory.figures, moment.is_none());
    let names = device.variables().filter(|_| is_at_snapshot);
    let kept_by = names.map(|names| KeptReport::new(names, device.stacks(), device.text(), top));
    let has_failed = !ooms.is_empty();
    let is_optimizer_peak = !has_failed && at_peak.as_ref().is_some_and(|peak| peak.phase == Phase::Optimizer);
    let report = DeviceReport {
        device: device.id(),
        moment,
        capacity_bytes: device.capacity(),
        peak: Peak { is_lower_bound: device.lost_history().is_some(), ..device.peak() },
        oom_count: device.failed_requests().count() as u64,
        ooms,
        request: options.request.map(|bytes| request(device, (position, &memory), bytes)),
        top_stacks: held.as_ref().map(|held| held.by_stack.rows.clone()).unwrap_or_default(),
        top_lines: held.as_ref().map(|held| held.by_line.rows.clone()).unwrap_or_default(),
        kept_by,
        annotated,
        expandable_gain: if has_failed { None } else { ExpandableGain::from_replay(device, figures) },
        optimizer_change: if is_optimizer_peak { best_optimizer_change(device) } else { None },
        idle_cache: history.and_then(|history| IdleCache::from_history(history, figures, device.phases())),
        memory: memory.figures,
        at_peak,
        at_moment: held.filter(|_| !is_at_snapshot || history.is_none()),
        steps,
        leaks,
        sleep: device.sleep().cloned(),
        timeline: history.cloned(),
        lives,
        step_requests,
        cache_flushes,
        ..DeviceReport::default()
    };
    (report, warnings)
}

/// A smaller part of the peak is not worth a change to the program.
const MIN_PEAK_RATIO: f64 = 0.05;

fn missing_position_warning(device: DeviceStudy<'_, '_>, selector: PositionSelector) -> String {
    let why = match selector {
        PositionSelector::Entry(_) => format!("its trace has {}", counted(device.device().len() as u64, "entry")),
        _ => selector.describe_missing(),
    };
    format!("GPU {}: {why}, so its memory is shown as at the snapshot", device.id())
}

/// Selects what to analyze, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// The part of a snapshot to analyze.
    pub scope: Scope,
    /// Maximum number of stacks and lines in a list.
    pub top: usize,
    /// The position whose memory is shown; by default the snapshot.
    pub at: Option<PositionSelector>,
    /// Size of a request to try, in bytes.
    pub request: Option<u64>,
    /// Keeps the lifetime of every allocation, for a page.
    pub keeps_lifetimes: bool,
    /// Custom categories, in addition to the built-in ones.
    pub rules: &'a [CategoryRule],
}

/// Replay only if stranded free memory is at least this share of reserved memory.
const MIN_STRANDED_RATIO: f64 = 0.2;
/// Recommend the setting only if the peak of reserved memory falls by at least this share.
const MIN_GAIN_RATIO: f64 = 0.05;

/// A lower peak of reserved memory with expandable segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpandableGain {
    /// Free bytes that `empty_cache()` would not release, without private pools, whose graphs reuse theirs.
    pub stranded_bytes: u64,
    /// Peak of reserved bytes in the replay.
    pub peak_reserved_bytes: u64,
}

impl ExpandableGain {
    /// Replays `device` with expandable segments. `None` if little memory is stranded, if segments are expandable
    /// already, if the model does not reproduce the recording, or if little would be gained.
    fn from_replay(device: DeviceStudy<'_, '_>, memory: &MemoryReport) -> Option<Self> {
        let private = memory.private_pools.unwrap_or_default().inactive_bytes;
        let stranded_bytes = memory.fragmentation.stranded_bytes.saturating_sub(private);
        let is_stranded = ratio(stranded_bytes, memory.reserved_bytes) >= MIN_STRANDED_RATIO;
        if !is_stranded || memory.segments.expandable.count > 0 || !device.inferred().verification.is_exact() {
            return None;
        }
        let recorded = &device.inferred().hypothesis;
        let settings = apply_option(device.snapshot(), recorded, EXPANDABLE_SEGMENTS).ok()?; // the release lacks it
        let overrides = Overrides { settings: Some(settings), ..Overrides::default() };
        let outcome = simulate(device.program(), &hypothesis_with(device, &overrides), None);
        let peak_reserved_bytes = outcome.figures().peak_reserved_bytes;
        let gain = device.peak().reserved_bytes.saturating_sub(peak_reserved_bytes);
        let is_worthwhile = ratio(gain, device.peak().reserved_bytes) >= MIN_GAIN_RATIO;
        is_worthwhile.then_some(Self { stranded_bytes, peak_reserved_bytes })
    }
}

/// Less is no reason to change a program.
const MIN_IDLE_BYTES: u64 = GIB;
/// Idle memory is this share of the reserved memory at least.
const MIN_IDLE_RATIO: f64 = 0.2;
/// Idle memory was not used in the last of this number of equal parts of the recording.
const RECENT_PARTS: usize = 2;

/// Free memory in the cache that nothing used for half the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct IdleCache {
    /// Bytes that `torch.cuda.empty_cache()` would release to other processes.
    pub bytes: u64,
    /// All reserved bytes.
    pub reserved_bytes: u64,
}

impl IdleCache {
    /// `None` if most reserved memory was used recently, or if a program that trains completed no step meanwhile: each
    /// step needs its peak again.
    fn from_history(history: &MemoryHistory, memory: &MemoryReport, phases: &Phases) -> Option<Self> {
        let buckets = history.samples.buckets();
        let recent = &buckets[buckets.len() - buckets.len() / RECENT_PARTS..];
        let start = history.first_entry + recent.first()?.first as u64;
        let ends = phases.steps.ends().iter().filter(|end| u64::from(**end) >= start).count();
        if ends < 2 && phases.runs().iter().any(|run| run.phase == Phase::Backward) {
            return None;
        }
        let used = recent.iter().map(|bucket| bucket.max[SERIES_ALLOCATED]).max()?;
        let reserved_bytes = memory.reserved_bytes;
        // Later work needs `used` again.
        let bytes = memory.fragmentation.releasable_bytes.min(reserved_bytes.saturating_sub(used));
        (bytes >= MIN_IDLE_BYTES && ratio(bytes, reserved_bytes) >= MIN_IDLE_RATIO)
            .then_some(Self { bytes, reserved_bytes })
    }
}

/// The requests that found no room until the allocator had released cached memory, which waits for the GPU each time, and
/// the bytes released for them; `None` if there was none.
fn cache_flushes(device: DeviceStudy<'_, '_>, history: &MemoryHistory) -> Option<SizedCount> {
    let window = device.window();
    let released = device_frees(device.device(), history.outcome.initial_totals.reserved);
    let for_requests = released.filter(|one| one.is_for_request && window.contains(&one.entry_index));
    let mut flushes = SizedCount::default();
    for_requests.for_each(|one| flushes.add(one.bytes));
    (flushes.count > 0).then_some(flushes)
}
