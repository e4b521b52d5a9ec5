//! Engines that serve language models: their own options decide what PyTorch allocates.

/// An engine, known by its files in a traceback, or by words that it prints.
#[derive(Debug, PartialEq, Eq)]
pub struct Engine {
    pub package: &'static str,
    /// Folders of the package, one of which every file of the engine is in. Empty for all.
    pub folders: &'static [&'static str],
    /// Words of its log and its command line.
    words: &'static [&'static str],
    /// Words of its log if a start ends before the weights are loaded.
    load_failures: &'static [&'static str],
    /// The command that starts it without a GPU, and tries what makes room.
    pub dry_run: Option<&'static str>,
    /// The advice while the weights are loaded.
    pub weights: &'static str,
    /// The advice afterwards: in the profile run, in the capture of graphs, under load.
    pub running: &'static str,
}

const ENGINES: [Engine; 3] = [
    Engine {
        package: "vllm",
        folders: &["compilation", "distributed", "engine", "entrypoints", "executor", "model_executor", "v1", "worker"],
        words: &["vllm serve ", "vllm.entrypoints", "(EngineCore", "Error in model execution (input dumped"],
        load_failures: &[],
        dry_run: Some("oomscope dry-run --gpu h100 --try -- vllm serve DIR"),
        weights: "Let the weights of each GPU take less: --tensor-parallel-size over more GPUs, or a quantized model.",
        running: "Lower --gpu-memory-utilization (about 0.9 unless set): the KV cache then leaves more room for \
                  activations. --max-num-batched-tokens and --max-num-seqs lower what they need, --enforce-eager saves CUDA \
                  graphs.",
    },
    Engine {
        package: "sglang",
        folders: &["srt"],
        words: &["sglang.launch_server", "(SGLang"],
        load_failures: &[],
        dry_run: Some("oomscope dry-run --gpu h100 --try -- python -m sglang.launch_server --model-path DIR"),
        weights: "Let the weights of each GPU take less: --tp over more GPUs, or a quantized model.",
        running: "Lower --mem-fraction-static: the KV cache then leaves more room for activations. \
                  --chunked-prefill-size and --max-running-requests lower what they need, --cuda-graph-max-bs the graphs.",
    },
    Engine {
        package: "text_generation_server",
        folders: &[],
        words: &[
            "text_generation_launcher",
            "text_generation_client",
            "text_generation_router",
            "Unable to warmup model",
        ],
        load_failures: &["ShardCannotStart"],
        dry_run: None,
        weights: "Let the weights of each GPU take less: --num-shard over more GPUs, or --quantize.",
        running: "Set --max-batch-total-tokens below what the server computed at its start: the KV cache then leaves more \
                  room for activations. --max-batch-prefill-tokens lowers what they need.",
    },
];

/// Every engine.
pub fn engines() -> impl Iterator<Item = &'static Engine> {
    ENGINES.iter()
}

/// The engine that a line of a log names, and whether the line says that the weights were not loaded.
pub fn engine_in(line: &str) -> Option<(&'static Engine, bool)> {
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    engines().find_map(|engine| {
        let fails = has(engine.load_failures);
        (fails || has(engine.words)).then_some((engine, fails))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_known_by_its_words() {
        let named = |line: &str| engine_in(line).map(|(engine, fails)| (engine.package, fails));
        assert_eq!(named("$ python -m vllm.entrypoints.openai.api_server --model x"), Some(("vllm", false)));
        assert_eq!(named("Error: ShardCannotStart"), Some(("text_generation_server", true)));
        assert_eq!(named("pip install vllm sglang"), None);
    }
}
