//! Advice for a failed request: that of its verdict, refined by what the recording shows.

use crate::allocator::verdict::Verdict;
use crate::analysis::failure::{Blocker, OomReport, RecordedReplay, Remedy};
use crate::stacks::frames::{CodeLocation, FrameReport, forward_slashes};
use crate::study::attribution::{Category, Leaks, UnusedGraphs};
use crate::study::memory::LiveByLine;
use crate::whatif::ForecastVerdict;
use crate::whatif::program::{ChangeCertainty, ProgramRow};

/// A recommended action, or a fact that supports it.
#[derive(Debug, Clone, PartialEq)]
pub enum Advice {
    /// Free what a line keeps after each step; `None` if no line is known.
    FreeGrowth(Option<CodeLocation>),
    /// Set an option: in a replay the rest of the iteration and one more then succeed.
    GoOn(String),
    /// Set an option: in a replay the request then succeeds.
    Set(String),
    /// Try an option: in a replay the request then succeeds, but the requests after it are not known.
    Try(String),
    /// Change the program as described, at a line: in a replay every request then succeeds.
    Change(String, CodeLocation),
    /// Hold less memory, most of which belongs to the category. The flag: the program has a backward pass or an
    /// optimizer.
    HoldLess(Category, bool, NoSettingHelps),
    /// Request less at once.
    RequestLess(OversizedRequest),
    /// Run forward passes that no backward pass follows without graphs.
    NoGrad(UnusedGraphs),
    /// Load the checkpoint into host memory; the line that loads it.
    LoadOnHost(CodeLocation),
    /// The standard advice of the verdict.
    Standard(Verdict),
    /// The advice, unless other processes hold the missing memory: the size of the device is unknown.
    UnknownCapacity(Box<Advice>),
    /// The line that holds the most, of all allocated bytes.
    LargestHolder(LiveByLine, u64),
    /// More is needed than is within reach, under any layout.
    Excess(RecordedReplay),
    /// Blocks that keep free memory apart.
    MoveBlocks(Blocker),
    /// Emptying the cache would not have helped.
    EmptyCacheNoRemedy,
    /// The line that allocated most of the pending memory.
    Pending(LiveByLine),
    /// Bytes of the device that are in use outside this allocator.
    Outside(u64),
}

/// A request that fails because of its own size.
#[derive(Debug, Clone, PartialEq)]
pub struct OversizedRequest {
    /// The line that made it.
    pub location: CodeLocation,
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes that the process had reserved or could have.
    pub reach_bytes: u64,
    /// Bytes of all live blocks.
    pub allocated_bytes: u64,
}

impl OversizedRequest {
    /// `oom`'s request, if it exceeds the memory within reach, or all that the program holds many times over.
    pub fn from_failure(oom: &OomReport) -> Option<Self> {
        let reach_bytes = oom.reserved_bytes.saturating_add(oom.device_free_bytes);
        let (bytes, allocated_bytes) = (oom.requested_bytes, oom.allocated_bytes);
        let is_oversized = bytes > reach_bytes || bytes / MIN_OVERSIZED_RATIO > allocated_bytes;
        let location = oom.location.clone();
        (is_oversized && oom.verdict == Verdict::Capacity).then_some(Self {
            location,
            bytes,
            reach_bytes,
            allocated_bytes,
        })
    }
}

/// The result of replays that recommend no setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSettingHelps {
    /// Live memory and the request exceed the memory within reach.
    ExceedsReach,
    /// The request fails under every replayed setting.
    AllFail,
    /// The settings that serve the request fail in the next step.
    AllPostpone,
    /// A setting serves the request, but the requests after it are not known.
    MayPostpone,
}

/// The evidence besides the failure itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence<'a> {
    pub(super) leaks: &'a Leaks,
    /// Replayed changes to the program, the best first.
    pub(super) changes: &'a [ProgramRow],
    pub(super) is_capacity_known: bool,
    /// Whether the trace shows a backward pass or an optimizer.
    pub(super) is_training: bool,
}

/// A request that is larger than this many times all live memory failed because of its own size.
const MIN_OVERSIZED_RATIO: u64 = 4;

/// Bytes of growth per step that explain `oom`: it used up the missing memory, and would have used up more.
pub(super) fn explaining_growth(oom: &OomReport, leaks: &Leaks) -> Option<u64> {
    let growth = oom.growth.filter(|growth| growth.explains).map(|growth| growth.bytes_per_step);
    growth.or_else(|| leaks.explain_shortfall(oom.shortfall_bytes).then_some(leaks.bytes_per_step))
}

/// Recommends actions for `oom`, the last failure of a device; most useful first.
pub(super) fn advise(oom: &OomReport, evidence: Evidence<'_>) -> Vec<Advice> {
    let first = first_advice(oom, evidence);
    let is_unknown = matches!(first, Advice::HoldLess(..) | Advice::Standard(Verdict::Capacity))
        && !evidence.is_capacity_known
        && is_device_too_full(oom)
        && explaining_growth(oom, evidence.leaks).is_none();
    let mut advice = vec![if is_unknown { Advice::UnknownCapacity(Box::new(first)) } else { first }];
    let blocker = oom.blockers.first().cloned().map(Advice::MoveBlocks);
    match oom.verdict {
        Verdict::Capacity => {
            let largest = live_lines(oom).next().cloned();
            advice.extend(largest.map(|line| Advice::LargestHolder(line, oom.allocated_bytes)));
            // No memory layout can serve the excess.
            let excess = oom.as_recorded.filter(|replay| replay.needed_bytes > replay.reach_bytes);
            advice.extend(excess.map(Advice::Excess));
        }
        Verdict::Fragmentation => advice.extend(blocker.into_iter().chain([Advice::EmptyCacheNoRemedy])),
        Verdict::PendingFree => advice.extend(oom.pending.first().cloned().map(Advice::Pending)),
        Verdict::PrivatePool | Verdict::OtherStream => advice.extend(blocker),
        Verdict::NonPytorch => {
            let outside = oom.causes.iter().find(|cause| cause.kind == Verdict::NonPytorch);
            advice.extend(outside.map(|cause| Advice::Outside(cause.bytes)));
        }
        Verdict::MemoryLimit | Verdict::Spurious | Verdict::Unknown | Verdict::Served => {}
    }
    advice
}

/// The most useful piece of advice.
fn first_advice(oom: &OomReport, evidence: Evidence<'_>) -> Advice {
    if let Some(request) = OversizedRequest::from_failure(oom) {
        return Advice::RequestLess(request);
    }
    if is_checkpoint_load(oom) {
        return Advice::LoadOnHost(oom.location.clone());
    }
    let unused_graphs = oom.held.as_ref().and_then(|held| held.unused_graphs.as_ref());
    if let Some(graphs) = unused_graphs.filter(|graphs| graphs.bytes >= oom.shortfall_bytes) {
        return Advice::NoGrad(graphs.clone());
    }
    if explaining_growth(oom, evidence.leaks).is_some() {
        return Advice::FreeGrowth(evidence.leaks.suspects.first().map(|suspect| suspect.location.clone()));
    }
    let is_settable = |remedy: &&Remedy| remedy.avoids_oom && remedy.without.is_none();
    let remedies = || oom.remedies.iter().filter(is_settable);
    if let Some(remedy) = remedies().find(|remedy| remedy.forecast.as_ref().is_some_and(ForecastVerdict::goes_on)) {
        return Advice::GoOn(remedy.settings.clone());
    }
    let is_sure = |row: &&ProgramRow| row.sure != ChangeCertainty::Guess && row.fits == Some(true);
    if let Some(change) = evidence.changes.first().filter(is_sure) {
        return Advice::Change(change.label(), change.location.clone());
    }
    // A capacity verdict predicts that later requests fail too.
    for remedy in remedies().filter(|_| oom.verdict != Verdict::Capacity) {
        match &remedy.forecast {
            // The trace has the requests after it.
            None => return Advice::Set(remedy.settings.clone()),
            Some(ForecastVerdict::Unknown { .. }) => return Advice::Try(remedy.settings.clone()),
            Some(ForecastVerdict::GoesOn { .. } | ForecastVerdict::FailsAgain { .. }) => {}
        }
    }
    // The verdict's own advice is to try a setting, which is stale once settings have been replayed.
    let is_stale = matches!(oom.verdict, Verdict::Fragmentation | Verdict::Capacity);
    match why_no_setting_helps(oom).filter(|_| is_stale) {
        Some(why) => Advice::HoldLess(largest_category(oom), evidence.is_training, why),
        None => Advice::Standard(oom.verdict),
    }
}

/// The result of the replays, if none of them recommends a setting.
fn why_no_setting_helps(oom: &OomReport) -> Option<NoSettingHelps> {
    let mut successful = oom.remedies.iter().filter(|remedy| remedy.avoids_oom).peekable();
    let as_recorded = oom.as_recorded?;
    if as_recorded.no_setting_helps {
        return Some(NoSettingHelps::ExceedsReach);
    }
    if oom.remedies.is_empty() {
        return None;
    }
    Some(if successful.peek().is_none() {
        NoSettingHelps::AllFail
    } else if successful.all(|remedy| remedy.next_step.is_some_and(|next| next.fails)) {
        NoSettingHelps::AllPostpone
    } else {
        NoSettingHelps::MayPostpone
    })
}

fn live_lines(oom: &OomReport) -> impl Iterator<Item = &LiveByLine> {
    oom.held.iter().flat_map(|held| &held.by_line.rows)
}

/// The known category with the most memory.
fn largest_category(oom: &OomReport) -> Category {
    let mut categories = oom.held.iter().flat_map(|held| &held.by_category).map(|row| row.category);
    categories.find(|category| *category != Category::Other).unwrap_or(Category::Other)
}

/// Whether `torch.load` made the request: it copies a checkpoint to the device beside the model.
fn is_checkpoint_load(oom: &OomReport) -> bool {
    let mut files = oom.frames.iter().map(|frame| forward_slashes(&frame.file));
    oom.verdict == Verdict::Capacity && files.any(|file| file.ends_with("torch/serialization.py"))
}

/// Whether even all free memory, in one piece, would have been too little.
fn is_device_too_full(oom: &OomReport) -> bool {
    oom.device_free_bytes.saturating_add(oom.cached_bytes) < oom.segment_bytes
}

impl OomReport {
    /// The source line that holds the most memory.
    pub fn holder(&self) -> Option<String> {
        live_lines(self).find_map(|line| line.location.frame.as_ref().map(FrameReport::file_line))
    }
}
