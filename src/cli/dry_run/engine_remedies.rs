//! Remedies that need no change to the program, among them options of a serving engine that make room for its KV cache.

use serde_json::{Value, json};

use crate::snapshot::Serving;
use crate::stacks::engines::{Engine, EngineChange};

/// A share of the memory that still leaves some for other processes.
const HIGH_UTILIZATION: f64 = 0.95;
/// A number of tokens of a step, and of requests, with which activations are small.
const SMALL_BATCHED_TOKENS: u64 = 2048;
const SMALL_SEQS: u64 = 64;

/// The starts that the answer needs: another after the first that compiled, because both happen; and, after one that
/// failed, the longest requests that should fit.
pub(super) fn further_starts(serving: &Serving) -> Vec<OutsideRemedy> {
    if serving.ready && serving.compiled {
        return vec![OutsideRemedy::LaterStart];
    }
    let length = serving.longest_len().filter(|_| !serving.ready);
    length.map(|length| OutsideRemedy::EngineOptions(vec![max_model_len(length)])).into_iter().collect()
}

/// `remedy` with the longest requests that should fit, and their length, if it alone did not let the engine start on as
/// many GPUs: `tried`. Without the remedy, requests must be shorter or the engine does not start: `first`.
pub(super) fn with_shorter_requests(
    first: &Serving,
    remedy: &OutsideRemedy,
    tried: &Serving,
) -> Option<(u64, OutsideRemedy)> {
    let OutsideRemedy::EngineOptions(options) = remedy else { return None };
    let length = tried.longest_len().filter(|_| !tried.ready && tried.gpus() == first.gpus())?;
    let options = options.iter().cloned().chain([max_model_len(length)]).collect();
    (Some(length) > first.longest_len()).then_some((length, OutsideRemedy::EngineOptions(options)))
}

fn max_model_len(length: u64) -> (&'static str, Value) {
    ("max_model_len", json!(length))
}

/// The options of the engine to try, each alone, the least change first.
pub(super) fn engine_remedies(serving: &Serving) -> Vec<OutsideRemedy> {
    let changes = Engine::of_name(&serving.engine).into_iter().flat_map(|engine| engine.changes);
    let options = changes.filter_map(|(name, change)| Some(vec![(*name, changed_value(serving, *change)?)]));
    options.map(OutsideRemedy::EngineOptions).collect()
}

/// The value of the option for `change`; `None` if it would change nothing.
fn changed_value(serving: &Serving, change: EngineChange) -> Option<Value> {
    let (is_other, value) = match change {
        EngineChange::MoreMemory => (serving.memory_utilization < HIGH_UTILIZATION, json!(HIGH_UTILIZATION)),
        EngineChange::FewerTokens => {
            (serving.max_num_batched_tokens > SMALL_BATCHED_TOKENS, json!(SMALL_BATCHED_TOKENS))
        }
        EngineChange::FewerRequests => (serving.max_num_seqs > SMALL_SEQS, json!(SMALL_SEQS)),
        EngineChange::QuantizedWeights => (serving.quantization.is_empty(), json!("fp8")),
        EngineChange::QuantizedCache => (serving.kv_cache_dtype == "auto", json!("fp8_e4m3")),
        EngineChange::MoreGpus => (true, json!(serving.tensor_parallel.max(1) * 2)),
    };
    is_other.then_some(value)
}

/// A remedy from outside of the program, which needs no change to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OutsideRemedy {
    /// Options to set, and `KEY:default` for one to remove.
    Settings(String),
    /// `foreach=False` in every optimizer.
    StepByParameter,
    /// A serving engine starts again, with the code that it compiled.
    LaterStart,
    /// Options of a serving engine.
    EngineOptions(Vec<(&'static str, Value)>),
}

impl OutsideRemedy {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::EngineOptions(options) => join(options, ", ", |name, value| format!("{name}={value}")),
            Self::LaterStart => "a later start".to_owned(),
            Self::Settings(change) => change.clone(),
            Self::StepByParameter => "foreach=False in the optimizer".to_owned(),
        }
    }
}

/// Options and their values, as on a command line.
pub(super) fn option_words(options: &[(&str, Value)]) -> String {
    join(options, " ", |name, value| format!("--{} {value}", name.replace('_', "-")))
}

fn join(options: &[(&str, Value)], separator: &str, format: impl Fn(&str, &str) -> String) -> String {
    let texts = options.iter().map(|(name, value)| match value {
        Value::String(text) => format(name, text),
        _ => format(name, &value.to_string()),
    });
    texts.collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(serving: &Serving) -> Vec<String> {
        engine_remedies(serving).iter().map(OutsideRemedy::describe).collect()
    }

    fn further(serving: &Serving) -> Vec<String> {
        further_starts(serving).iter().map(OutsideRemedy::describe).collect()
    }

    #[test]
    fn only_options_that_change_something_are_tried() {
        let large = Serving {
            engine: "vLLM".to_owned(),
            memory_utilization: 0.9,
            max_num_batched_tokens: 8192,
            max_num_seqs: 256,
            tensor_parallel: 2,
            ..Serving::default()
        };
        let all = [
            "gpu_memory_utilization=0.95",
            "max_num_batched_tokens=2048",
            "max_num_seqs=64",
            "quantization=fp8",
            "tensor_parallel_size=4",
        ];
        assert_eq!(names(&large), all);
        let small = Serving {
            engine: "vLLM".to_owned(),
            memory_utilization: 0.95,
            quantization: "awq".to_owned(),
            ..Serving::default()
        };
        assert_eq!(names(&small), ["tensor_parallel_size=2"]);
        let sglang = Serving { engine: "SGLang".to_owned(), kv_cache_dtype: "auto".to_owned(), ..large };
        assert_eq!(names(&sglang), ["kv_cache_dtype=fp8_e4m3", "quantization=fp8"]);
    }

    #[test]
    fn an_answer_that_depends_on_another_start_has_it() {
        let cold = Serving { ready: true, compiled: true, ..Serving::default() };
        assert_eq!(further(&cold), ["a later start"]);
        assert!(further(&Serving { compiled: false, ..cold.clone() }).is_empty());
        let failed = Serving {
            max_model_len: 131_072,
            kv_cache_bytes: Some(8 << 30),
            needed_kv_cache_bytes: Some(16 << 30),
            possible_model_len: Some(65_536),
            ..Serving::default()
        };
        assert_eq!(further(&failed), ["max_model_len=63488"]);
        let quantized = Serving { kv_cache_bytes: Some(12 << 30), possible_model_len: Some(98_304), ..failed.clone() };
        let fp8 = OutsideRemedy::EngineOptions(vec![("quantization", json!("fp8"))]);
        let (length, both) = with_shorter_requests(&failed, &fp8, &quantized).unwrap();
        assert_eq!((length, both.describe()), (96_256, "quantization=fp8, max_model_len=96256".to_owned()));
        let on_two_gpus = Serving { tensor_parallel: 2, ..quantized.clone() };
        for other in [&failed, &on_two_gpus, &Serving { ready: true, ..quantized }] {
            assert_eq!(with_shorter_requests(&failed, &fp8, other), None);
        }
        assert!(further(&Serving { possible_model_len: None, ..failed }).is_empty());
    }
}
