//! The numbers that a serving engine computes when it starts.

use serde::{Deserialize, Serialize};

use crate::base::units::GIB;

/// A serving engine in a dry run. The engine computed all numbers; one that it did not come to is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Serving {
    /// The engine, such as `vLLM`.
    pub engine: String,
    /// Its release.
    pub version: String,
    /// The release of `FlashInfer`, which changes the memory of some models; empty if it is not installed, null if unknown.
    pub flashinfer: Option<String>,
    /// Options that oomscope set because the program did not, so that nothing has to be downloaded.
    pub set_options: Vec<String>,
    /// The engine compiled code that a later start finds in its cache, and then needs other memory for.
    pub compiled: bool,
    /// The engine came to accept requests.
    pub ready: bool,
    /// Why it did not start for lack of memory, in its own words; null if it started.
    pub error: Option<String>,
    /// Maximum number of tokens of a request.
    pub max_model_len: u64,
    /// Maximum number of requests at once.
    pub max_num_seqs: u64,
    /// Maximum number of tokens in a step.
    pub max_num_batched_tokens: u64,
    /// Share of the device's memory that the engine may use.
    pub memory_utilization: f64,
    /// Type of the KV cache's numbers; `auto` is that of the model.
    pub kv_cache_dtype: String,
    /// Quantization of the weights; empty without.
    pub quantization: String,
    /// Number of GPUs that share each layer.
    pub tensor_parallel: u64,
    /// Number of GPUs that share the layers.
    pub pipeline_parallel: u64,
    /// Memory of a device, as the engine reads it.
    pub device_bytes: Option<u64>,
    /// Free memory of a device when the engine starts.
    pub free_bytes: Option<u64>,
    /// Memory that the engine may use on a device.
    pub budget_bytes: Option<u64>,
    /// Memory of the weights on a device.
    pub weight_bytes: Option<u64>,
    /// Peak of the activations of the profile run.
    pub activation_bytes: Option<u64>,
    /// Memory that the engine leaves for CUDA graphs.
    pub graph_budget_bytes: Option<u64>,
    /// Memory that the CUDA graphs took.
    pub graph_bytes: Option<u64>,
    /// Memory that is left for the KV cache on a device.
    pub kv_cache_bytes: Option<u64>,
    /// Tokens that the KV cache holds.
    pub kv_cache_tokens: Option<u64>,
    /// Memory of KV cache that one request of `max_model_len` needs, if the engine did not start for lack of it.
    pub needed_kv_cache_bytes: Option<u64>,
    /// The largest `max_model_len` for which the KV cache suffices, as the engine estimates it when it does not start.
    pub possible_model_len: Option<u64>,
    /// Pairs of a number of tokens and the number of requests of that length that the KV cache holds at once.
    pub requests: Vec<(u64, f64)>,
}

/// Memory that the driver takes for kernels while an engine starts: 0.24 to 0.27 GiB in 30 logs of vLLM on an H100.
const KERNEL_BYTES: u64 = GIB / 4;
/// Memory of NCCL on each of several GPUs: 1.8 to 2.0 GiB in 15 logs of vLLM 0.19 on two and four H100, less in others.
const NCCL_BYTES: u64 = 2 * GIB;

/// Tokens of a block of the KV cache, as vLLM sets it on NVIDIA's GPUs.
const BLOCK_TOKENS: u64 = 16;

impl Serving {
    /// Number of GPUs that the engine uses.
    pub fn gpus(&self) -> u64 {
        self.tensor_parallel.max(1).saturating_mul(self.pipeline_parallel.max(1))
    }

    /// Memory of CUDA graphs that the engine takes beyond its budget: releases of vLLM before 0.21 leave none for them.
    pub fn graph_bytes_beyond_budget(&self) -> Option<u64> {
        self.graph_bytes.filter(|_| self.graph_budget_bytes.is_none())
    }

    /// Upper bound of the memory of a GPU that a real start takes from the KV cache and a dry run does not see.
    pub fn uncounted_bytes(&self) -> u64 {
        KERNEL_BYTES + if self.gpus() > 1 { NCCL_BYTES } else { 0 }
    }

    /// Whether the KV cache holds one request of `max_model_len` also without the uncounted memory, and there is memory
    /// for CUDA graphs beyond the budget.
    pub fn has_headroom(&self) -> bool {
        let unused = self.free_bytes.zip(self.budget_bytes).map(|(free, budget)| free.saturating_sub(budget));
        if self.graph_bytes_beyond_budget().zip(unused).is_some_and(|(graphs, unused)| graphs > unused) {
            return false;
        }
        let left = self.kv_cache_bytes.map(|bytes| bytes.saturating_sub(self.uncounted_bytes()) as f64);
        let one = self.kv_cache_bytes.zip(self.requests_at(self.max_model_len)).map(|(bytes, n)| bytes as f64 / n);
        left.zip(one).is_none_or(|(left, one)| left >= one)
    }

    /// The largest `max_model_len` with which an engine that did not start would, without the uncounted memory: a
    /// multiple of `BLOCK_TOKENS`, and not more than the engine estimates.
    pub fn longest_len(&self) -> Option<u64> {
        let (possible, needed) = self.possible_model_len.zip(self.needed_kv_cache_bytes)?;
        let left = self.kv_cache_bytes?.saturating_sub(self.uncounted_bytes());
        let length = u128::from(left) * u128::from(self.max_model_len) / u128::from(needed.max(1));
        let blocks = u64::try_from(length).unwrap_or(possible).min(possible) / BLOCK_TOKENS;
        (blocks > 0).then_some(blocks * BLOCK_TOKENS)
    }

    /// Number of requests of `tokens` that the KV cache holds at once.
    pub fn requests_at(&self, tokens: u64) -> Option<f64> {
        self.requests.iter().find(|(length, _)| *length == tokens).map(|(_, requests)| *requests)
    }

    /// The budget without weights, activations, graphs and KV cache.
    pub fn other_bytes(&self) -> Option<u64> {
        let known = [self.weight_bytes, self.activation_bytes, self.kv_cache_bytes];
        let graphs = self.graph_budget_bytes.unwrap_or(0);
        let known = known.into_iter().try_fold(graphs, |sum, bytes| sum.checked_add(bytes?))?;
        self.budget_bytes?.checked_sub(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine in which a request takes 1 GiB.
    fn engine(kv_cache_bytes: u64, tensor_parallel: u64) -> Serving {
        Serving {
            kv_cache_bytes: Some(kv_cache_bytes),
            tensor_parallel,
            max_model_len: 8192,
            requests: vec![(8192, kv_cache_bytes as f64 / GIB as f64)],
            ..Serving::default()
        }
    }

    #[test]
    fn a_request_must_also_fit_with_the_memory_of_the_driver() {
        assert!(engine(2 * GIB, 1).has_headroom());
        assert!(!engine(GIB + GIB / 8, 1).has_headroom());
        assert!(engine(4 * GIB, 2).has_headroom());
        assert!(!engine(3 * GIB, 2).has_headroom());
        assert!(Serving::default().has_headroom());
        let beyond = Serving { free_bytes: Some(10 * GIB), budget_bytes: Some(9 * GIB), ..engine(2 * GIB, 1) };
        assert!(Serving { graph_bytes: Some(GIB), ..beyond.clone() }.has_headroom());
        assert!(!Serving { graph_bytes: Some(2 * GIB), ..beyond.clone() }.has_headroom());
        assert!(Serving { graph_bytes: Some(2 * GIB), graph_budget_bytes: Some(GIB), ..beyond }.has_headroom());
    }

    #[test]
    fn the_length_to_try_leaves_the_memory_that_is_not_counted() {
        // 131,072 tokens need 16 GiB, so the 8 GiB that are left hold 65,536, and without 256 MiB 63,488.
        let failed = Serving {
            max_model_len: 131_072,
            kv_cache_bytes: Some(8 * GIB),
            needed_kv_cache_bytes: Some(16 * GIB),
            possible_model_len: Some(65_536),
            ..Serving::default()
        };
        assert_eq!(failed.longest_len(), Some(63_488));
        assert_eq!(Serving { possible_model_len: Some(1000), ..failed.clone() }.longest_len(), Some(992));
        assert_eq!(Serving { kv_cache_bytes: Some(GIB / 8), ..failed.clone() }.longest_len(), None);
        assert_eq!(Serving { needed_kv_cache_bytes: None, ..failed }.longest_len(), None);
    }
}
