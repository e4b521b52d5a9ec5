//! The change of the program that frees what a variable keeps, in one imperative sentence with the program's names.

use std::fmt;

use crate::analysis::{Cure, CureKind, LocalTensorReport, ShapeCure};
use crate::base::units::percent;

impl fmt::Display for Cure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.variable();
        let at = self.line();
        let value = self.value();
        match &self.kind {
            CureKind::BoundQueue => {
                let queue = name.strip_suffix(".queue").unwrap_or(name);
                write!(f, "give `{queue}` a bound, such as Queue(maxsize=2): {}", self.items())
            }
            CureKind::PutValue => match value {
                Some(value) => write!(
                    f,
                    "put `{value}.item()`, or `{value}.detach()` if it is no scalar, into `{name}`{at}: {} with their \
                     graphs",
                    self.items()
                ),
                None => write!(
                    f,
                    "put values without their graphs, .item() or .detach(), into `{name}`{at}: {} with their graphs",
                    self.items()
                ),
            },
            CureKind::AddValue => match value {
                Some(value) => write!(f, "add `{value}.item()` to `{name}`{at}: the sum keeps the graph of each value"),
                None => write!(f, "add .item() of each value to `{name}`{at}: the sum keeps the graph of each"),
            },
            CureKind::BackwardEach => write!(
                f,
                "call backward() for each value{at}, instead of once for all: `{name}` keeps the graphs until then"
            ),
            CureKind::DetachState => {
                let name = value.unwrap_or(name);
                write!(
                    f,
                    "detach `{name}` in each step (`{name} = {name}.detach()`){at}: it keeps the graphs of all steps before"
                )
            }
            CureKind::PutOnHost => match value {
                Some(value) => write!(
                    f,
                    "put `{value}.cpu()`, or only what you need of it, into `{name}`{at}: {} on the GPU",
                    self.items()
                ),
                None => write!(
                    f,
                    "put copies in host memory (.cpu()), or only what you need, into `{name}`{at}: {} on the GPU",
                    self.items()
                ),
            },
            CureKind::JoinOnHost => {
                write!(f, "move each part to host memory (.cpu()) before it is joined to `{name}`{at}")
            }
            CureKind::WeightsOnHost => write!(
                f,
                "put copies of the weights in host memory (.cpu()), and only the best, into `{name}`{at}: {} on the GPU",
                self.items()
            ),
            CureKind::KeepNoModels => write!(
                f,
                "put results, or weights in host memory (.cpu()), into `{name}`{at} instead of models: {}",
                self.items()
            ),
            CureKind::KeepNoOptimizers => {
                write!(f, "keep only the current optimizer in `{name}`{at}: {}, each with its state", self.items())
            }
            CureKind::KeepNoException => write!(
                f,
                "put the text of the exception into `{}`{at} instead of the exception: its traceback keeps the \
                 variables of the call that failed",
                exception_in(name)
            ),
            CureKind::LeaveHandler => write!(
                f,
                "leave the except block, or delete the exception, before going on: its traceback keeps the variables of \
                 the call that failed"
            ),
            CureKind::LimitCache => {
                write!(f, "limit the entries of `{name}`{at}, or put copies in host memory (.cpu()): {}", self.items())
            }
            CureKind::LimitResults => {
                write!(f, "limit the results that `{name}` keeps, such as lru_cache(maxsize=1): {}", self.items())
            }
            CureKind::RepeatLoader => write!(
                f,
                "start the loader of `{name}` anew instead of itertools.cycle, which keeps every batch: {}",
                self.items()
            ),
            CureKind::LimitTensor => write!(f, "limit the length of `{name}`{at}: each step joins more to it"),
            CureKind::DeleteAtEnd => write!(
                f,
                "delete `{name}` at the end of each step (`del {name}`): its next value is made{at} while it keeps the last"
            ),
            CureKind::LoadEach => write!(f, "load one model of `{name}` at a time{at}: {}", self.items()),
            CureKind::Narrow => {
                let dtype = self.keeper.dtype.as_deref().unwrap_or_default();
                let narrow = if dtype == "float64" { "float32" } else { "int32 or bool" };
                write!(f, "make `{name}`{at} of {narrow} instead of {dtype}")
            }
            CureKind::DataOnHost => {
                write!(f, "keep `{name}` in host memory{at}, and move one batch at a time to the GPU")
            }
            CureKind::CheckpointOnHost => {
                let name = name.split('[').next().unwrap_or(name);
                write!(f, "load `{name}` into host memory (map_location=\"cpu\"){at}, and delete it after its use")
            }
            CureKind::Freeze(module) => write!(
                f,
                "freeze `{module}` (`{module}.requires_grad_(False)`), or call it under torch.no_grad(): no optimizer has \
                 its parameters, but its calls keep graphs"
            ),
            CureKind::NoGrad(line) => {
                let line = line.as_ref().map_or_else(String::new, |line| format!(" at {}", line.brief_label()));
                write!(
                    f,
                    "run the model{line} under torch.inference_mode() or torch.no_grad(): `{name}` keeps a graph, and \
                     the program computes no gradients"
                )
            }
        }
    }
}

/// How to make no tensor of all pairs.
impl fmt::Display for ShapeCure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_one = |left: &LocalTensorReport, right: &LocalTensorReport| left.name == right.name;
        let shape = |tensor: &LocalTensorReport| {
            let sizes: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
            format!("`{}` ({})", tensor.name, sizes.join(", "))
        };
        match self {
            Self::SameShape([column, row]) => write!(
                f,
                "give both tensors one shape, such as `{}.squeeze(1)`: {} and {} make a matrix of all pairs",
                column.name,
                shape(column),
                shape(row)
            ),
            Self::FusedAttention([query, key, value]) => write!(
                f,
                "use F.scaled_dot_product_attention({query}, {key}, {value}), which makes no matrix of scores"
            ),
            Self::Distances([left, right]) => write!(
                f,
                "use torch.cdist({}, {}), which makes no tensor of the differences of all pairs",
                left.name, right.name
            ),
            Self::Diagonal(name) => {
                write!(f, "multiply by `{name}[:, None]` instead of torch.diag({name}), which is a matrix of zeros")
            }
            Self::Parts([left, right]) if is_one(left, right) => {
                write!(f, "compute the pairs of rows of {} in parts, not all at once", shape(left))
            }
            Self::Parts([left, right]) => {
                write!(f, "compute the pairs of rows of {} and {} in parts, not all at once", shape(left), shape(right))
            }
        }
    }
}

impl Cure {
    /// The container, or the variable.
    fn variable(&self) -> &str {
        let container = self.keeper.container.as_ref().map(|container| container.name.as_str());
        container.or(self.keeper.name.as_deref()).unwrap_or_default()
    }

    /// The holder of too much memory.
    pub(super) fn subject(&self) -> String {
        match &self.kind {
            CureKind::KeepNoException | CureKind::LeaveHandler => "an exception".to_owned(),
            _ => format!("`{}`", self.variable()),
        }
    }

    /// `80%`, of all allocated memory.
    pub(super) fn share_label(&self) -> String {
        percent(self.keeper.share_ratio)
    }

    /// ` at train.py:12`, the statement that writes to the variable; empty if it is not known.
    fn line(&self) -> String {
        let at = self.keeper.written.as_ref().map(|written| format!(" at {}", written.at.brief_label()));
        at.unwrap_or_default()
    }

    /// The written value, if that is a plain variable or attribute.
    fn value(&self) -> Option<&str> {
        let value = self.keeper.written.as_ref()?.value.as_deref()?;
        let is_name = |part: &str| {
            let mut characters = part.chars();
            characters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
                && characters.all(|other| other.is_alphanumeric() || other == '_')
        };
        value.split('.').all(is_name).then_some(value)
    }

    /// `it holds 28`
    fn items(&self) -> String {
        self.keeper.container.as_ref().map_or_else(String::new, |container| format!("it holds {}", container.items))
    }
}

/// The variable before the exception's own: `failures` of `failures[*].__traceback__.step.x`.
fn exception_in(name: &str) -> &str {
    name.split("[*].__traceback__").next().unwrap_or(name)
}
