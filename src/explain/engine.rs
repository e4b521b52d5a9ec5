//! Engines that serve language models: their own options decide what PyTorch allocates.

use crate::stacks::frames::FrameReport;

/// An engine, known by its files in a traceback.
struct Engine {
    package: &'static str,
    /// Folders of the package, one of which every file of the engine is in.
    folders: &'static [&'static str],
    /// The advice while the weights are loaded.
    weights: &'static str,
    /// The advice afterwards: in the profile run, in the capture of graphs, under load.
    running: &'static str,
}

const ENGINES: [Engine; 2] = [
    Engine {
        package: "vllm",
        folders: &["engine", "entrypoints", "executor", "model_executor", "v1", "worker"],
        weights: "Let the weights of each GPU take less: --tensor-parallel-size over more GPUs, or a quantized model.",
        running: "Lower --gpu-memory-utilization (about 0.9 unless set): the KV cache then leaves more room for \
                  activations. --max-num-batched-tokens and --max-num-seqs lower what they need, --enforce-eager saves CUDA \
                  graphs.",
    },
    Engine {
        package: "sglang",
        folders: &["srt"],
        weights: "Let the weights of each GPU take less: --tp over more GPUs, or a quantized model.",
        running: "Lower --mem-fraction-static: the KV cache then leaves more room for activations. \
                  --chunked-prefill-size and --max-running-requests lower what they need, --cuda-graph-max-bs the graphs.",
    },
];

/// Functions that load weights, or make the modules that hold them.
const LOADING: [&str; 3] = ["load_model", "load_weights", "create_weights"];

/// The advice for a full device if `frames` has a line of an engine.
pub(super) fn advice(frames: &[FrameReport]) -> Option<&'static str> {
    let is_in = |frame: &FrameReport, engine: &Engine| {
        let parts: Vec<&str> = frame.file.split(['/', '\\']).collect();
        parts.windows(2).any(|pair| pair[0] == engine.package && engine.folders.contains(&pair[1]))
    };
    let engine = ENGINES.iter().find(|engine| frames.iter().any(|frame| is_in(frame, engine)))?;
    let loads = frames.iter().any(|frame| LOADING.contains(&frame.name.as_str()));
    Some(if loads { engine.weights } else { engine.running })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str, name: &str) -> FrameReport {
        FrameReport { file: file.to_owned(), line: 1, name: name.to_owned() }
    }

    #[test]
    fn the_options_of_the_engine_lead_by_what_it_does() {
        let of = |file: &str, name: &str| advice(&[frame("torch/nn/functional.py", "linear"), frame(file, name)]);
        let vllm = "/opt/site-packages/vllm/v1/worker/gpu_model_runner.py";
        assert!(of(vllm, "load_model").unwrap().contains("--tensor-parallel-size"));
        assert!(of(vllm, "_dummy_run").unwrap().contains("--gpu-memory-utilization"));
        assert!(of("/sgl/python/sglang/srt/layers/linear.py", "forward").unwrap().contains("--mem-fraction-static"));
        assert_eq!(of("/home/me/vllm/train.py", "main"), None);
        assert_eq!(of("/app/train.py", "load_model"), None);
    }
}
