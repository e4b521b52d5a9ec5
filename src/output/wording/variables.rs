//! Sentences about the variables that keep memory alive.

use crate::base::units::{counted, size};
use crate::compare::diff::VariableChange;
use crate::snapshot::{Author, RootKind, TensorKind};
use crate::stacks::frames::FrameReport;
use crate::study::variables::{Container, KeptByVariable, KeptReport};

impl KeptByVariable {
    /// The name of the variable, or why there is none.
    pub(crate) fn holder(&self) -> String {
        match &self.function {
            Some(caller) if self.root.is_none() => cpp_holder(caller),
            _ => holder(self.name.as_deref(), self.root),
        }
    }

    /// The line that fills the container.
    fn filled_at(&self) -> Option<String> {
        self.container.as_ref()?.filled_at.as_ref().map(FrameReport::brief_label)
    }

    /// The container rather than its items: "`trainer.history`, a list of 15 filled at train.py:8 in main".
    pub(crate) fn in_sentence(&self) -> String {
        match (&self.container, self.root) {
            (Some(container), _) => {
                let filled = self.filled_at().map_or_else(String::new, |line| format!(" filled at {line}"));
                format!("`{}`, {}{filled}", container.name, container.label())
            }
            (None, Some(RootKind::Cycle)) => self.holder(),
            (None, None) if self.function.is_none() => "C++ code (no tensor of Python)".to_owned(),
            (None, _) if self.name.is_none() => self.holder(),
            (None, _) => format!("`{}`", self.holder()),
        }
    }

    /// [`Self::in_sentence`] within a clause: an apposition ends with a comma.
    pub(crate) fn aside(&self) -> String {
        self.in_sentence() + if self.container.is_some() { "," } else { "" }
    }

    /// `a list of 15`, for the items of a container.
    pub(crate) fn container_label(&self) -> Option<String> {
        self.container.as_ref().map(Container::label)
    }

    /// The use of the memory, if the name does not show it.
    pub(crate) fn kind_label(&self) -> Option<&'static str> {
        kind_label(self.kind)
    }

    /// Type and shape of the largest tensor.
    pub(crate) fn type_label(&self) -> Option<String> {
        let (shape, dtype) = (self.shape.as_ref()?, self.dtype.as_ref()?);
        let each = if self.blocks > 1 { "the largest is " } else { "" };
        Some(format!("{each}{}", shape_label(dtype, shape)))
    }

    /// Where the variable is, or how to free the memory.
    pub(crate) fn place_label(&self) -> Option<String> {
        match (self.root?, &self.function, &self.module) {
            (RootKind::Cycle, _, _) => Some("nothing else keeps it: gc.collect() would free it".to_owned()),
            (_, Some(function), _) => Some(format!("a local variable of {}", function.short_label())),
            (_, None, Some(module)) if module != "__main__" => Some(format!("a variable of the module {module}")),
            _ => None,
        }
    }

    /// Everything except the name: use, container, type of the largest tensor, place.
    pub(crate) fn details(&self) -> Vec<String> {
        let largest = self.type_label();
        let shared = self.places.map(|places| format!("shared by {}", counted(places, "tensor")));
        let largest =
            largest.map(|largest| [Some(largest), shared].into_iter().flatten().collect::<Vec<_>>().join(" "));
        let parts = [self.container_label(), self.kind_label().map(str::to_owned), self.graph_label(), largest];
        let what = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let filled = self.filled_at().map(|line| format!("filled at {line}"));
        [Some(what).filter(|what| !what.is_empty()), filled, self.place_label()].into_iter().flatten().collect()
    }

    /// How much of it an autograd graph keeps.
    pub(crate) fn graph_label(&self) -> Option<String> {
        match self.graph_bytes {
            0 => None,
            _ if self.is_graph() => Some("through autograd graphs".to_owned()),
            bytes => Some(format!("{} of it through autograd graphs", size(bytes))),
        }
    }
}

impl Container {
    /// `a list of 15`
    fn label(&self) -> String {
        let is_vowel = self.r#type.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O', 'U']);
        format!("{} {} of {}", if is_vowel { "an" } else { "a" }, self.r#type, self.items)
    }
}

impl VariableChange {
    /// The module or variable, or why there is none.
    pub(crate) fn holder(&self) -> String {
        holder(self.name.as_deref(), self.root)
    }

    /// Container and use.
    pub(crate) fn details(&self) -> String {
        let container = self.container.as_ref().map(Container::label);
        let parts = container.into_iter().chain(kind_label(self.kind).map(str::to_owned));
        parts.collect::<Vec<_>>().join(", ")
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

/// For the first lines: the variable that keeps the growing memory, else the holder that keeps most.
pub(super) fn describe_variable(
    kept: &KeptReport,
    growing: Option<&KeptByVariable>,
    allocated_bytes: u64,
) -> Option<String> {
    let mut rows = kept.top.rows.iter();
    // Memory without a variable may have one that the recorder did not get to.
    let is_known = |row: &&KeptByVariable| row.name.is_some() || kept.complete && row.root != Some(RootKind::Unreached);
    let row = growing.or_else(|| rows.find(is_known))?;
    let place = match &row.function {
        Some(function) if row.name.is_some() && row.author != Some(Author::User) => {
            format!(", in {}", function.short_label())
        }
        _ => String::new(),
    };
    let graph = row.graph_label().map(|graph| format!(", {graph}")).unwrap_or_default();
    Some(format!("{}{place}: {} of {} allocated{graph}", row.in_sentence(), size(row.bytes), size(allocated_bytes)))
}

/// `float32 [64, 256]`
pub(crate) fn shape_label(dtype: &str, shape: &[u64]) -> String {
    let sizes: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("{dtype} [{}]", sizes.join(", "))
}
