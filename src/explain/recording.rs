//! How to record a snapshot at the failure, release by release.

use serde::Serialize;

use crate::message::{Log, Saying, Wording};

/// What to put into the program, and what to do then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recording {
    /// The releases that this is for.
    pub torch_version: &'static str,
    /// Python, a line each.
    pub python: Vec<&'static str>,
    /// Shell, a line each.
    pub shell: Vec<&'static str>,
    /// What else there is to know.
    pub notes: Vec<&'static str>,
}

/// Since 2.1. Runs as it stands: at the start of each rank, before the model is made.
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

/// Of 2.0; later releases take it too.
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

/// What suits the messages of `log`; nothing where none of them is CUDA's or HIP's.
pub(super) fn recording(log: &Log) -> Option<Recording> {
    let (mut is_old, mut is_new) = (false, false);
    let mut is_recordable = log.messages.is_empty();
    for message in &log.messages {
        match &message.saying {
            Saying::Allocation(allocation) => {
                let old = matches!(allocation.wording, Wording::Cached | Wording::Reserved);
                is_old |= old;
                is_new |= !old;
                is_recordable |= matches!(allocation.backend.as_str(), "CUDA" | "HIP")
                    && allocation.wording != Wording::Async;
            }
            Saying::Elsewhere(whose) => is_recordable |= whose.is_recordable,
        }
    }
    if !is_recordable {
        return None;
    }
    let shell = vec!["oomscope analyze oom_rank*.pickle", "oomscope whatif oom_rank0.pickle"];
    Some(if is_old && !is_new {
        Recording {
            torch_version: "2.0",
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
