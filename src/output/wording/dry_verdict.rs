//! The verdict of a dry run in sentences.

use std::fmt;

use super::serving::describe_start;
use crate::analysis::{
    AnalyzeReport, DeviceReport, DryRunReason, DryRunReport, FailedRequest, JobVerdict, ProgramError, ReadReport,
    SharedDevice,
};
use crate::base::units::{counted, size};
use crate::snapshot::{ReadUsage, ReadValue, SizeChange};
use crate::stacks::frames::FrameReport;

/// Where a program got a value of the GPU, there is none in a dry run.
const NO_VALUES: &str = "a dry run has no values";

/// The verdict in one line: `would fit on an NVIDIA H100 (dry run): 31.2 GiB of 79.1 GiB, 47.9 GiB headroom`.
/// For a failed request only the verdict.
pub(crate) fn describe_verdict(report: &AnalyzeReport, job: &JobVerdict, dry_run: &DryRunReport) -> String {
    if let Some(serving) = dry_run.server() {
        return describe_start(serving, job, &dry_run.gpu);
    }
    let start = format!("{} on {} (dry run)", job.verdict.phrase(), dry_run.gpu);
    match &job.reason {
        DryRunReason::Served => {
            let devices = report.snapshots.iter().flat_map(|snapshot| &snapshot.devices);
            let reserved = devices.map(DeviceReport::peak_on_device).fold(0, u64::max);
            let (usable, most) = (dry_run.usable_bytes(), dry_run.most_reserved(reserved));
            let is_upper_bound = most > reserved || dry_run.has_read(ReadValue::Maximum);
            let up_to = if is_upper_bound { "up to " } else { "" };
            let headroom = size(usable.saturating_sub(most));
            format!("{start}: {up_to}{} of {}, {headroom} headroom", size(most), size(usable))
        }
        DryRunReason::Retried(_) => format!("{start} {}", job.reason),
        DryRunReason::Failed(_) => start,
        reason => format!("{start}: {reason}"),
    }
}

impl fmt::Display for DryRunReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served => f.write_str("the program ran to its end, and every request was served"),
            Self::Retried(failed) => f.write_str(&describe_retry(failed)),
            Self::Failed(failed) => {
                write!(f, "a request for {} failed at {}", size(failed.bytes), failed.location.label())
            }
            Self::NotStarted(error) => f.write_str(error),
            Self::ServedAtBest => f.write_str(
                "a request fails if the driver places memory otherwise, or with the memory that libraries are estimated to take",
            ),
            Self::UnknownMemory => f.write_str("some memory is known only to a GPU"),
            Self::Value(read) => f.write_str(&describe_value(read)),
            Self::FailedAtMost(failed, read) => write!(
                f,
                "a request for {} failed at {}, if {} at {} selects every element, which only a GPU knows; --value \
                 sets their number",
                size(failed.bytes),
                failed.location.label(),
                read.operator,
                read.location.label()
            ),
            Self::OmittedReads => f.write_str("the program read values at more lines than the recording can hold"),
            Self::Stopped => f.write_str("it was stopped while it waited for a value of the GPU"),
            Self::EndNotRecorded => {
                f.write_str("this recording of an older oomscope does not show how the program ended; run it again")
            }
            Self::StillRunning => f.write_str("this snapshot was written before the program ended"),
            Self::Signal(9) => {
                f.write_str("signal 9 ended the program; the system may have killed it for lack of host memory")
            }
            Self::Signal(number) => write!(f, "signal {number} ended the program"),
            Self::ExitCode(code, None) => write!(f, "the command ended with exit code {code}"),
            Self::ExitCode(code, Some(location)) => {
                write!(f, "the program ended with exit code {code} at {}", location.label())
            }
            Self::Error(error) => f.write_str(&describe_error(error)),
            Self::Shared(shared) => f.write_str(&describe_shared(shared)),
            Self::Lost(processes) => {
                let processes = counted(*processes as u64, "process");
                write!(f, "{processes} left no recording: killed, or started with Python's option -I or -E and failed")
            }
        }
    }
}

/// Names the processes that share a device, the first ones if there are many.
fn describe_shared(shared: &SharedDevice) -> String {
    const MAX_NAMED: usize = 4;
    let SharedDevice { device, total_bytes, processes, is_simultaneous } = shared;
    let all = size(processes.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes)));
    let count = counted(processes.len() as u64, "process");
    let total = size(*total_bytes);
    let others = processes.len().saturating_sub(MAX_NAMED) as u64;
    let others = (others > 0).then(|| format!("and {}", counted(others, "other")));
    let named = processes.iter().take(MAX_NAMED).map(|(name, bytes)| format!("{name} ({})", size(*bytes)));
    let named = named.chain(others).collect::<Vec<_>>().join(", ");
    if *is_simultaneous {
        format!("{count} hold {all} of GPU {device} at the same time, which has {total}: {named}")
    } else {
        format!("{count} share GPU {device}, when is not known; with their peaks they need {all} of {total}: {named}")
    }
}

/// Describes a failed request after which the program went on.
fn describe_retry(failed: &FailedRequest) -> String {
    let (requested, location) = (size(failed.bytes), failed.location.label());
    let Some(retry) = &failed.retry else {
        return format!("after its own retry: a request for {requested} failed at {location}");
    };
    let peak =
        format!("peak afterwards {} allocated, {} reserved", size(retry.allocated_bytes), size(retry.reserved_bytes));
    match &retry.change {
        Some(SizeChange { name, failed, retried }) => format!(
            "after its own retry with {name} {retried} ({peak}); {failed} did not: a request for {requested} failed at \
             {location}"
        ),
        None => {
            format!("after its own retry with less ({peak}); before, a request for {requested} failed at {location}")
        }
    }
}

fn describe_value(read: &ReadReport) -> String {
    let line = match &read.location.frame {
        None => "a thread without Python".to_owned(),
        Some(_) => read.location.label(),
    };
    let by = if read.operator.is_empty() { String::new() } else { format!(" by {}", read.operator) };
    let effect = match read.usage {
        _ if read.decides_a_size && read.value != ReadValue::Maximum => "decides a size",
        ReadUsage::Size => "decides a size",
        ReadUsage::Branch => "decides how the program goes on",
        ReadUsage::Report | ReadUsage::Set | ReadUsage::Unknown => "may decide how the program goes on",
    };
    let at = read.decided_at.as_ref().map(FrameReport::short_label).filter(|at| !line.starts_with(at.as_str()));
    let at = at.map_or_else(String::new, |at| format!(", at {at}"));
    let why = match read.value {
        ReadValue::Zero | ReadValue::Finite => NO_VALUES,
        ReadValue::Random => "it comes from random numbers, which differ on a GPU, and memory is scarce",
        ReadValue::Assumed => "it was drawn in place of an unknown value, and memory is scarce",
        ReadValue::Maximum => "it was taken at its maximum, and memory is scarce",
    };
    format!("the value read at {line}{by} {effect}{at}; {why}")
}

/// The operator that the program called, of those that ran, innermost first.
fn outermost(operators: &str) -> &str {
    match operators.rsplit(' ').next().unwrap_or_default() {
        "" | "_local_scalar_dense" | "is_nonzero" => "item",
        name => name,
    }
}

fn describe_error(error: &ProgramError) -> String {
    let ProgramError { name, message, location, after_read, absent_device } = error;
    let colon = if message.is_empty() { "" } else { ": " };
    let advice = if let Some(device) = absent_device {
        format!("; the program uses GPU {device}: run with --devices {}", device + 1)
    } else if let Some(read) = after_read {
        let frame = read.location.frame.as_ref();
        let label = frame.map_or_else(String::new, FrameReport::short_label);
        let line = label.split(" in ").next().unwrap_or_default();
        let (operator, value) = (outermost(&read.operator), &read.value);
        let other = if value == "False" { "True" } else { "1" };
        format!(" after {operator} read {value} at {line} ({NO_VALUES}): --value {line}={other}")
    } else {
        String::new()
    };
    format!("{name} at {}{colon}{message}{advice}", location.label())
}
