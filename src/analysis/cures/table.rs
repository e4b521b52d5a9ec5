//! The table of cures: for each kind of evidence the change of the program, and the sentence that says it.
//!
//! The first row whose facts all hold decides. A row without a sentence is for memory that the program needs. A sentence has
//! slots in braces, which `output::wording` fills; the first one whose slots are all known is shown.

use super::facts::{Case, Fact};
use crate::study::attribution::KeptGroup;

/// A row of the table.
#[derive(Debug, PartialEq)]
pub struct CureRow {
    /// The change.
    pub kind: CureKind,
    /// The facts that must all hold.
    pub when: &'static [Fact],
    /// The change in an imperative sentence; one for each set of known slots.
    pub sentences: &'static [&'static str],
}

/// A change of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CureKind {
    /// None: the program needs the memory.
    Needed,
    /// Give a queue a bound.
    BoundQueue,
    /// Put values without their graphs into a container.
    PutValue,
    /// Add values without their graphs to a sum.
    AddValue,
    /// Call `backward` for each part of a sum.
    BackwardEach,
    /// Call `backward`, and detach the state, after fewer steps.
    BackwardSooner,
    /// Detach what goes from one step to the next.
    DetachState,
    /// Copy views, which keep whole tensors.
    CopyViews,
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
    /// Iterate over a loader instead of a list of all its items.
    IterateLoader,
    /// Compute gradients without `backward(create_graph=True)`, which makes a cycle of parameters and gradients.
    GradWithGraph,
    /// Delete a variable at the end of each step, because its next value is made while it keeps the last one.
    DeleteAtEnd,
    /// Delete variables that nothing reads any more.
    DeleteUnread,
    /// Load one model of a list at a time.
    LoadEach,
    /// Use a type with smaller elements.
    Narrow,
    /// Keep a data set in host memory.
    DataOnHost,
    /// Load a checkpoint into host memory.
    CheckpointOnHost,
    /// Run the model without graphs: the process has no optimizer.
    NoGrad,
    /// Run a module without graphs: it is in evaluation mode, and no backward pass follows.
    NoGradInEvaluation,
    /// Freeze a module: no optimizer has any of its parameters, and it is called with graphs.
    Freeze,
    /// Freeze a module whose learning rate is 0.
    FreezeIdle,
    /// Freeze the parameters of a module beside its adapters.
    FreezeBase,
}

/// The rows of a table: a change, its facts, and its sentences or a constant with them.
macro_rules! rows {
    (@sentences $constant:ident) => { $constant };
    (@sentences $($sentence:literal),*) => { &[$($sentence),*] };
    ($($kind:ident: $($fact:ident),+ $(=> $($sentences:tt),+)?;)*) => {
        &[$(CureRow {
            kind: CureKind::$kind,
            when: &[$(Fact::$fact),+],
            sentences: rows!(@sentences $($($sentences),+)?),
        }),*]
    };
}

const BACKWARD_EACH: &[&str] =
    &["call backward() for each value{at}, instead of once for all: `{name}` keeps the graphs until then"];
const JOIN_ON_HOST: &[&str] = &["move each part to host memory (.cpu()) before it is joined to `{name}`{at}"];
const LIMIT_TENSOR: &[&str] = &["limit the length of `{name}`{at}: each step joins more to it"];
const NARROW: &[&str] = &["make `{name}`{at} of {narrow} instead of {dtype}"];
const NO_GRAD: &[&str] = &[
    "run the model{call} under torch.inference_mode() or torch.no_grad(): `{name}` keeps a graph, and the program computes \
     no gradients",
    "run the model{call} under torch.inference_mode() or torch.no_grad(): its calls keep graphs, and the program computes \
     no gradients",
];
const PUT_ON_HOST: &[&str] = &[
    "put only what you need of `{value}`, without its `{attribute}`, into `{name}`{at}: {items} on the GPU",
    "put `{tensor}{detach}.cpu()`, or only what you need of it, into `{name}`{at}: {items} on the GPU{back}",
    "put only what you need of `{value}`, or its tensors in host memory (.cpu()), into `{name}`{at}: {items} on the \
     GPU{back}",
    "put copies in host memory ({detach}.cpu()), or only what you need, into `{name}`{at}: {items} on the GPU{back}",
];

/// For one variable, from who keeps it to what its statement does. The largest variable with a cure leads.
pub(super) const OF_A_VARIABLE: &[CureRow] = rows! {
    KeepNoException: Exception, Contained =>
        "put the text of the exception into `{exception}`{at} instead of the exception: its traceback keeps the \
         variables of the call that failed";
    LeaveHandler: Exception =>
        "leave the except block, or delete the exception, before going on: its traceback keeps the variables of the \
         call that failed";
    BreakCycle: Cycle =>
        "break the reference cycle of `{name}`, or call gc.collect() in each step: only the garbage collector frees \
         it",
        "break the reference cycle, or call gc.collect() in each step: only the garbage collector frees it";
    Needed: InForward;
    BoundQueue: Queue =>
        "give `{queue}` a bound, such as Queue(maxsize=2): {items}";
    ReturnNoOutputs: PipelineOutputs =>
        "call step(.., return_outputs=False): `{name}` keeps the outputs of all microbatches; a 1F1B schedule also \
         has fewer of them in flight";
    LimitResults: LruCache =>
        "limit the results that `{name}` keeps, such as lru_cache(maxsize=1): {items}";
    RepeatLoader: Cycled =>
        "start the loader of `{name}` anew instead of itertools.cycle, which keeps every batch: {items}";
    CopyViews: Views, Plain, NoGraphs =>
        "put `{tensor}{detach}.clone()` into `{name}`{at}: {items}, each a view that keeps a whole tensor alive",
        "put copies ({detach}.clone()) into `{name}`{at}: {items}, each a view that keeps a whole tensor alive",
        "copy `{name}`{at} (.clone()): it is a view that keeps a whole tensor alive";
    PutOnHost: Unwritten, Items, Large, Plain, NoGraphs => PUT_ON_HOST;
    Needed: Unwritten;
    NoGrad: Graphs, TrainsNothing => NO_GRAD;
    DeleteAtEnd: Assigned, InLoop, Running =>
        "delete `{name}` at the end of each step (`del {name}`): its next value is made{at} while it keeps the last";
    IterateLoader: Assigned, OfList, Plain =>
        "iterate over the loader{at} instead of keeping `{expression}` as `{name}`: {items}";
    Needed: OfList;
    KeepNoOptimizers: State, Filled =>
        "keep only the current optimizer in `{name}`{at}: {items}, with their states";
    Needed: State;
    LimitTensor: Buffer, Joined => LIMIT_TENSOR;
    KeepNoModels: OfModel, Filled =>
        "put results, or weights in host memory (.cpu()), into `{name}`{at} instead of models: {items}";
    LoadEach: OfModel, Items, Assigned, Loaded =>
        "load one model of `{name}` at a time{at}: {items}";
    Needed: OfModel;
    Needed: Graphs, BackwardElsewhere;
    BackwardSooner: Graphs, BackwardInWindow =>
        "call backward(), and detach the state there, after fewer steps: `{name}`{at} keeps the graphs of all steps since";
    BackwardEach: Graphs, Filled, BackwardLater => BACKWARD_EACH;
    PutValue: Graphs, Filled =>
        "put `{result}.item()`, or `{result}.detach()` if it is no scalar, into `{name}`{at}: {items} with their \
         graphs",
        "put values without their graphs, .item() or .detach(), into `{name}`{at}: {items} with their graphs";
    BackwardEach: Graphs, Accumulated, Repeats, BackwardOfIt => BACKWARD_EACH;
    AddValue: Graphs, Accumulated, Repeats =>
        "add `{value}.item()` to `{name}`{at}: the sum keeps the graph of each value",
        "add .item() of each value to `{name}`{at}: the sum keeps the graph of each";
    DetachState: Graphs, Recurs, BackwardInLoop =>
        "detach `{value}` in each step (`{value} = {value}.detach()`){at}: it keeps the graphs of all steps before",
        "detach `{name}` in each step (`{name} = {name}.detach()`){at}: it keeps the graphs of all steps before";
    Needed: Graphs;
    Needed: Filled, Awaited;
    WeightsOnHost: Filled, Weights =>
        "put copies of the weights in host memory (.cpu()), and only the best, into `{name}`{at}: {items} on the \
         GPU";
    Needed: Filled, Replaced;
    LimitCache: Filled, Stored =>
        "limit the entries of `{name}`{at}, or put copies in host memory (.cpu()): {items}";
    PutOnHost: Filled => PUT_ON_HOST;
    DataOnHost: Assigned, OfParts, Moved =>
        "keep the items of `{name}` in host memory{at}, and move one at a time to the GPU: {items}";
    JoinOnHost: Assigned, OfParts => JOIN_ON_HOST;
    LimitTensor: Joined, Read => LIMIT_TENSOR;
    LimitTensor: Recurs, Read => LIMIT_TENSOR;
    JoinOnHost: Joined => JOIN_ON_HOST;
    JoinOnHost: Recurs, InLoop, Large => JOIN_ON_HOST;
    CheckpointOnHost: Assigned, LoadCall =>
        "load `{root}` into host memory (map_location=\"cpu\"){at}, and delete it after its use";
    DataOnHost: Assigned, Once, Data =>
        "keep `{name}` in host memory{at}, and move one batch at a time to the GPU";
    Narrow: Assigned, Wide => NARROW;
};

/// For all variables of which the facts hold, together; the largest of them is named.
pub(super) const OF_THE_PROCESS: &[CureRow] = rows! {
    DeleteUnread: Unread =>
        "delete what nothing reads any more (`del {subject}`) before this";
    FreezeIdle: ForTraining, IdleModule =>
        "freeze `{subject}` (`{subject}.requires_grad_(False)`): its learning rate is 0, but it has gradients, \
         optimizer state and graphs";
    FreezeBase: ForTraining, Adapted =>
        "freeze all of `{subject}` but its adapters (requires_grad_(False)) before the optimizer gets the \
         parameters: it trains the base model, too";
    NoGrad: Graphs, TrainsNothing => NO_GRAD;
    Freeze: Graphs, Untrained =>
        "freeze `{subject}` (`{subject}.requires_grad_(False)`), or call it under torch.no_grad(): no optimizer has \
         its parameters, but its calls keep graphs";
    NoGradInEvaluation: Graphs, Evaluating =>
        "run `{subject}`{call} under torch.inference_mode() or torch.no_grad(): it is in evaluation mode, but its \
         calls keep graphs, and no backward pass follows";
    GradWithGraph: Nameless, GraphBackward =>
        "use torch.autograd.grad(.., create_graph=True) instead of backward(create_graph=True){call}, which makes a \
         reference cycle of parameters and gradients";
    Narrow: Doubles => NARROW;
};

/// For the blocks that the same calls made, without a variable. The largest group with a change leads.
pub(super) const OF_STACKS: &[CureRow] = rows! {
    LeaveHandler: OfFailedCall =>
        "leave the except block before going on: {size} of the call at {line} that failed before is still allocated, \
         as where its exception's traceback keeps it";
    CheckpointOnHost: FromFile =>
        "load the checkpoint into host memory (map_location=\"cpu\") at {line}, and delete it after its use: {size} \
         of it is on the GPU";
    PutOnHost: Predicted, Gathered =>
        "set eval_accumulation_steps, or let preprocess_logits_for_metrics keep only what the metrics need: the \
         evaluation at {line} has gathered {size}";
    PutOnHost: OfMetric, Gathered =>
        "give the metric that {line} updates compute_on_cpu=True, or thresholds= if it has them: it has gathered \
         {size}";
    WeightsOnHost: Copied, MadeAgain =>
        "put the copies that {line} makes in host memory (.cpu()), and only those you need: {calls} hold {size}";
    KeepNoModels: AsModel, MadeAgain =>
        "keep results, or weights in host memory (.cpu()), instead of the models that {line} makes: {calls} hold \
         {size}";
    KeepNoOptimizers: AsState, MadeAgain =>
        "keep only the current optimizer of {line} and its model: the state of several, {size}, is still allocated";
    Needed: AsState;
    Needed: AsModel;
    Needed: AsWeights;
    PutValue: WithGraphs, Gathered, TrainedSince =>
        "keep .item() or .detach() of the result of {line} instead of the result: the graphs of {calls} stay, \
         {size}";
    BackwardEach: WithGraphs, Gathered =>
        "keep no graphs of {line}: .item() or .detach() of its result, a backward() after fewer calls, or \
         torch.no_grad() where nothing is trained; those of {calls} stay, {size}";
    Needed: WithGraphs;
    JoinOnHost: Joined, Gathered =>
        "limit what {line} makes, or keep parts of it in host memory (.cpu()): each pass makes it anew, and larger: \
         {size} now";
    BreakCycle: CollectorOff, Gathered =>
        "call gc.collect() in each step, or leave the garbage collector on: {calls} of {line} hold {size}, as in reference \
         cycles, and the program calls gc.disable()";
    PutValue: WithGradients, Gathered =>
        "keep what {made} makes, and what is computed from it, only as .item() or .detach().cpu(): it requires gradients, \
         and {calls} hold {size} of it and its gradients";
    PutOnHost: Gathered =>
        "move what the program keeps of {made} to host memory ({detach}.cpu(), and back where it is read), or keep only \
         what you need of it: {calls} hold {size} on the GPU";
    DataOnHost: MadeBefore, OneBlock, Large =>
        "keep what {line} makes in host memory, and move one batch at a time to the GPU: {size} stays from the \
         start";
};

impl CureRow {
    /// All rows, in the order in which they are compared.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        OF_A_VARIABLE.iter().chain(OF_THE_PROCESS).chain(OF_STACKS)
    }

    pub(super) fn holds_of_group(&self, group: &KeptGroup) -> bool {
        self.when.iter().all(|fact| fact.holds_of_group(group))
    }

    pub(super) fn holds(&self, case: Case<'_>) -> bool {
        self.when.iter().all(|fact| fact.holds(case))
    }
}
