//! The change of the program that frees what a variable keeps, in one imperative sentence with the program's names.

use std::fmt;

use crate::analysis::{Cure, CureKind, LocalTensorReport, ShapeCure};
use crate::base::units::percent;
use crate::snapshot::TensorKind;
use crate::stacks::frames::FrameReport;

impl fmt::Display for Cure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.variable();
        let at = self.line();
        let value = self.value();
        // A copy with a graph keeps what autograd saved on the GPU.
        let detach = if self.keeper.kind == Some(TensorKind::Saved) { ".detach()" } else { "" };
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
            CureKind::PutOnHost => match (value, self.attribute()) {
                (Some(value), Some(attribute)) => write!(
                    f,
                    "put only what you need of `{value}`, without its `{attribute}`, into `{name}`{at}: {} on the GPU",
                    self.items()
                ),
                (Some(value), None) => write!(
                    f,
                    "put `{value}{detach}.cpu()`, or only what you need of it, into `{name}`{at}: {} on the GPU",
                    self.items()
                ),
                (None, _) => write!(
                    f,
                    "put copies in host memory ({detach}.cpu()), or only what you need, into `{name}`{at}: {} on the GPU",
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
            CureKind::ReturnNoOutputs => write!(
                f,
                "call step(.., return_outputs=False): `{name}` keeps the outputs of all microbatches; a 1F1B schedule also \
                 has fewer of them in flight"
            ),
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
            CureKind::IterateLoader(list) => {
                write!(f, "iterate over the loader{at} instead of keeping `{list}` as `{name}`: {}", self.items())
            }
            CureKind::BreakCycle => {
                let of = if name.is_empty() { String::new() } else { format!(" of `{name}`") };
                write!(
                    f,
                    "break the reference cycle{of}, or call gc.collect() in each step: only the garbage collector frees it"
                )
            }
            CureKind::GradWithGraph(line) => write!(
                f,
                "use torch.autograd.grad(.., create_graph=True) instead of backward(create_graph=True) at {}, which makes \
                 a reference cycle of parameters and gradients",
                line.brief_label()
            ),
            CureKind::LimitTensor => write!(f, "limit the length of `{name}`{at}: each step joins more to it"),
            CureKind::DeleteAtEnd => write!(
                f,
                "delete `{name}` at the end of each step (`del {name}`): its next value is made{at} while it keeps the last"
            ),
            CureKind::DeleteUnread(names) => {
                let list = names.join(", ");
                write!(f, "delete what nothing reads any more (`del {list}`) before this")
            }
            CureKind::LoadEach => write!(f, "load one model of `{name}` at a time{at}: {}", self.items()),
            CureKind::Narrow => {
                let dtype = self.keeper.dtype.as_deref().unwrap_or_default();
                let narrow = if dtype == "float64" { "float32" } else { "bool" };
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
            CureKind::FreezeIdle(module) => write!(
                f,
                "freeze `{module}` (`{module}.requires_grad_(False)`): its learning rate is 0, but it has gradients, \
                 optimizer state and graphs"
            ),
            CureKind::FreezeBase(module) => write!(
                f,
                "freeze all of `{module}` but its adapters (requires_grad_(False)) before the optimizer gets the \
                 parameters: it trains the base model, too"
            ),
            CureKind::NoGradInEvaluation(line, module) => {
                write!(
                    f,
                    "run `{module}`{} under torch.inference_mode() or torch.no_grad(): it is in evaluation mode, but its \
                     calls keep graphs, and no backward pass follows",
                    at_line(line.as_ref())
                )
            }
            CureKind::NoGrad(line) => {
                let line = at_line(line.as_ref());
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
            Self::Largest(name) => write!(
                f,
                "use `{name}.topk(k)` instead of a sort, if the largest elements are enough: a sort makes values and \
                 indices of all"
            ),
            Self::Broadcast(name) => write!(
                f,
                "broadcast `{name}` (expand, or a dimension of size 1) instead of repeating it, which makes copies"
            ),
            Self::Sparse(length) => write!(
                f,
                "make the {length} x {length} matrix sparse, or use the indices of its elements: this one stores all zeros"
            ),
            Self::Batch(batch, at) => write!(
                f,
                "compute {} in parts (a loop over `{}.split(n)`) at {}: without gradients, one part need not wait for \
                 the others",
                shape(batch),
                batch.name,
                at.brief_label()
            ),
            Self::Tiles(image, at) => write!(
                f,
                "compute {} in tiles at {}: without gradients, one tile need not wait for the others",
                shape(image),
                at.brief_label()
            ),
            Self::Chunks(at) => write!(f, "compute in parts: give vmap a chunk_size at {}", at.brief_label()),
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
            CureKind::BreakCycle | CureKind::GradWithGraph(_) => "a reference cycle".to_owned(),
            CureKind::Freeze(module)
            | CureKind::FreezeIdle(module)
            | CureKind::FreezeBase(module)
            | CureKind::NoGradInEvaluation(_, module) => format!("`{module}`"),
            _ => format!("`{}`", self.variable()),
        }
    }

    /// `80%`, of all allocated memory.
    pub(super) fn share_label(&self) -> String {
        percent(self.keeper.share_ratio)
    }

    /// ` at train.py:12`, the statement that writes to the variable; empty if it is not known.
    fn line(&self) -> String {
        at_line(self.keeper.written.as_ref().map(|written| &written.at))
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

    /// The attribute of an item that has the memory: `cache` of `finished[*].cache[*]`.
    fn attribute(&self) -> Option<&str> {
        let container = &self.keeper.container.as_ref()?.name;
        let below = self.keeper.name.as_deref()?.strip_prefix(container.as_str())?.strip_prefix("[*].")?;
        below.split(['.', '[']).next()
    }

    /// `it holds 28`
    fn items(&self) -> String {
        self.keeper.container.as_ref().map_or_else(String::new, |container| format!("it holds {}", container.items))
    }
}

fn at_line(line: Option<&FrameReport>) -> String {
    line.map_or_else(String::new, |line| format!(" at {}", line.brief_label()))
}

/// The variable before the exception's own: `failures` of `failures[*].__traceback__.step.x`.
fn exception_in(name: &str) -> &str {
    name.split("[*].__traceback__").next().unwrap_or(name)
}
