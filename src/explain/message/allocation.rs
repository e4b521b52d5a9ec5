//! Parses the out-of-memory messages of PyTorch's allocators, in the wording of every release since 1.0.
//!
//! The source of each wording is c10/cuda/CUDACachingAllocator.cpp (before 1.1:
//! aten/src/THC/THCCachingAllocator.cpp), in CUDAMallocAsyncAllocator.cpp beside it, and in
//! aten/src/ATen/mps/MPSAllocator.mm.

use std::collections::BTreeMap;
use std::fmt;

use itertools::Itertools as _;

use super::traceback::{self, TracebackFrame, leading_number};
use crate::allocator::verdict::ApproxBytes;
use crate::explain::table::{FORMS, Form, PrintedAmount, is_number_char, vendor};

/// The meaning of the numbers depends on the wording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wording {
    /// `(GPU 0; 7.93 GiB total capacity; ..; 10.50 MiB cached)`, 1.0 to 1.3.
    Cached,
    /// `(GPU 0; ..; 7.00 GiB reserved in total by PyTorch)`, 1.4 to 2.0.
    Reserved,
    /// `GPU 0 has a total capacity of ..`, since 2.1.
    Unallocated,
    /// `Allocation on device 0 would exceed allowed memory.`, from the backend cudaMallocAsync.
    Async,
    /// `MPS backend out of memory (MPS allocated: ..`, for Apple's GPUs.
    Mps,
    /// No numbers except, perhaps, the request: a truncated message, or another library's wording.
    Bare,
}

/// The PyTorch releases that print a wording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Releases {
    /// The oldest: major and minor number.
    pub first: (u32, u32),
    /// `None` if the newest known release prints it too.
    pub last: Option<(u32, u32)>,
}

impl fmt::Display for Releases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.first.0, self.first.1)?;
        match self.last {
            Some(last) if last == self.first => Ok(()),
            Some((major, minor)) => write!(f, "-{major}.{minor}"),
            None => f.write_str("+"),
        }
    }
}

/// Memory of the device in use by a process, as the driver reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The driver's PID, which differs from the one inside a container.
    pub pid: u64,
    /// Its memory on the device, including the CUDA context.
    pub in_use: PrintedAmount,
}

/// A request that PyTorch's allocator could not serve. Values that the message does not have are absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAllocation {
    /// The format of the message, which determines the numbers in it.
    pub wording: Wording,
    /// The word before "out of memory": `CUDA`, `HIP`, `XPU`, `MPS`.
    pub backend: String,
    /// Device index as the process numbers it.
    pub device: Option<u64>,
    /// The figures by name, with their positions in the text.
    pub figures: BTreeMap<&'static str, (usize, PrintedAmount)>,
    /// Processes listed by PID. Inside a container, this process is one of them.
    pub processes: Vec<Process>,
    /// True if expandable segments are known to be enabled.
    pub expandable: Option<bool>,
    /// The allocation exceeds the address range reserved for an expandable segment.
    pub exceeds_reserve: bool,
    /// The allocator of a `MemPool` refused, not the device.
    pub refused_by_pool: bool,
    /// The releases that print this wording; `None` for backends other than `c10/cuda`.
    pub releases: Option<Releases>,
}

/// Words at the start of messages with numbers; the backend's name precedes the first.
pub(super) const ALLOCATION: &str = " out of memory";
pub(super) const TRIED: &str = "Tried to allocate";
pub(super) const ASYNC: &str = "Allocation on device";
/// From Intel's extension for PyTorch: `.. 4GB! Tried to allocate 6.85 GiB (GPU 0; ..`
pub(super) const BLOCK_LIMIT: &str = "Current platform can NOT allocate memory block with size larger than ";

impl Wording {
    /// The row of the table with the figures.
    #[expect(clippy::expect_used, reason = "the rows are part of the program, and every test of messages reads them")]
    pub(super) fn form(self) -> &'static Form {
        let name = match self {
            Self::Mps => "mps",
            Self::Async => "async",
            Self::Cached | Self::Reserved | Self::Unallocated | Self::Bare => "native",
        };
        FORMS.iter().find(|form| form.is_allocator() && form.name == name).expect("a row for every allocator")
    }
}

/// Parses the message `text`; `before` is the text before it on the line, with the exception's class.
pub(super) fn parse_allocation(before: &str, text: &str) -> FailedAllocation {
    let text = text.split(' ').filter(|word| !word.is_empty()).join(" ");
    let text = text.as_str();
    let wording = detect_wording(text);
    let backend = match wording {
        Wording::Mps => "MPS",
        Wording::Async => "CUDA",
        _ if text.starts_with(BLOCK_LIMIT) => "XPU",
        _ => text.split_once(ALLOCATION).and_then(|(name, _)| name.split_whitespace().next_back()).unwrap_or("CUDA"),
    };
    let exceeds_reserve = text.contains("exceeds the expandable-segment reserve");
    FailedAllocation {
        wording,
        backend: backend.to_owned(),
        device: parse_device(text),
        figures: wording.form().find_figures(text),
        processes: parse_processes(text),
        expandable: (exceeds_reserve || text.contains("expandable_segments is enabled")).then_some(true),
        exceeds_reserve,
        refused_by_pool: text.contains("allocator backing this MemPool returned nullptr"),
        // Other vendors copied the wording of some release and kept it.
        releases: detect_releases(before, text, wording).filter(|_| vendor(backend).is_cuda_allocator),
    }
}

impl FailedAllocation {
    /// The figure with this name.
    pub fn figure(&self, name: &str) -> Option<&PrintedAmount> {
        self.figures.get(name).map(|(_, amount)| amount)
    }

    /// That figure in bytes.
    pub(in crate::explain) fn amount(&self, name: &str) -> Option<ApproxBytes> {
        self.figure(name).map(ApproxBytes::from)
    }

    /// The numbers as printed, and a mark if the wording is known. The longer the list, the better the parse.
    pub(super) fn printed_numbers(&self) -> Vec<&str> {
        let figures = self.figures.values().map(|(_, amount)| amount);
        let processes = self.processes.iter().map(|process| &process.in_use);
        let wording = Some("worded").filter(|_| self.wording != Wording::Bare);
        figures.chain(processes).map(|amount| amount.text.as_str()).chain(wording).collect()
    }
}

/// True if `text` has the last words that matter.
pub(super) fn is_complete(text: &str) -> bool {
    ["PyTorch but unallocated", "reserved in total by PyTorch)", " cached)", "1EB memory"]
        .iter()
        .any(|end| text.contains(end))
}

fn detect_wording(text: &str) -> Wording {
    if text.contains("MPS backend") {
        Wording::Mps
    } else if text.starts_with(ASYNC) {
        Wording::Async
    } else if text.contains(" cached)") {
        Wording::Cached
    } else if text.contains(" total capacity;") {
        Wording::Reserved
    } else if text.contains(" has a total capac") || text.ends_with(" GPU") {
        Wording::Unallocated
    } else {
        Wording::Bare
    }
}

/// The number after `GPU` (`NPU`, `XPU`), or after "on device". PyTorch 2.3 prints it as the character with that code,
/// so device 0 ends the text.
fn parse_device(text: &str) -> Option<u64> {
    let tried = text.split_once(TRIED).map_or("", |(_, rest)| rest);
    let named = ["GPU ", "NPU ", "XPU ", "MUSA "].iter().find_map(|word| tried.split_once(word));
    // See above for PyTorch 2.3.
    let Some((_, behind)) = named.or_else(|| text.split_once("on device ")) else {
        return tried.ends_with(" GPU").then_some(0);
    };
    leading_number(behind).or_else(|| behind.chars().next().map(u64::from).filter(|code| *code < 32))
}

/// Parses `Process 123 has 1.00 GiB memory in use.`
fn parse_processes(text: &str) -> Vec<Process> {
    let processes = text.split("Process ").skip(1).filter_map(|part| {
        let (pid, in_use) = part.split_once(" has ")?;
        Some(Process { pid: pid.parse().ok()?, in_use: PrintedAmount::at_start(in_use)? })
    });
    processes.collect()
}

/// The releases that print `text`, from the changes between releases.
fn detect_releases(before: &str, text: &str, wording: Wording) -> Option<Releases> {
    let class = before.trim_end().trim_end_matches(':');
    let has_old_class = class.ends_with("torch.cuda.OutOfMemoryError");
    let has_new_class = class.ends_with("torch.OutOfMemoryError");
    let (first, last) = match wording {
        Wording::Cached => ((1, 0), Some((1, 3))),
        Wording::Reserved if has_old_class => ((1, 13), Some((2, 0))),
        Wording::Reserved if text.contains("max_split_size_mb") => ((1, 10), Some((2, 0))),
        Wording::Reserved => ((1, 4), Some((2, 0))),
        Wording::Unallocated => {
            let is_2_3 = text.ends_with(" GPU")
                || text.contains(" GPU has a ")
                || text.split_once(" GPU ").is_some_and(|(_, rest)| rest.starts_with(char::is_control));
            if text.contains("capacty") {
                ((2, 1), Some((2, 1)))
            } else if is_2_3 {
                ((2, 3), Some((2, 3)))
            } else if text.contains("expandable_segments is enabled") {
                ((2, 12), None)
            } else if text.contains("docs.pytorch.org") {
                ((2, 11), None)
            } else if text.contains("PYTORCH_ALLOC_CONF") {
                ((2, 10), Some((2, 10)))
            } else if text.contains("PYTORCH_CUDA_ALLOC_CONF") {
                let first = match text.contains("private pools") {
                    _ if has_new_class => (2, 5),
                    true => (2, 4),
                    false => (2, 2),
                };
                (first, Some(if has_old_class { (2, 4) } else { (2, 9) }))
            } else {
                ((2, 1), None)
            }
        }
        Wording::Async => ((2, 0), None),
        Wording::Mps | Wording::Bare => return None,
    };
    Some(Releases { first, last })
}

/// A message of PyTorch's allocator that may continue in the next line.
#[derive(Debug)]
pub(super) struct PartialMessage {
    pub(super) line: u64,
    pub(super) before: String,
    pub(super) pieces: Vec<String>,
    /// A blank line followed the last piece.
    pub(super) has_gap: bool,
    pub(super) frames: Vec<TracebackFrame>,
}

/// Joins the lines of a message. People and loggers wrap lines at blanks, terminals anywhere: digits on both sides of a
/// break are one number, and elsewhere the way that yields more numbers is taken. Lines that add none are left out.
pub(super) fn join_pieces(before: &str, pieces: &[String]) -> (FailedAllocation, String) {
    let mut pieces = pieces.iter();
    let mut text = pieces.next().cloned().unwrap_or_default();
    let mut best = (parse_allocation(before, &text), text.clone());
    for piece in pieces {
        let is_cut_number =
            text.ends_with(is_number_char) && piece.starts_with(is_number_char) && !text.ends_with(", ");
        let [glued, spaced] = [format!("{text}{piece}"), format!("{text} {piece}")];
        let [read_glued, read_spaced] = [&glued, &spaced].map(|text| parse_allocation(before, text));
        let is_glued = is_cut_number || completeness(&read_glued) > completeness(&read_spaced);
        let read = if is_glued { read_glued } else { read_spaced };
        text = if is_glued { glued } else { spaced };
        if completeness(&read) > completeness(&best.0) {
            best = (read, text.clone());
        }
    }
    best
}

/// The more numbers are read, the better.
fn completeness(read: &FailedAllocation) -> (usize, bool) {
    (read.printed_numbers().len(), read.device.is_some())
}

/// True if `body` continues a message after a blank line, which people insert when they paste.
pub(super) fn is_continuation(body: &str) -> bool {
    ["Tried to allocate", "GPU ", "Process ", "Including ", "Of the allocated", "with ", "and "]
        .iter()
        .any(|start| body.trim_start().starts_with(start))
}

/// True if `body` cannot belong to an unfinished message.
pub(super) fn ends_message(body: &str) -> bool {
    let body = body.trim();
    traceback::is_start(body)
        || traceback::parse_frame(body).is_some()
        || ["frame #", "Exception raised", "The above exc", "During handling", "srun:", "====", "----"]
            .iter()
            .any(|start| body.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(amount: Option<&PrintedAmount>) -> &str {
        amount.map_or("", |amount| &amount.text)
    }

    #[test]
    fn the_wording_of_each_release_is_read() {
        let old = parse_allocation(
            "RuntimeError: ",
            "CUDA out of memory. Tried to allocate 128.00 MiB (GPU 2; 7.93 GiB total capacity; 6.92 GiB already allocated; 83.50 MiB free; 10.50 MiB cached)",
        );
        assert_eq!((old.wording, old.device), (Wording::Cached, Some(2)));
        assert_eq!(text(old.figure("unallocated")), "10.50 MiB");
        assert_eq!(old.releases.unwrap().to_string(), "1.0-1.3");

        let limit = parse_allocation(
            "torch.cuda.OutOfMemoryError: ",
            "CUDA out of memory. Tried to allocate 37.25 GiB (GPU 0; 23.68 GiB total capacity; 192.29 MiB already allocated; 15.79 GiB free; 2.37 GiB allowed; 5.05 GiB reserved in total by PyTorch)",
        );
        assert_eq!(text(limit.figure("allowed")), "2.37 GiB");
        assert_eq!(text(limit.figure("reserved")), "5.05 GiB");
        assert_eq!(text(limit.figure("free")), "15.79 GiB");
        assert_eq!(limit.releases.unwrap().to_string(), "1.13-2.0");

        let new = parse_allocation(
            "",
            "HIP out of memory. Tried to allocate 10.74 GiB. GPU 0 has a total capacity of 47.53 GiB of which 7.86 GiB is free. Process 471567 has 39.44 GiB memory in use. Including non-PyTorch memory, this process has 1.50 GiB memory in use. 40.00 GiB allowed; Of the allocated memory 20.52 GiB is allocated by PyTorch, with 12.03 GiB allocated in private pools (e.g., CUDA Graphs), and 18.59 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        );
        assert_eq!((new.backend.as_str(), new.wording), ("HIP", Wording::Unallocated));
        let amounts = [
            ("requested", "10.74 GiB"),
            ("capacity", "47.53 GiB"),
            ("free", "7.86 GiB"),
            ("allowed", "40.00 GiB"),
            ("allocated", "20.52 GiB"),
            ("private_pools", "12.03 GiB"),
            ("unallocated", "18.59 GiB"),
            ("this_process", "1.50 GiB"),
        ];
        for (name, expected) in amounts {
            assert_eq!(text(new.figure(name)), expected);
        }
        assert_eq!(new.processes.len(), 1);
        assert_eq!(new.processes[0].pid, 471_567);
        assert_eq!(new.releases.unwrap().to_string(), "2.4-2.9");
    }

    #[test]
    fn device_numbers_of_2_3_are_characters() {
        let cut = parse_allocation("", "CUDA out of memory. Tried to allocate 96.00 MiB. GPU ");
        assert_eq!((cut.device, cut.releases.unwrap().to_string().as_str()), (Some(0), "2.3"));
        let one = parse_allocation(
            "",
            "CUDA out of memory. Tried to allocate 96.00 MiB. GPU \u{1} has a total capacity of 1.00 GiB of which",
        );
        assert_eq!((one.device, one.releases.unwrap().to_string().as_str()), (Some(1), "2.3"));
        for (code, device) in [("\u{1f}", Some(31)), (" ", None), ("7", Some(7)), ("x", None)] {
            assert_eq!(parse_device(&format!("Tried to allocate 1 MiB. GPU {code} has")), device);
        }
        let lost = parse_allocation(
            "",
            "CUDA out of memory. Tried to allocate 96.00 MiB. GPU  has a total capacity of 1.00 GiB of which",
        );
        assert_eq!((lost.device, lost.releases.unwrap().to_string().as_str()), (None, "2.3"));
    }

    #[test]
    fn the_async_backend_and_metal_are_read() {
        let found = parse_allocation(
            "",
            "Allocation on device 0 would exceed allowed memory. (out of memory) Currently allocated     : 15.16 GiB Requested               : 512.00 KiB Device limit            : 15.99 GiB Free (according to CUDA): 0 bytes PyTorch limit (set by user-supplied memory fraction)                         : 17179869184.00 GiB",
        );
        assert_eq!((found.wording, found.device), (Wording::Async, Some(0)));
        assert_eq!(text(found.figure("requested")), "512.00 KiB");
        assert_eq!(text(found.figure("allocated")), "15.16 GiB");
        assert_eq!(text(found.figure("capacity")), "15.99 GiB");
        assert_eq!(text(found.figure("free")), "0 bytes");
        assert_eq!(found.figure("allowed"), None, "no limit is 2^64");

        let found = parse_allocation(
            "",
            "MPS backend out of memory (MPS allocated: 17.71 GB, other allocations: 17.13 GB, max allowed: 36.27 GB). Tried to allocate 2.46 GB on private pool.",
        );
        assert_eq!((found.wording, found.backend.as_str()), (Wording::Mps, "MPS"));
        assert_eq!(text(found.figure("other")), "17.13 GB");
        assert_eq!(text(found.figure("allowed")), "36.27 GB");
        assert_eq!(text(found.figure("requested")), "2.46 GB");
    }
}
