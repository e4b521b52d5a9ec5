//! Warnings about a dry run.

use itertools::Itertools as _;
use std::fmt;
use std::ops::RangeInclusive;

use crate::analysis::{DryRunReport, DryRunWarning, ReadReport};
use crate::base::units::{count, counted, size};
use crate::snapshot::{ReadValue, Serving, TextLength};

/// Maximum number of lines in a sentence.
const SHOWN_READS: usize = 3;

impl fmt::Display for DryRunWarning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match *self {
            Self::NoGpu(report) => {
                let alone = report.alone.as_ref().map_or_else(String::new, |place| {
                    format!("; rank {place} ran alone, and every collective returned its own data")
                });
                format!(
                    "no GPU was used: PyTorch's own allocator ran on a stub of CUDA, with the memory of {} (compute \
                     capability {}; {}, of which the context takes {}{}){alone}",
                    report.gpu,
                    report.capability,
                    size(report.total_bytes),
                    size(report.context_bytes),
                    describe_nccl(report.nccl_bytes)
                )
            }
            Self::Placements(range) => format!(
                "the allocator picks among equal blocks by address, and a GPU assigns other addresses: over {} \
                 placements of memory GPU {} peaks at {} reserved, and {}",
                range.placements,
                range.device,
                describe_range(&range.reserved_bytes),
                describe_failing(range.failing_placements, range.placements)
            ),
            Self::Reads(report) => describe_reads(report),
            Self::Substitutes(report, value) => describe_substitutes(report, value),
            Self::Workspaces(report) => describe_workspaces(report),
            Self::Generated(TextLength::Maximum) => String::from(
                "generated texts are assumed to have the maximum length, the most memory (--generate min: one token)",
            ),
            Self::Generated(TextLength::Minimum) => {
                "generated texts are assumed to end after one token (--generate max: as late as possible)".to_owned()
            }
            Self::QueriesMemory(location) => format!(
                "the program asks how much memory the device has, at {}, and may take more on a larger one: its use of \
                 memory is no measure of what it needs",
                location.label()
            ),
            Self::Timings(timings) => format!(
                "the program measured the time between events {}, which is always 1 ms here: a choice that depends on \
                 it, such as autotuning, may differ on a GPU; logging, as in DistributedDataParallel, does not affect \
                 memory",
                counted(timings, "time")
            ),
            Self::Unfilled(bytes) => format!(
                "{} of large host tensors that the program fills with random numbers were left zero: a choice that \
                 depends on their values, such as a mask, may differ",
                size(bytes)
            ),
            Self::Missing(functions) => format!("the stub of CUDA does not implement {}", functions.join(", ")),
            Self::Uncounted(serving) => describe_uncounted(serving),
            Self::Stopped => String::from(
                "the program was stopped because it kept reading values without allocating: anything after that is \
                 not in these figures",
            ),
        })
    }
}

fn describe_uncounted(serving: &Serving) -> String {
    let nccl = if serving.gpus() > 1 { ", NCCL" } else { "" };
    let bytes = size(serving.uncounted_bytes());
    // In a posted start (tests/oracle/SERVING_RESULTS.md).
    let flashinfer = match serving.flashinfer.as_deref() {
        Some("") => "; FlashInfer is not installed, with which it was 3.7 % off in one start",
        _ => "",
    };
    format!(
        "memory that the driver takes (kernels{nccl}) is not counted: the KV cache has up to {bytes} less{flashinfer}"
    )
}

/// Describes the workspaces of libraries, and the effect of those that have an estimate.
fn describe_workspaces(report: &DryRunReport) -> String {
    let libraries: Vec<&str> = report.unknown_sizes.libraries().map(|(library, _)| library).collect();
    let (know, their) = if libraries.len() == 1 { ("knows", "its") } else { ("know", "their") };
    let (calls, sized) = (report.unknown_sizes.calls(), report.sized_workspaces());
    let estimates = report.ranges.iter().filter_map(|range| {
        let with = range.with_workspaces.as_ref()?;
        let (reserved, failing) = (describe_range(&with.reserved_bytes), with.failing_placements);
        let result = describe_failing(failing, range.placements);
        Some(format!("; with estimates GPU {} peaks at {reserved} reserved, and {result}", range.device))
    });
    let estimates: String = estimates.collect();
    let others = if (1..calls).contains(&sized) {
        format!("; the workspaces of the other {} are unknown", counted(calls - sized, "call"))
    } else {
        String::new()
    };
    format!(
        "only {} {know} the sizes of {their} workspaces ({}): they are not in these figures, a GPU needs \
         more{estimates}{others}",
        libraries.join(" and "),
        counted(calls, "call")
    )
}

fn describe_range(range: &RangeInclusive<u64>) -> String {
    if range.start() == range.end() {
        return size(*range.end());
    }
    format!("between {} and {}", size(*range.start()), size(*range.end()))
}

fn describe_nccl(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!(", and NCCL an estimated {} or more", size(bytes)) }
}

/// Describes that requests fail in `failing` of `placements`.
fn describe_failing(failing: u64, placements: u64) -> String {
    match failing {
        0 => "every request succeeds".to_owned(),
        _ if failing == placements => "a request fails".to_owned(),
        _ => format!("a request fails in {failing} of {placements} placements"),
    }
}

impl ReadReport {
    /// The line that read, and the operator.
    pub(super) fn label(&self) -> String {
        let line = self.location.frame.as_ref().map(|_| self.location.label());
        let line = line.unwrap_or_else(|| "a thread without Python".to_owned());
        if self.operator.is_empty() { line } else { format!("{line} by {}", self.operator) }
    }
}

fn describe_read(read: &ReadReport) -> String {
    let times = if read.count > 1 { format!(", {} times in all", count(read.count)) } else { String::new() };
    read.label() + &times
}

/// The first lines of `reads`, and how many more there are.
fn describe_lines(reads: &[&ReadReport]) -> String {
    let lines = reads.iter().take(SHOWN_READS).map(|read| describe_read(read)).dedup();
    let more = reads.len().checked_sub(SHOWN_READS).filter(|more| *more > 0);
    lines.chain(more.map(|more| format!("{} more", counted(more as u64, "line")))).join("; ")
}

/// Describes the values that depend on random numbers, or on draws in place of values that are not known.
fn describe_substitutes(report: &DryRunReport, value: ReadValue) -> String {
    let reads: Vec<&ReadReport> = report.reads.iter().filter(|read| read.value == value).collect();
    let (times, lines) = (counted(reads.iter().map(|read| read.count).sum(), "value"), describe_lines(&reads));
    match value {
        ReadValue::Random => format!("{times} read back depend on random numbers, and a GPU draws others: {lines}"),
        ReadValue::Maximum => format!(
            "{times} read back are the sizes of results that only a GPU knows, taken at their maximum, the most \
             memory: {lines}; --value sets the number of elements"
        ),
        ReadValue::Finite => format!("{times} read back say whether numbers are finite, which all are here: {lines}"),
        _ => format!(
            "{times} read back are assumed: choices of the model were drawn, each as likely as the others: {lines}"
        ),
    }
}

/// Describes the values that were read back.
fn describe_reads(report: &DryRunReport) -> String {
    let reads: Vec<&ReadReport> = report.reads.iter().filter(|read| read.value == ReadValue::Zero).collect();
    if reads.is_empty() && report.omitted_reads == 0 {
        return match report.known_reads {
            0 => "no value of the GPU was read back, so no computed value determines a request".to_owned(),
            _ => format!(
                "{} of the GPU read back, known because the host computed the same tensors",
                counted(report.known_reads, "value")
            ),
        };
    }
    let deciding: Vec<&ReadReport> = reads.iter().copied().filter(|read| read.decides_a_size).collect();
    if !deciding.is_empty() {
        return format!(
            "values of the GPU were read back, all zero here, and determine a size at {}: with zeros the result is empty, \
             so a GPU may need more",
            describe_lines(&deciding)
        );
    }
    let is_reported = report.omitted_reads == 0 && !reads.iter().any(|read| read.is_deciding());
    let effect = if is_reported { "the program only reports them" } else { "with others it may continue differently" };
    format!("values of the GPU were read back, all zero here: {}; {effect}", describe_lines(&reads))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::RangeReport;
    use crate::base::units::MIB;

    #[test]
    fn placements_are_described_if_they_make_a_difference() {
        let [same, different, failing] = [(0, 100), (0, 120), (2, 100)].map(|(failing_placements, max)| RangeReport {
            device: 0,
            placements: 6,
            failing_placements,
            reserved_bytes: 100 * MIB..=max * MIB,
            with_workspaces: None,
        });
        assert!(!same.is_affected_by_placement());
        let text = DryRunWarning::Placements(&different).to_string();
        assert!(text.contains("between 100 MiB and 120 MiB reserved, and every request"), "{text}");
        let text = DryRunWarning::Placements(&failing).to_string();
        assert!(text.contains("a request fails in 2 of 6 placements"), "{text}");
        assert!(!failing.fits());
    }
}
