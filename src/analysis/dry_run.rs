//! What a dry run cannot know, and what that does to the answer.

use serde::Serialize;

use super::device::DeviceReport;
use super::dry_range::{RangeReport, range};
use crate::base::units::{count, counted, size};
use crate::base::warning::{Code, Warnings};
use crate::snapshot::{DryRun, UnsizedWork, ValueRead};
use crate::stacks::frames::CodeLocation;
use crate::study::Study;

/// A run without a GPU.
#[derive(Debug, Clone, Serialize)]
pub struct DryRunReport {
    /// The GPU that was assumed, as its driver calls it.
    pub gpu: String,
    /// Its compute capability.
    pub capability: String,
    /// All of its memory.
    pub total_bytes: u64,
    /// What the context was taken to need of that.
    pub context_bytes: u64,
    /// How far the requests are those of a GPU.
    pub certainty: Certainty,
    /// Values that the host read, all of them zero: the first read first.
    pub reads: Vec<ReadReport>,
    /// Reads by lines beyond those.
    pub reads_untold: u64,
    /// What each device could come to: with other addresses, and with workspaces of cuDNN. None where a request failed.
    pub ranges: Vec<RangeReport>,
    /// How often something was asked whose memory only a closed library or a GPU knows.
    pub unknown_sizes: UnsizedWork,
    /// Entry points that the program asked for, and that the stub of CUDA does not have.
    pub missing: Vec<String>,
    /// Bytes of large tensors of the host that were left as they were.
    pub unfilled_bytes: u64,
    /// Whether the program was stopped as it went on to read values and nothing came of it.
    pub stopped: bool,
    /// The one rank that ran, and of how many, such as `3 of 64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone: Option<String>,
}

/// How far the requests of a dry run are those of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// No value was read before the peak, and no memory is unknown.
    Exact,
    /// Values were read before the peak: the program may go another way on a GPU.
    MayDiffer,
    /// Values decided sizes, or memory of closed libraries is missing: a GPU may need more.
    LowerBound,
}

/// Reads of values by one line.
#[derive(Debug, Clone, Serialize)]
pub struct ReadReport {
    /// The line; `None` for threads without Python.
    #[serde(flatten)]
    pub location: CodeLocation,
    /// The operator that read, such as `item` or `nonzero`; empty where none is known.
    pub operator: String,
    /// How often.
    pub count: u64,
    /// Bytes of the first.
    pub bytes: u64,
    /// Whether the first came before memory peaked.
    pub is_before_peak: bool,
    /// Whether values decide how large the operator's result is: with zeros it is empty.
    pub decides_a_size: bool,
}

/// Operators whose result is as large as values say.
const SIZED_BY_VALUES: [&str; 13] = [
    "bincount",
    "one_hot",
    "nonzero",
    "nonzero_numpy",
    "masked_select",
    "unique_dim",
    "_unique",
    "_unique2",
    "unique_consecutive",
    "unique_dim_consecutive",
    "repeat_interleave",
    "repeat_interleave_Tensor",
    "repeat_interleave_self_Tensor",
];
/// Lines that are named in a sentence.
const NAMED: usize = 3;

/// What `study` has of a dry run, whose `devices` were analyzed; what to know before all else goes to `warnings`.
pub(super) fn dry_run(
    study: &Study<'_>,
    devices: &[DeviceReport],
    warnings: &mut Warnings,
) -> Option<DryRunReport> {
    let recorded = study.snapshot().recorder_info.as_ref()?;
    let told = recorded.dry_run.as_ref()?;
    let place = recorded.rank.as_ref().zip(recorded.world_size.as_ref()).filter(|_| told.is_alone);
    let peak_us = devices.iter().filter_map(|device| device.peak.time_us).max();
    let reads: Vec<ReadReport> =
        told.reads.iter().map(|read| read_report(study, read, peak_us)).collect();
    let report = DryRunReport {
        gpu: told.gpu.clone(),
        capability: told.capability.clone(),
        total_bytes: told.total_bytes,
        context_bytes: told.context_bytes,
        certainty: Certainty::of(told, &reads),
        reads,
        reads_untold: told.omitted_reads,
        ranges: if devices.iter().any(|device| device.oom_count > 0) {
            Vec::new()
        } else {
            study.devices().filter_map(|device| range(device, told)).collect()
        },
        unknown_sizes: told.unsized_work,
        missing: told.missing.clone(),
        unfilled_bytes: told.unfilled_bytes,
        stopped: told.is_stopped,
        alone: place.map(|(rank, ranks)| format!("{rank} of {ranks}")),
    };
    report.remark(warnings);
    Some(report)
}

fn read_report(study: &Study<'_>, read: &ValueRead, peak_us: Option<u64>) -> ReadReport {
    let stacks = study.stacks();
    let location = read.stack.map(|stack| stacks.code_location(stacks.line_id(stack)));
    let mut operators = read.operators.split(' ');
    let sized_by = operators.clone().find(|name| SIZED_BY_VALUES.contains(name));
    let operator = match sized_by.or(operators.next()).unwrap_or_default() {
        "_local_scalar_dense" => "item",
        name => name.trim_start_matches('_'),
    };
    ReadReport {
        location: location.unwrap_or_default(),
        operator: operator.to_owned(),
        count: read.count,
        bytes: read.bytes,
        is_before_peak: peak_us.is_none_or(|peak| read.first_us <= peak),
        decides_a_size: sized_by.is_some(),
    }
}

impl Certainty {
    fn of(told: &DryRun, reads: &[ReadReport]) -> Self {
        let UnsizedWork { cudnn, cusolver, cufft, cusparse, timings } = told.unsized_work;
        // What was read after the peak of zeros may be before the peak of a GPU.
        if reads.iter().any(|read| read.decides_a_size)
            || cudnn + cusolver + cufft + cusparse > 0
            || !told.missing.is_empty()
            || told.is_stopped
        {
            Self::LowerBound
        } else if !reads.is_empty() || told.omitted_reads > 0 || timings > 0 {
            Self::MayDiffer
        } else {
            Self::Exact
        }
    }
}

impl ReadReport {
    fn in_short(&self) -> String {
        let line = match &self.location.frame {
            None => "a thread without Python".to_owned(),
            Some(_) => self.location.label(),
        };
        let times = match self.count {
            0 | 1 => String::new(),
            many => format!(", {} times in all", count(many)),
        };
        match self.operator.as_str() {
            "" => format!("{line}{times}"),
            name => format!("{line} by {name}{times}"),
        }
    }
}

impl DryRunReport {
    /// Whether it fits, before anything else: `would fit on an NVIDIA H100 (dry run): ..`.
    pub(super) fn verdict(&self, has_failed: bool) -> String {
        let fits = match (has_failed, self.fits_throughout()) {
            (true, _) => "would not fit",
            (false, false) => "may fit",
            (false, true) => "would fit",
        };
        format!("{fits} on {} (dry run)", self.gpu)
    }

    /// Whether no memory is unknown but workspaces of cuDNN for which there is a size that they could have.
    pub fn is_known(&self) -> bool {
        self.certainty != Certainty::LowerBound || self.is_bounded()
    }

    /// Whether all is served with those, wherever memory lies, and no other is unknown.
    fn fits_throughout(&self) -> bool {
        self.is_known() && self.ranges.iter().all(RangeReport::fits)
    }

    /// The figures with workspaces of cuDNN, of the device that reserves most.
    pub(super) fn upper_end(&self) -> Option<String> {
        let with = self.ranges.iter().filter_map(|range| range.with_workspaces.as_ref());
        with.max_by_key(|with| with.reserved_bytes.most).map(|with| {
            format!(
                "; with workspaces of cuDNN up to {} allocated, {} reserved",
                size(with.allocated_bytes),
                size(with.reserved_bytes.most)
            )
        })
    }

    /// Whether nothing is missing but workspaces of cuDNN, for each of which there is a size that it could have.
    fn is_bounded(&self) -> bool {
        let UnsizedWork { cudnn, cusolver, cufft, cusparse, timings: _ } = self.unknown_sizes;
        let decides = self.reads.iter().any(|read| read.decides_a_size);
        let is_all = cusolver + cufft + cusparse == 0 && self.missing.is_empty();
        is_all && !decides && !self.stopped && cudnn == self.sized_workspaces()
    }

    /// Workspaces of cuDNN in the ranges.
    fn sized_workspaces(&self) -> u64 {
        let with = self.ranges.iter().filter_map(|range| range.with_workspaces.as_ref());
        with.map(|with| with.calls).sum()
    }

    /// What cuDNN's workspaces come to, of its `calls`.
    fn of_cudnn(&self, calls: u64) -> String {
        let sized = self.sized_workspaces();
        let mut told = vec!["a GPU needs more".to_owned()];
        told.extend(self.ranges.iter().filter_map(RangeReport::of_workspaces));
        if sized > 0 && calls > sized {
            let others = counted(calls - sized, "call");
            told.push(format!("what the other {others} take is not known at all"));
        }
        if sized > 0 {
            let bound = "nothing bounds them; where a convolution's is not to be had PyTorch tries another plan";
            told.push(bound.to_owned());
        }
        told.join("; ")
    }

    fn remark(&self, warnings: &mut Warnings) {
        let alone = self.alone.as_ref().map_or_else(String::new, |place| {
            format!("; rank {place} ran alone, and heard of the others what it said itself")
        });
        warnings.add(
            Code::DryRun,
            format!(
                "no GPU was used: PyTorch's own allocator ran over a stub of CUDA, with the memory of {} (compute \
                 capability {}; {}, of which the context takes {}){alone}",
                self.gpu,
                self.capability,
                size(self.total_bytes),
                size(self.context_bytes)
            ),
        );
        for message in self.ranges.iter().filter_map(RangeReport::of_placements) {
            warnings.add(Code::DryRun, message);
        }
        warnings.add(Code::ValuesRead, self.of_values());
        let UnsizedWork { cudnn, cusolver, cufft, cusparse, timings } = self.unknown_sizes;
        for (library, calls) in
            [("cuDNN", cudnn), ("cuSOLVER", cusolver), ("cuFFT", cufft), ("cuSPARSE", cusparse)]
        {
            if calls > 0 {
                let more = match library {
                    "cuDNN" => self.of_cudnn(calls),
                    _ => "a GPU needs more".to_owned(),
                };
                let calls = counted(calls, "call");
                let message = format!(
                    "{library} alone knows the workspaces that it takes ({calls}): they are not in these figures, \
                     {more}"
                );
                warnings.add(Code::UnknownMemory, message);
            }
        }
        if timings > 0 {
            let timings = counted(timings, "time");
            let message = format!(
                "the time between events was asked for {timings}, and is always 1 ms here: what is chosen by it, as by \
                 autotuning, may be another choice on a GPU; what only logs it, as DistributedDataParallel, asks for no \
                 other memory"
            );
            warnings.add(Code::UnknownMemory, message);
        }
        if self.unfilled_bytes > 0 {
            warnings.add(
                Code::DryRun,
                format!(
                    "{} of large tensors of the host that a program fills with random numbers were left \
                     zero: what is chosen by their values, as by a mask, may be another choice",
                    size(self.unfilled_bytes)
                ),
            );
        }
        if !self.missing.is_empty() {
            let message =
                format!("the stub of CUDA lacks what was asked for: {}", self.missing.join(", "));
            warnings.add(Code::UnknownMemory, message);
        }
        if self.stopped {
            let message = "the program was stopped, as it went on to read values and took no more memory: what would \
                           have come is not in it";
            warnings.add(Code::UnknownMemory, message);
        }
    }

    /// What the ledger holds.
    fn of_values(&self) -> String {
        if self.reads.is_empty() && self.reads_untold == 0 {
            return "no value of the GPU was read back: nothing that a GPU computes decides a request"
                .to_owned();
        }
        let deciding: Vec<&ReadReport> =
            self.reads.iter().filter(|read| read.decides_a_size).collect();
        let before: Vec<&ReadReport> =
            self.reads.iter().filter(|read| read.is_before_peak).collect();
        if deciding.is_empty() && before.is_empty() && self.reads_untold == 0 {
            return "values of the GPU were read back after the peak only, all zero here: with other values the program \
                    may go on otherwise"
                .to_owned();
        }
        let listed = if deciding.is_empty() { &before } else { &deciding };
        let mut lines: Vec<String> =
            listed.iter().take(NAMED).map(|read| read.in_short()).collect();
        lines.dedup();
        if listed.len() > NAMED {
            lines.push(format!("{} more", counted((listed.len() - NAMED) as u64, "line")));
        }
        let lines = lines.join("; ");
        if deciding.is_empty() {
            format!(
                "values of the GPU were read back before the peak, all zero here: {lines}; none decides a size by itself, \
                 though the program may do otherwise with another value"
            )
        } else {
            format!(
                "values of the GPU were read back, all zero here, and decide a size at {lines}: with zeros it is empty, \
                 so a GPU may need more"
            )
        }
    }
}
