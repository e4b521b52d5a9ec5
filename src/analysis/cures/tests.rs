//! Each row of the table by an example, and what comes near to it.

use super::CureKind;
use super::facts::Request;
use super::find::cure_of;
use crate::snapshot::BackwardCall::{Elsewhere, Function, Itself, Loop};
use crate::snapshot::WriteKind::{Accumulate, Assign, Join, Put, Recur, Store};
use crate::snapshot::{BackwardCall, RootKind, TensorKind, WriteKind};
use crate::stacks::frames::FrameReport;
use crate::study::variables::{Container, KeptByVariable, KeptReport, Written};

const GRAPH: u64 = 2 << 30;

fn line(name: &str) -> FrameReport {
    FrameReport::new("/job/train.py".to_owned(), 12, name.to_owned())
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
        function: Some(line("main")),
        container: container.map(|(of, items)| Container {
            name: name.to_owned(),
            r#type: of.to_owned(),
            items: Some(items),
            filled_at: None,
        }),
        written: None,
        dtype: Some("float32".to_owned()),
        ..KeptByVariable::default()
    }
}

fn written(kind: WriteKind, value: &str, backward: Option<BackwardCall>) -> Written {
    let value = Some(value.to_owned());
    Written { at: line("main"), kind, value, in_loop: true, has_grad: true, is_read: false, backward }
}

/// A report of these keepers.
fn kept(keepers: Vec<KeptByVariable>) -> KeptReport {
    KeptReport { complete: true, keepers, optimizers: Some(1), trains: Some(true), ..KeptReport::default() }
}

/// The cure of `keeper`, for a request that fails at `running`.
fn cure_at(running: &[FrameReport], keeper: &KeptByVariable) -> Option<CureKind> {
    let request = Request { frames: running, shortfall_bytes: 1 << 20, allocated_bytes: 4 << 30 };
    cure_of(request, &kept(vec![keeper.clone()])).map(|cure| cure.row.kind)
}

/// A list of 8 items.
fn list_of(kind: TensorKind) -> KeptByVariable {
    keeper("kept", kind, 0, Some(("list", 8)))
}

/// An assignment outside of loops.
fn at_start(value: &str) -> Written {
    Written { in_loop: false, ..written(Assign, value, None) }
}

fn cured(keeper: KeptByVariable, written: impl Into<Option<Written>>) -> Option<CureKind> {
    let written = written.into();
    cure_at(&[FrameReport { line: 5, ..line("forward") }], &KeptByVariable { written, ..keeper })
}

#[test]
fn graphs_are_for_a_backward_pass_or_for_none() {
    let list = keeper("losses", TensorKind::Saved, GRAPH, Some(("list", 8)));
    assert_eq!(cured(list.clone(), written(Put, "loss", None)), Some(CureKind::PutValue));
    assert_eq!(cured(list.clone(), written(Put, "loss", Some(Loop))), Some(CureKind::PutValue));
    assert_eq!(cured(list.clone(), written(Put, "loss", Some(Function))), Some(CureKind::BackwardEach));
    assert_eq!(cured(list.clone(), written(Put, "loss", Some(Itself))), Some(CureKind::BackwardEach));
    assert_eq!(cured(list.clone(), written(Put, "log_prob", Some(Elsewhere))), None);
    assert_eq!(cured(list, None), None);
    let sum = keeper("total", TensorKind::Saved, GRAPH, None);
    assert_eq!(cured(sum.clone(), written(Accumulate, "loss", Some(Loop))), Some(CureKind::AddValue));
    assert_eq!(cured(sum.clone(), written(Accumulate, "loss", Some(Itself))), Some(CureKind::BackwardEach));
    assert_eq!(cured(sum.clone(), written(Recur, "hidden", Some(Loop))), Some(CureKind::DetachState));
    // The activations of a forward pass.
    assert_eq!(cured(sum.clone(), written(Recur, "x", None)), None);
    assert_eq!(cured(sum, written(Assign, "model(x)", Some(Itself))), None);
}

#[test]
fn containers_have_the_cure_of_their_items() {
    assert_eq!(cured(list_of(TensorKind::Variable), written(Put, "out", None)), Some(CureKind::PutOnHost));
    let dict = keeper("kept", TensorKind::Variable, 0, Some(("dict", 8)));
    assert_eq!(cured(dict, written(Store, "out", None)), Some(CureKind::LimitCache));
    assert_eq!(cured(list_of(TensorKind::Variable), written(Store, "out", None)), None);
    // Outputs of a recurrent cell, whose loss is computed after the loop.
    assert_eq!(cured(list_of(TensorKind::Variable), written(Put, "head(h)", Some(Function))), None);
    let played = written(Put, "(state, reward)", Some(Elsewhere));
    assert_eq!(cured(list_of(TensorKind::Variable), played), Some(CureKind::PutOnHost));
    let copy = written(Put, "copy.deepcopy(model.state_dict())", None);
    assert_eq!(cured(list_of(TensorKind::Variable), copy), Some(CureKind::WeightsOnHost));
    assert_eq!(cured(list_of(TensorKind::Parameter), written(Put, "model", None)), Some(CureKind::KeepNoModels));
    assert_eq!(cured(list_of(TensorKind::OptimizerState), written(Put, "opt", None)), Some(CureKind::KeepNoOptimizers));
    // Two models that are trained together, and a list of the layers of one.
    let two = keeper("models", TensorKind::Parameter, 0, Some(("list", 2)));
    assert_eq!(cured(two, written(Put, "model", None)), None);
    assert_eq!(cured(list_of(TensorKind::Parameter), written(Assign, "[a, b, c]", None)), None);
    let queue = keeper("ready.queue", TensorKind::Variable, 0, Some(("deque", 30)));
    assert_eq!(cured(queue, None), Some(CureKind::BoundQueue));
    let results = keeper("Model.mask", TensorKind::Variable, 0, Some(("lru_cache", 30)));
    assert_eq!(cured(results, None), Some(CureKind::LimitResults));
}

#[test]
fn forward_allocations_are_the_result_of_the_pass() {
    let new = keeper("new", TensorKind::Variable, 0, Some(("list", 12)));
    assert_eq!(cured(new.clone(), written(Put, "kv", None)), Some(CureKind::PutOnHost));
    let new = KeptByVariable { function: Some(line("forward")), ..new };
    assert_eq!(cured(new, written(Put, "kv", None)), None);
    let seen = keeper("self.seen", TensorKind::Variable, 0, Some(("list", 12)));
    let seen = KeptByVariable { function: Some(line("forward")), ..seen };
    assert_eq!(cured(seen, written(Put, "x", None)), Some(CureKind::PutOnHost));
}

/// Views called `name`, whose storages have `unused_bytes` that nothing else uses.
fn views(name: &str, unused_bytes: u64) -> KeptByVariable {
    KeptByVariable { unused_bytes, ..keeper(name, TensorKind::Variable, 0, None) }
}

#[test]
fn views_of_what_nothing_else_uses_are_copied() {
    let tenth = (4 << 30) / 10 + 1; // of the allocated memory
    for (unused_bytes, cure) in [(0, None), (tenth - 1, None), (tenth, Some(CureKind::CopyViews))] {
        assert_eq!(
            cured(views("log[*]", unused_bytes), written(Put, "x[:, -1].detach()", None)),
            cure,
            "{unused_bytes}"
        );
    }
    assert_eq!(cured(views("self.last", tenth), None), Some(CureKind::CopyViews));
    assert_eq!(cured(views("last", tenth), written(Assign, "x[-1]", None)), Some(CureKind::CopyViews));
    assert_eq!(cured(views("part", tenth), None), None, "of a loop over views, perhaps");
    let state = KeptByVariable { kind: Some(TensorKind::OptimizerState), ..views("opt.state[*]", tenth) };
    assert_eq!(cured(state, None), None);
}

#[test]
fn a_cycle_is_broken() {
    let sample = KeptByVariable { root: Some(RootKind::Cycle), ..keeper("Sample", TensorKind::Variable, 0, None) };
    assert_eq!(cured(sample, None), Some(CureKind::BreakCycle));
}

#[test]
fn lists_that_are_made_have_a_cure() {
    for (kind, value, cure) in [
        (TensorKind::Variable, "list(loader)", Some(CureKind::IterateLoader)),
        (TensorKind::Variable, "torch.cat([f(x) for x in xs])", Some(CureKind::JoinOnHost)),
        (TensorKind::Variable, "[x.to(device) for x in xs]", Some(CureKind::DataOnHost)),
        (TensorKind::Variable, "[f(x.cuda()) for x in xs]", Some(CureKind::JoinOnHost)),
        (TensorKind::Parameter, "[load(path) for path in paths]", Some(CureKind::LoadEach)),
        (TensorKind::Variable, "f(x)", None),
    ] {
        assert_eq!(cured(list_of(kind), at_start(value)), cure, "{value}");
    }
    let parts = KeptByVariable { blocks: 1, ..list_of(TensorKind::Variable) };
    assert_eq!(cured(parts, at_start("list(torch.randn(n, device='cuda').split(4))")), Some(CureKind::DataOnHost));
}

#[test]
fn tensors_are_stored_joined_or_of_this_step() {
    let tensor = keeper("data", TensorKind::Variable, 0, None);
    assert_eq!(cured(tensor.clone(), at_start("images.to(device)")), Some(CureKind::DataOnHost));
    assert_eq!(cured(tensor.clone(), at_start("torch.load(path)")), Some(CureKind::CheckpointOnHost));
    assert_eq!(cured(tensor.clone(), written(Join, "torch.cat([data, x])", None)), Some(CureKind::JoinOnHost));
    let cache = Written { is_read: true, ..written(Join, "torch.cat([data, x])", None) };
    assert_eq!(cured(tensor.clone(), cache), Some(CureKind::LimitTensor));
    assert_eq!(cured(tensor.clone(), written(Assign, "model(x)", None)), None);
    let bank = keeper("bank", TensorKind::Buffer, 0, None);
    assert_eq!(cured(bank, written(Join, "torch.cat((bank, x))", None)), Some(CureKind::LimitTensor));
    // A local variable of the running function.
    let local = KeptByVariable { function: Some(line("forward")), ..tensor.clone() };
    assert_eq!(cured(local, at_start("scores(x)")), None);
    // Its next value is being made.
    let running = [line("main")];
    let output = KeptByVariable { written: Some(written(Assign, "model(x)", None)), ..tensor };
    assert_eq!(cure_at(&running, &output), Some(CureKind::DeleteAtEnd));
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
    for (container, cure) in [(None, CureKind::LeaveHandler), (Some(("list", 1)), CureKind::KeepNoException)] {
        let keeper = keeper("e.__traceback__.step.x", TensorKind::Saved, GRAPH, container);
        assert_eq!(cured(keeper, None), Some(cure));
    }
}

/// The cure of all keepers together, which have no statement, and what it is about.
fn of_all(shortfall_bytes: u64, kept: &KeptReport) -> Option<(CureKind, Option<String>)> {
    let request = Request { frames: &[], shortfall_bytes, allocated_bytes: 6 << 30 };
    cure_of(request, kept).map(|cure| (cure.row.kind, cure.subject))
}

#[test]
fn unread_variables_are_deleted_together() {
    let keepers = ["model", "optimizer.state", "encoder[*]"].map(|name| keeper(name, TensorKind::Parameter, 0, None));
    let unread = ["encoder", "optimizer", "small"].map(str::to_owned).to_vec();
    let report = KeptReport { unread: unread.clone(), ..kept(keepers.to_vec()) };
    assert_eq!(of_all(3 << 30, &report), Some((CureKind::DeleteUnread, Some("optimizer, encoder".to_owned()))));
    assert_eq!(of_all(5 << 30, &report), None);
    let graph = keeper("small", TensorKind::Saved, GRAPH, None);
    let report = KeptReport { unread, ..kept(vec![graph]) };
    assert_eq!(of_all(1 << 30, &report), None);
}

#[test]
fn parameters_that_need_no_training_are_frozen() {
    let state = kept(vec![keeper("optimizer", TensorKind::OptimizerState, 0, None)]);
    let adapted = KeptReport { adapted: vec!["model".to_owned()], ..state.clone() };
    assert_eq!(of_all(1 << 30, &adapted), Some((CureKind::FreezeBase, Some("model".to_owned()))));
    assert_eq!(of_all(3 << 30, &adapted), None);
    let idle = KeptReport { idle: vec!["encoder".to_owned()], ..adapted };
    assert_eq!(of_all(1 << 30, &idle), Some((CureKind::FreezeIdle, Some("encoder".to_owned()))));
    assert_eq!(of_all(1 << 30, &state), None);
}

#[test]
fn a_graph_of_gradients_is_a_cycle() {
    let nameless = KeptByVariable { name: None, ..keeper("", TensorKind::Saved, GRAPH, None) };
    let line = FrameReport::new("/job/train.py".to_owned(), 12, "sharpness".to_owned());
    let report = KeptReport { graph_backward: Some(line.clone()), ..kept(vec![nameless]) };
    assert_eq!(of_all(1 << 30, &report), Some((CureKind::GradWithGraph, None)));
    assert_eq!(of_all(3 << 30, &report), None);
    assert_eq!(of_all(1 << 30, &KeptReport { graph_backward: None, ..report }), None);
}

#[test]
fn elements_that_a_smaller_type_holds_are_narrowed() {
    for (dtype, shortfall_bytes, value, cure) in [
        ("float64", 1 << 30, "encode(x)", Some(CureKind::Narrow)),
        // A byte of the eight is enough for zeros and ones: 1.75 of 2 GiB are saved.
        ("int64", 7 << 28, "F.one_hot(x)", Some(CureKind::Narrow)),
        ("int64", (7 << 28) + 1, "F.one_hot(x)", None),
        ("int64", 1 << 30, "encode(x)", None),
        ("float32", 1 << 30, "encode(x)", None),
    ] {
        let written = Some(written(Assign, value, None));
        let tensor = keeper("x", TensorKind::Variable, 0, None);
        let tensor = KeptByVariable { dtype: Some(dtype.to_owned()), written, ..tensor };
        let request = Request { frames: &[], shortfall_bytes, allocated_bytes: 8 << 30 };
        assert_eq!(cure_of(request, &kept(vec![tensor])).map(|cure| cure.row.kind), cure, "{dtype} {value}");
    }
}
