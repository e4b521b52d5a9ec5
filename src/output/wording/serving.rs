//! Sentences about serving engines in a dry run.

use super::Summary;
use crate::analysis::{DryRunReason, DryRunVerdict, JobVerdict, ServingPlanReport};
use crate::base::units::{count, size};
use crate::snapshot::Serving;
use crate::stacks::engines::Engine;

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
    [weights, cache, requests].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `the KV cache of 8.1 GiB does not hold one request of 131,072 tokens (16.0 GiB)`, or the engine's own words.
fn describe_lack(serving: &Serving, error: &str) -> String {
    let Some((available, needed)) = serving.kv_cache_bytes.zip(serving.needed_kv_cache_bytes) else {
        return error.to_owned();
    };
    format!(
        "one request of {} tokens needs {} of KV cache, and {} are left",
        count(serving.max_model_len),
        size(needed),
        size(available)
    )
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
    let quantization = if serving.quantization.is_empty() { "" } else { &*serving.quantization };
    let share = Engine::of_name(&serving.engine).map_or("mem_fraction_static", |engine| engine.share_option);
    let parts = [
        (format!("weights {quantization}").trim_end().to_owned(), serving.weight_bytes),
        (
            format!(
                "activations: max_num_batched_tokens {}, max_num_seqs {}",
                count(serving.max_num_batched_tokens),
                count(serving.max_num_seqs)
            ),
            serving.activation_bytes,
        ),
        (describe_graphs(serving), serving.graph_budget_bytes),
        ("other".to_owned(), serving.other_bytes()),
        (format!("KV cache, {}", serving.kv_cache_dtype), serving.kv_cache_bytes),
        (format!("= {share} {}", serving.memory_utilization), serving.budget_bytes),
        ("CUDA graphs, beyond it".to_owned(), serving.graph_bytes_beyond_budget()),
    ];
    parts.into_iter().filter_map(|(name, bytes)| Some((name, bytes?))).collect()
}

/// Memory of CUDA graphs that the engine leaves before it captures them, and what they then take.
fn describe_graphs(serving: &Serving) -> String {
    let taken = serving.graph_bytes.map(|bytes| format!("; they took {}", size(bytes)));
    format!("CUDA graphs, estimated{}", taken.unwrap_or_default())
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
