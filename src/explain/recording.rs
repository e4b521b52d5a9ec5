//! Instructions to record a snapshot at the failure, for each release and device vendor.

use serde::Serialize;

use crate::base::warning::RECORD_COMMAND;
use crate::explain::message::{Log, MessageKind, Wording};

/// Code to add to the program, and commands to run afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recording {
    /// PyTorch releases that the instructions are for.
    pub torch_version: &'static str,
    /// A command that records the job without a change of the program, or starts a serving engine without a GPU; absent if
    /// `oomscope run` does not support the device or release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<&'static str>,
    /// Lines of Python for the program.
    pub python: Vec<&'static str>,
    /// Shell commands, one per line.
    pub shell: Vec<&'static str>,
    /// Remarks, one paragraph each.
    pub notes: Vec<&'static str>,
}

/// For PyTorch 2.1 and later: to run at the start of each rank, before the model is built.
const SINCE_2_1: [&str; 9] = [
    "import os, torch",
    "",
    "torch.cuda.memory._record_memory_history(max_entries=1_000_000)",
    "",
    "def dump(device, alloc, device_alloc, device_free):",
    "    rank = os.environ.get(\"RANK\", \"0\")",
    "    torch.cuda.memory._dump_snapshot(f\"oom_rank{rank}.pickle\")",
    "",
    "torch._C._cuda_attach_out_of_memory_observer(dump)",
];

/// For PyTorch 2.0; later releases accept it too.
const BEFORE_2_1: [&str; 13] = [
    "import os, pickle, torch",
    "",
    "torch.cuda.memory._record_memory_history(",
    "    True, trace_alloc_max_entries=100_000, trace_alloc_record_context=True",
    ")",
    "",
    "try:",
    "    train()  # your program",
    "except RuntimeError:",
    "    rank = os.environ.get(\"RANK\", \"0\")",
    "    with open(f\"oom_rank{rank}.pickle\", \"wb\") as file:",
    "        pickle.dump(torch.cuda.memory._snapshot(), file)",
    "    raise",
];

/// `torch.xpu.memory` records as `torch.cuda.memory` does, but has no observer for failures.
const XPU: [&str; 10] = [
    "import os, torch",
    "",
    "torch.xpu.memory._record_memory_history(max_entries=1_000_000)",
    "",
    "try:",
    "    train()  # your program",
    "except torch.OutOfMemoryError:",
    "    rank = os.environ.get(\"RANK\", \"0\")",
    "    torch.xpu.memory._dump_snapshot(f\"oom_rank{rank}.pickle\")",
    "    raise",
];

/// `torch_npu` records and writes snapshots by itself.
const NPU: [&str; 3] = [
    "export OOM_SNAPSHOT_ENABLE=1 OOM_SNAPSHOT_PATH=$PWD/oom",
    "mkdir -p oom && python train.py  # your program",
    "oomscope analyze oom/",
];

/// Instructions for another vendor's PyTorch, if it can record.
fn vendor_recording(backend: &str) -> Option<Recording> {
    match backend {
        "XPU" => Some(Recording {
            torch_version: "2.11+",
            command: None,
            python: XPU.to_vec(),
            shell: vec!["oomscope analyze oom_rank*.pickle"],
            notes: vec![
                "The memory of the failed call is still held when the file is written, that of functions which the \
                 exception left is not: the entries of the trace show it.",
                "Entries use host memory, not device memory. To use less, lower max_entries: the \
                 last entries are kept.",
            ],
        }),
        "NPU" => Some(Recording {
            torch_version: "2.1+",
            command: None,
            python: Vec::new(),
            shell: NPU.to_vec(),
            notes: vec![
                "Needs torch_npu 6.0.0 or later. It writes a snapshot of each process when a request fails; the \
                 program needs no change. At any other moment: torch_npu.npu.memory._record_memory_history(), \
                 then torch_npu.npu.memory._dump_snapshot(\"snapshot.pickle\").",
            ],
        }),
        _ => None,
    }
}

/// Instructions for the messages of `log`; `None` if no message is from a device whose memory can be recorded.
pub(super) fn recording(log: &Log) -> Option<Recording> {
    let (mut is_old, mut is_new) = (false, false);
    let mut is_recordable = log.messages.is_empty();
    let mut of_vendor = None;
    for message in &log.messages {
        match &message.kind {
            MessageKind::Allocation(allocation) => {
                let old = matches!(allocation.wording, Wording::Cached | Wording::Reserved);
                is_old |= old;
                is_new |= !old;
                is_recordable |=
                    matches!(allocation.backend.as_str(), "CUDA" | "HIP") && allocation.wording != Wording::Async;
                of_vendor = of_vendor.or_else(|| vendor_recording(&allocation.backend));
            }
            MessageKind::OtherSystem(system) => is_recordable |= system.is_recordable,
        }
    }
    if !is_recordable {
        return of_vendor;
    }
    let shell = vec!["oomscope analyze oom_rank*.pickle", "oomscope whatif oom_rank0.pickle"];
    Some(if is_old && !is_new {
        Recording {
            torch_version: "2.0",
            command: None,
            python: BEFORE_2_1.to_vec(),
            shell,
            notes: vec![
                "1.13 takes _record_memory_history(True) alone; before that, omit the call and \
                 dump torch.cuda.memory_snapshot(), which shows what is held but not by whom.",
            ],
        }
    } else {
        Recording {
            torch_version: "2.1+",
            command: log.engine.and_then(|(engine, _)| engine.dry_run).or(Some(RECORD_COMMAND)),
            python: SINCE_2_1.to_vec(),
            shell,
            notes: vec![
                "The file is written when the request fails, before the exception is raised; a \
                 later failure overwrites it. The training loop needs no change.",
                "Entries use host memory, not device memory. To use less, lower max_entries: the \
                 last entries are kept.",
            ],
        }
    })
}
