//! Sentences about the variables that keep memory alive.

use crate::base::units::{ratio, size};
use crate::snapshot::{Author, RootKind, TensorKind};
use crate::study::variables::{KeptByVariable, KeptReport};

/// From this share on, a part counts as the whole.
const NEARLY_ALL: f64 = 0.95;

impl KeptByVariable {
    /// The name of the variable, or why there is none.
    pub(crate) fn holder(&self) -> String {
        match (&self.name, self.root) {
            (Some(name), Some(RootKind::Cycle)) => format!("a reference cycle of {name}"),
            (None, Some(RootKind::Cycle)) => "a reference cycle".to_owned(),
            (Some(name), _) => name.clone(),
            (None, Some(RootKind::Unreached)) => "not reached in the time allowed".to_owned(),
            (None, Some(_)) => "a value of the running call".to_owned(),
            (None, None) => "no tensor of Python".to_owned(),
        }
    }

    /// `a list of 15`, for the items of a container.
    pub(crate) fn container_label(&self) -> Option<String> {
        let container = self.container.as_ref()?;
        let article =
            if container.r#type.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
        Some(format!("{article} {} of {}", container.r#type, container.items))
    }

    /// The use of the memory, if the name does not show it.
    pub(crate) fn kind_label(&self) -> Option<&'static str> {
        Some(match self.kind? {
            TensorKind::Parameter => "parameters",
            TensorKind::Buffer => "buffers",
            TensorKind::Gradient => "gradients",
            TensorKind::OptimizerState => "optimizer state",
            TensorKind::Saved => "saved for the backward pass",
            TensorKind::Variable => return None,
        })
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

    /// How much of it an autograd graph keeps.
    pub(crate) fn graph_label(&self) -> Option<String> {
        match self.graph_bytes {
            0 => None,
            bytes if ratio(bytes, self.bytes) > NEARLY_ALL => Some("through autograd graphs".to_owned()),
            bytes => Some(format!("{} of it through autograd graphs", size(bytes))),
        }
    }
}

/// The variable that keeps most, for the first lines: the container rather than its items.
pub(super) fn describe_variable(kept: &KeptReport, allocated_bytes: u64) -> Option<String> {
    let row = kept.top.rows.first().filter(|row| row.name.is_some())?;
    let holder = match (&row.container, row.root) {
        (Some(container), _) => format!("`{}`, {}", container.name, row.container_label().unwrap_or_default()),
        (None, Some(RootKind::Cycle)) => row.holder(),
        (None, _) => format!("`{}`", row.holder()),
    };
    let place = match &row.function {
        Some(function) if row.author != Some(Author::User) => format!(", in {}", function.short_label()),
        _ => String::new(),
    };
    let graph = row.graph_label().map(|graph| format!(", {graph}")).unwrap_or_default();
    Some(format!("{holder}{place}: {} of {} allocated{graph}", size(row.bytes), size(allocated_bytes)))
}
