//! The preconditions of cures, each a question about who keeps memory at a failure.

use itertools::Itertools as _;

use crate::base::units::ratio;
use crate::base::warning::words;
use crate::snapshot::{BackwardCall, RootKind, TensorKind, WriteKind};
use crate::stacks::frames::{FrameReport, Origin};
use crate::study::attribution::{Category, KeptGroup, Maker};
use crate::study::iterations::GrowthKind;
use crate::study::variables::{Container, KeptByVariable, KeptReport, Written};

/// Minimum share of the allocated memory at which a container without a known filling statement leads the advice.
const MIN_UNKNOWN_SHARE: f64 = 0.3;
/// A change that frees a smaller share of the allocated memory does not lead the advice.
const MIN_SHARE: f64 = 0.1;
/// Memory from fewer passes ago may still belong to the running pass.
const MIN_PASSES_SINCE: u64 = 2;
/// Memory that fewer passes of a loop left is no collection.
const MIN_GATHERED: u64 = 4;
/// A container with fewer items is no collection.
const MIN_ITEMS: u64 = 3;
/// The attribute of PyTorch's `PipelineStage` that keeps the output of each microbatch; no statement of the program fills
/// it.
const PIPELINE_OUTPUTS: &str = ".output_chunks";
/// Texts of expressions that make data on the device or move it there.
const DATA: [&str; 8] =
    [".to(", ".cuda(", "device=", "torch.rand", "torch.zeros", "torch.ones", "torch.empty", "torch.full"];

/// Declares the facts. Each has a meaning, a word and two conditions: one for a variable, one for a group of blocks.
macro_rules! facts {
    ($($(#[doc = $meaning:literal])+ $Fact:ident = $word:literal:
        $(variable |$case:ident| $of_variable:expr;)? $(stacks |$group:ident| $of_stacks:expr;)?
    )*) => {
        words! {
            /// A precondition of a cure.
            pub enum Fact { $($(#[doc = $meaning])+ $Fact = $word,)* }
        }

        impl Fact {
            /// Whether the fact is known to hold of the variable of `case`.
            pub(super) fn holds(self, case: Case<'_>) -> bool {
                match self {
                    $($(Self::$Fact => { let $case = case; $of_variable })?)*
                    _ => false,
                }
            }

            /// Whether the fact is known to hold of `group`.
            pub(super) fn holds_of_group(self, group: &KeptGroup) -> bool {
                match self {
                    $($(Self::$Fact => { let $group = group; $of_stacks })?)*
                    _ => false,
                }
            }
        }
    };
}

facts! {
    /// The traceback of an exception keeps it
    Exception = "exception": variable |case| {
        let name = case.keeper.name.as_deref().unwrap_or_default();
        case.keeper.root == Some(RootKind::Exception) || name.contains(".__traceback__")
    };
    /// Only a reference cycle keeps it
    Cycle = "cycle": variable |case| case.keeper.root == Some(RootKind::Cycle);
    /// A local variable of a module's forward pass, which returns what it makes
    InForward = "in-forward": variable |case| {
        case.keeper.function.as_ref().is_some_and(|function| function.name == "forward") && !is_attribute(case.keeper)
    };
    /// A container has it
    Contained = "contained": variable |case| case.keeper.container.is_some();
    /// A container of 3 items or more
    Items = "items": variable |case| case.collection().is_some();
    /// The items of a queue
    Queue = "queue": variable |case| {
        case.is_in("deque") && case.collection().is_some_and(|queue| queue.name.strip_suffix(".queue").is_some())
    };
    /// The outputs that a stage of a pipeline keeps
    PipelineOutputs = "pipeline-outputs": variable |case| {
        let outputs = case.collection().filter(|it| it.name.ends_with(PIPELINE_OUTPUTS) && it.filled_at.is_none());
        outputs.is_some() && case.write().is_none()
    };
    /// The results of `functools.lru_cache`
    LruCache = "lru-cache": variable |case| case.is_in("lru_cache");
    /// The items of `itertools.cycle`
    Cycled = "cycled": variable |case| case.is_in("cycle");
    /// No statement is known to write it
    Unwritten = "unwritten": variable |case| case.write().is_none();
    /// 30 % of the allocated memory or more
    Large = "large":
        variable |case| case.keeper.share_ratio >= MIN_UNKNOWN_SHARE;
        stacks |group| group.share_ratio >= MIN_UNKNOWN_SHARE;
    /// Neither a part of a model nor optimizer state
    Plain = "plain": variable |case| matches!(case.keeper.kind, Some(TensorKind::Saved | TensorKind::Variable) | None);
    /// An autograd graph keeps most of it
    Graphs = "graphs": variable |case| keeps_graphs(case.keeper);
    /// No autograd graph keeps most of it
    NoGraphs = "no-graphs": variable |case| !keeps_graphs(case.keeper);
    // A loop may go through a tuple of views that no variable has.
    /// Views, which keep whole tensors of which no known tensor uses more; no variable of a loop
    Views = "views": variable |case| {
        let (keeper, unused) = (case.keeper, case.keeper.unused_bytes);
        let is_item = keeper.name.as_deref().is_some_and(|name| name.contains(['.', '[']));
        let is_kept = is_item || case.is_written(&[WriteKind::Assign]);
        case.kept.complete && is_kept && unused > 0 && case.request.is_served_by(unused)
    };
    /// The statement assigns it
    Assigned = "assigned": variable |case| case.is_written(&[WriteKind::Assign]);
    /// The statement puts an item into a container
    Filled = "filled": variable |case| {
        case.collection().is_some() && case.is_written(&[WriteKind::Put, WriteKind::Extend, WriteKind::Store])
    };
    /// The statement stores an item under a key
    Stored = "stored": variable |case| case.is_written(&[WriteKind::Store]);
    /// The statement replaces an item of a list
    Replaced = "replaced": variable |case| {
        (case.is_in("list") || case.is_in("tuple")) && case.is_written(&[WriteKind::Store])
    };
    /// The statement joins more to it
    Joined = "joined":
        variable |case| case.is_written(&[WriteKind::Join]);
        stacks |group| group.growth == Some(GrowthKind::Replaced);
    /// The statement computes it from its last value
    Recurs = "recurs": variable |case| case.is_written(&[WriteKind::Recur]);
    /// The statement adds to it
    Accumulated = "accumulated": variable |case| case.is_written(&[WriteKind::Accumulate]);
    /// A loop has the statement
    InLoop = "in-loop": variable |case| case.write().is_some_and(|write| write.in_loop);
    /// No loop of the function has the statement
    Once = "once": variable |case| case.write().is_some_and(|write| !write.in_loop);
    /// A loop has the statement, or the variable is an attribute, which lives from step to step
    Repeats = "repeats": variable |case| case.write().is_some_and(|write| write.in_loop || is_attribute(case.keeper));
    /// The request fails in the statement
    Running = "running": variable |case| case.write().is_some_and(|write| is_running(case.request.frames, &write.at));
    // Parts of one tensor, such as `list(x.split(4))`, are no batches of a loader.
    /// The value is `list(..)`, of several blocks
    OfList = "of-list": variable |case| {
        let is_list = case.value().is_some_and(|value| value.starts_with("list("));
        is_list && case.collection().is_some() && case.keeper.blocks > 1
    };
    /// The value is a list that a comprehension makes
    OfParts = "of-parts": variable |case| {
        case.is_in("list") && case.value().is_some_and(|value| value.contains('[') && value.contains(" for "))
    };
    /// The items of the value come from elsewhere: nothing but `.to(..)` or `.cuda()` makes them
    Moved = "moved": variable |case| case.value().is_some_and(is_moved);
    /// The value is loaded
    Loaded = "loaded": variable |case| case.value_has(&["load"]);
    /// The value is that of a function called `load`
    LoadCall = "load-call": variable |case| case.value_has(&["load("]);
    /// The value is a state dict or a deep copy
    Weights = "weights": variable |case| case.value_has(&["state_dict(", "deepcopy("]);
    /// The value is data that was made on the device or moved there, outside of the running function
    Data = "data": variable |case| case.value_has(&DATA) && is_outside(case.request.frames, case.keeper);
    /// A statement in a loop reads it, too
    Read = "read": variable |case| case.write().is_some_and(|write| write.is_read);
    /// Smaller elements would serve the request
    Wide = "wide": variable |case| case.write().is_some() && case.is_wide();
    /// Optimizer state
    State = "state": variable |case| case.is_kind(&[TensorKind::OptimizerState]);
    /// A buffer of a module
    Buffer = "buffer": variable |case| case.is_kind(&[TensorKind::Buffer]);
    /// Parameters, buffers or gradients
    OfModel = "of-model": variable |case| {
        case.is_kind(&[TensorKind::Parameter, TensorKind::Buffer, TensorKind::Gradient])
    };
    /// `backward()` of the variable or later in the function
    BackwardLater = "backward-later": variable |case| {
        case.has_backward(&[BackwardCall::Function, BackwardCall::Itself])
    };
    /// `backward()` of the variable
    BackwardOfIt = "backward-of-it": variable |case| case.has_backward(&[BackwardCall::Itself]);
    /// `backward()` in the innermost loop
    BackwardInLoop = "backward-in-loop": variable |case| case.has_backward(&[BackwardCall::Loop]);
    /// `backward()` with a detached state, less often than the statement runs
    BackwardInWindow = "backward-in-window": variable |case| case.has_backward(&[BackwardCall::Window]);
    /// Another function calls `backward()` of it
    BackwardElsewhere = "backward-elsewhere": variable |case| case.has_backward(&[BackwardCall::Elsewhere]);
    /// Values with gradients, and a backward pass still needs them
    Awaited = "awaited": variable |case| {
        case.write().is_some_and(|write| write.has_grad && is_awaited(case.keeper, write))
    };
    /// No variable leads to it
    Nameless = "nameless": variable |case| case.keeper.name.is_none();
    /// Nothing reads the variable any more, and it keeps more than graphs
    Unread = "unread": variable |case| case.unread_variable().is_some();
    /// Gradients, optimizer state or saved for a backward pass
    ForTraining = "for-training": variable |case| {
        case.is_kind(&[TensorKind::Gradient, TensorKind::OptimizerState, TensorKind::Saved])
    };
    /// A module has the learning rate 0
    IdleModule = "idle-module": variable |case| !case.kept.idle.is_empty();
    /// A module with adapters trains its other parameters, too
    Adapted = "adapted": variable |case| !case.kept.adapted.is_empty();
    // An optimizer may be where the recorder had no time to look.
    /// No optimizer exists, and the text computes no gradients
    TrainsNothing = "trains-nothing": variable |case| case.kept.complete && case.kept.trains == Some(false);
    /// The program trains, but no optimizer has the parameters of a module
    Untrained = "untrained": variable |case| case.trains() && !case.kept.untrained.is_empty();
    /// The program trains; the model is in evaluation mode, and no running function calls `backward()` below
    Evaluating = "evaluating": variable |case| case.trains() && !case.kept.evaluating.is_empty();
    /// A line calls `backward(create_graph=True)`
    GraphBackward = "graph-backward": variable |case| case.kept.graph_backward.is_some();
    /// Elements of float64, as half of the memory or more
    Doubles = "doubles": variable |case| is_double(case.keeper) && case.doubles_share() >= GRAPH_SHARE;
    /// Passes of a loop of the program left it, 4 or more, and the program does not drop old items
    Gathered = "gathered": stacks |group| is_gathering(group) && group.passes >= MIN_GATHERED;
    /// Passes of a loop left as many bytes each, 3 or more, or each of them adds to it, and the program does not drop old
    /// ones
    MadeAgain = "made-again": stacks |group| {
        is_gathering(group) && (group.equal_passes >= MIN_ITEMS || group.growth == Some(GrowthKind::Kept))
    };
    /// A call that is over made it, before the loop that runs
    MadeBefore = "made-before": stacks |group| {
        is_made_at_once(group) && group.passes_since >= MIN_PASSES_SINCE && !group.in_forward
    };
    /// The program turns the garbage collector off
    CollectorOff = "collector-off": stacks |group| group.is_collector_off;
    /// One block has half of it
    OneBlock = "one-block": stacks |group| group.largest_bytes >= group.bytes / 2;
    /// `torch.load` made it
    FromFile = "from-file": stacks |group| group.maker == Maker::Load;
    /// `copy.deepcopy` made it
    Copied = "copied": stacks |group| group.maker == Maker::Copy;
    /// The evaluation loop of `transformers` made it
    Predicted = "predicted": stacks |group| group.maker == Maker::Predictions;
    /// A metric of `torchmetrics` made it
    OfMetric = "of-metric": stacks |group| group.maker == Maker::Metric;
    /// The call of a request that failed before made it
    OfFailedCall = "of-failed-call": stacks |group| group.of_failed_call;
    /// Forward passes with gradients made most of it
    WithGraphs = "with-graphs": stacks |group| group.keeps_graph && !group.is_grad_off;
    /// Backward passes made blocks of the same sizes, which stay, too: its gradients
    WithGradients = "with-gradients": stacks |group| group.has_gradients;
    /// A backward pass has run since
    TrainedSince = "trained-since": stacks |group| group.before_backward;
    /// By its category state of optimizers
    AsState = "as-state": stacks |group| group.category == Category::OptimizerState;
    // A constructor of the program may make data, too.
    /// By its category parameters, which modules of PyTorch made
    AsModel = "as-model": stacks |group| group.category == Category::Parameters && group.made_by_modules;
    /// By its category gradients, or parameters in many blocks
    AsWeights = "as-weights": stacks |group| {
        group.category == Category::Gradients
            || group.category == Category::Parameters && group.largest_bytes < group.bytes / 2
    };
}

/// Whether each pass of a loop adds to `group`, and the program drops no old items.
fn is_gathering(group: &KeptGroup) -> bool {
    group.growth.is_some() || !group.is_bounded && !is_made_at_once(group)
}

/// Whether the blocks were made at once, such as parameters that a loop reads from a file.
fn is_made_at_once(group: &KeptGroup) -> bool {
    group.is_over && group.forwards_between == 0
}

/// `[item.to(device) for item in items]`
fn is_moved(list: &str) -> bool {
    let item = list.trim_start_matches('[').split_once(" for ").map_or("", |(item, _)| item);
    let method = item.split_once('(').and_then(|(source, _)| source.rsplit_once('.'));
    item.ends_with(')') && method.is_some_and(|(_, method)| matches!(method, "to" | "cuda"))
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
        Some(BackwardCall::Function | BackwardCall::Itself | BackwardCall::Window) => true,
    }
}

/// Whether the variable is not local to the function in which the request fails.
fn is_outside(frames: &[FrameReport], keeper: &KeptByVariable) -> bool {
    let innermost = frames.iter().find(|frame| frame.origin == Origin::User);
    is_attribute(keeper)
        || keeper.function.as_ref().is_none_or(|function| innermost.is_none_or(|frame| frame.name != function.name))
}

fn is_double(keeper: &KeptByVariable) -> bool {
    keeper.dtype.as_deref() == Some("float64")
}

/// A variable keeps its memory through graphs if they hold at least this share of it.
pub(super) const GRAPH_SHARE: f64 = 0.5;

/// The request that failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) frames: &'a [FrameReport],
    pub(super) shortfall_bytes: u64,
    pub(super) allocated_bytes: u64,
}

impl Request<'_> {
    /// Whether a change that frees `bytes` serves it, and may lead the advice.
    pub(super) fn is_served_by(self, bytes: u64) -> bool {
        bytes >= self.shortfall_bytes && ratio(bytes, self.allocated_bytes) >= MIN_SHARE
    }
}

/// Evidence that a row is compared with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) request: Request<'a>,
    pub(super) kept: &'a KeptReport,
    pub(super) keeper: &'a KeptByVariable,
}

impl<'a> Case<'a> {
    /// The statement that writes the variable.
    fn write(self) -> Option<&'a Written> {
        self.keeper.written.as_ref()
    }

    /// The expression that the statement writes.
    fn value(self) -> Option<&'a str> {
        self.write()?.value.as_deref()
    }

    fn value_has(self, texts: &[&str]) -> bool {
        self.value().is_some_and(|value| texts.iter().any(|text| value.contains(text)))
    }

    fn is_written(self, kinds: &[WriteKind]) -> bool {
        self.write().is_some_and(|write| kinds.contains(&write.kind))
    }

    fn has_backward(self, calls: &[BackwardCall]) -> bool {
        self.write().and_then(|write| write.backward).is_some_and(|call| calls.contains(&call))
    }

    fn is_kind(self, kinds: &[TensorKind]) -> bool {
        self.keeper.kind.is_some_and(|kind| kinds.contains(&kind))
    }

    /// The container of the variable, unless it is known to have few items.
    fn collection(self) -> Option<&'a Container> {
        let container = self.keeper.container.as_ref();
        container.filter(|container| container.items.is_none_or(|items| items >= MIN_ITEMS))
    }

    /// Whether the variable is in a collection of type `name`.
    fn is_in(self, name: &str) -> bool {
        self.collection().is_some_and(|container| container.r#type == name)
    }

    /// Whether a smaller type holds the elements, and serves the request.
    fn is_wide(self) -> bool {
        let bytes = self.keeper.bytes;
        let narrow_bytes = match self.keeper.dtype.as_deref() {
            Some("float64") => bytes / 2,
            // Zeros and ones.
            Some("int64") if self.value_has(&["one_hot("]) => bytes / 8,
            _ => bytes,
        };
        bytes - narrow_bytes >= self.request.shortfall_bytes.max(1)
    }

    fn trains(self) -> bool {
        self.kept.complete && self.kept.trains == Some(true)
    }

    /// The share of the allocated memory that is float64.
    fn doubles_share(self) -> f64 {
        let bytes = self.kept.keepers.iter().filter(|keeper| is_double(keeper)).map(|keeper| keeper.bytes).sum();
        ratio(bytes, self.request.allocated_bytes)
    }

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
