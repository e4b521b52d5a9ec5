//! A glossary of the numbers in a message.

use serde::Serialize;

use super::reckoning::Reckoning;
use crate::message::{PrintedAmount, Wording};
use crate::units::MIB;
use crate::verdict::{About, rough};

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

/// The numbers of `r`, each with its meaning.
pub(super) fn figures(r: &Reckoning) -> Vec<PrintedFigure> {
    let mut figures = Vec::new();
    let mut said = |name, label, amount: &Option<PrintedAmount>, meaning: &str| {
        figures.extend(amount.as_ref().map(|amount| PrintedFigure {
            name,
            label,
            bytes: amount.bytes,
            error_bytes: amount.error_bytes,
            printed: amount.text.clone(),
            meaning: meaning.to_owned(),
        }));
    };
    let is_native = !matches!(r.said.wording, Wording::Mps | Wording::Async);
    said("requested", "requested", &r.said.requested, requested(r));
    said(
        "capacity",
        "capacity",
        &r.said.capacity,
        "memory of the whole device; pass it to oomscope as --capacity",
    );
    said(
        "free",
        "free",
        &r.said.free,
        if is_native {
            "free on the device for any process, after PyTorch gave back what it could of its \
             cache"
        } else {
            "free on the device for any process"
        },
    );
    said(
        "allowed",
        "allowed",
        &r.said.allowed,
        if r.said.wording == Wording::Mps {
            "PyTorch's own limit (PYTORCH_MPS_HIGH_WATERMARK_RATIO)"
        } else {
            "limit on what this process may reserve (memory fraction)"
        },
    );
    let allocated = match &r.said.private_pools {
        Some(_) => "blocks that tensors hold; the message adds what private pools have free",
        None if r.said.wording == Wording::Async => "memory that tensors hold",
        None => "blocks that tensors hold, their sizes rounded up",
    };
    said("allocated", "allocated", &r.said.allocated, allocated);
    said(
        "private_pools",
        "in private pools",
        &r.said.private_pools,
        "free in private pools (CUDA graphs, torch.cuda.MemPool), although the message calls it \
         allocated; only requests of those pools can use it, and graphs need it for replay",
    );
    said(
        "unallocated",
        "unallocated",
        &r.said.unallocated,
        "in PyTorch's cache but in no tensor: free parts of segments with live blocks, of any \
         stream, and freed blocks that another stream still uses",
    );
    said(
        "reserved",
        "reserved",
        &r.said.reserved,
        "device memory held by PyTorch's allocator: allocated, and free in its cache",
    );
    said(
        "this_process",
        "this process",
        &r.said.this_process,
        "in use by this process: reserved memory, the CUDA context and libraries",
    );
    said(
        "other",
        "other",
        &r.said.other,
        "memory of the GPU that the process uses outside PyTorch",
    );
    for process in &r.said.processes {
        let meaning = if Some(process.pid) == r.this_pid {
            format!(
                "in use by process {}: probably this one, seen from outside its container, as it \
                 uses all that is reserved",
                process.pid
            )
        } else if r.this_pid.is_some() || r.said.this_process.is_some() {
            format!("in use by process {}, another one", process.pid)
        } else {
            format!(
                "in use by process {}: another one, or this one seen from outside its container",
                process.pid
            )
        };
        said("process", "a process", &Some(process.in_use.clone()), &meaning);
    }
    let mut follows = |name, label, about: Option<About>, meaning: &str| {
        figures.extend(about.map(|about| PrintedFigure {
            name,
            label,
            bytes: about.bytes,
            error_bytes: about.error,
            printed: rough(about),
            meaning: meaning.to_owned(),
        }));
    };
    if is_native {
        if r.said.reserved.is_none() {
            follows(
                "reserved",
                "reserved",
                r.reserved,
                "device memory held by PyTorch's allocator: allocated + unallocated",
            );
        } else {
            follows(
                "unallocated",
                "unallocated",
                r.unallocated,
                "reserved - allocated: in PyTorch's cache, in no tensor",
            );
        }
        follows(
            "outside",
            "outside",
            r.outside,
            "capacity - free - reserved: in use by other processes, the CUDA context (usually 0.3 to 1 GiB) and \
             libraries such as NCCL",
        );
    }
    figures
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
