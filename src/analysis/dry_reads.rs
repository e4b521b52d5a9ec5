//! The values that a dry run read back from the GPU and that the host could not compute.

use serde::Serialize;

use crate::snapshot::{ReadUsage, ReadValue, ValueRead};
use crate::stacks::frames::{CodeLocation, FrameReport};
use crate::study::Study;

/// Reads of GPU values by one source line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReadReport {
    /// The line; null for threads without Python.
    #[serde(flatten)]
    pub location: CodeLocation,
    /// The operator that read, such as `item` or `nonzero`; empty if unknown.
    pub operator: String,
    /// Number of reads.
    pub count: u64,
    /// Size of the first read in bytes.
    pub bytes: u64,
    /// Whether the first read came before the peak of memory.
    pub is_before_peak: bool,
    /// Whether the values determine the size of the operator's result, which is empty for zeros.
    pub decides_a_size: bool,
    /// The origin of the value that the program got.
    pub value: ReadValue,
    /// The use that the program makes of the value, by its source.
    pub usage: ReadUsage,
    /// The line that decides by the value, or where the value could not be followed; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<FrameReport>,
}

/// Operators whose result size depends on values.
const VALUE_SIZED_OPERATORS: [&str; 15] = [
    "bincount",
    "one_hot",
    "nonzero",
    "nonzero_numpy",
    "masked_select",
    "unique_dim",
    "_unique",
    "_unique2",
    "unique_consecutive",
    "unique_dim_consecutive",
    "repeat_interleave",
    "repeat_interleave_Tensor",
    "repeat_interleave_self_Tensor",
    "_coalesce",
    "index_select", // of a sparse tensor
];

pub(super) fn read_report(study: &Study<'_>, read: &ValueRead, peak_us: Option<u64>) -> ReadReport {
    let stacks = study.stacks();
    let location = read.stack.map(|stack| stacks.location_of(stack));
    let mut operators = read.operators.split(' ');
    let sized_by = operators.clone().find(|name| VALUE_SIZED_OPERATORS.contains(name));
    let operator = match sized_by.or(operators.next()).unwrap_or_default() {
        "_local_scalar_dense" => "item",
        name => name.trim_start_matches('_'),
    };
    ReadReport {
        location: location.unwrap_or_default(), // a thread without Python
        operator: operator.to_owned(),
        count: read.count,
        bytes: read.bytes,
        is_before_peak: peak_us.is_none_or(|peak| read.first_us <= peak),
        decides_a_size: sized_by.is_some(),
        value: read.value,
        usage: read.usage,
        decided_at: read.decided_at.and_then(|stack| stacks.location_of(stack).frame),
    }
}

impl ReadReport {
    /// Whether the value is the size of the operator's result, and nothing stood in its place.
    pub(super) fn has_unknown_size(&self) -> bool {
        self.decides_a_size && self.usage != ReadUsage::Set && self.value == ReadValue::Zero
    }

    /// Whether the program only compares the value, which is not known: with another one it takes other branches.
    pub(crate) fn is_branch(&self) -> bool {
        self.value == ReadValue::Zero && self.usage == ReadUsage::Branch && !self.decides_a_size
    }

    /// Whether the program may request other memory with another value.
    pub(crate) fn is_deciding(&self) -> bool {
        match (self.value, self.usage) {
            // A run whose numbers are not finite does less.
            (ReadValue::Finite, _) | (_, ReadUsage::Set) => false,
            // Smaller results need less.
            (ReadValue::Maximum, usage) => usage == ReadUsage::Branch,
            (_, ReadUsage::Branch | ReadUsage::Size) => true,
            // A thread without Python runs the backward pass: it passes the value on to kernels.
            (_, ReadUsage::Unknown) => self.decides_a_size || self.location.frame.is_some(),
            (_, ReadUsage::Report) => self.decides_a_size,
        }
    }
}
