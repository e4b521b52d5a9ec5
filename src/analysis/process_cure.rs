//! The change of the program that frees what no one variable keeps: graphs and training that nothing needs, cycles,
//! variables that nothing reads any more. The facts are the recorder's.

use super::cure::{Cure, CureKind, GRAPH_SHARE, MIN_SHARE, keeps_graphs};
use crate::analysis::failure::OomReport;
use crate::base::units::ratio;
use crate::snapshot::TensorKind;
use crate::stacks::frames::{FrameReport, forward_slashes};
use crate::study::variables::{KeptByVariable, KeptReport};

/// The first of these changes that serves the request of `oom`.
pub(super) fn process_cure(oom: &OomReport, kept: &KeptReport) -> Option<Cure> {
    unread((oom.shortfall_bytes, oom.allocated_bytes), kept)
        .or_else(|| needless_training(oom.shortfall_bytes, kept))
        .or_else(|| needless_graphs(oom, kept))
        .or_else(|| graph_cycle(oom.shortfall_bytes, kept))
        .or_else(|| doubles(oom, kept))
}

/// The cure for variables that nothing reads any more.
fn unread((shortfall, allocated): (u64, u64), kept: &KeptReport) -> Option<Cure> {
    let variable = |keeper: &KeptByVariable| {
        let name = keeper.name.as_deref()?.split(['.', '[']).next()?;
        kept.unread.iter().find(|unread| *unread == name).cloned()
    };
    let keepers = || kept.keepers.iter().filter_map(|keeper| Some((keeper, variable(keeper)?)));
    // Other variables may lead to the same graph.
    let bytes: u64 = keepers().map(|(keeper, _)| keeper.bytes - keeper.graph_bytes).sum();
    let (keeper, _) = keepers().next().filter(|_| bytes >= shortfall && ratio(bytes, allocated) >= MIN_SHARE)?;
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
    let is_for_training = |keeper: &&KeptByVariable| {
        matches!(keeper.kind, Some(TensorKind::Gradient | TensorKind::OptimizerState | TensorKind::Saved))
    };
    let keepers = || kept.keepers.iter().filter(is_for_training);
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
    // An optimizer may be where the recorder had no time to look.
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
    use crate::stacks::frames::CodeLocation;
    use crate::study::memory::{BlockSum, TopRows};

    const GRAPH: u64 = 2 << 30;

    /// A variable that keeps 2 GiB, of which autograd keeps `graph_bytes`.
    fn keeper(name: Option<&str>, kind: TensorKind, graph_bytes: u64) -> KeptByVariable {
        KeptByVariable {
            bytes: 2 << 30,
            blocks: 10,
            share_ratio: 0.5,
            graph_bytes,
            name: name.map(str::to_owned),
            kind: Some(kind),
            root: None,
            author: None,
            function: None,
            module: None,
            container: None,
            written: None,
            dtype: None,
            shape: None,
            places: None,
            operator: None,
            allocated_by: CodeLocation::default(),
        }
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
        let of = |name| keeper(Some(name), TensorKind::Parameter, 0);
        let names = || vec!["encoder".to_owned(), "optimizer".to_owned(), "small".to_owned()];
        let report = KeptReport { unread: names(), ..kept(vec![of("model"), of("optimizer.state"), of("encoder[*]")]) };
        let found = |shortfall| unread((shortfall, 4 << 30), &report).map(|cure| cure.kind);
        let both = CureKind::DeleteUnread(vec!["optimizer".to_owned(), "encoder".to_owned()]);
        assert_eq!(found(3 << 30), Some(both));
        assert_eq!(found(5 << 30), None);
        let graph = keeper(Some("small"), TensorKind::Saved, GRAPH);
        let report = KeptReport { unread: names(), ..kept(vec![graph]) };
        assert_eq!(unread((1 << 30, 4 << 30), &report), None);
    }

    #[test]
    fn parameters_that_need_no_training_are_frozen() {
        let state = || kept(vec![keeper(Some("optimizer"), TensorKind::OptimizerState, 0)]);
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
        let nameless = keeper(None, TensorKind::Saved, GRAPH);
        let line = FrameReport { file: "/job/train.py".to_owned(), line: 12, name: "sharpness".to_owned() };
        let report = KeptReport { graph_backward: Some(line.clone()), ..kept(vec![nameless]) };
        assert_eq!(graph_cycle(1 << 30, &report).map(|cure| cure.kind), Some(CureKind::GradWithGraph(line)));
        assert_eq!(graph_cycle(3 << 30, &report), None);
        assert_eq!(graph_cycle(1 << 30, &KeptReport { graph_backward: None, ..report }), None);
    }
}
