//! Sentences about the variables that keep memory alive.

use itertools::Itertools as _;

use crate::analysis::{DeviceReport, request_bytes};
use crate::base::units::{counted, size};
use crate::compare::diff::VariableChange;
use crate::snapshot::{Author, RootKind, TensorKind};
use crate::stacks::frames::FrameReport;
use crate::study::variables::{Container, KeptByVariable};

/// The name of the variable, or why there is none.
pub(crate) fn keeper_name(kept: &KeptByVariable) -> String {
    match &kept.function {
        Some(caller) if kept.root.is_none() => cpp_holder(caller),
        _ => holder(kept.name.as_deref(), kept.root),
    }
}

/// The line that fills the container.
fn filled_at(kept: &KeptByVariable) -> Option<String> {
    kept.container.as_ref()?.filled_at.as_ref().map(FrameReport::brief_label)
}

/// The container rather than its items: "`trainer.history`, a list of 15 filled at train.py:8 in main".
pub(super) fn describe_keeper(kept: &KeptByVariable) -> String {
    match (&kept.container, kept.root) {
        (Some(container), _) => {
            let filled = filled_at(kept).map_or_else(String::new, |line| format!(" filled at {line}"));
            format!("`{}`, {}{filled}", container.name, container_label(container))
        }
        (None, Some(RootKind::Cycle)) => keeper_name(kept),
        (None, None) if kept.function.is_none() && kept.name.is_none() => "C++ code (no tensor of Python)".to_owned(),
        (None, _) if kept.name.is_none() => keeper_name(kept),
        (None, _) => format!("`{}`", keeper_name(kept)),
    }
}

/// [`describe_keeper`] within a clause: an apposition ends with a comma.
pub(super) fn keeper_aside(kept: &KeptByVariable) -> String {
    describe_keeper(kept) + if kept.container.is_some() { "," } else { "" }
}

/// Type and shape of the largest tensor.
pub(crate) fn type_label(kept: &KeptByVariable) -> Option<String> {
    let (shape, dtype) = (kept.shape.as_ref()?, kept.dtype.as_ref()?);
    // A view may repeat its memory or use another tensor's: its shape then does not describe these bytes.
    if request_bytes(shape, dtype).is_some_and(|bytes| bytes > kept.bytes) {
        return None;
    }
    let each = if kept.blocks > 1 { "the largest is " } else { "" };
    Some(format!("{each}{}", shape_label(dtype, shape)))
}

/// Where the variable is, or how to free the memory.
fn place_label(kept: &KeptByVariable) -> Option<String> {
    match (kept.root?, &kept.function, &kept.module) {
        (RootKind::Cycle, _, _) => Some("nothing else keeps it: gc.collect() would free it".to_owned()),
        (_, Some(function), _) => Some(format!("a local variable of {}", function.short_label())),
        (_, None, Some(module)) if module != "__main__" => Some(format!("a variable of the module {module}")),
        _ => None,
    }
}

/// Everything except the name: use, container, type of the largest tensor, place.
pub(crate) fn keeper_details(kept: &KeptByVariable) -> Vec<String> {
    let largest = type_label(kept);
    let shared = kept.places.map(|places| format!("shared by {}", counted(places, "tensor")));
    let largest = largest.map(|largest| [Some(largest), shared].into_iter().flatten().join(" "));
    let container = kept.container.as_ref().map(container_label);
    let kind = kind_label(kept.kind).map(str::to_owned);
    let what = [container, kind, graph_label(kept), largest].into_iter().flatten().join(", ");
    let filled = filled_at(kept).map(|line| format!("filled at {line}"));
    [Some(what).filter(|what| !what.is_empty()), filled, place_label(kept)].into_iter().flatten().collect()
}

/// How much of it an autograd graph keeps.
fn graph_label(kept: &KeptByVariable) -> Option<String> {
    match kept.graph_bytes {
        0 => None,
        _ if kept.is_graph() => Some("through autograd graphs".to_owned()),
        bytes => Some(format!("{} of it through autograd graphs", size(bytes))),
    }
}

/// `a list of 15`
pub(crate) fn container_label(container: &Container) -> String {
    let is_vowel = container.r#type.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O', 'U']);
    let items = container.items.map_or_else(String::new, |items| format!(" of {items}"));
    format!("{} {}{items}", if is_vowel { "an" } else { "a" }, container.r#type)
}

impl VariableChange {
    /// The module or variable, or why there is none.
    pub(crate) fn holder(&self) -> String {
        holder(self.name.as_deref(), self.root)
    }

    /// Container and use.
    pub(crate) fn details(&self) -> String {
        let container = self.container.as_ref().map(container_label);
        container.into_iter().chain(kind_label(self.kind).map(str::to_owned)).join(", ")
    }
}

fn holder(name: Option<&str>, root: Option<RootKind>) -> String {
    match (name, root) {
        (Some(name), Some(RootKind::Cycle)) => format!("a reference cycle of {name}"),
        (None, Some(RootKind::Cycle)) => "a reference cycle".to_owned(),
        (Some(name), _) => name.to_owned(),
        (None, Some(RootKind::Unreached)) => "not reached in the time allowed".to_owned(),
        (None, Some(_)) => "a value of the running call".to_owned(),
        (None, None) => "no tensor of Python".to_owned(),
    }
}

/// The holder in C++ that the Python function `caller` called.
fn cpp_holder(caller: &FrameReport) -> String {
    let is_reducer = matches!(&*caller.name, "_ddp_init_helper" | "_pre_forward");
    if is_reducer && caller.file.ends_with("nn/parallel/distributed.py") {
        return "the reducer of DistributedDataParallel (C++), buckets of gradients".to_owned();
    }
    format!("C++ code, called at {}", caller.short_label())
}

/// The use of the memory, if the name does not show it.
fn kind_label(kind: Option<TensorKind>) -> Option<&'static str> {
    Some(match kind? {
        TensorKind::Parameter => "parameters",
        TensorKind::Buffer => "buffers",
        TensorKind::Gradient => "gradients",
        TensorKind::OptimizerState => "optimizer state",
        TensorKind::Saved => "saved for the backward pass",
        TensorKind::Variable => return None,
    })
}

/// For the first lines: the variable that keeps the growing memory if growth explains the failure, else the one that keeps
/// most.
pub(super) fn describe_variable(device: &DeviceReport) -> Option<String> {
    let kept = device.kept_by.as_ref()?;
    let growth = device.ooms.last().and_then(|oom| device.explaining_growth(oom));
    let growing = device.leaks.variable.as_deref().filter(|_| growth.is_some());
    let mut rows = kept.top.rows.iter();
    // Memory without a variable may have one that the recorder did not get to.
    let row = growing
        .or_else(|| rows.find(|row| row.name.is_some() || kept.complete && row.root != Some(RootKind::Unreached)))?;
    let function = row.function.as_ref().filter(|_| row.name.is_some() && row.author != Some(Author::User));
    let place = function.map_or_else(String::new, |function| format!(", in {}", function.short_label()));
    let graph = graph_label(row).map(|graph| format!(", {graph}")).unwrap_or_default();
    let [bytes, all] = [row.bytes, device.memory.allocated_bytes].map(size);
    Some(format!("{}{place}: {bytes} of {all} allocated{graph}", describe_keeper(row)))
}

/// `float32 [64, 256]`
pub(crate) fn shape_label(dtype: &str, shape: &[u64]) -> String {
    format!("{dtype} [{}]", shape.iter().format(", "))
}
