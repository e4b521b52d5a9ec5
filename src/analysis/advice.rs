//! Advice for a failed request: the best action that the recording has evidence for, else the standard advice of the
//! verdict.

use super::cures::{Cure, find_cure};
use super::in_parts::ShapeCure;
use crate::allocator::verdict::Verdict;
use crate::analysis::failure::{DeadEnd, OomReport, Remedy};
use crate::snapshot::TensorKind;
use crate::stacks::engines::Engine;
use crate::stacks::frames::{CodeLocation, FrameReport, Origin, forward_slashes};
use crate::stacks::phases::Phase;
use crate::study::attribution::{Category, Confidence, KeptGraphs, Leaks, UnusedGraphs};
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
    /// Make the model smaller, or divide it: it does not fit. With the bytes of its parameters until then, or with the bytes
    /// that its training needs before any activation and the bytes within reach.
    SmallerModel(CodeLocation, u64, Option<u64>),
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
    /// The change that stacks show, if no variable has a name.
    pub(super) by_calls: Option<&'a Cure>,
    /// The call without gradients of which half would fit.
    pub(super) in_parts: Option<&'a ShapeCure>,
    /// The tensor that could be smaller, by the text of the failing line.
    pub(super) large_value: Option<&'a ShapeCure>,
    /// Number of complete steps.
    pub(super) completed_steps: u64,
    pub(super) is_capacity_known: bool,
    /// See [`ProgramText::training_tensors`](crate::python::ProgramText::training_tensors).
    pub(super) training_tensors: Option<&'a (String, u64)>,
    /// No running function turns gradients off in its source text.
    pub(super) has_grad: bool,
}

/// A request that is larger than this many times all live memory failed because of its own size.
const MIN_OVERSIZED_RATIO: u64 = 4;
/// An input that was the largest in fewer consecutive steps may vary rather than grow.
const MIN_GROWING_STEPS: u64 = 8;

/// Bytes of growth per step that explain `oom`: the growth so far used up the missing memory, or further growth ends the
/// job under every setting that serves the request.
pub(super) fn explaining_growth(oom: &OomReport, leaks: &Leaks) -> Option<u64> {
    // Growth and a growing input may both be found; the larger one explains the failure.
    let input = oom.unusual_input.as_ref().map_or(0, UnusualInput::excess_bytes);
    match oom.outlook.growth {
        Some(growth) if (growth.explains || ends_job_later(oom)) && growth.bytes >= input => {
            Some(growth.bytes_per_step)
        }
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

/// Recommends an action for `oom`, the last failure of a device: what cures the program, with complete evidence; else what
/// lets the job go on; else what serves this request; else the standard advice of the verdict.
pub(super) fn advise(oom: &OomReport, evidence: Evidence<'_>) -> Advice {
    let is_grown = explaining_growth(oom, evidence.leaks).is_some();
    let first = advise_on_request(oom, evidence, is_grown)
        .or_else(|| advise_on_stacks(oom, evidence, is_grown))
        .or_else(|| advise_to_go_on(oom, evidence))
        .or_else(|| advise_to_serve(oom, evidence))
        .unwrap_or(Advice::Standard(oom.verdict));
    let is_unknown = matches!(first, Advice::NothingHelps(..) | Advice::Standard(Verdict::Capacity))
        && !evidence.is_capacity_known
        && is_device_too_full(oom)
        && !is_grown;
    if is_unknown { Advice::UnknownCapacity(Box::new(first)) } else { first }
}

/// Advice if the failing line, the request or the names of variables show the cause.
fn advise_on_request(oom: &OomReport, evidence: Evidence<'_>, is_grown: bool) -> Option<Advice> {
    let line = user_line(&oom.location);
    if let Some(value) = evidence.large_value.filter(|_| !is_grown) {
        return Some(Advice::Shapes(value.clone(), line));
    }
    if let Some(request) = OversizedRequest::from_failure(oom) {
        return Some(match evidence.in_parts {
            Some(parts) => Advice::Shapes(parts.clone(), line),
            None => Advice::RequestLess(request),
        });
    }
    if is_checkpoint_load(oom) {
        return Some(Advice::LoadOnHost(line));
    }
    // The results of a CUDA graph stay in its pool, so changing the variable that keeps them frees nothing.
    if oom.verdict == Verdict::PrivatePool && !is_grown {
        return Some(Advice::Standard(Verdict::PrivatePool));
    }
    let cure = evidence.kept.and_then(|kept| find_cure(oom, kept));
    if let Some(input) = oom.unusual_input.as_ref().filter(|input| input.change == InputChange::Single)
        && let Some(collected_bytes) = cure.as_ref().or(evidence.by_calls).and_then(Cure::collected_bytes)
        && input.excess_bytes() > collected_bytes.max(oom.shortfall_bytes)
    {
        return Some(Advice::LimitInput(input.clone()));
    }
    if let Some(cure) = cure {
        return Some(Advice::Cure(cure));
    }
    if let Some(advice) = untrainable_model(oom, evidence) {
        return Some(advice);
    }
    if let Some(engine) = engine_beside(oom).filter(|_| !is_grown && oom.verdict == Verdict::Capacity) {
        return Some(Advice::SleepEngine(engine));
    }
    evidence.in_parts.filter(|_| !is_grown).map(|parts| Advice::Shapes(parts.clone(), line))
}

/// Advice if stacks show graphs, calls, lines or inputs that take too much memory.
fn advise_on_stacks(oom: &OomReport, evidence: Evidence<'_>, is_grown: bool) -> Option<Advice> {
    let leaks = evidence.leaks;
    let graphs = unused_graphs(oom, evidence);
    if let Some(graphs) = graphs.clone().filter(|graphs| graphs.after_backward) {
        return Some(Advice::NoGrad(graphs));
    }
    if let Some(graphs) = leaks.kept_graphs.clone().filter(|_| is_grown) {
        let in_text = evidence.kept.and_then(|kept| kept.keepers.iter().find(|keeper| keeper.written.is_some()));
        let variable = leaks.variable.clone().or_else(|| in_text.cloned().map(Box::new));
        return Some(Advice::Detach(graphs, variable.filter(|variable| variable.is_graph())));
    }
    if let Some(cure) = evidence.by_calls.filter(|cure| cure.then.as_ref().is_none_or(|then| !then.fails_again())) {
        return Some(Advice::Cure(cure.clone()));
    }
    // Without a recorded backward pass.
    if let Some(graphs) = graphs {
        return Some(Advice::NoGrad(graphs));
    }
    if is_grown {
        let line = leaks.suspects.first().map(|suspect| user_line(&suspect.location));
        let line = line.filter(|line| line.has_stack || line.backward.is_some());
        return Some(Advice::FreeGrowth(line, leaks.kind.unwrap_or(GrowthKind::Kept), leaks.variable.clone()));
    }
    // A setting would only postpone the failure.
    let input = oom.unusual_input.as_ref().filter(|input| input.iterations >= MIN_GROWING_STEPS)?;
    (input.change == InputChange::Growing).then(|| Advice::LimitInput(input.clone()))
}

/// Advice after which the job goes on, or that limits an unusual input.
fn advise_to_go_on(oom: &OomReport, evidence: Evidence<'_>) -> Option<Advice> {
    if let Some(remedy) = oom.remedies.iter().find(|remedy| remedy.then.goes_on()) {
        return Some(Advice::GoOn(Box::new(remedy.clone())));
    }
    // Even if its replay fails again later.
    if let Some(cure) = evidence.by_calls {
        return Some(Advice::Cure(cure.clone()));
    }
    // Even if nothing serves the request.
    let input = oom.unusual_input.clone();
    let change = best_change(evidence.changes).filter(|change| change.then.goes_on());
    match (input, change) {
        (Some(input), Some(change)) if input.change != InputChange::Single => Some(as_advice(change)),
        (Some(input), _) => Some(Advice::LimitInput(input)),
        (None, change) => change.map(as_advice),
    }
}

/// Advice that serves the request, although the job may fail later.
fn advise_to_serve(oom: &OomReport, evidence: Evidence<'_>) -> Option<Advice> {
    // The program soon needs more than any layout has.
    let is_futile = oom.verdict_reason.dead_end.is_some_and(|end| !matches!(end, DeadEnd::Full { .. }));
    let (change, remedy) = (best_change(evidence.changes), unknown_remedy(oom));
    if let Some(row) = evidence.changes.iter().find(|row| row.change == ProgramChange::GradientsFreed && may_help(row))
    {
        return Some(as_advice(row)); // no forward pass needs them, whatever follows
    }
    // A setting addresses fragmentation. A change of the optimizer's step comes first where it helps: it saves memory in
    // every step, and a limit on splits may slow the program.
    let is_foreach = change.is_some_and(|change| change.change == ProgramChange::OptimizerForeach);
    match (change, remedy) {
        (_, Some((settings, why)))
            if oom.verdict == Verdict::Fragmentation
                && (change.is_none() || !is_foreach && !settings.contains("max_split_size_mb")) =>
        {
            Some(Advice::Try(settings, why))
        }
        (Some(change), _) => Some(as_advice(change)),
        _ if !matches!(oom.verdict, Verdict::Fragmentation | Verdict::Capacity) => Some(Advice::Standard(oom.verdict)),
        // After replays, the verdict's standard advice to try a setting would be stale.
        (None, Some((settings, why))) if !is_futile => Some(Advice::Try(settings, why)),
        (None, _) => best_guess(oom, evidence.changes).or_else(|| too_large_model(oom)).or_else(|| {
            why_no_setting_helps(oom).map(|why| Advice::NothingHelps(why, evidence.changes.iter().any(may_help)))
        }),
    }
}

/// The best change with a noticeable effect, even if its sizes are a guess, but not if its category is.
fn best_guess(oom: &OomReport, changes: &[ProgramRow]) -> Option<Advice> {
    let mut guesses = changes.iter().filter(|row| {
        let gain = u64::try_from(row.allocated_gain_bytes).unwrap_or(0);
        !row.rests_on_guess && gain >= oom.allocated_bytes / NOTICEABLE_PARTS && may_help(row)
    });
    let guess = guesses.clone().find(|row| row.then.goes_on()).or_else(|| guesses.next())?;
    if guess.sure != Sureness::Estimate {
        return Some(as_advice(guess));
    }
    Some(Advice::Guess(guess.label(), guess.location.clone(), guess.then.clone()))
}

/// Advice for a model that does not fit with its gradients and the state of its optimizer.
fn untrainable_model(oom: &OomReport, evidence: Evidence<'_>) -> Option<Advice> {
    let (module, tensors) = evidence.training_tensors?;
    let model = evidence.kept?.keepers.iter().find(|keeper| {
        let name = keeper.name.as_deref().and_then(|name| name.rsplit('.').next());
        keeper.kind == Some(TensorKind::Parameter) && name == Some(module)
    })?;
    let needed = model.bytes.saturating_mul(tensors + 1);
    let reach = oom.reserved_bytes.saturating_add(oom.device_free_bytes);
    (needed > reach).then(|| Advice::SmallerModel(user_line(&model.allocated_by), needed, Some(reach)))
}

/// Advice for a model that does not fit, even without anything else.
fn too_large_model(oom: &OomReport) -> Option<Advice> {
    let held = oom.held.as_ref().filter(|held| held.phase == Phase::Init && oom.verdict == Verdict::Capacity)?;
    // Any constructor may fill a buffer: a guess does not make it a model.
    let mut parameters = held.by_category.iter().filter(|row| row.category == Category::Parameters);
    let bytes = parameters.find(|row| row.confidence != Confidence::Low)?.share.bytes;
    (bytes >= oom.allocated_bytes / 5 * 4).then(|| Advice::SmallerModel(user_line(&oom.location), bytes, None))
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
fn unused_graphs(oom: &OomReport, evidence: Evidence<'_>) -> Option<UnusedGraphs> {
    let trains = evidence.kept.and_then(|kept| kept.trains) == Some(true);
    let graphs = oom.held.as_ref()?.unused_graphs.as_ref().filter(|graphs| graphs.bytes >= oom.shortfall_bytes)?;
    // Without gradients there are no graphs to avoid.
    let mut groups = oom.held.iter().flat_map(|held| &held.kept_groups);
    let is_grad_off = groups.any(|group| group.is_grad_off && group.bytes >= graphs.bytes / 2);
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
    // These compute the same as before.
    let equal =
        sure.clone().find(|row| matches!(row.change, ProgramChange::GradientsFreed | ProgramChange::OptimizerForeach));
    equal.or_else(|| sure.next())
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
        let mut of_torch = self.frames.iter().filter(|frame| frame.origin == Origin::Torch);
        of_torch.any(|frame| forward_slashes(&frame.file).contains("/torch/optim/"))
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
