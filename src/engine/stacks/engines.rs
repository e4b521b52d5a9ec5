//! Engines that serve language models: everything that oomscope knows of each. To add one, add its row.

use serde::{Serialize, Serializer};

use super::frames::forward_slashes;

/// A serving engine.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Engine {
    /// As its project writes it.
    pub name: &'static str,
    /// Folders whose code allocates for the engine alone. Others may be used by programs that wrap it.
    allocating: &'static [&'static str],
    /// Folders of the code that loads weights.
    loaders: &'static [&'static str],
    /// Folders of models, whose constructors make weights.
    models: &'static [&'static str],
    /// Folders of the code of the KV cache, each with its functions that allocate; all functions if there are none.
    caches: &'static [(&'static str, &'static [&'static str])],
    /// A word of the command that starts it.
    command: &'static str,
    /// The option for the number of GPUs that share a layer, if a dry run starts with more than one.
    pub gpus_option: Option<&'static str>,
    /// An option of a dry run, and its value, with which requests are as long as the memory allows.
    pub longest_option: Option<(&'static str, i64)>,
    /// The option for its share of the memory.
    pub share_option: &'static str,
    /// Options that make room for the KV cache, the least change first.
    pub changes: &'static [(&'static str, EngineChange)],
    /// Calls that take its memory off the device and bring it back, and the option that they need.
    pub sleep_calls: [&'static str; 3],
}

/// A value of an option that makes room for the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EngineChange {
    /// A share of the memory that leaves less for other processes.
    MoreMemory,
    FewerTokens,
    FewerRequests,
    QuantizedWeights,
    QuantizedCache,
    MoreGpus,
}

impl Serialize for Engine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

/// Functions of vLLM that allocate the KV cache, in several releases.
const VLLM_CACHE: &[&str] =
    &["allocate_kv_cache", "_allocate_kv_cache", "_allocate_kv_cache_tensors", "initialize_kv_cache_tensors"];

/// Folders and functions are those of vLLM 0.19 and 0.33, of the engine before its V1, and of `SGLang` 0.5.
static ENGINES: [Engine; 2] = [
    Engine {
        name: "vLLM",
        allocating: &["/vllm/v1/", "/vllm/worker/", "/vllm/model_executor/"],
        loaders: &["/vllm/model_executor/model_loader/"],
        models: &["/vllm/model_executor/models/"],
        caches: &[("/vllm/v1/worker/", VLLM_CACHE), ("/vllm/worker/", VLLM_CACHE)],
        command: "vllm",
        gpus_option: Some("tensor_parallel_size"),
        longest_option: Some(("max_model_len", -1)),
        share_option: "gpu_memory_utilization",
        changes: &[
            ("gpu_memory_utilization", EngineChange::MoreMemory),
            ("max_num_batched_tokens", EngineChange::FewerTokens),
            ("max_num_seqs", EngineChange::FewerRequests),
            ("quantization", EngineChange::QuantizedWeights),
            ("tensor_parallel_size", EngineChange::MoreGpus),
        ],
        sleep_calls: ["llm.sleep()", "llm.wake_up()", "LLM(enable_sleep_mode=True)"],
    },
    Engine {
        name: "SGLang",
        allocating: &["/sglang/srt/"],
        loaders: &["/sglang/srt/model_loader/"],
        models: &["/sglang/srt/models/"],
        caches: &[("/sglang/srt/mem_cache/", &[])],
        command: "sglang",
        gpus_option: None,
        longest_option: None,
        share_option: "mem_fraction_static",
        // Its share of the memory leaves the rest for activations.
        changes: &[("kv_cache_dtype", EngineChange::QuantizedCache), ("quantization", EngineChange::QuantizedWeights)],
        sleep_calls: [
            "engine.release_memory_occupation()",
            "engine.resume_memory_occupation()",
            "Engine(enable_memory_saver=True)",
        ],
    },
];

impl Engine {
    /// The engine whose project writes its name so.
    pub fn of_name(name: &str) -> Option<&'static Self> {
        ENGINES.iter().find(|engine| engine.name == name)
    }

    /// The engine that a frame of `file` belongs to. Directories of the packages alone: those that wrap an engine have its
    /// name, too.
    pub fn of_file(file: &str) -> Option<&'static Self> {
        let file = &*forward_slashes(file);
        ENGINES.iter().find(|engine| engine.allocating.iter().any(|folder| file.contains(folder)))
    }

    /// The engine that `words` of a command start.
    pub fn of_command(words: &[impl AsRef<str>]) -> Option<&'static Self> {
        ENGINES.iter().find(|engine| words.iter().any(|word| word.as_ref().contains(engine.command)))
    }

    /// Whether `words` of a command start the server of an engine, and no program of the user.
    pub fn is_server(words: &[impl AsRef<str>]) -> bool {
        let program = words.first().and_then(|word| word.as_ref().rsplit('/').next());
        let module = words.windows(2).find(|pair| pair[0].as_ref() == "-m");
        let package = module.and_then(|pair| pair[1].as_ref().split('.').next());
        ENGINES.iter().any(|engine| [program, package].contains(&Some(engine.command)))
    }

    /// Whether function `name` of `file` loads the weights of an engine, or makes the modules that hold them.
    pub(super) fn builds_model(file: &str, name: &str) -> bool {
        ENGINES.iter().any(|engine| {
            let models = if name == "__init__" { engine.models } else { &[] };
            engine.loaders.iter().chain(models).any(|folder| file.contains(folder))
        })
    }

    /// Whether function `name` of `file` allocates the KV cache of an engine.
    pub(super) fn allocates_cache(file: &str, name: &str) -> bool {
        let mut caches = ENGINES.iter().flat_map(|engine| engine.caches).filter(|(folder, _)| file.contains(folder));
        caches.any(|(_, functions)| functions.is_empty() || functions.contains(&name))
    }
}
