//! A glossary of the numbers in a message.

use std::collections::BTreeMap;

use itertools::Itertools as _;
use serde::Serialize;

use super::numbers::MessageNumbers;
use crate::allocator::verdict::{ApproxBytes, format_approx};
use crate::base::units::{MIB, size};
use crate::explain::message::Wording;
use crate::explain::table::{Form, PrintedAmount};

/// A number that a message prints, or one computed from its numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PrintedFigure {
    /// Name of the figure: `requested`, `capacity`, `free`, `allowed`, `allocated`, `private_pools`, `unallocated`,
    /// `reserved`, `this_process`, `process`, `outside`.
    pub name: &'static str,
    /// The name in plain words.
    pub label: &'static str,
    /// The value in bytes.
    pub bytes: u64,
    /// Largest possible rounding error of `bytes`.
    pub error_bytes: u64,
    /// The number as printed; a computed one may begin with `about` or `at most`.
    pub printed: String,
    /// An explanation of the number.
    pub meaning: String,
}

impl PrintedFigure {
    fn new(name: &'static str, about: ApproxBytes, printed: String, meaning: impl Into<String>) -> Self {
        let label = match name {
            "private_pools" => "in private pools",
            "this_process" => "this process",
            "process" => "a process",
            name => name,
        };
        Self { name, label, bytes: about.bytes, error_bytes: about.error, printed, meaning: meaning.into() }
    }

    /// For a number that the message prints.
    fn from_printed(name: &'static str, amount: &PrintedAmount, meaning: impl Into<String>) -> Self {
        Self::new(name, amount.into(), amount.text.clone(), meaning)
    }

    /// For a number computed from others.
    fn from_approx(name: &'static str, about: ApproxBytes, meaning: &str) -> Self {
        Self::new(name, about, format_approx(about), meaning)
    }
}

/// The figures of `form` that were `found` in a message, in its order.
pub(super) fn form_figures(
    form: &'static Form,
    mut found: BTreeMap<&str, (usize, PrintedAmount)>,
) -> Vec<PrintedFigure> {
    let figures = form.figures().filter_map(|(name, _, meaning)| {
        let (at, amount) = found.remove(name)?;
        let mut figure = PrintedFigure::from_printed(name, &amount, meaning);
        let has_small_unit = amount.text.ends_with(" bytes") || amount.text.ends_with(" kB");
        if has_small_unit && amount.bytes >= MIB {
            figure.printed = format!("{} ({})", amount.text, size(amount.bytes));
        }
        Some((at, figure))
    });
    figures.sorted_by_key(|(at, _)| *at).map(|(_, figure)| figure).collect()
}

/// The numbers of a message of PyTorch's allocator: printed, of each process, and computed.
pub(super) fn allocator_figures(numbers: &MessageNumbers, form: &'static Form) -> Vec<PrintedFigure> {
    let is_native = !matches!(numbers.printed.wording, Wording::Mps | Wording::Async);
    let mut figures = form_figures(form, numbers.printed.figures.clone());
    for figure in figures.iter_mut().filter(|figure| is_native && figure.name == "requested") {
        if let Some(meaning) = small_request_meaning(figure.bytes) {
            meaning.clone_into(&mut figure.meaning);
        }
    }
    figures.extend(
        numbers.printed.processes.iter().map(|process| {
            PrintedFigure::from_printed("process", &process.in_use, process_meaning(process.pid, numbers))
        }),
    );
    if is_native {
        figures.extend(derived_figures(numbers));
    }
    let translate =
        |figure: PrintedFigure| PrintedFigure { meaning: numbers.vendor.translate(figure.meaning), ..figure };
    figures.into_iter().map(translate).collect()
}

fn process_meaning(pid: u64, numbers: &MessageNumbers) -> String {
    let which = if Some(pid) == numbers.this_pid {
        ": probably this one, seen from outside its container, as it uses all that is reserved"
    } else if numbers.this_pid.is_some() || numbers.printed.figure("this_process").is_some() {
        ", another one"
    } else {
        ": another one, or this one seen from outside its container"
    };
    format!("in use by process {pid}{which}")
}

/// Numbers computed from those of the caching allocator.
fn derived_figures(numbers: &MessageNumbers) -> impl Iterator<Item = PrintedFigure> {
    let cached = if numbers.printed.figure("reserved").is_none() {
        let meaning = "device memory held by PyTorch's allocator: allocated + unallocated";
        ("reserved", numbers.reserved, meaning)
    } else {
        let meaning = "reserved - allocated: in PyTorch's cache, in no tensor";
        ("unallocated", numbers.unallocated, meaning)
    };
    let outside = "capacity - free - reserved: in use by other processes, the CUDA context (usually 0.3 to \
                   1 GiB) and libraries such as NCCL";
    [cached, ("outside", numbers.outside, outside)]
        .into_iter()
        .filter_map(|(name, about, meaning)| Some(PrintedFigure::from_approx(name, about?, meaning)))
}

/// The allocator rounds small requests to segments of one size, so the printed size shows the range of the request.
fn small_request_meaning(requested: u64) -> Option<&'static str> {
    Some(match requested / MIB {
        2 => "requested from the device: a segment of 2 MiB, for a request of at most 1 MiB",
        20 => "requested from the device: a segment of 20 MiB, for a request of more than 1 MiB and less than 10 MiB",
        _ => return None,
    })
    .filter(|_| requested.is_multiple_of(MIB))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::table::FORMS;

    #[test]
    fn large_numbers_in_small_units_are_spelled_out() {
        let printed = |text: &str| {
            let form = FORMS.iter().find(|form| form.find(text).is_some()).unwrap();
            let figures = form_figures(form, form.find_figures(text));
            figures.into_iter().map(|figure| figure.printed).collect::<Vec<_>>()
        };
        let cupy = "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 1,024 bytes).";
        assert_eq!(printed(cupy), ["8589934592 bytes (8 GiB)", "1024 bytes"]);
        let vllm = "Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.85 GiB). Decrease GPU memory utilization";
        assert_eq!(printed(vllm), ["19.77 GiB", "22.05 GiB", "19.85 GiB"]);
    }
}
