//! The change of the program that frees memory, as a fact; `keeper_cure` and `process_cure` find it.

use crate::base::units::ratio;
use crate::stacks::frames::FrameReport;
use crate::study::variables::KeptByVariable;

/// A change of the program, and the variable that it frees.
#[derive(Debug, Clone, PartialEq)]
pub struct Cure {
    /// The change.
    pub kind: CureKind,
    /// The variable; items of a container are one row. For a module that nobody trains, a variable that keeps graphs.
    pub keeper: Box<KeptByVariable>,
}

/// A change of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CureKind {
    /// Give a queue a bound.
    BoundQueue,
    /// Put values without their graphs into a container.
    PutValue,
    /// Add values without their graphs to a sum.
    AddValue,
    /// Call `backward` for each part of a sum.
    BackwardEach,
    /// Detach what goes from one step to the next.
    DetachState,
    /// Put copies in host memory into a container.
    PutOnHost,
    /// Join parts in host memory.
    JoinOnHost,
    /// Keep copies of weights in host memory.
    WeightsOnHost,
    /// Keep no whole models in a container.
    KeepNoModels,
    /// Keep no earlier optimizers.
    KeepNoOptimizers,
    /// Let a schedule of a pipeline return no outputs, which it keeps of all microbatches.
    ReturnNoOutputs,
    /// Keep no exception, because its traceback has the variables of the call that failed.
    KeepNoException,
    /// Leave the handler of an exception before going on.
    LeaveHandler,
    /// Limit the entries of a cache.
    LimitCache,
    /// Limit the results that `functools.lru_cache` keeps.
    LimitResults,
    /// Repeat a loader in another way than `itertools.cycle`, which keeps every item.
    RepeatLoader,
    /// Limit a tensor to which each step joins more.
    LimitTensor,
    /// Break a reference cycle, which only the garbage collector frees.
    BreakCycle,
    /// Iterate over a loader instead of a list of all its items; the expression that makes the list.
    IterateLoader(String),
    /// Compute gradients without `backward(create_graph=True)`, which makes a cycle of parameters and gradients; its
    /// line.
    GradWithGraph(FrameReport),
    /// Delete a variable at the end of each step, because its next value is made while it keeps the last one.
    DeleteAtEnd,
    /// Delete variables that nothing reads any more.
    DeleteUnread(Vec<String>),
    /// Load one model of a list at a time.
    LoadEach,
    /// Use a type with smaller elements.
    Narrow,
    /// Keep a data set in host memory.
    DataOnHost,
    /// Load a checkpoint into host memory.
    CheckpointOnHost,
    /// Run the model without graphs at the line: the process has no optimizer.
    NoGrad(Option<FrameReport>),
    /// Run a module without graphs at the line: it is in evaluation mode, and no backward pass follows.
    NoGradInEvaluation(Option<FrameReport>, String),
    /// Freeze a module: no optimizer has any of its parameters, and it is called with graphs.
    Freeze(String),
    /// Freeze a module whose learning rate is 0.
    FreezeIdle(String),
    /// Freeze the parameters of a module beside its adapters.
    FreezeBase(String),
}

/// Smaller shares of the allocated memory do not lead.
pub(super) const MIN_SHARE: f64 = 0.1;
/// From this share on, a variable keeps its memory through graphs.
pub(super) const GRAPH_SHARE: f64 = 0.5;

pub(super) fn keeps_graphs(keeper: &KeptByVariable) -> bool {
    ratio(keeper.graph_bytes, keeper.bytes) >= GRAPH_SHARE
}
