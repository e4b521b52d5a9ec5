//! The change of the program that frees what a variable keeps: a function of who keeps the memory, what it keeps, and
//! the statement that put it there. Names and statements are the recorder's; nothing here is inferred from categories.

use super::cure::{Cure, CureKind, MIN_SHARE, keeps_graphs};
use crate::analysis::failure::OomReport;
use crate::snapshot::{BackwardCall, RootKind, TensorKind, WriteKind};
use crate::stacks::frames::{FrameReport, Origin};
use crate::study::variables::{Container, KeptByVariable, KeptReport, Written};

/// A container that is filled nobody knows where leads from this share on.
const MIN_UNKNOWN_SHARE: f64 = 0.3;
/// A container with fewer items is no collection.
const MIN_ITEMS: u64 = 3;
/// The attribute of PyTorch's `PipelineStage` that keeps the output of each microbatch; no statement of the program fills
/// it.
const PIPELINE_OUTPUTS: &str = ".output_chunks";

/// The cure for the largest variable that has one, if freeing it serves the request of `oom`.
pub(super) fn keeper_cure(oom: &OomReport, kept: &KeptReport) -> Option<Cure> {
    let is_enough = |keeper: &&KeptByVariable| keeper.bytes >= oom.shortfall_bytes && keeper.share_ratio >= MIN_SHARE;
    kept.keepers.iter().filter(is_enough).find_map(|keeper| {
        Some(Cure { kind: cure_of(&oom.frames, oom.shortfall_bytes, keeper)?, keeper: Box::new(keeper.clone()) })
    })
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
    let keeps_outputs = |container: &&Container| {
        container.name.ends_with(PIPELINE_OUTPUTS) && container.filled_at.is_none() && keeper.written.is_none()
    };
    if container.as_ref().is_some_and(keeps_outputs) {
        return Some(CureKind::ReturnNoOutputs);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::BackwardCall::{Elsewhere, Function, Itself, Loop};
    use crate::snapshot::WriteKind::{Accumulate, Assign, Join, Put, Recur, Store};
    use crate::stacks::frames::CodeLocation;

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
    fn a_pipeline_keeps_the_outputs_of_its_microbatches() {
        let outputs = keeper("st.output_chunks", TensorKind::Saved, 0, Some(("list", 15)));
        assert_eq!(cured(outputs.clone(), None), Some(CureKind::ReturnNoOutputs));
        // A list of the program.
        assert_eq!(cured(outputs, written(Put, "logits", None)), Some(CureKind::PutOnHost));
    }

    #[test]
    fn an_exception_keeps_what_its_call_had() {
        let of = |container| keeper("e.__traceback__.step.x", TensorKind::Saved, GRAPH, container);
        assert_eq!(cured(of(None), None), Some(CureKind::LeaveHandler));
        assert_eq!(cured(of(Some(("list", 1))), None), Some(CureKind::KeepNoException));
    }
}
