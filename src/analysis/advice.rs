//! Advice for a failed request: the best action that the recording has evidence for, else the standard advice of the
//! verdict.

use super::cures::{Cure, find_cure};
use super::in_parts::ShapeCure;
use crate::allocator::verdict::Verdict;
use crate::analysis::failure::{Growth, OomReport, Remedy};
use crate::stacks::engines::Engine;
use crate::stacks::frames::{CodeLocation, FrameReport, Origin, forward_slashes};
use crate::stacks::phases::Phase;
use crate::study::attribution::{ByCategory, Category, Confidence, KeptGraphs, KeptGroup, Leaks, UnusedGraphs};
use crate::study::iterations::{GrowthKind, InputChange, UnusualInput};
use crate::study::variables::{KeptByVariable, KeptReport};
use crate::whatif::program::{ProgramChange, ProgramRow};
use crate::whatif::{JobOutcome, NOTICEABLE_PARTS, Sureness, WhyUnknown};

/// A recommended action.
#[derive(Debug, Clone, PartialEq)]
pub enum Advice {
    /// Free what a variable keeps.
    Cure(Cure),
    /// Make a tensor smaller, or none, at a line.
    Shapes(ShapeCure, CodeLocation),
    /// Keep the value of a result instead of its graph, in the variable, if it is known.
    Detach(KeptGraphs, Option<Box<KeptByVariable>>),
    /// Free the memory that a line keeps after each step, or limit its growth. Line and variable are `None` if unknown.
    FreeGrowth(Option<CodeLocation>, GrowthKind, Option<Box<KeptByVariable>>),
    /// Limit the input of an iteration: it is larger than in all earlier ones.
    LimitInput(UnusualInput),
    /// Set or remove an option; the job continued in a replay with it.
    GoOn(Box<Remedy>),
    /// Try an option; a replay with it served the request, but what follows is not known.
    Try(String, WhyUnknown),
    /// Change the program at a line; a replay with the change served the request, with this outcome.
    Change(String, CodeLocation, JobOutcome),
    /// Try a change at a line; a replay had this outcome, but the sizes that change are a guess.
    Guess(String, CodeLocation, JobOutcome),
    /// No replayed setting lets the job continue. True if a change of the program may.
    NothingHelps(NoSettingHelps, bool),
    /// Request less at once.
    RequestLess(OversizedRequest),
    /// Run forward passes that no backward pass follows without graphs.
    NoGrad(UnusedGraphs),
    /// Load the checkpoint into host memory, at this line.
    LoadOnHost(CodeLocation),
    /// Make the model smaller, or divide it: it does not fit. With the bytes of its parameters until then.
    SmallerModel(CodeLocation, u64),
    /// Put a serving engine to sleep while other code runs: `vLLM` or `SGLang`.
    SleepEngine(&'static Engine),
    /// The standard advice of the verdict.
    Standard(Verdict),
    /// The inner advice applies unless other processes hold the missing memory: the device's size is unknown.
    UnknownCapacity(Box<Advice>),
}

/// A request that fails because of its own size.
#[derive(Debug, Clone, PartialEq)]
pub struct OversizedRequest {
    /// The line that made it.
    pub location: CodeLocation,
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes that the process had reserved or could still reserve.
    pub reach_bytes: u64,
    /// Bytes of all live blocks.
    pub allocated_bytes: u64,
}

impl OversizedRequest {
    /// `oom`'s request, if it exceeds the memory within reach, or is many times as large as all live memory.
    pub fn from_failure(oom: &OomReport) -> Option<Self> {
        let reach_bytes = oom.reserved_bytes.saturating_add(oom.device_free_bytes);
        let (bytes, allocated_bytes) = (oom.requested_bytes, oom.allocated_bytes);
        let is_oversized = bytes > reach_bytes || bytes / MIN_OVERSIZED_RATIO > allocated_bytes;
        let request = Self { location: oom.location.clone(), bytes, reach_bytes, allocated_bytes };
        (is_oversized && oom.verdict == Verdict::Capacity).then_some(request)
    }
}

/// The result of replays that recommend no setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoSettingHelps {
    /// Live memory and the request exceed the memory within reach.
    ExceedsReach,
    /// The request fails under every replayed setting.
    AllFail,
    /// Under every setting that serves the request the program fails later; this one gets furthest.
    AllPostpone(Box<Remedy>),
}

/// The evidence besides the failure itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence<'a> {
    pub(super) leaks: &'a Leaks,
    /// Replayed changes to the program, the best first.
    pub(super) changes: &'a [ProgramRow],
    /// The variables that keep the memory at the failure, as the recorder saw them or as stacks and source text show.
    pub(super) kept: Option<&'a KeptReport>,
    /// The change of the program that stacks show; without names only.
    pub(super) by_calls: Option<&'a Cure>,
    /// The call without gradients of which half would fit.
    pub(super) in_parts: Option<&'a ShapeCure>,
    /// The tensor that could be smaller, by the text of the failing line.
    pub(super) large_value: Option<&'a ShapeCure>,
    /// Number of complete steps.
    pub(super) completed_steps: u64,
    pub(super) is_capacity_known: bool,
    /// No running function turns gradients off in its source text.
    pub(super) has_grad: bool,
}

/// A request that is larger than this many times all live memory failed because of its own size.
const MIN_OVERSIZED_RATIO: u64 = 4;

/// Bytes of growth per step that explain `oom`: the growth so far used up the missing memory, or further growth ends the
/// job under every setting that serves the request.
pub(super) fn explaining_growth(oom: &OomReport, leaks: &Leaks) -> Option<u64> {
    // Growth and a growing input may both be found; the larger one explains the failure.
    let input = oom.unusual_input.as_ref().map_or(0, UnusualInput::excess_bytes);
    let explains = |growth: &Growth| (growth.explains || ends_job_later(oom)) && growth.bytes >= input;
    match oom.outlook.growth {
        Some(growth) if explains(&growth) => Some(growth.bytes_per_step),
        _ if input > oom.shortfall_bytes => None,
        _ => leaks.explain_shortfall(oom.shortfall_bytes).then_some(leaks.bytes_per_step),
    }
}

/// Whether the program, under settings that serve the request, fails in a later iteration because memory grows.
fn ends_job_later(oom: &OomReport) -> bool {
    let mut serving = oom.remedies.iter().filter(|remedy| remedy.avoids_oom);
    serving.clone().next().is_some()
        && serving.all(|remedy| matches!(remedy.then, JobOutcome::FailsAgain { steps_later: 1.., .. }))
}

/// Recommends an action for `oom`, the last failure of a device.
pub(super) fn advise(oom: &OomReport, evidence: Evidence<'_>) -> Advice {
    let advice = RULES.iter().find_map(|rule| rule((oom, evidence)));
    let first = advice.unwrap_or(Advice::Standard(oom.verdict));
    let is_unknown = matches!(first, Advice::NothingHelps(..) | Advice::Standard(Verdict::Capacity))
        && !evidence.is_capacity_known
        && is_device_too_full(oom)
        && explaining_growth(oom, evidence.leaks).is_none();
    if is_unknown { Advice::UnknownCapacity(Box::new(first)) } else { first }
}

/// An input that was the largest in fewer consecutive steps may vary rather than grow.
const MIN_GROWING_STEPS: u64 = 8;

/// A failure, and the evidence about it.
type Case<'a> = (&'a OomReport, Evidence<'a>);

/// The advice that follows from a kind of evidence, if a case has it.
type Rule = fn(Case<'_>) -> Option<Advice>;

/// The first rule that applies gives the advice: cures of the program with complete evidence come first, then a setting with
/// which the job continues, then anything that serves this request. A comment names the evidence of each rule.
const RULES: &[Rule] = &[
    // The text of the failing line, and sizes.
    |(oom, evidence)| {
        let cure = evidence.large_value.filter(|_| !is_grown(oom, evidence))?;
        Some(Advice::Shapes(cure.clone(), user_line(&oom.location)))
    },
    // A request larger than the memory within reach that can be made in parts.
    |(oom, evidence)| OversizedRequest::from_failure(oom).and_then(|_| parts((oom, evidence))),
    // A request larger than the memory within reach.
    |(oom, _)| OversizedRequest::from_failure(oom).map(Advice::RequestLess),
    // `torch.load` makes the request.
    |(oom, _)| is_checkpoint_load(oom).then(|| Advice::LoadOnHost(user_line(&oom.location))),
    // Memory of private pools, without growth. The results of a CUDA graph stay in its pool, so changing the variable
    // that keeps them frees nothing.
    |(oom, evidence)| {
        let is_only_cause = oom.verdict == Verdict::PrivatePool && !is_grown(oom, evidence);
        is_only_cause.then_some(Advice::Standard(Verdict::PrivatePool))
    },
    // Variables that keep the memory.
    |(oom, evidence)| find_cure(oom, evidence.kept?).map(Advice::Cure),
    // A serving engine beside the program.
    |(oom, evidence)| {
        let may_matter = !is_grown(oom, evidence) && oom.verdict == Verdict::Capacity;
        engine_beside(oom).filter(|_| may_matter).map(Advice::SleepEngine)
    },
    // A batch that needs no gradients.
    |case| parts(case).filter(|_| !is_grown(case.0, case.1)),
    // Graphs of forward passes that no backward pass follows.
    |case| unused_graphs(case).filter(|graphs| graphs.after_backward).map(Advice::NoGrad),
    // Graphs that stay after their backward pass.
    |(oom, evidence)| {
        let graphs = evidence.leaks.kept_graphs.as_ref().filter(|_| is_grown(oom, evidence))?;
        let in_text = || evidence.kept.and_then(|kept| kept.keepers.iter().find(|keeper| keeper.written.is_some()));
        let variable = evidence.leaks.variable.clone().or_else(|| in_text().cloned().map(Box::new));
        Some(Advice::Detach(graphs.clone(), variable.filter(|variable| variable.is_graph())))
    },
    // Calls that keep the memory, without names.
    |(_, evidence)| {
        let cure = evidence.by_calls.filter(|cure| cure.then.as_ref().is_none_or(|then| !then.fails_again()));
        cure.cloned().map(Advice::Cure)
    },
    // Graphs of forward passes, and no backward pass is recorded.
    |case| unused_graphs(case).map(Advice::NoGrad),
    // Lines that grow.
    |(oom, evidence)| {
        let leaks = evidence.leaks;
        let line = || leaks.suspects.first().map(|suspect| user_line(&suspect.location));
        let kind = leaks.kind.unwrap_or(GrowthKind::Kept);
        is_grown(oom, evidence).then(|| Advice::FreeGrowth(line(), kind, leaks.variable.clone()))
    },
    // Inputs that grow: settings only postpone the failure.
    |(oom, _)| {
        let input = oom.unusual_input.as_ref().filter(|input| input.iterations >= MIN_GROWING_STEPS)?;
        (input.change == InputChange::Growing).then(|| Advice::LimitInput(input.clone()))
    },
    // A setting after which the job goes on.
    |(oom, _)| {
        let remedy = oom.remedies.iter().find(|remedy| remedy.then.goes_on())?;
        Some(Advice::GoOn(Box::new(remedy.clone())))
    },
    // Calls that keep the memory, although the replay fails again later.
    |(_, evidence)| evidence.by_calls.cloned().map(Advice::Cure),
    // A single input out of line, even if nothing serves the request.
    |(oom, _)| {
        let single = oom.unusual_input.as_ref().filter(|input| input.change == InputChange::Single)?;
        Some(Advice::LimitInput(single.clone()))
    },
    // A change after which the job goes on.
    |(_, evidence)| best_change(evidence.changes).filter(|change| change.then.goes_on()).map(as_advice),
    // Inputs that vary.
    |(oom, _)| oom.unusual_input.clone().map(Advice::LimitInput),
    // Fragmentation, and a setting that serves the request: it may only postpone the failure, but it addresses the
    // cause. A change of the optimizer's step comes first where it is known to help: it saves memory in every step, and
    // a limit on splits may slow the program.
    |(oom, evidence)| {
        let change = best_change(evidence.changes);
        let is_foreach = change.is_some_and(|change| change.change == ProgramChange::OptimizerForeach);
        let (settings, why) = unknown_remedy(oom).filter(|_| oom.verdict == Verdict::Fragmentation)?;
        let leads = change.is_none() || !is_foreach && !settings.contains("max_split_size_mb");
        leads.then_some(Advice::Try(settings, why))
    },
    // A change that serves the request.
    |(_, evidence)| best_change(evidence.changes).map(as_advice),
    // Another verdict than fragmentation or capacity.
    |(oom, _)| {
        let is_other = !matches!(oom.verdict, Verdict::Fragmentation | Verdict::Capacity);
        is_other.then_some(Advice::Standard(oom.verdict))
    },
    // A setting that serves the request. After replays, the verdict's standard advice to try one would be stale.
    |(oom, _)| unknown_remedy(oom).map(|(settings, why)| Advice::Try(settings, why)),
    // A change whose sizes are a guess, but not its category, and whose effect is noticeable.
    |(oom, evidence)| {
        let mut guesses = evidence.changes.iter().filter(|row| {
            let gain = u64::try_from(row.allocated_gain_bytes).unwrap_or(0);
            !row.rests_on_guess && gain >= oom.allocated_bytes / NOTICEABLE_PARTS && may_help(row)
        });
        let guess = guesses.clone().find(|row| row.then.goes_on()).or_else(|| guesses.next())?;
        Some(Advice::Guess(guess.label(), guess.location.clone(), guess.then.clone()))
    },
    // A model that does not fit, even without anything else.
    |(oom, _)| {
        let held = oom.held.as_ref().filter(|held| held.phase == Phase::Init && oom.verdict == Verdict::Capacity)?;
        // Any constructor may fill a buffer: a guess does not make it a model.
        let of_model = |row: &&ByCategory| row.category == Category::Parameters && row.confidence != Confidence::Low;
        let bytes = held.by_category.iter().find(of_model)?.share.bytes;
        (bytes >= oom.allocated_bytes / 5 * 4).then(|| Advice::SmallerModel(user_line(&oom.location), bytes))
    },
    // Replays that all fail.
    |(oom, evidence)| {
        let may_help = evidence.changes.iter().any(may_help);
        why_no_setting_helps(oom).map(|why| Advice::NothingHelps(why, may_help))
    },
];

fn is_grown(oom: &OomReport, evidence: Evidence<'_>) -> bool {
    explaining_growth(oom, evidence.leaks).is_some()
}

fn parts((oom, evidence): Case<'_>) -> Option<Advice> {
    Some(Advice::Shapes(evidence.in_parts?.clone(), user_line(&oom.location)))
}

/// The engine that holds enough to serve the request of other code, such as a trainer beside it.
fn engine_beside(oom: &OomReport) -> Option<&'static Engine> {
    if oom.is_in_engine() {
        return None;
    }
    let held = oom.held.as_ref()?.by_engine.iter().find(|row| row.engine.is_some())?;
    held.engine.filter(|_| held.share.bytes >= oom.shortfall_bytes)
}

fn as_advice(row: &ProgramRow) -> Advice {
    Advice::Change(row.label(), row.location.clone(), row.then.clone())
}

fn may_help(row: &ProgramRow) -> bool {
    row.then.goes_on() || matches!(row.then, JobOutcome::NotKnown { .. })
}

/// The line that a user can change: the caller, if a package made the request.
fn user_line(location: &CodeLocation) -> CodeLocation {
    match &location.called_from {
        Some(caller) if location.frame.as_ref().is_some_and(|frame| frame.origin == Origin::Package) => {
            CodeLocation { frame: Some(caller.clone()), called_from: None, ..location.clone() }
        }
        _ => location.clone(),
    }
}

/// Graphs that no backward pass uses, if they matter. In the first step of a training loop they do not count: its backward
/// pass is still to come.
fn unused_graphs((oom, evidence): Case<'_>) -> Option<UnusedGraphs> {
    let trains = evidence.kept.and_then(|kept| kept.trains) == Some(true);
    let graphs = oom.held.as_ref()?.unused_graphs.as_ref().filter(|graphs| graphs.bytes >= oom.shortfall_bytes)?;
    // Without gradients there are no graphs to avoid.
    let is_off = |group: &KeptGroup| group.is_grad_off && group.bytes >= graphs.bytes / 2;
    let is_grad_off = oom.held.iter().flat_map(|held| &held.kept_groups).any(is_off);
    // Without graphs, other growing memory would still fill the device.
    let growing = oom.held.iter().flat_map(|held| &held.kept_groups).filter(|group| group.growth.is_some());
    let grown = growing.map(|group| group.bytes).fold(0, u64::saturating_add);
    let ends_growth = graphs.bytes >= grown - grown / 4;
    let may_lead = evidence.has_grad && !is_grad_off && ends_growth && (!trains || evidence.completed_steps > 0);
    may_lead.then(|| graphs.clone())
}

/// The best change that is no guess and serves the request.
fn best_change(changes: &[ProgramRow]) -> Option<&ProgramRow> {
    let sure = changes.iter().filter(|row| row.sure != Sureness::Estimate);
    let mut sure = sure.filter(|row| row.fits == Some(true) && !row.then.fails_again());
    // Unlike the other changes, this one keeps the optimizer's arithmetic.
    let foreach = sure.clone().find(|row| row.change == ProgramChange::OptimizerForeach);
    foreach.or_else(|| sure.next())
}

/// The best settings that serve the request, if the requests after it are not known, and why not.
fn unknown_remedy(oom: &OomReport) -> Option<(String, WhyUnknown)> {
    oom.remedies.iter().filter(|remedy| remedy.avoids_oom).find_map(|remedy| match remedy.then {
        JobOutcome::NotKnown { why } => Some((remedy.settings_change(), why)),
        _ => None,
    })
}

/// The result of the replays, if none of them recommends a setting.
fn why_no_setting_helps(oom: &OomReport) -> Option<NoSettingHelps> {
    let exceeds_reach = oom.as_recorded?.no_setting_helps;
    Some(match oom.remedies.iter().find(|remedy| remedy.avoids_oom) {
        _ if exceeds_reach => NoSettingHelps::ExceedsReach,
        Some(best) => NoSettingHelps::AllPostpone(Box::new(best.clone())),
        None if oom.remedies.is_empty() => return None,
        None => NoSettingHelps::AllFail,
    })
}

/// Whether `torch.load` made the request: it holds a copy of the checkpoint on the device beside the model.
fn is_checkpoint_load(oom: &OomReport) -> bool {
    let mut files = oom.frames.iter().map(|frame| forward_slashes(&frame.file));
    oom.verdict == Verdict::Capacity && files.any(|file| file.ends_with("torch/serialization.py"))
}

/// Whether even all free memory, in one piece, would have been too little.
fn is_device_too_full(oom: &OomReport) -> bool {
    oom.device_free_bytes.saturating_add(oom.cached_bytes) < oom.segment_bytes
}

impl OomReport {
    /// Whether an optimizer of PyTorch made the request.
    pub fn is_in_optimizer(&self) -> bool {
        self.frames.iter().any(|frame| forward_slashes(&frame.file).contains("/torch/optim/"))
    }

    /// Whether code of a serving engine made the request.
    pub(super) fn is_in_engine(&self) -> bool {
        self.frames.iter().any(|frame| Engine::of_file(&frame.file).is_some())
    }

    /// The source line that holds the most memory.
    pub fn holder(&self) -> Option<String> {
        let lines = &self.held.as_ref()?.by_line.rows;
        lines.iter().find_map(|line| line.location.frame.as_ref().map(FrameReport::file_line))
    }
}
