//! A glossary of the numbers in a message.

use serde::Serialize;

use super::reckoning::Reckoning;
use crate::allocator::verdict::{ApproxBytes, format_approx};
use crate::base::units::MIB;
use crate::explain::message::{PrintedAmount, Wording};

/// A number of a message, or one that follows from them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PrintedFigure {
    /// `requested`, `capacity`, `free`, `allowed`, `allocated`, `private_pools`, `unallocated`, `reserved`,
    /// `this_process`, `process`, `outside`.
    pub name: &'static str,
    /// For people.
    pub label: &'static str,
    /// In bytes.
    pub bytes: u64,
    /// The true number is at most so many bytes away: messages round.
    pub error_bytes: u64,
    /// As printed; what follows from several numbers may begin with `about` or `at most`.
    pub printed: String,
    /// What it is.
    pub meaning: String,
}

impl PrintedFigure {
    /// A number of the message.
    pub(super) fn said(name: &'static str, amount: &PrintedAmount, meaning: &str) -> Self {
        Self {
            name,
            label: label(name),
            bytes: amount.bytes,
            error_bytes: amount.error_bytes,
            printed: amount.text.clone(),
            meaning: meaning.to_owned(),
        }
    }

    /// A number that follows from others.
    fn derived(name: &'static str, about: ApproxBytes, meaning: &str) -> Self {
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

/// The numbers of `r`, each with its meaning.
pub(super) fn figures(r: &Reckoning) -> Vec<PrintedFigure> {
    let is_native = !matches!(r.said.wording, Wording::Mps | Wording::Async);
    let mut figures = printed(r, is_native);
    figures.extend(
        r.said
            .processes
            .iter()
            .map(|process| PrintedFigure::said("process", &process.in_use, &whose(process.pid, r))),
    );
    if is_native {
        figures.extend(derived(r));
    }
    let own = |figure: PrintedFigure| PrintedFigure {
        meaning: r.vendor.own_words(figure.meaning),
        ..figure
    };
    figures.into_iter().map(own).collect()
}

/// Those that stand in the message, in reading order.
fn printed(r: &Reckoning, is_native: bool) -> Vec<PrintedFigure> {
    let free = if is_native {
        "free on the device for any process, after PyTorch gave back what it could of its cache"
    } else {
        "free on the device for any process"
    };
    let allowed = if r.said.wording == Wording::Mps {
        "PyTorch's own limit (PYTORCH_MPS_HIGH_WATERMARK_RATIO)"
    } else {
        "limit on what this process may reserve (memory fraction)"
    };
    let allocated = match &r.said.private_pools {
        Some(_) => "blocks that tensors hold; the message adds what private pools have free",
        None if r.said.wording == Wording::Async => "memory that tensors hold",
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
        ("requested", &r.said.requested, requested(r)),
        ("capacity", &r.said.capacity, capacity),
        ("free", &r.said.free, free),
        ("allowed", &r.said.allowed, allowed),
        ("allocated", &r.said.allocated, allocated),
        ("private_pools", &r.said.private_pools, private_pools),
        ("unallocated", &r.said.unallocated, unallocated),
        ("reserved", &r.said.reserved, reserved),
        ("this_process", &r.said.this_process, this_process),
        ("other", &r.said.other, "memory of the GPU that the process uses outside PyTorch"),
    ]
    .into_iter()
    .filter_map(|(name, amount, meaning)| {
        Some(PrintedFigure::said(name, amount.as_ref()?, meaning))
    })
    .collect()
}

/// Which process `pid` is.
fn whose(pid: u64, r: &Reckoning) -> String {
    let which = if Some(pid) == r.this_pid {
        ": probably this one, seen from outside its container, as it uses all that is reserved"
    } else if r.this_pid.is_some() || r.said.this_process.is_some() {
        ", another one"
    } else {
        ": another one, or this one seen from outside its container"
    };
    format!("in use by process {pid}{which}")
}

/// Those that follow from what the caching allocator says.
fn derived(r: &Reckoning) -> impl Iterator<Item = PrintedFigure> {
    let cached = if r.said.reserved.is_none() {
        let meaning = "device memory held by PyTorch's allocator: allocated + unallocated";
        ("reserved", r.reserved, meaning)
    } else {
        let meaning = "reserved - allocated: in PyTorch's cache, in no tensor";
        ("unallocated", r.unallocated, meaning)
    };
    let outside = "capacity - free - reserved: in use by other processes, the CUDA context (usually 0.3 to \
                   1 GiB) and libraries such as NCCL";
    [cached, ("outside", r.outside, outside)]
        .into_iter()
        .filter_map(|(name, about, meaning)| Some(PrintedFigure::derived(name, about?, meaning)))
}

/// What was asked of the device depends on the size alone.
fn requested(r: &Reckoning) -> &'static str {
    if matches!(r.said.wording, Wording::Mps | Wording::Async) {
        return "size of the block that could not be allocated";
    }
    match r.request.unwrap_or_default().bytes {
        bytes if bytes == 2 * MIB => {
            "requested from the device: a segment of 2 MiB, for a request of at most 1 MiB"
        }
        bytes if bytes == 20 * MIB => {
            "requested from the device: a segment of 20 MiB, for a request of more than 1 MiB and \
             less than 10 MiB"
        }
        _ => "requested from the device for one tensor: its size, rounded up to 2 MiB",
    }
}
