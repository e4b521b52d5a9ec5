//! The report of `oomscope explain`, as JSON has it, with a glossary of the numbers in a message.

use std::collections::BTreeMap;

use itertools::Itertools as _;
use serde::Serialize;

use super::numbers::MessageNumbers;
use crate::allocator::verdict::{ApproxBytes, Certainty, Verdict, format_approx};
use crate::base::intern::SeededMap;
use crate::base::units::{MIB, size};
use crate::explain::message::Wording;
use crate::explain::table::{Form, PrintedAmount};
use crate::stacks::frames::FrameReport;

/// Everything that a log holds about memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(remote = "Self")]
pub struct ExplainReport {
    /// Path of the log as given; `-` for standard input.
    pub path: String,
    /// Number of lines in the log.
    pub lines: u64,
    /// Number of messages found, including repeats.
    pub message_count: u64,
    /// The distinct messages in the order of the log, at most the first 1000.
    pub failures: Vec<ExplainedFailure>,
    /// A command that records a snapshot at the failure, or starts a serving engine without a GPU; null if neither
    /// supports the device or release.
    pub next_command: Option<&'static str>,
}

/// One message and its explanation. Values that the message does not have are null.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainedFailure {
    /// Path of the log with the message, within the directory of a job's logs.
    pub file: Option<String>,
    /// Line of the log with the first occurrence, from 1.
    pub line: u64,
    /// Number of occurrences in the log.
    pub times: u64,
    /// Rank of the process that printed the message.
    pub rank: Option<u32>,
    /// Other label of that process, such as a worker or host name.
    pub source: Option<String>,
    /// Line of the log with the same failure of another rank: same request, source line and verdict.
    pub same_as: Option<u64>,
    /// The `file` of that line.
    #[serde(skip)]
    pub same_file: Option<String>,
    /// Kind of memory that ran out: `allocator` (PyTorch's allocator of device memory), `cuda-runtime`, `hip-runtime`,
    /// `xpu-runtime`, `npu-runtime`, `cuda-driver`, `nccl`, `library`, `serving` (a server's share of the device),
    /// `framework` (another framework's allocator), `kernel-shared-memory`, `address-space`, `host` or `unknown`. The
    /// verdict is `unknown` for all but the first.
    pub kind: &'static str,
    /// The system that printed the message, if it is not PyTorch's allocator.
    pub system: Option<&'static str>,
    /// A heading that says what happened, for a message of such a system.
    pub title: Option<&'static str>,
    /// Device backend that the message names: `CUDA`, `HIP`, `XPU`, `MPS` or another.
    pub backend: Option<String>,
    /// Device index.
    pub device: Option<u64>,
    /// PyTorch releases that print this wording, such as `2.4-2.9` or `2.11+`.
    pub torch_version: Option<String>,
    /// The message on one line.
    pub message: String,
    /// Verdict, as in `analyze`: `memory-limit`, `private-pool`, `fragmentation`, `non-pytorch`, `capacity` or
    /// `unknown`.
    pub verdict: Verdict,
    /// The reason for the verdict, in one or two sentences with the numbers.
    pub verdict_reason: String,
    /// `certain` or `possible`.
    pub confidence: Certainty,
    /// True if rounding of the printed numbers could change the verdict.
    pub within_rounding: bool,
    /// Evidence that would make the verdict certain.
    pub settled_by: Option<String>,
    /// True if a setting of PyTorch's allocator can make room, false if all free memory, on the device and in the
    /// cache, is less than the request. Segments of 2 or 20 MiB show only the maximum of the request. Null if
    /// unknown.
    pub settings_can_help: Option<bool>,
    /// Advice, the most useful first.
    pub advice: Vec<String>,
    /// Text to copy for the first advice: a setting, a command or a source line.
    pub copy: Option<String>,
    /// The printed numbers and their meanings, in the order of the message.
    pub figures: Vec<PrintedFigure>,
    /// Bytes requested from the device.
    pub requested_bytes: Option<u64>,
    /// Total memory of the device, in bytes; the value for `--capacity`.
    pub capacity_bytes: Option<u64>,
    /// Bytes free on the device.
    pub device_free_bytes: Option<u64>,
    /// Bytes reserved by PyTorch's allocator.
    pub reserved_bytes: Option<u64>,
    /// Bytes allocated to tensors, without free memory of private pools.
    pub allocated_bytes: Option<u64>,
    /// Bytes of the device in use outside PyTorch's allocator.
    pub outside_bytes: Option<u64>,
    /// True if PyTorch has more reserved than the device has: Windows adds host memory ("shared GPU memory"), which is
    /// slow.
    pub exceeds_device: bool,
    /// Bytes requested minus bytes free on the device.
    pub shortfall_bytes: Option<u64>,
    /// Innermost frame of the traceback that is not PyTorch's.
    pub culprit: Option<FrameReport>,
    /// Source code of that line, as the traceback prints it.
    pub culprit_code: Option<String>,
    /// Innermost frame of the user's own code, if `culprit` belongs to a library.
    pub called_from: Option<FrameReport>,
    /// Source code of that line, as the traceback prints it.
    pub called_from_code: Option<String>,
    /// The traceback before the message, innermost frame first.
    pub frames: Vec<FrameReport>,
}

impl ExplainedFailure {
    /// A heading: what ran out of memory, on `devices` if they are known.
    pub fn describe(&self, devices: Option<&str>) -> String {
        if let Some(title) = self.title {
            return title.to_owned();
        }
        let backend = self.backend.as_deref().filter(|backend| *backend != "CUDA");
        match (devices, backend) {
            (Some(devices), backend) => {
                let noun = backend.map_or_else(|| "GPU".to_owned(), |name| format!("{name} device"));
                let plural = if devices.contains(['-', ',']) { "s" } else { "" };
                format!("out of memory on {noun}{plural} {devices}")
            }
            (None, Some(backend)) => format!("out of memory on a device of {backend}"),
            (None, None) => "out of memory".to_owned(),
        }
    }

    /// The process that printed the message, as far as the log names it.
    fn reporter(&self) -> (Option<u32>, Option<&str>, Option<&str>) {
        (self.rank, self.source.as_deref(), self.file.as_deref())
    }
}

/// Sets [`ExplainedFailure::same_as`] where an earlier failure of another rank is the same.
pub(super) fn link_same_failures(mut failures: Vec<ExplainedFailure>) -> Vec<ExplainedFailure> {
    let mut known: SeededMap<String, Vec<usize>> = SeededMap::default();
    for index in 0..failures.len() {
        let failure = &failures[index];
        if failure.reporter() == (None, None, None) {
            continue;
        }
        let location = failure.culprit.as_ref().map(|frame| (&frame.file, frame.line));
        let system = (failure.kind, failure.system, &failure.backend);
        let request = (failure.verdict, failure.requested_bytes);
        let reporters = known.entry(format!("{system:?} {request:?} {location:?}")).or_default();
        // A rank that fails twice has two failures.
        if reporters.iter().all(|other| failures[*other].reporter() != failure.reporter()) {
            reporters.push(index);
            if let Some(first) = failures.get(reporters[0]).filter(|_| reporters[0] != index) {
                let (line, file) = (first.line, first.file.clone());
                (failures[index].same_as, failures[index].same_file) = (Some(line), file);
            }
        }
    }
    failures
}

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
    for process in &numbers.printed.processes {
        figures.push(PrintedFigure::from_printed("process", &process.in_use, process_meaning(process.pid, numbers)));
    }
    if is_native {
        figures.extend(derived_figures(numbers));
    }
    figures.into_iter().map(|one| PrintedFigure { meaning: numbers.vendor.translate(one.meaning), ..one }).collect()
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
        ("reserved", numbers.reserved, "device memory held by PyTorch's allocator: allocated + unallocated")
    } else {
        ("unallocated", numbers.unallocated, "reserved - allocated: in PyTorch's cache, in no tensor")
    };
    let outside = "capacity - free - reserved: in use by other processes, the CUDA context (usually 0.3 to \
                   1 GiB) and libraries such as NCCL";
    [cached, ("outside", numbers.outside, outside)].into_iter().filter_map(|(name, about, meaning)| {
        let about = about?;
        Some(PrintedFigure::new(name, about, format_approx(about), meaning))
    })
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
        let cupy = "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 1,024 bytes).";
        let vllm = "Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.85 GiB). Decrease GPU memory utilization";
        for (text, printed) in
            [(cupy, &["8589934592 bytes (8 GiB)", "1024 bytes"][..]), (vllm, &["19.77 GiB", "22.05 GiB", "19.85 GiB"])]
        {
            let form = FORMS.iter().find(|form| form.find(text).is_some()).unwrap();
            let figures = form_figures(form, form.find_figures(text));
            assert_eq!(figures.iter().map(|figure| &*figure.printed).collect::<Vec<_>>(), printed);
        }
    }
}
