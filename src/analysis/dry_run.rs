//! A dry run: its figures, its unknowns and its verdict.

use serde::Serialize;

use super::device::DeviceReport;
use super::dry_failures::failures;
use super::dry_range::{RangeReport, range};
use super::dry_reads::{ReadReport, read_report};
use super::dry_verdict::{DryRunReason, DryRunVerdict, ProcessFacts, ProgramError, ReadBefore, Served, decide};
use crate::base::details::promised;

use crate::base::warning::{Code, Warnings, words};
use crate::snapshot::{Action, DryRun, ProcessEnd, ReadValue, Serving, TextLength, UnsizedWork};
use crate::stacks::frames::CodeLocation;
use crate::study::{DeviceStudy, Study};

/// A run without a GPU, on a stub of CUDA.
#[derive(Debug, Clone, Serialize)]
#[serde(remote = "Self")]
pub struct DryRunReport {
    /// Name of the assumed GPU, as its driver reports it.
    pub gpu: String,
    /// Its compute capability.
    pub capability: String,
    /// Its memory in bytes.
    pub total_bytes: u64,
    /// Bytes of it that the CUDA context is assumed to take.
    pub context_bytes: u64,
    /// Estimate of NCCL's memory, by the number of communicators.
    pub nccl_bytes: u64,
    /// Whether the process would fit.
    pub verdict: DryRunVerdict,
    /// Why, in a sentence.
    pub reason: DryRunReason,
    /// How closely the requests match those on a GPU.
    pub certainty: DryRunCertainty,
    /// Source lines that read values back from the GPU which the host could not compute, by first read.
    pub reads: Vec<ReadReport>,
    /// Number of reads of values that the host computed, as a GPU does.
    pub known_reads: u64,
    /// Number of reads by lines beyond those.
    #[serde(rename = "reads_untold")]
    pub omitted_reads: u64,
    /// The range of possible results of each device; empty if a request failed.
    pub ranges: Vec<RangeReport>,
    /// Calls whose memory only a closed library or a GPU knows.
    pub unknown_sizes: UnsizedWork,
    /// Entry points that the program called and the CUDA stub does not implement.
    pub missing: Vec<String>,
    /// Bytes of large host tensors that were not filled with random numbers.
    pub unfilled_bytes: u64,
    /// Whether the program was stopped because it kept reading values without allocating.
    pub stopped: bool,
    /// The only rank that ran, such as `3 of 64`; absent if all ranks ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone: Option<String>,
    /// The serving engine that the program started; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<Serving>,
    /// The program has training steps, perhaps beside an engine.
    #[serde(skip)]
    pub trains: bool,
    /// The peak of reserved bytes of another run, which took the other branches of unknown values.
    #[serde(skip)]
    other_branches_bytes: Option<u64>,
    /// The memory over time on each device.
    #[serde(skip)]
    pub(super) device_uses: Vec<DeviceUse>,
}

promised! {
    DryRunReport { gpu, capability, total_bytes, context_bytes, verdict, reason, certainty, missing }
}

words! {
    /// How closely the requests of a dry run match those on a GPU.
    pub enum DryRunCertainty {
        /// No value was read before the peak, and no memory is unknown
        Exact = "exact",
        /// Values were read before the peak, so the program may behave differently on a GPU
        MayDiffer = "may-differ",
        /// Values determined sizes, or memory of closed libraries is missing: a GPU may need more
        LowerBound = "lower-bound",
    }
}

/// The dry run that was recorded, if any. Warnings about it go to `warnings`.
pub(super) fn dry_run(study: &Study<'_>, devices: &[DeviceReport], warnings: &mut Warnings) -> Option<DryRunReport> {
    let recorded = study.snapshot().recorder_info.as_ref()?;
    let dry_run = recorded.dry_run.as_ref()?;
    let place = recorded.rank.as_ref().zip(recorded.world_size.as_ref()).filter(|_| dry_run.is_alone);
    let peak_us = devices.iter().filter_map(|device| device.peak.time_us).max();
    let reads: Vec<ReadReport> = dry_run.reads.iter().map(|read| read_report(study, read, peak_us)).collect();
    let mut report = DryRunReport {
        verdict: DryRunVerdict::WouldFit,
        reason: DryRunReason::Served,
        gpu: dry_run.gpu.clone(),
        capability: dry_run.capability.clone(),
        total_bytes: dry_run.total_bytes,
        context_bytes: dry_run.context_bytes,
        nccl_bytes: dry_run.nccl_bytes(),
        certainty: DryRunCertainty::from_recording(dry_run, &reads),
        reads,
        omitted_reads: dry_run.omitted_reads,
        known_reads: dry_run.known_reads,
        // A replay does not know what sleeps.
        ranges: if devices.iter().any(|device| device.oom_count > 0 || device.sleep.is_some()) {
            Vec::new()
        } else {
            study.devices().filter_map(|device| range(device, dry_run)).collect()
        },
        unknown_sizes: dry_run.unsized_work,
        missing: dry_run.missing.clone(),
        unfilled_bytes: dry_run.unfilled_bytes,
        stopped: dry_run.is_stopped,
        alone: place.map(|(rank, ranks)| format!("{rank} of {ranks}")),
        serving: dry_run.serving.clone(),
        trains: devices.iter().any(trains),
        other_branches_bytes: dry_run.other_branches_bytes,
        device_uses: study.devices().map(|device| device_use(device, recorded.time_us)).collect(),
    };
    let peak = devices.iter().map(DeviceReport::peak_on_device).fold(0, u64::max);
    (report.verdict, report.reason) = decide(facts(study, dry_run, &report, peak));
    // Only the first notes are on the first screen.
    if let Some(stack) = dry_run.free_memory_query {
        warnings.add(Code::ValuesRead, DryRunWarning::QueriesMemory(&study.stacks().location_of(stack)));
    }
    report.add_warnings(warnings);
    if let Some(length) = dry_run.generated {
        warnings.add(Code::ValuesRead, DryRunWarning::Generated(length));
    }
    Some(report)
}

/// Whether the program has training steps, or a request of it failed outside any engine's code.
fn trains(device: &DeviceReport) -> bool {
    device.steps.completed > 0 || device.ooms.last().is_some_and(|oom| !oom.is_in_engine())
}

/// The facts for the verdict. `peak` is the most memory that a device has reserved.
fn facts<'r>(study: &Study<'_>, dry_run: &DryRun, report: &'r DryRunReport, peak: u64) -> ProcessFacts<'r> {
    let stacks = study.stacks();
    let end = match &dry_run.end {
        ProcessEnd::Finished => None,
        ProcessEnd::Unrecorded => Some(DryRunReason::EndNotRecorded),
        ProcessEnd::Running => Some(DryRunReason::StillRunning),
        ProcessEnd::Stopped => Some(DryRunReason::Stopped),
        ProcessEnd::Signal(number) => Some(DryRunReason::Signal(*number)),
        ProcessEnd::Exit(code, stack) => {
            Some(DryRunReason::ExitCode(*code, stack.map(|stack| stacks.location_of(stack))))
        }
        ProcessEnd::Error(error) => Some(DryRunReason::Error(Box::new(ProgramError {
            name: error.name.clone(),
            message: error.message.clone(),
            location: error.stack.map(|stack| stacks.location_of(stack)).unwrap_or_default(),
            after_read: error.after_read.as_ref().map(|(operator, stack, value)| ReadBefore {
                operator: operator.clone(),
                location: stack.map(|stack| stacks.location_of(stack)).unwrap_or_default(),
                value: value.clone(),
            }),
            absent_device: dry_run.absent_device,
        }))),
    };
    let end = report.serving.as_ref().and_then(|serving| serving.error.clone()).map(DryRunReason::NotStarted).or(end);
    ProcessFacts {
        end,
        is_memory_unknown: !report.is_known() || report.serving.as_ref().is_some_and(|serving| !serving.has_headroom()),
        served: if !report.ranges.iter().all(RangeReport::fits) {
            Served::AtBest
        // The KV cache of a server takes what is left, so its weights, which are random numbers, decide nothing.
        } else if report.server().is_some_and(|serving| serving.ready)
            || report.most_reserved(peak).saturating_mul(AMPLE) <= report.usable_bytes()
        {
            Served::Amply
        } else {
            Served::Always
        },
        reads: &report.reads,
        omitted_reads: report.omitted_reads,
        are_branches_run: report.other_branches_bytes.is_some(),
        ..failures(study, dry_run, report.usable_bytes())
    }
}

impl DryRunCertainty {
    fn from_recording(dry_run: &DryRun, reads: &[ReadReport]) -> Self {
        let work = dry_run.unsized_work;
        // A read after the peak here may come before the peak on a GPU, so all reads count.
        if reads.iter().any(ReadReport::has_unknown_size)
            || work.calls() > 0
            || !dry_run.missing.is_empty()
            || dry_run.is_stopped
        {
            Self::LowerBound
        } else if !reads.is_empty() || dry_run.omitted_reads > 0 || work.timings > 0 {
            Self::MayDiffer
        } else {
            Self::Exact
        }
    }
}

/// Drawn and random values decide nothing if the device has this multiple of the run's memory.
const AMPLE: u64 = 2;

impl DryRunReport {
    /// The serving engine, if the program does nothing else.
    pub(crate) fn server(&self) -> Option<&Serving> {
        self.serving.as_ref().filter(|_| !self.trains)
    }

    /// Memory of the CUDA context and of NCCL.
    pub(crate) fn outside_bytes(&self) -> u64 {
        self.context_bytes.saturating_add(self.nccl_bytes)
    }

    /// Memory of a device without those.
    pub(crate) fn usable_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.outside_bytes())
    }

    /// The most memory that a device may reserve: `peak` as recorded, the upper end of a range, or with other branches.
    pub(crate) fn most_reserved(&self, peak: u64) -> u64 {
        let ranges = self.ranges.iter().flat_map(|range| {
            let with = range.with_workspaces.as_ref().map(|with| *with.reserved_bytes.end());
            [Some(*range.reserved_bytes.end()), with]
        });
        ranges.flatten().chain(self.other_branches_bytes).fold(peak, u64::max)
    }

    /// Whether all memory is known, but for workspaces of closed libraries with an estimate.
    pub fn is_known(&self) -> bool {
        let decides = self.reads.iter().any(ReadReport::has_unknown_size);
        let are_sized = self.unknown_sizes.calls() == self.sized_workspaces();
        let are_estimated = are_sized && self.missing.is_empty() && !decides && !self.stopped;
        self.certainty != DryRunCertainty::LowerBound || are_estimated
    }

    /// Number of workspaces with an estimate.
    pub(crate) fn sized_workspaces(&self) -> u64 {
        let with = self.ranges.iter().filter_map(|range| range.with_workspaces.as_ref());
        with.map(|with| with.calls).sum()
    }

    /// Whether the program read nothing but substitutes: draws, random numbers, checks for finite numbers.
    fn reads_only_substitutes(&self) -> bool {
        let has_others = self.known_reads > 0 || self.omitted_reads > 0 || self.reads.is_empty();
        !has_others && self.reads.iter().all(|read| read.value != ReadValue::Zero)
    }

    /// Whether the program read a value of this origin.
    pub(crate) fn has_read(&self, value: ReadValue) -> bool {
        self.reads.iter().any(|read| read.value == value)
    }

    fn add_warnings(&self, warnings: &mut Warnings) {
        // The figures of a server's engine do not depend on time.
        let for_timings = if self.server().is_some() { Code::DryRun } else { Code::UnknownMemory };
        let decides = self.omitted_reads > 0 || self.reads.iter().any(ReadReport::is_deciding);
        let for_reads = if decides { Code::ValuesRead } else { Code::DryRun };
        // If the estimates fit, the first line includes them.
        let are_served = !self.ranges.is_empty() && self.ranges.iter().all(RangeReport::fits);
        let for_workspaces = if self.is_known() && are_served { Code::DryRun } else { Code::UnknownMemory };
        let unknown = &self.unknown_sizes;
        let found = [
            (true, Code::DryRun, DryRunWarning::NoGpu(self)),
            (!self.reads_only_substitutes(), for_reads, DryRunWarning::Reads(self)),
            (unknown.calls() > 0, for_workspaces, DryRunWarning::Workspaces(self)),
            (unknown.timings > 0, for_timings, DryRunWarning::Timings(unknown.timings)),
            (self.unfilled_bytes > 0, Code::DryRun, DryRunWarning::Unfilled(self.unfilled_bytes)),
            (!self.missing.is_empty(), Code::UnknownMemory, DryRunWarning::Missing(&self.missing)),
            (self.stopped, Code::UnknownMemory, DryRunWarning::Stopped),
        ];
        for (_, code, warning) in found.into_iter().filter(|(is_found, ..)| *is_found) {
            warnings.add(code, warning);
        }
        for range in self.ranges.iter().filter(|range| range.is_affected_by_placement()) {
            warnings.add(Code::DryRun, DryRunWarning::Placements(range));
        }
        let substitutes = [ReadValue::Maximum, ReadValue::Assumed, ReadValue::Random, ReadValue::Finite];
        for value in substitutes.into_iter().filter(|value| self.has_read(*value)) {
            warnings.add(Code::ValuesRead, DryRunWarning::Substitutes(self, value));
        }
        // Less of it does not change that a request failed.
        let has_failed = matches!(self.reason, DryRunReason::Failed(_));
        if let Some(serving) = self.serving.as_ref().filter(|serving| !has_failed && serving.kv_cache_bytes.is_some()) {
            warnings.add(Code::UnknownMemory, DryRunWarning::Uncounted(serving));
        }
    }
}

/// A warning about a dry run.
#[derive(Debug, Clone, Copy)]
pub enum DryRunWarning<'a> {
    /// No GPU was used.
    NoGpu(&'a DryRunReport),
    /// Other placements of memory by the driver make a difference.
    Placements(&'a RangeReport),
    /// The values that the program read back, if any.
    Reads(&'a DryRunReport),
    /// Values that depend on random numbers, or on draws.
    Substitutes(&'a DryRunReport, ReadValue),
    /// The workspaces of closed libraries are missing, for some of which there are estimates.
    Workspaces(&'a DryRunReport),
    /// The program generated texts, whose length is assumed.
    Generated(TextLength),
    /// The program asks at this line how much memory the device has, or has free.
    QueriesMemory(&'a CodeLocation),
    /// The program measured time, this number of times.
    Timings(u64),
    /// Bytes of large host tensors were not filled with random numbers.
    Unfilled(u64),
    /// The stub of CUDA lacks functions.
    Missing(&'a [String]),
    /// A real start of this engine takes memory that a dry run does not have.
    Uncounted(&'a Serving),
    /// The program was stopped.
    Stopped,
}

/// The memory that a process reserves on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeviceUse {
    pub(super) device: u64,
    pub(super) peak_bytes: u64,
    /// Reserved bytes from a time on, as (microseconds since the epoch, bytes); the last step is the end of the run.
    /// Empty if a time is not known.
    pub(super) steps: Vec<(u64, u64)>,
}

/// The memory over time on a device of a dry run that ended at `end_us`.
fn device_use(device: DeviceStudy<'_, '_>, end_us: Option<u64>) -> DeviceUse {
    let mut reserved = device.history().map_or(0, |history| history.outcome.initial_totals.reserved);
    let steps = device.device().entries_where(Action::changes_reserved).map(|(index, entry)| {
        reserved = entry.reserved_after(reserved);
        Some((device.device().time_us(index)?, reserved))
    });
    let steps: Option<Vec<(u64, u64)>> = steps.chain([end_us.map(|end_us| (end_us, 0))]).collect();
    DeviceUse {
        device: device.id(),
        peak_bytes: device.peak().reserved_bytes,
        steps: steps.filter(|steps| steps.is_sorted_by_key(|(time, _)| *time)).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fact_alone_lowers_the_certainty() {
        use DryRunCertainty::{Exact, LowerBound, MayDiffer};
        let run = DryRun::default;
        let [read, mask] =
            [false, true].map(|decides_a_size| vec![ReadReport { decides_a_size, ..Default::default() }]);
        for (dry_run, reads, expected) in [
            (run(), &vec![], Exact),
            (run(), &read, MayDiffer),
            (DryRun { omitted_reads: 1, ..run() }, &vec![], MayDiffer),
            (DryRun { unsized_work: UnsizedWork { timings: 1, ..Default::default() }, ..run() }, &vec![], MayDiffer),
            (run(), &mask, LowerBound),
            (DryRun { unsized_work: UnsizedWork { cufft: 1, ..Default::default() }, ..run() }, &vec![], LowerBound),
            (DryRun { missing: vec!["cuNew".to_owned()], ..run() }, &vec![], LowerBound),
            (DryRun { is_stopped: true, ..run() }, &vec![], LowerBound),
        ] {
            assert_eq!(DryRunCertainty::from_recording(&dry_run, reads), expected, "{dry_run:?}");
        }
    }
}
