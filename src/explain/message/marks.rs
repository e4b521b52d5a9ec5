//! Where in a line a message about memory that ran out begins, and whose it is.

use super::wording::{ALLOCATION, ASYNC, BLOCK_LIMIT, TRIED};
use crate::explain::systems::{System, systems};

/// What begins in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineMark {
    /// A message of PyTorch's allocator of device memory.
    Allocation,
    /// A message of somebody else.
    Elsewhere(&'static System),
    /// A warning that memory for an expandable segment was refused; PyTorch tries again.
    Mapping,
}

const MAPPING: &str = "expandable_segments: memory mapping failed with OOM on device ";

/// Finds the first message in `text`: what it is, and the byte at which it begins.
pub(super) fn find(text: &str) -> Option<(LineMark, usize)> {
    if let Some(at) = text.find(MAPPING) {
        return Some((LineMark::Mapping, at));
    }
    if let Some(at) = allocation(text) {
        return Some((LineMark::Allocation, at));
    }
    let (system, at) = systems().find_map(|system| Some((system, system.find(text)?)))?;
    // The line of code that raises it is not the message.
    let is_code = text.get(..at).is_some_and(|before| before.contains("raise "));
    (!is_code).then_some((LineMark::Elsewhere(system), at))
}

/// Where a message of PyTorch's allocator begins.
fn allocation(text: &str) -> Option<usize> {
    if let Some(at) = text.find(BLOCK_LIMIT) {
        return Some(at);
    }
    let named = text.match_indices(ALLOCATION).find_map(|(at, _)| {
        let (before, behind) = (text.get(..at)?, text.get(at + ALLOCATION.len()..)?);
        if before.ends_with("MPS backend") {
            return before.len().checked_sub("MPS backend".len());
        }
        let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
        let name = before.trim_end_matches(is_name);
        let is_told = match behind.trim_start_matches(['.', ' ']).strip_prefix(TRIED) {
            // In the source line of a traceback something else follows.
            Some(rest) => {
                let rest = rest.trim_start();
                rest.is_empty()
                    || rest.starts_with("more than 1EB")
                    || rest.starts_with(|c: char| c.is_ascii_digit())
            }
            // What follows may stand on the next line.
            None => {
                (raised(name) || name.trim_end().ends_with(':'))
                    && matches!(behind.trim_end(), "" | ".")
            }
        };
        (is_told && name.len() < before.len()).then_some(name.len())
    });
    named.or_else(|| {
        let at = text.find(ASYNC)?;
        let (before, behind) = (text.get(..at)?, text.get(at + ASYNC.len()..)?);
        let behind =
            behind.trim_start_matches(|c: char| c.is_ascii_digit() || c.is_control() || c == ' ');
        let is_told = behind.is_empty() || behind.starts_with("would exceed");
        (is_told && raised(before)).then_some(at)
    })
}

/// Whether what follows is the text of an exception, or the line begins with it.
pub(super) fn raised(before: &str) -> bool {
    let before = before.trim_end();
    before.is_empty() || before.ends_with("Error:") || before.ends_with("Error('")
}

/// A refused mapping of memory into an expandable segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The device's index.
    pub device: u64,
    /// Bytes of the device that were free.
    pub free_bytes: u64,
    /// The device's memory.
    pub capacity_bytes: u64,
    /// How often this device refused.
    pub times: u64,
    /// The line of the log with the first one, from 1.
    pub line: u64,
}

/// `.. on device 0 while trying to map 20971520 bytes (free: 0, total: 85899345920)`
pub(super) fn mapping(text: &str, line: u64) -> Option<Mapping> {
    let number = |phrase: &str| {
        let (_, rest) = text.split_once(phrase)?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end)?.parse().ok()
    };
    Some(Mapping {
        device: number(MAPPING)?,
        free_bytes: number("(free: ")?,
        capacity_bytes: number(", total: ")?,
        times: 1,
        line,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_from_talk_about_them() {
        let at = |text: &str| {
            find(text).map(|(mark, at)| (mark, text.get(at..at + 4).unwrap().to_owned()))
        };
        let own = |start: &str| Some((LineMark::Allocation, start.to_owned()));
        let elsewhere = |text: &str| match find(text) {
            Some((LineMark::Elsewhere(system), at)) => (system.name, at),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(
            at("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
            own("CUDA")
        );
        assert_eq!(
            at("(RuntimeError('HIP out of memory. Tried to allocate 2.00 MiB. GPU"),
            own("HIP ")
        );
        assert_eq!(at("CUDA out of memory. Tried to allocate"), own("CUDA"));
        assert_eq!(at("RuntimeError: CUDA out of memory."), own("CUDA"));
        assert_eq!(at("CUDA out of memory. Tried to allocate more than 1EB memory."), own("CUDA"));
        assert_eq!(at("E: MPS backend out of memory (MPS allocated: 1.00 GB"), own("MPS "));
        assert_eq!(at("torch.OutOfMemoryError: Allocation on device "), own("Allo"));
        assert_eq!(
            at("Allocation on device 0 would exceed allowed memory. (out of memory)"),
            own("Allo")
        );
        assert_eq!(elsewhere("RuntimeError: CUDA error: out of memory"), ("CUDA", 14));
        assert_eq!(
            elsewhere("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"),
            ("cuBLAS", 12)
        );
        assert_eq!(elsewhere("NCCL WARN Cuda failure 2 'out of memory'"), ("NCCL", 10));
        for talk in [
            "",
            "    raise RuntimeError(\"CUDA out of memory. Tried to allocate \" + size)",
            "hint: on CUDA out of memory, lower the batch size",
            "Allocation on device not large enough for array",
            "Cuda failure 'invalid argument'",
            "    raise ValueError(\"No available memory for the cache blocks. \"",
            "Task was Killed by signal",
            "ran out of memory. Tried to allocate 2.00 GiB",
        ] {
            assert_eq!(at(talk), None, "{talk}");
        }
    }

    #[test]
    fn refused_mappings_are_read() {
        let text = "expandable_segments: memory mapping failed with OOM on device 2 while trying to map 20971520 bytes (free: 7, total: 85899345920).";
        let found = mapping(text, 3).unwrap();
        assert_eq!((found.device, found.free_bytes, found.capacity_bytes), (2, 7, 85_899_345_920));
    }
}
