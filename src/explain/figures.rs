//! A glossary of the numbers in a message.

use serde::Serialize;

use super::numbers::MessageNumbers;
use crate::allocator::verdict::{ApproxBytes, format_approx};
use crate::base::units::MIB;
use crate::explain::message::{PrintedAmount, Wording};

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
    /// For a number that the message prints.
    pub(super) fn from_printed(name: &'static str, amount: &PrintedAmount, meaning: &str) -> Self {
        Self {
            name,
            label: label(name),
            bytes: amount.bytes,
            error_bytes: amount.error_bytes,
            printed: amount.text.clone(),
            meaning: meaning.to_owned(),
        }
    }

    /// For a number computed from others.
    fn from_approx(name: &'static str, about: ApproxBytes, meaning: &str) -> Self {
        Self {
            name,
            label: label(name),
            bytes: about.bytes,
            error_bytes: about.error,
            printed: format_approx(about),
            meaning: meaning.to_owned(),
        }
    }
}

fn label(name: &'static str) -> &'static str {
    match name {
        "private_pools" => "in private pools",
        "this_process" => "this process",
        "process" => "a process",
        name => name,
    }
}

/// The numbers of `numbers` with their meanings.
pub(super) fn figures(numbers: &MessageNumbers) -> Vec<PrintedFigure> {
    let is_native = !matches!(numbers.printed.wording, Wording::Mps | Wording::Async);
    let mut figures = printed_figures(numbers, is_native);
    figures.extend(numbers.printed.processes.iter().map(|process| {
        PrintedFigure::from_printed("process", &process.in_use, &process_meaning(process.pid, numbers))
    }));
    if is_native {
        figures.extend(derived_figures(numbers));
    }
    let translate =
        |figure: PrintedFigure| PrintedFigure { meaning: numbers.vendor.translate(figure.meaning), ..figure };
    figures.into_iter().map(translate).collect()
}

/// The numbers that the message prints, in its order.
fn printed_figures(numbers: &MessageNumbers, is_native: bool) -> Vec<PrintedFigure> {
    let free = if is_native {
        "free on the device for any process, after PyTorch released what it could of its cache"
    } else {
        "free on the device for any process"
    };
    let allowed = if numbers.printed.wording == Wording::Mps {
        "PyTorch's own limit (PYTORCH_MPS_HIGH_WATERMARK_RATIO)"
    } else {
        "limit on what this process may reserve (memory fraction)"
    };
    let allocated = match &numbers.printed.private_pools {
        Some(_) => "blocks that tensors hold; the message adds what private pools have free",
        None if numbers.printed.wording == Wording::Async => "memory that tensors hold",
        None => "blocks that tensors hold, their sizes rounded up",
    };
    let capacity = "memory of the whole device; pass it to oomscope as --capacity";
    let private_pools = "free in private pools (CUDA graphs, torch.cuda.MemPool), although the message calls \
                         it allocated; only requests of those pools can use it, and graphs need it for replay";
    let unallocated = "in PyTorch's cache but in no tensor: free parts of segments with live blocks, of any \
                       stream, and freed blocks that another stream still uses";
    let reserved = "device memory held by PyTorch's allocator: allocated, and free in its cache";
    let this_process = "in use by this process: reserved memory, the CUDA context and libraries";
    [
        ("requested", &numbers.printed.requested, requested_meaning(numbers)),
        ("capacity", &numbers.printed.capacity, capacity),
        ("free", &numbers.printed.free, free),
        ("allowed", &numbers.printed.allowed, allowed),
        ("allocated", &numbers.printed.allocated, allocated),
        ("private_pools", &numbers.printed.private_pools, private_pools),
        ("unallocated", &numbers.printed.unallocated, unallocated),
        ("reserved", &numbers.printed.reserved, reserved),
        ("this_process", &numbers.printed.this_process, this_process),
        ("other", &numbers.printed.other, "memory of the GPU that the process uses outside PyTorch"),
    ]
    .into_iter()
    .filter_map(|(name, amount, meaning)| Some(PrintedFigure::from_printed(name, amount.as_ref()?, meaning)))
    .collect()
}

fn process_meaning(pid: u64, numbers: &MessageNumbers) -> String {
    let which = if Some(pid) == numbers.this_pid {
        ": probably this one, seen from outside its container, as it uses all that is reserved"
    } else if numbers.this_pid.is_some() || numbers.printed.this_process.is_some() {
        ", another one"
    } else {
        ": another one, or this one seen from outside its container"
    };
    format!("in use by process {pid}{which}")
}

/// Numbers computed from those of the caching allocator.
fn derived_figures(numbers: &MessageNumbers) -> impl Iterator<Item = PrintedFigure> {
    let cached = if numbers.printed.reserved.is_none() {
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

/// The allocator rounds requests to the device, so the printed size shows the range of the tensor's request.
fn requested_meaning(numbers: &MessageNumbers) -> &'static str {
    if matches!(numbers.printed.wording, Wording::Mps | Wording::Async) {
        return "size of the block that could not be allocated";
    }
    match numbers.request {
        Some(request) if request.bytes == 2 * MIB => {
            "requested from the device: a segment of 2 MiB, for a request of at most 1 MiB"
        }
        Some(request) if request.bytes == 20 * MIB => {
            "requested from the device: a segment of 20 MiB, for a request of more than 1 MiB and \
             less than 10 MiB"
        }
        _ => "requested from the device for one tensor: its size, rounded up to 2 MiB",
    }
}
