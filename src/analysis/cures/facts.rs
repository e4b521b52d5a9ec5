//! The preconditions of cures, each a question about who keeps memory at a failure.

use itertools::Itertools as _;

use crate::base::units::ratio;
use crate::base::warning::words;
use crate::snapshot::{BackwardCall, RootKind, TensorKind, WriteKind};
use crate::stacks::frames::{FrameReport, Origin};
use crate::study::attribution::{Category, KeptGroup, Maker};
use crate::study::iterations::GrowthKind;
use crate::study::variables::{Container, KeptByVariable, KeptReport, Written};

/// A container that is filled nobody knows where leads from this share on.
const MIN_UNKNOWN_SHARE: f64 = 0.3;
/// Memory of the pass that runs is no older.
const MIN_PASSES_SINCE: u64 = 2;
/// Fewer passes of a loop are no collection.
const MIN_GATHERED: u64 = 4;
/// A container with fewer items is no collection.
const MIN_ITEMS: u64 = 3;
/// The attribute of PyTorch's `PipelineStage` that keeps the output of each microbatch; no statement of the program fills
/// it.
const PIPELINE_OUTPUTS: &str = ".output_chunks";
/// Texts of expressions that make data on the device or move it there.
const DATA: [&str; 8] =
    [".to(", ".cuda(", "device=", "torch.rand", "torch.zeros", "torch.ones", "torch.empty", "torch.full"];

words! {
    /// A precondition of a cure.
    pub enum Fact {
        /// The traceback of an exception keeps it
        Exception = "exception",
        /// Only a reference cycle keeps it
        Cycle = "cycle",
        /// A local variable of a module's forward pass, which returns what it makes
        InForward = "in-forward",
        /// A container has it
        Contained = "contained",
        /// A container of 3 items or more
        Items = "items",
        /// The items of a queue
        Queue = "queue",
        /// The outputs that a stage of a pipeline keeps
        PipelineOutputs = "pipeline-outputs",
        /// The results of `functools.lru_cache`
        LruCache = "lru-cache",
        /// The items of `itertools.cycle`
        Cycled = "cycled",
        /// No statement is known to write it
        Unwritten = "unwritten",
        /// 30 % of the allocated memory or more
        Large = "large",
        /// Neither a part of a model nor optimizer state
        Plain = "plain",
        /// An autograd graph keeps most of it
        Graphs = "graphs",
        /// No autograd graph keeps most of it
        NoGraphs = "no-graphs",
        /// The statement assigns it
        Assigned = "assigned",
        /// The statement puts an item into a container
        Filled = "filled",
        /// The statement stores an item under a key
        Stored = "stored",
        /// The statement replaces an item of a list
        Replaced = "replaced",
        /// The statement joins more to it
        Joined = "joined",
        /// The statement computes it from its last value
        Recurs = "recurs",
        /// The statement adds to it
        Accumulated = "accumulated",
        /// A loop has the statement
        InLoop = "in-loop",
        /// No loop of the function has the statement
        Once = "once",
        /// A loop has the statement, or the variable is an attribute, which lives from step to step
        Repeats = "repeats",
        /// The request fails in the statement
        Running = "running",
        /// The value is `list(..)`
        OfList = "of-list",
        /// The value is a list that a comprehension makes
        OfParts = "of-parts",
        /// The items of the value come from elsewhere: nothing but `.to(..)` or `.cuda()` makes them
        Moved = "moved",
        /// The value is loaded
        Loaded = "loaded",
        /// The value is that of a function called `load`
        LoadCall = "load-call",
        /// The value is a state dict or a deep copy
        Weights = "weights",
        /// The value is data that was made on the device or moved there, outside of the running function
        Data = "data",
        /// A statement in a loop reads it, too
        Read = "read",
        /// Smaller elements would serve the request
        Wide = "wide",
        /// Optimizer state
        State = "state",
        /// A buffer of a module
        Buffer = "buffer",
        /// Parameters, buffers or gradients
        OfModel = "of-model",
        /// `backward()` of the variable or later in the function
        BackwardLater = "backward-later",
        /// `backward()` of the variable
        BackwardOfIt = "backward-of-it",
        /// `backward()` in the innermost loop
        BackwardInLoop = "backward-in-loop",
        /// Another function calls `backward()` of it
        BackwardElsewhere = "backward-elsewhere",
        /// Values with gradients, and a backward pass still needs them
        Awaited = "awaited",
        /// No variable leads to it
        Nameless = "nameless",
        /// Nothing reads the variable any more, and it keeps more than graphs
        Unread = "unread",
        /// Gradients, optimizer state or saved for a backward pass
        ForTraining = "for-training",
        /// A module has the learning rate 0
        IdleModule = "idle-module",
        /// A module with adapters trains its other parameters, too
        Adapted = "adapted",
        /// No optimizer exists, and the text computes no gradients
        TrainsNothing = "trains-nothing",
        /// The program trains, but no optimizer has the parameters of a module
        Untrained = "untrained",
        /// The program trains; the model is in evaluation mode, and no running function calls `backward()` below
        Evaluating = "evaluating",
        /// A line calls `backward(create_graph=True)`
        GraphBackward = "graph-backward",
        /// Elements of float64, as half of the memory or more
        Doubles = "doubles",
        /// Passes of a loop of the program left it, 4 or more, and the program does not drop old items
        Gathered = "gathered",
        /// Passes of a loop left as many bytes each, 3 or more, and the program does not drop old ones
        MadeAgain = "made-again",
        /// A call that is over made it, before the loop that runs
        MadeBefore = "made-before",
        /// The program turns the garbage collector off
        CollectorOff = "collector-off",
        /// One block has half of it
        OneBlock = "one-block",
        /// `torch.load` made it
        FromFile = "from-file",
        /// `copy.deepcopy` made it
        Copied = "copied",
        /// The evaluation loop of `transformers` made it
        Predicted = "predicted",
        /// A metric of `torchmetrics` made it
        OfMetric = "of-metric",
        /// The call of a request that failed before made it
        OfFailedCall = "of-failed-call",
        /// Forward passes with gradients made most of it
        WithGraphs = "with-graphs",
        /// A backward pass has run since
        TrainedSince = "trained-since",
        /// By its category state of optimizers
        AsState = "as-state",
        /// By its category parameters, which modules of PyTorch made
        AsModel = "as-model",
        /// By its category gradients, or parameters in many blocks
        AsWeights = "as-weights",
    }
}

impl Fact {
    /// Whether the fact is known to hold of `group`.
    pub(super) fn holds_of_group(self, group: &KeptGroup) -> bool {
        // Made at once, such as the parameters that a loop over a file loads.
        let is_at_once = group.is_over && group.forwards_between == 0;
        let is_kept = group.growth.is_some() || !group.is_bounded && !is_at_once;
        match self {
            Self::Gathered => is_kept && group.passes >= MIN_GATHERED,
            Self::Joined => group.growth == Some(GrowthKind::Replaced),
            Self::MadeAgain => is_kept && group.equal_passes >= MIN_ITEMS,
            Self::MadeBefore => is_at_once && group.passes_since >= MIN_PASSES_SINCE && !group.in_forward,
            Self::CollectorOff => group.is_collector_off,
            Self::OneBlock => group.largest_bytes >= group.bytes / 2,
            Self::Large => group.share_ratio >= MIN_UNKNOWN_SHARE,
            Self::FromFile => group.maker == Maker::Load,
            Self::Copied => group.maker == Maker::Copy,
            Self::Predicted => group.maker == Maker::Predictions,
            Self::OfMetric => group.maker == Maker::Metric,
            Self::OfFailedCall => group.of_failed_call,
            Self::WithGraphs => group.keeps_graph && !group.is_grad_off,
            Self::TrainedSince => group.before_backward,
            Self::AsState => group.category == Category::OptimizerState,
            Self::AsModel => group.category == Category::Parameters && group.made_by_modules,
            // A constructor of the program may make data, too.
            Self::AsWeights => {
                group.category == Category::Gradients
                    || group.category == Category::Parameters && group.largest_bytes < group.bytes / 2
            }
            _ => false, // facts about variables
        }
    }

    /// Whether the fact is known to hold of the variable of `case`.
    pub(super) fn holds(self, case: Case<'_>) -> bool {
        let (keeper, write) = (case.keeper, case.keeper.written.as_ref());
        let container = keeper.container.as_ref();
        let items = container.filter(|container| container.items.is_none_or(|items| items >= MIN_ITEMS));
        let is_type = |name: &str| items.is_some_and(|container| container.r#type == name);
        let is_written = |kinds: &[WriteKind]| write.is_some_and(|write| kinds.contains(&write.kind));
        let has_backward =
            |calls: &[BackwardCall]| write.and_then(|write| write.backward).is_some_and(|call| calls.contains(&call));
        let is_kind = |kinds: &[TensorKind]| keeper.kind.is_some_and(|kind| kinds.contains(&kind));
        let value_has =
            |texts: &[&str]| texts.iter().any(|text| value(keeper).is_some_and(|value| value.contains(text)));
        match self {
            Self::Exception => {
                let name = keeper.name.as_deref().unwrap_or_default();
                keeper.root == Some(RootKind::Exception) || name.contains(".__traceback__")
            }
            Self::Cycle => keeper.root == Some(RootKind::Cycle),
            Self::InForward => {
                keeper.function.as_ref().is_some_and(|function| function.name == "forward") && !is_attribute(keeper)
            }
            Self::Contained => container.is_some(),
            Self::Items => items.is_some(),
            Self::Queue => {
                is_type("deque") && items.is_some_and(|container| container.name.strip_suffix(".queue").is_some())
            }
            Self::PipelineOutputs => items.is_some_and(|container| is_output_of_pipeline(container) && write.is_none()),
            Self::LruCache => is_type("lru_cache"),
            Self::Cycled => is_type("cycle"),
            Self::Unwritten => write.is_none(),
            Self::Large => keeper.share_ratio >= MIN_UNKNOWN_SHARE,
            Self::Plain => matches!(keeper.kind, Some(TensorKind::Saved | TensorKind::Variable) | None),
            Self::Graphs => keeps_graphs(keeper),
            Self::NoGraphs => !keeps_graphs(keeper),
            Self::Assigned => is_written(&[WriteKind::Assign]),
            Self::Filled => items.is_some() && is_written(&[WriteKind::Put, WriteKind::Extend, WriteKind::Store]),
            Self::Stored => is_written(&[WriteKind::Store]),
            Self::Replaced => (is_type("list") || is_type("tuple")) && is_written(&[WriteKind::Store]),
            Self::Joined => is_written(&[WriteKind::Join]),
            Self::Recurs => is_written(&[WriteKind::Recur]),
            Self::Accumulated => is_written(&[WriteKind::Accumulate]),
            Self::InLoop => write.is_some_and(|write| write.in_loop),
            Self::Once => write.is_some_and(|write| !write.in_loop),
            Self::Repeats => write.is_some_and(|write| write.in_loop || is_attribute(keeper)),
            Self::Running => write.is_some_and(|write| is_running(case.request.frames, &write.at)),
            Self::OfList => items.is_some() && value(keeper).is_some_and(|value| value.starts_with("list(")),
            Self::OfParts => {
                is_type("list") && value(keeper).is_some_and(|value| value.contains('[') && value.contains(" for "))
            }
            Self::Moved => value(keeper).is_some_and(is_moved),
            Self::Loaded => value_has(&["load"]),
            Self::LoadCall => value_has(&["load("]),
            Self::Weights => value_has(&["state_dict(", "deepcopy("]),
            Self::Data => value_has(&DATA) && is_outside(case.request.frames, keeper),
            Self::Read => write.is_some_and(|write| write.is_read),
            Self::Wide => write.is_some_and(|_| is_wide(case.request.shortfall_bytes, keeper)),
            Self::State => is_kind(&[TensorKind::OptimizerState]),
            Self::Buffer => is_kind(&[TensorKind::Buffer]),
            Self::OfModel => is_kind(&[TensorKind::Parameter, TensorKind::Buffer, TensorKind::Gradient]),
            Self::BackwardLater => has_backward(&[BackwardCall::Function, BackwardCall::Itself]),
            Self::BackwardOfIt => has_backward(&[BackwardCall::Itself]),
            Self::BackwardInLoop => has_backward(&[BackwardCall::Loop]),
            Self::BackwardElsewhere => has_backward(&[BackwardCall::Elsewhere]),
            Self::Awaited => write.is_some_and(|write| write.has_grad && is_awaited(keeper, write)),
            Self::Nameless => keeper.name.is_none(),
            Self::Unread => case.unread_variable().is_some(),
            Self::ForTraining => is_kind(&[TensorKind::Gradient, TensorKind::OptimizerState, TensorKind::Saved]),
            Self::IdleModule => !case.kept.idle.is_empty(),
            Self::Adapted => !case.kept.adapted.is_empty(),
            // An optimizer may be where the recorder had no time to look.
            Self::TrainsNothing => case.kept.complete && case.kept.trains == Some(false),
            Self::Untrained => trains(case) && !case.kept.untrained.is_empty(),
            Self::Evaluating => trains(case) && !case.kept.evaluating.is_empty(),
            Self::GraphBackward => case.kept.graph_backward.is_some(),
            Self::Doubles => is_double(keeper) && doubles_share(case) >= GRAPH_SHARE,
            _ => false, // facts about stacks
        }
    }
}

fn value(keeper: &KeptByVariable) -> Option<&str> {
    keeper.written.as_ref()?.value.as_deref()
}

/// `[item.to(device) for item in items]`
fn is_moved(list: &str) -> bool {
    let item = list.trim_start_matches('[').split_once(" for ").map_or("", |(item, _)| item);
    let method = item.split_once('(').and_then(|(source, _)| source.rsplit_once('.'));
    item.ends_with(')') && method.is_some_and(|(_, method)| matches!(method, "to" | "cuda"))
}

fn is_output_of_pipeline(container: &Container) -> bool {
    container.name.ends_with(PIPELINE_OUTPUTS) && container.filled_at.is_none()
}

fn is_attribute(keeper: &KeptByVariable) -> bool {
    let container = keeper.container.as_ref().map(|container| &*container.name);
    container.or(keeper.name.as_deref()).is_some_and(|name| name.contains('.'))
}

/// Whether the request fails in the statement at `line`.
fn is_running(frames: &[FrameReport], line: &FrameReport) -> bool {
    frames.iter().any(|frame| (&frame.file, frame.line) == (&line.file, line.line))
}

/// Whether a loss after the loop may need the items.
fn is_awaited(keeper: &KeptByVariable, write: &Written) -> bool {
    match write.backward {
        None | Some(BackwardCall::Loop) => false,
        // Data that another function trains with has no graph.
        Some(BackwardCall::Elsewhere) => keeper.graph_bytes > 0,
        Some(BackwardCall::Function | BackwardCall::Itself) => true,
    }
}

/// Whether the variable is no local one of the function in which the request fails.
fn is_outside(frames: &[FrameReport], keeper: &KeptByVariable) -> bool {
    let innermost = frames.iter().find(|frame| frame.origin == Origin::User);
    let is_local = |function: &FrameReport| innermost.is_some_and(|frame| frame.name == function.name);
    is_attribute(keeper) || keeper.function.as_ref().is_none_or(|function| !is_local(function))
}

/// Whether a smaller type holds the elements, and serves a request that lacks `shortfall` bytes.
fn is_wide(shortfall: u64, keeper: &KeptByVariable) -> bool {
    let is_one_hot = || value(keeper).is_some_and(|value| value.contains("one_hot("));
    let narrow_bytes = match keeper.dtype.as_deref() {
        Some("float64") => keeper.bytes / 2,
        // Zeros and ones.
        Some("int64") if is_one_hot() => keeper.bytes / 8,
        _ => keeper.bytes,
    };
    keeper.bytes - narrow_bytes >= shortfall.max(1)
}

fn trains(case: Case<'_>) -> bool {
    case.kept.complete && case.kept.trains == Some(true)
}

fn is_double(keeper: &KeptByVariable) -> bool {
    keeper.dtype.as_deref() == Some("float64")
}

/// The share of the allocated memory that is float64.
fn doubles_share(case: Case<'_>) -> f64 {
    let bytes = case.kept.keepers.iter().filter(|keeper| is_double(keeper)).map(|keeper| keeper.bytes).sum();
    ratio(bytes, case.request.allocated_bytes)
}

/// From this share on, a variable keeps its memory through graphs.
pub(super) const GRAPH_SHARE: f64 = 0.5;

/// The request that failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) frames: &'a [FrameReport],
    pub(super) shortfall_bytes: u64,
    pub(super) allocated_bytes: u64,
}

/// Evidence that a row is compared with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) request: Request<'a>,
    pub(super) kept: &'a KeptReport,
    pub(super) keeper: &'a KeptByVariable,
}

impl<'a> Case<'a> {
    /// The variable that nothing reads any more, if it leads to this memory.
    pub(super) fn unread_variable(self) -> Option<&'a str> {
        let name = self.keeper.name.as_deref()?.split(['.', '[']).next()?;
        self.kept.unread.iter().map(String::as_str).find(|unread| *unread == name)
    }

    /// All of them, that of the largest memory first.
    pub(super) fn unread_variables(self) -> String {
        let cases = self.kept.keepers.iter().map(|keeper| Case { keeper, ..self });
        cases.filter_map(Case::unread_variable).unique().join(", ")
    }
}

pub(super) fn keeps_graphs(keeper: &KeptByVariable) -> bool {
    ratio(keeper.graph_bytes, keeper.bytes) >= GRAPH_SHARE
}
