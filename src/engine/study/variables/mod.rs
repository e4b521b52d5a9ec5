//! The variables that keep the memory of a snapshot alive, as the recorder named them inside the process.
//!
//! In: the live blocks of a device and [`TensorNames`](crate::snapshot::TensorNames), which are matched by address.
//! Out: [`KeptReport`], rows of blocks by variable. Storages have the same name if only indexes differ. Names are facts:
//! nothing here is inferred.

mod keepers;
mod live;

use std::collections::BTreeSet;

use serde::Serialize;

pub use self::live::{LiveVariables, fold_indexes};
use super::category::{Category, Confidence};
use super::memory::TopRows;
use crate::base::ids::{StackId, SymbolId};
use crate::base::units::{escape_name, ratio};
use crate::python::{Keep, Line, ProgramText};
use crate::snapshot::{Author, BackwardCall, RootKind, Snapshot, TensorKind, WriteKind};
use crate::stacks::frames::{CodeLocation, FrameReport, StackReader};

/// The variables that keep the allocated memory alive.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct KeptReport {
    /// Whether the recorder had time to look everywhere.
    pub complete: bool,
    /// The variables that keep the most memory, largest first, `--top` of them.
    #[serde(flatten)]
    pub top: TopRows<KeptByVariable>,
    /// The same by owner, the largest first: the items of a container, the parameters of a model and the state of an
    /// optimizer are one row each. It describes the largest variable; `bytes`, `blocks`, `share_ratio` and `graph_bytes`
    /// are sums. At most 20.
    #[serde(skip)]
    pub keepers: Vec<KeptByVariable>,
    /// Number of optimizers in the process; absent if the recorder did not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizers: Option<u64>,
    /// Whether there is an optimizer, or the text of the program computes gradients; absent if the recorder did not look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trains: Option<bool>,
    /// The largest modules whose parameters require gradients although no optimizer has any of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub untrained: Vec<String>,
    /// The largest modules whose parameters all have the learning rate 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<String>,
    /// Modules with adapters, such as low-rank ones, whose other parameters are trained, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub adapted: Vec<String>,
    /// The outermost modules in evaluation mode that the program calls with gradients, if no running function calls
    /// `backward` below its line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evaluating: Vec<String>,
    /// Variables of running functions with a tensor, a module or an optimizer that no other object has, and that the text
    /// of the function does not read any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// The line that calls `backward(create_graph=True)`; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph_backward: Option<FrameReport>,
}

/// Live blocks that one variable keeps or, in a breakdown, those of one category that the variables of an owner keep,
/// such as the parameters of a model or the items of a container.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct KeptByVariable {
    /// Bytes in these blocks.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Share of all allocated bytes, 0 to 1.
    pub share_ratio: f64,
    /// The part of `bytes` that the variable keeps only through autograd graphs.
    pub graph_bytes: u64,
    /// The part of `bytes` that no known tensor uses: the variable has views of parts of it.
    #[serde(skip)]
    pub unused_bytes: u64,
    /// The name, with `*` for each index: `trainer.history[*]`; for a reference cycle, the type of an object in it; null
    /// if no variable leads to the memory.
    pub name: Option<String>,
    /// Use of the memory: `parameter`, `buffer`, `gradient`, `optimizer-state`, `saved` (for a backward pass) or
    /// `variable`; the kind with most bytes. Null if no tensor of Python uses it.
    pub kind: Option<TensorKind>,
    /// Where the name starts: `frame` (a local variable), `module`, or `exception`. Without a variable: `call` (a value
    /// of a running call), `cycle` (only a reference cycle, which `gc.collect()` frees), `unreached` (the recorder had no
    /// time), or null (no tensor of Python uses the memory).
    pub root: Option<RootKind>,
    /// The author of the code where the name starts: `user`, `library` or `pytorch`.
    pub author: Option<Author>,
    /// The function of a local variable, or that called the C++ code which keeps the memory; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<FrameReport>,
    /// The module of a module's variable; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The container whose items these are; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    /// The only statement of the program that fills the container, or assigns the variable; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<Written>,
    /// Type of the elements in the largest block, such as `float32`; null if unknown.
    pub dtype: Option<String>,
    /// Shape of the tensor in the largest block; null if unknown.
    pub shape: Option<Vec<u64>>,
    /// Number of tensors that begin at different places in the largest block, such as the views of a flat buffer;
    /// absent for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub places: Option<u64>,
    /// The autograd node and argument that saved the largest block, such as `MulBackward0.other`; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// The source line that allocated most of these bytes.
    pub allocated_by: CodeLocation,
    /// The category; absent outside of a breakdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// The confidence that at least half of the bytes have or exceed; absent outside of a breakdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category_confidence: Option<Confidence>,
}

/// A container of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Container {
    /// Its name, such as `trainer.history`.
    pub name: String,
    /// Its type, such as `list`.
    pub r#type: String,
    /// Number of items; null if only the program's text shows the container.
    pub items: Option<u64>,
    /// The line of the program that fills it; absent if it is unknown, or not the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filled_at: Option<FrameReport>,
}

/// A statement that writes to a variable, by the text of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Its line.
    pub at: FrameReport,
    /// How it writes: `put` (an item), `extend`, `store` (under a key), `accumulate` (`x += y`), `join`
    /// (`x = cat([x, y])`), `recur` (`x = f(x)`) or `assign`.
    pub kind: WriteKind,
    /// The text of the expression that it writes; null if it has several lines.
    pub value: Option<String>,
    /// Whether a loop of the function has it.
    pub in_loop: bool,
    /// Whether no `torch.no_grad()` is seen around it.
    pub has_grad: bool,
    /// Whether another statement in a loop of the function reads the variable.
    pub is_read: bool,
    /// Where the function calls `backward()`: of the variable (`itself`), in the innermost loop (`loop`), less often with a
    /// detached state (`window`), or elsewhere (`function`); `elsewhere` if another function that calls it reads a variable
    /// with that name; null for none.
    pub backward: Option<BackwardCall>,
}

impl Written {
    /// As reports show `keep`.
    pub fn new(keep: &Keep, stacks: &StackReader<'_>) -> Self {
        Self {
            at: stacks.statement_report(&keep.file, keep.line, &keep.function),
            kind: keep.kind,
            value: keep.value.as_deref().map(escape_name),
            in_loop: keep.in_loop,
            has_grad: keep.has_grad,
            is_read: keep.is_read,
            backward: keep.backward,
        }
    }

    /// Whether it assigns an empty container of this type, such as `[]` or `collections.deque()`.
    fn makes_empty(&self, type_name: &str) -> bool {
        let Some(value) = self.value.as_deref().filter(|_| self.kind == WriteKind::Assign) else { return false };
        matches!(value, "[]" | "{}")
            || value.strip_suffix("()").and_then(|name| name.rsplit('.').next()) == Some(type_name)
    }
}

/// The end of the name of an item, after its container's name.
pub const ITEM: &str = "[*]";

impl KeptReport {
    /// The `top` variables.
    pub fn new(variables: &LiveVariables<'_>, stacks: &StackReader<'_>, text: &ProgramText<'_>, top: usize) -> Self {
        let shown = variables.count().min(top);
        let rest = (0..shown).fold(variables.all, |rest, index| rest.minus(variables.group(index).sum));
        let rows = (0..shown).map(|index| variables.row(index, stacks)).collect();
        let keepers = variables.keepers(stacks);
        let (names, snapshot) = (variables.names, variables.snapshot);
        let may_train = variables.may_train(text);
        let untrained = names.untrained.iter().filter(|name| text.is_called_with_grad(snapshot.text(**name)));
        // A moving average of the weights is not called, for instance.
        let evaluating = names
            .evaluating
            .iter()
            .filter(|name| !may_train && (!text.is_complete || text.is_called_with_grad(snapshot.text(**name))));
        Self {
            complete: names.is_complete,
            top: TopRows { rows, rest },
            keepers,
            optimizers: names.optimizers,
            // Files that are missing may have a backward pass.
            trains: names.optimizers.map(|count| count > 0 || !text.is_complete || text.computes_gradients()),
            untrained: escape_names(untrained, snapshot),
            idle: escape_names(&names.idle, snapshot),
            adapted: escape_names(&names.adapted, snapshot),
            evaluating: escape_names(evaluating, snapshot),
            unread: escape_names(&variables.unread(text), snapshot),
            graph_backward: text.graph_backward().map(|it| stacks.statement_report(it.file, it.line, it.function)),
        }
    }
}

fn escape_names<'n>(names: impl IntoIterator<Item = &'n SymbolId>, snapshot: &Snapshot) -> Vec<String> {
    names.into_iter().map(|name| escape_name(snapshot.text(*name))).collect()
}

impl LiveVariables<'_> {
    fn line_of(&self, call: StackId) -> Option<Line<'_>> {
        let id = self.snapshot.stacks.frames(call).first()?;
        let (file, function) = self.snapshot.frame_text(id);
        Some(Line { file, line: self.snapshot.stacks.frame(id).line, function, calls_package: false })
    }

    /// Whether a running function may call `backward` below its line.
    fn may_train(&self, text: &ProgramText<'_>) -> bool {
        let mut calls = self.names.calls.iter().map(|call| self.line_of(*call));
        self.names.calls.is_empty()
            || calls.any(|line| line.and_then(|line| text.has_backward_from(&line)).unwrap_or(true))
    }

    /// Variables of running functions whose memory no other object has, and that no text reads any more.
    fn unread(&self, text: &ProgramText<'_>) -> Vec<SymbolId> {
        let lines = self.names.calls.iter().map(|call| self.line_of(*call));
        let by_call = lines.map(|line| line.and_then(|line| text.unread_from(&line)).unwrap_or_default());
        let by_call: Vec<BTreeSet<String>> = by_call.collect();
        let values = self.names.alone.iter().filter(|value| {
            value
                .iter()
                .all(|(call, name)| by_call.get(*call).is_some_and(|names| names.contains(self.snapshot.text(*name))))
        });
        values.filter_map(|value| value.first().map(|(_, name)| *name)).collect()
    }
}

impl KeptByVariable {
    /// Whether an autograd graph keeps nearly all of it.
    pub fn is_graph(&self) -> bool {
        ratio(self.graph_bytes, self.bytes) > NEARLY_ALL
    }

    /// The owner, for a sum over similar variables: the module of parameters, buffers and gradients, the
    /// optimizer of its state, the container of items.
    pub fn owner(&self) -> (Option<String>, Option<Container>) {
        let Some(name) = &self.name else { return (None, None) };
        let owner = match self.kind {
            Some(TensorKind::Parameter | TensorKind::Buffer | TensorKind::Gradient) => {
                let is_gradient = self.kind == Some(TensorKind::Gradient);
                let tensor = name.strip_suffix(".grad").filter(|_| is_gradient).unwrap_or(name);
                tensor.rsplit_once('.').map_or(tensor, |(module, _)| module)
            }
            Some(TensorKind::OptimizerState) => name.split(".state[").next().unwrap_or(name),
            Some(TensorKind::Saved | TensorKind::Variable) | None => {
                let name = self.container.as_ref().map_or(name, |container| &container.name);
                return (Some(name.clone()), self.container.clone());
            }
        };
        (Some(owner.to_owned()), None)
    }

    /// Whether these are items of a list or a deque.
    pub fn is_list(&self) -> bool {
        self.container.as_ref().is_some_and(|container| matches!(&*container.r#type, "list" | "deque"))
    }
}

/// From this share on, a part counts as the whole.
const NEARLY_ALL: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_variable_is_what_similar_ones_share() {
        for (name, kind, expected) in [
            ("model.layer.weight", Some(TensorKind::Parameter), "model.layer"),
            ("model.layer.mean", Some(TensorKind::Buffer), "model.layer"),
            ("model.layer.weight.grad", Some(TensorKind::Gradient), "model.layer"),
            ("adam.state[3]", Some(TensorKind::OptimizerState), "adam"),
            ("trainer.losses", Some(TensorKind::Variable), "trainer.losses"),
            ("trainer.losses", None, "trainer.losses"),
        ] {
            let kept = KeptByVariable { name: Some(name.to_owned()), kind, ..KeptByVariable::default() };
            assert_eq!(kept.owner().0.unwrap(), expected);
        }
        assert_eq!(KeptByVariable::default().owner(), (None, None));
    }

    #[test]
    fn items_in_order_are_a_list_and_19_of_20_bytes_are_nearly_all() {
        for (r#type, is_list) in [("list", true), ("deque", true), ("dict", false)] {
            let container = Container { name: "kept".into(), r#type: r#type.into(), items: None, filled_at: None };
            let kept = KeptByVariable { name: Some("kept[]".into()), container: Some(container), ..Default::default() };
            assert_eq!((kept.owner().0.unwrap().as_str(), kept.is_list()), ("kept", is_list));
        }
        for (graph_bytes, is_graph) in [(94, false), (95, false), (96, true)] {
            let kept = KeptByVariable { bytes: 100, graph_bytes, ..Default::default() };
            assert_eq!(kept.is_graph(), is_graph, "{graph_bytes}");
        }
        assert!(!KeptByVariable::default().is_list());
    }
}
