//! Advice for a full device that an engine for language models fills.

use crate::explain::systems::{Engine, engines};
use crate::stacks::frames::FrameReport;

/// Functions that load weights, or make the modules that hold them.
const LOADING: [&str; 5] = ["load_model", "load_weights", "create_weights", "get_model", "make_layers"];

/// The advice if a line of `frames` is an engine's; without frames, for the engine that the log names and whose weights
/// may not be loaded.
pub(super) fn advice(frames: &[FrameReport], named: Option<(&Engine, bool)>) -> Option<&'static str> {
    let (engine, loads) = if frames.is_empty() { named? } else { (of_frames(frames)?, frames.iter().any(is_loading)) };
    Some(if loads { engine.weights } else { engine.running })
}

fn of_frames(frames: &[FrameReport]) -> Option<&'static Engine> {
    let is_in = |frame: &FrameReport, engine: &Engine| {
        folders(frame)
            .windows(2)
            .any(|pair| pair[0] == engine.package && (engine.folders.is_empty() || engine.folders.contains(&pair[1])))
    };
    engines().find(|engine| frames.iter().any(|frame| is_in(frame, engine)))
}

/// True if the function loads weights, or makes a module of a model.
fn is_loading(frame: &FrameReport) -> bool {
    LOADING.contains(&frame.name.as_str()) || frame.name == "__init__" && folders(frame).contains(&"models")
}

fn folders(frame: &FrameReport) -> Vec<&str> {
    frame.file.split(['/', '\\']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::systems::engine_in;

    fn frame(file: &str, name: &str) -> FrameReport {
        FrameReport { file: file.to_owned(), line: 1, name: name.to_owned() }
    }

    #[test]
    fn the_options_of_the_engine_lead_by_what_it_does() {
        let of = |file: &str, name: &str| advice(&[frame("torch/nn/functional.py", "linear"), frame(file, name)], None);
        let vllm = "/opt/site-packages/vllm/v1/worker/gpu_model_runner.py";
        assert!(of(vllm, "load_model").unwrap().contains("--tensor-parallel-size"));
        assert!(of(vllm, "_dummy_run").unwrap().contains("--gpu-memory-utilization"));
        assert!(of(vllm, "__init__").unwrap().contains("--gpu-memory-utilization"));
        let llama = "/opt/site-packages/vllm/model_executor/models/llama.py";
        assert!(of(llama, "__init__").unwrap().contains("--tensor-parallel-size"));
        assert!(of(llama, "forward").unwrap().contains("--gpu-memory-utilization"));
        assert!(of("/sgl/python/sglang/srt/layers/linear.py", "forward").unwrap().contains("--mem-fraction-static"));
        assert!(of("/opt/text_generation_server/server.py", "Prefill").unwrap().contains("--max-batch-total-tokens"));
        assert_eq!(of("/home/me/vllm/train.py", "main"), None);
        assert_eq!(of("/app/train.py", "load_model"), None);
    }

    #[test]
    fn an_engine_that_the_log_names_counts_without_a_traceback() {
        let named = |line| engine_in(line);
        assert!(advice(&[], named("vllm serve x")).unwrap().contains("--gpu-memory-utilization"));
        assert!(advice(&[], named("ShardCannotStart")).unwrap().contains("--num-shard"));
        assert_eq!(advice(&[frame("/app/train.py", "main")], named("vllm serve x")), None);
        assert_eq!(advice(&[], None), None);
    }
}
