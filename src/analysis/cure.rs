//! The change of the program that frees what a variable keeps: a function of who keeps the memory, what it keeps, and
//! the statement that put it there. Names and statements are the recorder's; nothing here is inferred from categories.

use crate::analysis::failure::OomReport;
use crate::base::units::ratio;
use crate::snapshot::{BackwardCall, RootKind, TensorKind, WriteKind};
use crate::stacks::frames::{FrameReport, Origin, forward_slashes};
use crate::study::variables::{KeptByVariable, KeptReport, Written};

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
const MIN_SHARE: f64 = 0.1;
/// A container that is filled nobody knows where leads from this share on.
const MIN_UNKNOWN_SHARE: f64 = 0.3;
/// From this share on, a variable keeps its memory through graphs.
const GRAPH_SHARE: f64 = 0.5;
/// A container with fewer items is no collection.
const MIN_ITEMS: u64 = 3;

/// The cure for the largest variable that has one, if freeing it serves the request of `oom`.
pub(super) fn cure(oom: &OomReport, kept: &KeptReport) -> Option<Cure> {
    let is_enough = |keeper: &&KeptByVariable| keeper.bytes >= oom.shortfall_bytes && keeper.share_ratio >= MIN_SHARE;
    let mut keepers = kept.keepers.iter().filter(is_enough);
    let found = keepers.find_map(|keeper| {
        Some(Cure { kind: cure_of(&oom.frames, oom.shortfall_bytes, keeper)?, keeper: Box::new(keeper.clone()) })
    });
    found
        .or_else(|| unread(oom.shortfall_bytes, kept))
        .or_else(|| needless_training(oom.shortfall_bytes, kept))
        .or_else(|| needless_graphs(oom, kept))
        .or_else(|| graph_cycle(oom.shortfall_bytes, kept))
        .or_else(|| doubles(oom, kept))
}

/// The cure for what `keeper` keeps when a request of the stack `frames` lacks `shortfall` bytes; `None` if a program
/// needs it, or if it is not known what it is.
fn cure_of(frames: &[FrameReport], shortfall: u64, keeper: &KeptByVariable) -> Option<CureKind> {
    let container = keeper.container.as_ref().filter(|container| container.items >= MIN_ITEMS);
    if is_exception(keeper) {
        return Some(if keeper.container.is_some() { CureKind::KeepNoException } else { CureKind::LeaveHandler });
    }
    if keeper.root == Some(RootKind::Cycle) {
        return Some(CureKind::BreakCycle);
    }
    // A forward pass returns what it makes.
    if keeper.function.as_ref().is_some_and(|function| function.name == "forward") && !is_attribute(keeper) {
        return None;
    }
    if container.is_some_and(|it| it.r#type == "deque" && it.name.strip_suffix(".queue").is_some()) {
        return Some(CureKind::BoundQueue);
    }
    match container.map(|container| &*container.r#type) {
        Some("lru_cache") => return Some(CureKind::LimitResults),
        Some("cycle") => return Some(CureKind::RepeatLoader),
        _ => {}
    }
    let Some(write) = &keeper.written else {
        return container
            .filter(|_| keeper.share_ratio >= MIN_UNKNOWN_SHARE && is_plain(keeper) && !keeps_graphs(keeper))
            .map(|_| CureKind::PutOnHost);
    };
    if write.kind == WriteKind::Assign && write.in_loop && is_running(frames, &write.at) {
        return Some(CureKind::DeleteAtEnd);
    }
    let is_filled = container.is_some() && matches!(write.kind, WriteKind::Put | WriteKind::Extend | WriteKind::Store);
    if let Some(list) = container.and(write.value.as_ref()).filter(|value| value.starts_with("list(")) {
        return (is_plain(keeper) && write.kind == WriteKind::Assign).then(|| CureKind::IterateLoader(list.clone()));
    }
    match keeper.kind {
        Some(TensorKind::OptimizerState) => is_filled.then_some(CureKind::KeepNoOptimizers),
        Some(TensorKind::Buffer) if write.kind == WriteKind::Join => Some(CureKind::LimitTensor),
        Some(TensorKind::Parameter | TensorKind::Buffer | TensorKind::Gradient) => {
            let is_loaded = write.kind == WriteKind::Assign && value_has(write, "load");
            match container {
                Some(_) if is_filled => Some(CureKind::KeepNoModels),
                Some(_) if is_loaded => Some(CureKind::LoadEach),
                _ => None,
            }
        }
        Some(TensorKind::Saved | TensorKind::Variable) | None if keeps_graphs(keeper) => {
            cure_of_graphs(keeper, write, is_filled)
        }
        Some(TensorKind::Saved | TensorKind::Variable) | None if is_filled => cure_of_items(keeper, write),
        Some(TensorKind::Saved | TensorKind::Variable) | None if is_made_in_parts(keeper, write) => {
            Some(CureKind::JoinOnHost)
        }
        Some(TensorKind::Saved | TensorKind::Variable) | None => cure_of_tensor(frames, shortfall, keeper, write),
    }
}

/// Whether the request fails in the statement at `line`.
fn is_running(frames: &[FrameReport], line: &FrameReport) -> bool {
    frames.iter().any(|frame| (&frame.file, frame.line) == (&line.file, line.line))
}

fn is_exception(keeper: &KeptByVariable) -> bool {
    let name = keeper.name.as_deref().unwrap_or_default();
    keeper.root == Some(RootKind::Exception) || name.contains(".__traceback__")
}

fn keeps_graphs(keeper: &KeptByVariable) -> bool {
    ratio(keeper.graph_bytes, keeper.bytes) >= GRAPH_SHARE
}

fn is_plain(keeper: &KeptByVariable) -> bool {
    matches!(keeper.kind, Some(TensorKind::Saved | TensorKind::Variable) | None)
}

fn is_attribute(keeper: &KeptByVariable) -> bool {
    let container = keeper.container.as_ref().map(|container| &*container.name);
    container.or(keeper.name.as_deref()).is_some_and(|name| name.contains('.'))
}

fn value_has(write: &Written, text: &str) -> bool {
    write.value.as_deref().is_some_and(|value| value.contains(text))
}

fn cure_of_graphs(keeper: &KeptByVariable, write: &Written, is_filled: bool) -> Option<CureKind> {
    // An attribute lives from step to step, also if the loop over the steps is elsewhere.
    let in_loop = write.in_loop || is_attribute(keeper);
    match (write.kind, write.backward) {
        // A backward pass of another function may need the graphs.
        (_, Some(BackwardCall::Elsewhere)) => None,
        // They are for one backward pass at the end.
        (_, Some(BackwardCall::Function | BackwardCall::Itself)) if is_filled => Some(CureKind::BackwardEach),
        _ if is_filled => Some(CureKind::PutValue),
        (WriteKind::Accumulate, Some(BackwardCall::Itself)) if in_loop => Some(CureKind::BackwardEach),
        (WriteKind::Accumulate, _) if in_loop => Some(CureKind::AddValue),
        (WriteKind::Recur, Some(BackwardCall::Loop)) => Some(CureKind::DetachState),
        _ => None,
    }
}

fn cure_of_items(keeper: &KeptByVariable, write: &Written) -> Option<CureKind> {
    let is_list = keeper.container.as_ref().is_some_and(|container| matches!(&*container.r#type, "list" | "tuple"));
    let is_needed = match write.backward {
        None | Some(BackwardCall::Loop) => false,
        // Data that another function trains with has no graph.
        Some(BackwardCall::Elsewhere) => keeper.graph_bytes > 0,
        // A loss after the loop may need them.
        Some(BackwardCall::Function | BackwardCall::Itself) => true,
    };
    match write.kind {
        _ if write.has_grad && is_needed => None,
        _ if value_has(write, "state_dict(") || value_has(write, "deepcopy(") => Some(CureKind::WeightsOnHost),
        // It replaces an item.
        WriteKind::Store if is_list => None,
        WriteKind::Store => Some(CureKind::LimitCache),
        _ => Some(CureKind::PutOnHost),
    }
}

fn cure_of_tensor(
    frames: &[FrameReport],
    shortfall: u64,
    keeper: &KeptByVariable,
    write: &Written,
) -> Option<CureKind> {
    match write.kind {
        // Each step needs it on the device.
        WriteKind::Join | WriteKind::Recur if write.is_read => Some(CureKind::LimitTensor),
        WriteKind::Join => Some(CureKind::JoinOnHost),
        WriteKind::Recur if write.in_loop => Some(CureKind::JoinOnHost),
        WriteKind::Assign if value_has(write, "load(") => Some(CureKind::CheckpointOnHost),
        WriteKind::Assign if !write.in_loop && is_stored(frames, keeper, write) => Some(CureKind::DataOnHost),
        WriteKind::Assign if is_wide(shortfall, keeper, write) => Some(CureKind::Narrow),
        _ => None,
    }
}

/// Whether the variable is data that was made on the device or moved there, outside of the running function.
fn is_stored(frames: &[FrameReport], keeper: &KeptByVariable, write: &Written) -> bool {
    let innermost = frames.iter().find(|frame| frame.origin() == Origin::User);
    let is_local = |function: &FrameReport| innermost.is_some_and(|frame| frame.name == function.name);
    let is_data = [".to(", ".cuda(", "device=", "torch.rand", "torch.zeros", "torch.ones", "torch.empty", "torch.full"];
    let is_data = is_data.iter().any(|text| value_has(write, text));
    is_data && (is_attribute(keeper) || keeper.function.as_ref().is_none_or(|function| !is_local(function)))
}

/// Whether a smaller type holds the elements, and serves the request.
fn is_wide(shortfall: u64, keeper: &KeptByVariable, write: &Written) -> bool {
    let narrow_bytes = match keeper.dtype.as_deref() {
        Some("float64") => keeper.bytes / 2,
        // Zeros and ones.
        Some("int64") if value_has(write, "one_hot(") => keeper.bytes / 8,
        _ => keeper.bytes,
    };
    keeper.bytes - narrow_bytes >= shortfall.max(1)
}

/// Whether the variable is a list of results that a comprehension makes; the call around it may join them.
fn is_made_in_parts(keeper: &KeptByVariable, write: &Written) -> bool {
    let is_list = keeper.container.as_ref().is_some_and(|it| it.r#type == "list" && it.items >= MIN_ITEMS);
    is_list && write.kind == WriteKind::Assign && value_has(write, "[") && value_has(write, " for ")
}

/// The cure for variables that nothing reads any more.
fn unread(shortfall: u64, kept: &KeptReport) -> Option<Cure> {
    let variable = |keeper: &KeptByVariable| {
        let name = keeper.name.as_deref()?.split(['.', '[']).next()?;
        kept.unread.iter().find(|unread| *unread == name).cloned()
    };
    let keepers = || kept.keepers.iter().filter_map(|keeper| Some((keeper, variable(keeper)?)));
    let (bytes, share) =
        keepers().fold((0, 0.0), |(bytes, share), (keeper, _)| (bytes + keeper.bytes, share + keeper.share_ratio));
    let (keeper, _) = keepers().next().filter(|_| bytes >= shortfall && share >= MIN_SHARE)?;
    let mut names: Vec<String> = Vec::new();
    for (_, name) in keepers() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Some(Cure { kind: CureKind::DeleteUnread(names), keeper: Box::new(keeper.clone()) })
}

/// The cure for gradients, states and graphs of parameters that need not be trained.
fn needless_training(shortfall: u64, kept: &KeptReport) -> Option<Cure> {
    let is_of_training = |keeper: &&KeptByVariable| {
        matches!(keeper.kind, Some(TensorKind::Gradient | TensorKind::OptimizerState | TensorKind::Saved))
    };
    let keepers = || kept.keepers.iter().filter(is_of_training);
    let bytes: u64 = keepers().map(|keeper| keeper.bytes).sum();
    let idle = kept.idle.first().map(|module| CureKind::FreezeIdle(module.clone()));
    let kind = idle.or_else(|| kept.adapted.first().map(|module| CureKind::FreezeBase(module.clone())))?;
    let keeper = keepers().next().filter(|_| bytes >= shortfall)?;
    Some(Cure { kind, keeper: Box::new(keeper.clone()) })
}

/// The cure for the cycle that `backward(create_graph=True)` makes: no variable keeps the memory.
fn graph_cycle(shortfall: u64, kept: &KeptReport) -> Option<Cure> {
    let line = kept.graph_backward.as_ref()?;
    let nameless = || kept.keepers.iter().filter(|keeper| keeper.name.is_none());
    let bytes: u64 = nameless().map(|keeper| keeper.bytes).sum();
    let keeper = nameless().next().filter(|_| bytes >= shortfall)?;
    Some(Cure { kind: CureKind::GradWithGraph(line.clone()), keeper: Box::new(keeper.clone()) })
}

/// The cure for graphs that no backward pass needs: nothing is trained, or a module is not.
fn needless_graphs(oom: &OomReport, kept: &KeptReport) -> Option<Cure> {
    let graphs = || kept.keepers.iter().filter(|keeper| keeps_graphs(keeper));
    let bytes: u64 = graphs().map(|keeper| keeper.graph_bytes).sum();
    let is_enough = bytes >= oom.shortfall_bytes && ratio(bytes, oom.allocated_bytes) >= MIN_SHARE;
    let keeper = graphs().next().filter(|_| is_enough)?;
    // What the recorder had no time to look at may have an optimizer.
    let evaluating = || kept.evaluating.first().map(|it| CureKind::NoGradInEvaluation(model_call(oom), it.clone()));
    let kind = match (kept.trains.filter(|_| kept.complete)?, kept.untrained.first()) {
        (false, _) => CureKind::NoGrad(model_call(oom)),
        (true, Some(module)) => CureKind::Freeze(module.clone()),
        (true, None) => evaluating()?,
    };
    Some(Cure { kind, keeper: Box::new(keeper.clone()) })
}

/// The cure for a computation in float64: its input, which the program has made from an array of numpy.
fn doubles(oom: &OomReport, kept: &KeptReport) -> Option<Cure> {
    let wide = || kept.keepers.iter().filter(|keeper| keeper.dtype.as_deref() == Some("float64"));
    let bytes: u64 = wide().map(|keeper| keeper.bytes).sum();
    let is_enough = bytes / 2 >= oom.shortfall_bytes && ratio(bytes, oom.allocated_bytes) >= GRAPH_SHARE;
    let input = wide().find(|keeper| keeper.kind == Some(TensorKind::Variable) && keeper.written.is_some());
    input.filter(|_| is_enough).map(|keeper| Cure { kind: CureKind::Narrow, keeper: Box::new(keeper.clone()) })
}

/// The outermost line that calls a module.
fn model_call(oom: &OomReport) -> Option<FrameReport> {
    let is_call = |frame: &FrameReport| forward_slashes(&frame.file).ends_with("torch/nn/modules/module.py");
    let call = oom.frames.iter().rposition(is_call)?;
    oom.frames.get(call + 1).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::BackwardCall::{Elsewhere, Function, Itself, Loop};
    use crate::snapshot::WriteKind::{Accumulate, Assign, Join, Put, Recur, Store};
    use crate::stacks::frames::CodeLocation;
    use crate::study::memory::{BlockSum, TopRows};
    use crate::study::variables::Container;

    fn line(name: &str) -> FrameReport {
        FrameReport { file: "/job/train.py".to_owned(), line: 12, name: name.to_owned() }
    }

    /// A variable that keeps 2 GiB, of which autograd keeps `graph_bytes`.
    fn keeper(name: &str, kind: TensorKind, graph_bytes: u64, container: Option<(&str, u64)>) -> KeptByVariable {
        KeptByVariable {
            bytes: 2 << 30,
            blocks: 10,
            share_ratio: 0.5,
            graph_bytes,
            name: Some(name.to_owned()),
            kind: Some(kind),
            root: Some(RootKind::Frame),
            author: None,
            function: Some(line("main")),
            module: None,
            container: container.map(|(of, items)| Container {
                name: name.to_owned(),
                r#type: of.to_owned(),
                items,
                filled_at: None,
            }),
            written: None,
            dtype: Some("float32".to_owned()),
            shape: None,
            places: None,
            operator: None,
            allocated_by: CodeLocation::default(),
        }
    }

    fn written(kind: WriteKind, value: &str, backward: Option<BackwardCall>) -> Written {
        let value = Some(value.to_owned());
        Written { at: line("main"), kind, value, in_loop: true, has_grad: true, is_read: false, backward }
    }

    fn cured(keeper: KeptByVariable, written: impl Into<Option<Written>>) -> Option<CureKind> {
        let written = written.into();
        cure_of(&[FrameReport { line: 5, ..line("forward") }], 1 << 20, &KeptByVariable { written, ..keeper })
    }

    const GRAPH: u64 = 2 << 30;

    #[test]
    fn graphs_are_for_a_backward_pass_or_for_none() {
        let list = || keeper("losses", TensorKind::Saved, GRAPH, Some(("list", 8)));
        assert_eq!(cured(list(), written(Put, "loss", None)), Some(CureKind::PutValue));
        assert_eq!(cured(list(), written(Put, "loss", Some(Loop))), Some(CureKind::PutValue));
        assert_eq!(cured(list(), written(Put, "loss", Some(Function))), Some(CureKind::BackwardEach));
        assert_eq!(cured(list(), written(Put, "loss", Some(Itself))), Some(CureKind::BackwardEach));
        assert_eq!(cured(list(), written(Put, "log_prob", Some(Elsewhere))), None);
        assert_eq!(cured(list(), None), None);
        let sum = || keeper("total", TensorKind::Saved, GRAPH, None);
        assert_eq!(cured(sum(), written(Accumulate, "loss", Some(Loop))), Some(CureKind::AddValue));
        assert_eq!(cured(sum(), written(Accumulate, "loss", Some(Itself))), Some(CureKind::BackwardEach));
        assert_eq!(cured(sum(), written(Recur, "hidden", Some(Loop))), Some(CureKind::DetachState));
        // The activations of a forward pass.
        assert_eq!(cured(sum(), written(Recur, "x", None)), None);
        assert_eq!(cured(sum(), written(Assign, "model(x)", Some(Itself))), None);
    }

    #[test]
    fn containers_have_the_cure_of_their_items() {
        let of = |kind| keeper("kept", kind, 0, Some(("list", 8)));
        assert_eq!(cured(of(TensorKind::Variable), written(Put, "out", None)), Some(CureKind::PutOnHost));
        let dict = keeper("kept", TensorKind::Variable, 0, Some(("dict", 8)));
        assert_eq!(cured(dict, written(Store, "out", None)), Some(CureKind::LimitCache));
        assert_eq!(cured(of(TensorKind::Variable), written(Store, "out", None)), None);
        // Outputs of a recurrent cell, whose loss is computed after the loop.
        assert_eq!(cured(of(TensorKind::Variable), written(Put, "head(h)", Some(Function))), None);
        let played = written(Put, "(state, reward)", Some(Elsewhere));
        assert_eq!(cured(of(TensorKind::Variable), played), Some(CureKind::PutOnHost));
        let copy = written(Put, "copy.deepcopy(model.state_dict())", None);
        assert_eq!(cured(of(TensorKind::Variable), copy), Some(CureKind::WeightsOnHost));
        assert_eq!(cured(of(TensorKind::Parameter), written(Put, "model", None)), Some(CureKind::KeepNoModels));
        assert_eq!(cured(of(TensorKind::OptimizerState), written(Put, "opt", None)), Some(CureKind::KeepNoOptimizers));
        // Two models that are trained together, and a list of the layers of one.
        let two = keeper("models", TensorKind::Parameter, 0, Some(("list", 2)));
        assert_eq!(cured(two, written(Put, "model", None)), None);
        assert_eq!(cured(of(TensorKind::Parameter), written(Assign, "[a, b, c]", None)), None);
        let queue = keeper("ready.queue", TensorKind::Variable, 0, Some(("deque", 30)));
        assert_eq!(cured(queue, None), Some(CureKind::BoundQueue));
        let results = keeper("Model.mask", TensorKind::Variable, 0, Some(("lru_cache", 30)));
        assert_eq!(cured(results, None), Some(CureKind::LimitResults));
    }

    /// A report of these keepers, each with 2 GiB.
    fn kept(keepers: Vec<KeptByVariable>) -> KeptReport {
        KeptReport {
            complete: true,
            top: TopRows { rows: Vec::new(), rest: BlockSum::default() },
            keepers,
            optimizers: Some(1),
            trains: Some(true),
            untrained: Vec::new(),
            idle: Vec::new(),
            adapted: Vec::new(),
            evaluating: Vec::new(),
            unread: Vec::new(),
            graph_backward: None,
        }
    }

    #[test]
    fn unread_variables_are_deleted_together() {
        let of = |name| keeper(name, TensorKind::Parameter, 0, None);
        let names = || vec!["encoder".to_owned(), "optimizer".to_owned(), "small".to_owned()];
        let report = KeptReport { unread: names(), ..kept(vec![of("model"), of("optimizer.state"), of("encoder[*]")]) };
        let found = |shortfall| unread(shortfall, &report).map(|cure| cure.kind);
        let both = CureKind::DeleteUnread(vec!["optimizer".to_owned(), "encoder".to_owned()]);
        assert_eq!(found(3 << 30), Some(both));
        assert_eq!(found(5 << 30), None);
    }

    #[test]
    fn parameters_that_need_no_training_are_frozen() {
        let state = || kept(vec![keeper("optimizer", TensorKind::OptimizerState, 0, None)]);
        let found = |report: KeptReport, shortfall| needless_training(shortfall, &report).map(|cure| cure.kind);
        let adapted = || KeptReport { adapted: vec!["model".to_owned()], ..state() };
        assert_eq!(found(adapted(), 1 << 30), Some(CureKind::FreezeBase("model".to_owned())));
        assert_eq!(found(adapted(), 3 << 30), None);
        let idle = KeptReport { idle: vec!["encoder".to_owned()], ..adapted() };
        assert_eq!(found(idle, 1 << 30), Some(CureKind::FreezeIdle("encoder".to_owned())));
        assert_eq!(found(state(), 1 << 30), None);
    }

    #[test]
    fn a_graph_of_gradients_is_a_cycle() {
        let nameless = KeptByVariable { name: None, ..keeper("", TensorKind::Saved, GRAPH, None) };
        let line = line("sharpness");
        let report = KeptReport { graph_backward: Some(line.clone()), ..kept(vec![nameless]) };
        assert_eq!(graph_cycle(1 << 30, &report).map(|cure| cure.kind), Some(CureKind::GradWithGraph(line)));
        assert_eq!(graph_cycle(3 << 30, &report), None);
        assert_eq!(graph_cycle(1 << 30, &KeptReport { graph_backward: None, ..report }), None);
    }

    #[test]
    fn what_a_forward_pass_makes_is_its_result() {
        let new = || keeper("new", TensorKind::Variable, 0, Some(("list", 12)));
        assert_eq!(cured(new(), written(Put, "kv", None)), Some(CureKind::PutOnHost));
        let new = KeptByVariable { function: Some(line("forward")), ..new() };
        assert_eq!(cured(new, written(Put, "kv", None)), None);
        let seen = keeper("self.seen", TensorKind::Variable, 0, Some(("list", 12)));
        let seen = KeptByVariable { function: Some(line("forward")), ..seen };
        assert_eq!(cured(seen, written(Put, "x", None)), Some(CureKind::PutOnHost));
    }

    #[test]
    fn a_cycle_is_broken() {
        let sample = KeptByVariable { root: Some(RootKind::Cycle), ..keeper("Sample", TensorKind::Variable, 0, None) };
        assert_eq!(cured(sample, None), Some(CureKind::BreakCycle));
    }

    #[test]
    fn lists_that_are_made_have_a_cure() {
        let list = |kind, value: &str| {
            let written = Written { in_loop: false, ..written(Assign, value, None) };
            cured(keeper("made", kind, 0, Some(("list", 8))), written)
        };
        let loader = "list(loader)";
        assert_eq!(list(TensorKind::Variable, loader), Some(CureKind::IterateLoader(loader.to_owned())));
        assert_eq!(list(TensorKind::Variable, "torch.cat([f(x) for x in xs])"), Some(CureKind::JoinOnHost));
        assert_eq!(list(TensorKind::Parameter, "[load(path) for path in paths]"), Some(CureKind::LoadEach));
        assert_eq!(list(TensorKind::Variable, "f(x)"), None);
    }

    #[test]
    fn tensors_are_stored_joined_or_of_this_step() {
        let tensor = || keeper("data", TensorKind::Variable, 0, None);
        let at_start = |value| Written { in_loop: false, ..written(Assign, value, None) };
        assert_eq!(cured(tensor(), at_start("images.to(device)")), Some(CureKind::DataOnHost));
        assert_eq!(cured(tensor(), at_start("torch.load(path)")), Some(CureKind::CheckpointOnHost));
        assert_eq!(cured(tensor(), written(Join, "torch.cat([data, x])", None)), Some(CureKind::JoinOnHost));
        let cache = Written { is_read: true, ..written(Join, "torch.cat([data, x])", None) };
        assert_eq!(cured(tensor(), cache), Some(CureKind::LimitTensor));
        assert_eq!(cured(tensor(), written(Assign, "model(x)", None)), None);
        let bank = keeper("bank", TensorKind::Buffer, 0, None);
        assert_eq!(cured(bank, written(Join, "torch.cat((bank, x))", None)), Some(CureKind::LimitTensor));
        // A local variable of the running function.
        let local = KeptByVariable { function: Some(line("forward")), ..tensor() };
        assert_eq!(cured(local, at_start("scores(x)")), None);
        // Its next value is being made.
        let running = [line("main")];
        let output = KeptByVariable { written: Some(written(Assign, "model(x)", None)), ..tensor() };
        assert_eq!(cure_of(&running, 1 << 20, &output), Some(CureKind::DeleteAtEnd));
    }

    #[test]
    fn an_exception_keeps_what_its_call_had() {
        let of = |container| keeper("e.__traceback__.step.x", TensorKind::Saved, GRAPH, container);
        assert_eq!(cured(of(None), None), Some(CureKind::LeaveHandler));
        assert_eq!(cured(of(Some(("list", 1))), None), Some(CureKind::KeepNoException));
    }
}
