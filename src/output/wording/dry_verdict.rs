//! The verdict of a dry run in sentences.

use std::fmt;

use itertools::Itertools as _;

use super::Summary;
use crate::analysis::{
    AnalyzeReport, DeviceReport, DryRunReason, DryRunReport, DryRunVerdict, FailedRequest, JobVerdict, ProgramError,
    ReadReport, ServingPlanReport, SharedDevice,
};
use crate::base::units::{count, counted, size};
use crate::snapshot::{ReadUsage, ReadValue, Serving};
use crate::stacks::engines::Engine;
use crate::stacks::frames::FrameReport;

/// The reason if a program read a value of the GPU.
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
            let reserved = report.devices().map(DeviceReport::peak_on_device).fold(0, u64::max);
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
        f.write_str(&match self {
            Self::Served => "the program ran to its end, and every request was served".to_owned(),
            Self::Retried(failed) => describe_retry(failed),
            Self::Failed(failed) => {
                format!("a request for {} failed at {}", size(failed.bytes), failed.location.label())
            }
            Self::NotStarted(error) => error.clone(),
            Self::ServedAtBest => String::from(
                "a request fails if the driver places memory otherwise, or with the memory that libraries are estimated to take",
            ),
            Self::UnknownMemory => "some memory is known only to a GPU".to_owned(),
            Self::Value(read) => describe_value(read),
            Self::FailedAtMost(failed, read) => format!(
                "a request for {} failed at {}, if {} at {} selects every element, which only a GPU knows; --value \
                 sets their number",
                size(failed.bytes),
                failed.location.label(),
                read.operator,
                read.location.label()
            ),
            Self::OmittedReads => "the program read values at more lines than the recording can hold".to_owned(),
            Self::Stopped => "it was stopped while it waited for a value of the GPU".to_owned(),
            Self::EndNotRecorded => {
                "this recording of an older oomscope does not show how the program ended; run it again".to_owned()
            }
            Self::StillRunning => "this snapshot was written before the program ended".to_owned(),
            Self::Signal(9) => {
                "signal 9 ended the program; the system may have killed it for lack of host memory".to_owned()
            }
            Self::Signal(number) => format!("signal {number} ended the program"),
            Self::ExitCode(code, None) => format!("the command ended with exit code {code}"),
            Self::ExitCode(code, Some(location)) => {
                format!("the program ended with exit code {code} at {}", location.label())
            }
            Self::Error(error) => describe_error(error),
            Self::Shared(shared) => describe_shared(shared),
            Self::Lost(processes) => {
                let processes = counted(*processes as u64, "process");
                format!("{processes} left no recording: killed, or started with Python's option -I or -E and failed")
            }
        })
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
    let named = named.chain(others).format(", ");
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
    format!("after its own retry with less ({peak}); before, a request for {requested} failed at {location}")
}

fn describe_value(read: &ReadReport) -> String {
    let label = read.label();
    let effect = match read.usage {
        _ if read.decides_a_size && read.value != ReadValue::Maximum => "decides a size",
        ReadUsage::Size => "decides a size",
        ReadUsage::Branch => "decides how the program goes on",
        ReadUsage::Report | ReadUsage::Set | ReadUsage::Unknown => "may decide how the program goes on",
    };
    let at = read.decided_at.as_ref().map(FrameReport::short_label).filter(|at| !label.starts_with(at.as_str()));
    let at = at.map_or_else(String::new, |at| format!(", at {at}"));
    let why = match read.value {
        ReadValue::Zero | ReadValue::Finite => NO_VALUES,
        ReadValue::Random => "it comes from random numbers, which differ on a GPU, and memory is scarce",
        ReadValue::Assumed => "it was drawn in place of an unknown value, and memory is scarce",
        ReadValue::Maximum => "it was taken at its maximum, and memory is scarce",
    };
    format!("the value read at {label} {effect}{at}; {why}")
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
        let label = read.location.frame.as_ref().map_or_else(String::new, FrameReport::short_label);
        let line = label.split(" in ").next().unwrap_or_default();
        let (operator, value) = (outermost(&read.operator), &read.value);
        let other = if value == "False" { "True" } else { "1" };
        format!(" after {operator} read {value} at {line} ({NO_VALUES}): --value {line}={other}")
    } else {
        String::new()
    };
    format!("{name} at {}{colon}{message}{advice}", location.label())
}

/// The verdict in one line: `would start on an NVIDIA H100 (dry run): 15.0 GiB weights, KV cache 57.1 GiB = 467,840
/// tokens, 57.1 requests of 8,192 tokens`.
pub(super) fn describe_start(serving: &Serving, job: &JobVerdict, gpu: &str) -> String {
    let verdict = match job.verdict {
        DryRunVerdict::WouldFit => "would start",
        DryRunVerdict::WouldNotFit => "would not start",
        DryRunVerdict::MayFit => "may start",
        verdict => verdict.phrase(),
    };
    let many = if serving.gpus() > 1 { format!("{} x ", serving.gpus()) } else { String::new() };
    let start = format!("{verdict} on {many}{gpu} (dry run)");
    match &job.reason {
        DryRunReason::Served | DryRunReason::Retried(_) => format!("{start}: {}", describe_capacity(serving)),
        DryRunReason::NotStarted(error) => format!("{start}: {}", describe_lack(serving, error)),
        DryRunReason::Failed(_) => start,
        _ if serving.ready => format!("{start}: {}; {}", describe_capacity(serving), job.reason),
        reason => format!("{start}: {reason}"),
    }
}

/// `15.0 GiB weights, KV cache 57.1 GiB = 467,840 tokens, 57.1 requests of 8,192 tokens`, on each GPU.
fn describe_capacity(serving: &Serving) -> String {
    let each = if serving.gpus() > 1 { " on each" } else { "" };
    let weights = serving.weight_bytes.map(|bytes| format!("{} weights{each}", size(bytes)));
    let cache = serving.kv_cache_bytes.map(|bytes| {
        let tokens = serving.kv_cache_tokens.map_or_else(String::new, |tokens| format!(" = {} tokens", count(tokens)));
        format!("KV cache {}{each}{tokens}", size(bytes))
    });
    let requests = serving.requests_at(serving.max_model_len);
    let requests = requests
        .map(|requests| format!("{} requests of {} tokens", format_requests(requests), count(serving.max_model_len)));
    [weights, cache, requests].into_iter().flatten().join(", ")
}

/// `the KV cache of 8.1 GiB does not hold one request of 131,072 tokens (16.0 GiB)`, or the engine's own words.
fn describe_lack(serving: &Serving, error: &str) -> String {
    let Some((available, needed)) = serving.kv_cache_bytes.zip(serving.needed_kv_cache_bytes) else {
        return error.to_owned();
    };
    let (tokens, [needed, left]) = (count(serving.max_model_len), [needed, available].map(size));
    format!("one request of {tokens} tokens needs {needed} of KV cache, and {left} are left")
}

/// `vLLM 0.33.0, FlashInfer 0.7.2`.
pub(crate) fn describe_engine(serving: &Serving) -> String {
    let flashinfer = serving.flashinfer.as_ref().filter(|release| !release.is_empty());
    let flashinfer = flashinfer.map_or_else(String::new, |release| format!(", FlashInfer {release}"));
    format!("{} {}{flashinfer}", serving.engine, serving.version)
}

/// `57.1`, `1,024`.
pub(crate) fn format_requests(requests: f64) -> String {
    let rounded = format!("{requests:.0}");
    match rounded.parse() {
        Ok(rounded) if requests >= 100.0 => count(rounded),
        _ => format!("{requests:.1}"),
    }
}

/// The parts of the memory that the engine may use, with the options that change each.
pub(crate) fn describe_budget(serving: &Serving) -> Vec<(String, u64)> {
    let share = Engine::of_name(&serving.engine).map_or("mem_fraction_static", |engine| engine.share_option);
    let [tokens, sequences] = [serving.max_num_batched_tokens, serving.max_num_seqs].map(count);
    let activations = format!("activations: max_num_batched_tokens {tokens}, max_num_seqs {sequences}");
    // The engine leaves memory for the graphs before it captures them.
    let taken = serving.graph_bytes.map_or_else(String::new, |bytes| format!("; they took {}", size(bytes)));
    let parts = [
        (format!("weights {}", serving.quantization).trim_end().to_owned(), serving.weight_bytes),
        (activations, serving.activation_bytes),
        (format!("CUDA graphs, estimated{taken}"), serving.graph_budget_bytes),
        ("other".to_owned(), serving.other_bytes()),
        (format!("KV cache, {}", serving.kv_cache_dtype), serving.kv_cache_bytes),
        (format!("= {share} {}", serving.memory_utilization), serving.budget_bytes),
        ("CUDA graphs, beyond it".to_owned(), serving.graph_bytes_beyond_budget()),
    ];
    parts.into_iter().filter_map(|(name, bytes)| Some((name, bytes?))).collect()
}

/// `load_format=dummy, set here so that nothing is downloaded`; `None` if no option was set.
pub(crate) fn describe_options(serving: &Serving) -> Option<String> {
    let options = serving.set_options.join(", ");
    (!options.is_empty()).then(|| format!("{options}: by oomscope, so that nothing is downloaded"))
}

impl ServingPlanReport {
    /// The first GPU, and number of them, on which the engine starts.
    pub fn summary(&self) -> Summary {
        Summary::from_answer(match self.rows.iter().find(|row| row.is_started()) {
            Some(first) => format!("it starts on {} (dry run)", first.label()),
            None => "it starts on none of these GPUs (dry run)".to_owned(),
        })
    }
}
