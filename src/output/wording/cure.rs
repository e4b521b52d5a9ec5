//! The change of the program that frees what a variable keeps, in one imperative sentence with the program's names.

use std::fmt;

use itertools::Itertools as _;

use crate::analysis::{Cure, CureHolder, CureKind, LocalTensorReport, RunningValue, ShapeCure};
use crate::base::units::{counted, percent, size};
use crate::explain::table::fill;
use crate::snapshot::TensorKind;
use crate::stacks::frames::FrameReport;
use crate::study::variables::{ITEM, KeptByVariable};

/// The first sentence of its row whose slots are known.
impl fmt::Display for Cure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = self.row.sentences.iter().find_map(|sentence| fill(sentence, |slot| self.slot(slot)));
        f.write_str(&sentence.unwrap_or_default())?; // a row with a cure has a sentence without optional slots
        match &self.then {
            Some(then) if then.goes_on() => f.write_str("; in a replay the job then goes on"),
            Some(then) if then.fails_again() => f.write_str("; in a replay it then fails again later"),
            Some(_) => f.write_str("; in a replay this request is then served"),
            None => Ok(()),
        }
    }
}

/// How to make no tensor of all pairs.
impl fmt::Display for ShapeCure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::SameShape([column, row]) => format!(
                "give both tensors one shape, such as `{}.squeeze(1)`: {} and {} make a matrix of all pairs",
                column.name,
                quoted_shape(column),
                quoted_shape(row)
            ),
            Self::FusedAttention([query, key, value]) => format!(
                "use F.scaled_dot_product_attention({query}, {key}, {value}), which makes no matrix of scores"
            ),
            Self::Distances([left, right]) => format!(
                "use torch.cdist({}, {}), which makes no tensor of the differences of all pairs",
                left.name, right.name
            ),
            Self::Diagonal(name) => {
                format!("multiply by `{name}[:, None]` instead of torch.diag({name}), which is a matrix of zeros")
            }
            Self::Largest(name) => format!(
                "use `{name}.topk(k)` instead of a sort, if the largest elements are enough: a sort makes values and \
                 indices of all"
            ),
            Self::Broadcast(name) => format!(
                "broadcast `{name}` (expand, or a dimension of size 1) instead of repeating it, which makes copies"
            ),
            Self::Narrow(name) => format!(
                "keep `{name}` as bool, one byte for each element: F.one_hot makes int64, which has eight for each zero"
            ),
            Self::Sparse(length) => format!(
                "make the {length} x {length} matrix sparse, or use the indices of its elements: this one stores all zeros"
            ),
            Self::Call(call) => {
                let at = call.at.brief_label();
                let action = match &call.value {
                    Some(RunningValue { text, source, is_one_item }) => {
                        let what = text.as_ref().map_or_else(|| "this".to_owned(), |text| format!("`{text}`"));
                        let parts = if *is_one_item { "in tiles" } else { "in parts" };
                        format!("compute {what} {parts} of `{source}` at {at}")
                    }
                    None => format!("compute in parts what {at} calls"),
                };
                format!("{action}: without gradients, one part need not wait for the others")
            }
            Self::Chunks(at) => format!("compute in parts: give vmap a chunk_size at {}", at.brief_label()),
            Self::Parts(pair) => {
                let tensors = pair.iter().unique_by(|tensor| &tensor.name).map(quoted_shape).join(" and ");
                format!("compute the pairs of rows of {tensors} in parts, not all at once")
            }
        })
    }
}

/// The name and the shape of `tensor`, such as `` `x` (8, 16)``.
fn quoted_shape(tensor: &LocalTensorReport) -> String {
    let sizes = tensor.shape.iter().format(", ");
    if tensor.shape.is_empty() { format!("`{}`", tensor.name) } else { format!("`{}` ({sizes})", tensor.name) }
}

impl Cure {
    fn slot(&self, slot: &str) -> Option<String> {
        let keeper = match &self.holder {
            CureHolder::Variable(keeper) => keeper,
            CureHolder::Calls(group) => {
                return Some(match slot {
                    "line" => group.line.brief_label(),
                    "made" => match &group.made_at {
                        Some(frame) => format!("{} (from {})", frame.brief_label(), group.line.brief_label()),
                        None => group.line.brief_label(),
                    },
                    "calls" => counted(group.passes, "call"),
                    "size" => size(group.bytes),
                    // Whether there is a graph is not known; a copy with one keeps it on the GPU.
                    "detach" if group.in_forward && !group.is_grad_off => ".detach()".to_owned(),
                    "detach" => String::new(),
                    _ => return None,
                });
            }
        };
        let (name, written) = (variable(keeper), keeper.written.as_ref());
        let text = match slot {
            "name" => name.filter(|name| !name.is_empty())?,
            "queue" => name?.strip_suffix(".queue")?,
            "root" => name?.split('[').next()?,
            // The variable before the exception's own: `failures` of `failures[*].__traceback__.step.x`.
            "exception" => name?.split("[*].__traceback__").next()?,
            "value" => value(keeper)?,
            // Other items than tensors may not have their methods.
            "tensor" => value(keeper).filter(|_| below(keeper) == Some(ITEM))?,
            "result" => value(keeper).filter(|_| below(keeper).is_none_or(|path| path.len() <= ITEM.len()))?,
            "expression" => written?.value.as_deref()?,
            // `cache` of `finished[*].cache[*]`.
            "attribute" => below(keeper)?.strip_prefix("[*].")?.split(['.', '[']).next()?,
            "subject" => self.subject.as_deref()?,
            "dtype" => keeper.dtype.as_deref()?,
            "narrow" if keeper.dtype.as_deref() == Some("float64") => "float32",
            "narrow" => "bool",
            // A copy with a graph keeps what autograd saved on the GPU.
            "detach" if keeper.graph_bytes > 0 || keeper.kind == Some(TensorKind::Saved) => ".detach()",
            "back" if written.is_some_and(|written| written.is_read) => "; move them back where they are read",
            "detach" | "back" => "",
            "at" => return Some(at_line(written.map(|written| &written.at))),
            "call" => return Some(at_line(self.call.as_ref())),
            "items" => {
                let items = keeper.container.as_ref()?.items.map(|items| counted(items, "item"));
                return Some(format!("it holds {}", items.unwrap_or_else(|| size(keeper.bytes))));
            }
            _ => return None,
        };
        Some(text.to_owned())
    }

    /// The holder of too much memory, and its share of all that is allocated.
    pub(super) fn describe_holder(&self) -> String {
        let keeper = match &self.holder {
            CureHolder::Variable(keeper) => keeper,
            CureHolder::Calls(group) => {
                let calls = if group.passes > 1 { counted(group.passes, "call") } else { "a call".to_owned() };
                let (line, share) = (group.line.brief_label(), percent(group.share_ratio));
                return format!("{calls} of {line} left {share} of the allocated memory");
            }
        };
        let holder = match (self.row.kind, &self.subject) {
            (CureKind::KeepNoException | CureKind::LeaveHandler, _) => "an exception".to_owned(),
            (CureKind::BreakCycle | CureKind::GradWithGraph, _) => "a reference cycle".to_owned(),
            (kind, Some(module)) if kind != CureKind::DeleteUnread => format!("`{module}`"),
            _ => format!("`{}`", variable(keeper).unwrap_or_default()),
        };
        format!("{holder} keeps {} of the allocated memory", percent(keeper.share_ratio))
    }

    /// The line to change.
    pub(super) fn changed_line(&self) -> Option<&FrameReport> {
        match &self.holder {
            CureHolder::Variable(keeper) => keeper.written.as_ref().map(|written| &written.at),
            CureHolder::Calls(group) => Some(&group.line),
        }
    }
}

/// The container, or the variable.
fn variable(keeper: &KeptByVariable) -> Option<&str> {
    keeper.container.as_ref().map(|container| container.name.as_str()).or(keeper.name.as_deref())
}

/// The written value, if that is a plain variable or attribute.
fn value(keeper: &KeptByVariable) -> Option<&str> {
    let value = keeper.written.as_ref()?.value.as_deref()?;
    value.split('.').all(is_identifier).then_some(value)
}

fn is_identifier(part: &str) -> bool {
    let mut characters = part.chars();
    characters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
        && characters.all(|other| other.is_alphanumeric() || other == '_')
}

/// Where the memory is below the container: `[*].cache[*]` of `finished[*].cache[*]`.
fn below(keeper: &KeptByVariable) -> Option<&str> {
    keeper.name.as_deref()?.strip_prefix(keeper.container.as_ref()?.name.as_str())
}

/// ` at train.py:12`; empty if it is not known.
fn at_line(line: Option<&FrameReport>) -> String {
    line.map_or_else(String::new, |line| format!(" at {}", line.brief_label()))
}
