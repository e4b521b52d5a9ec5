//! The code of the table that a failure comes from: engines that serve language models, trainers.

use crate::explain::table::{Place, places};
use crate::stacks::engines::Engine;
use crate::stacks::frames::FrameReport;

/// The first place of the table that `frames` show; without frames, the one that the log names. A place without frames
/// of its own, such as a kind of machine, needs none.
pub(super) fn find(frames: &[FrameReport], named: Option<&'static Place>) -> Option<&'static Place> {
    let is_in = |frame: &FrameReport, place: &Place| {
        let file = frame.file.replace('\\', "/");
        let is_engine = Engine::of_file(&file).is_some_and(|engine| engine.name == place.engine);
        (is_engine || place.files.iter().any(|folder| file.contains(folder)))
            && (place.functions.is_empty() || place.functions.contains(&frame.name))
    };
    let named = named.filter(|place| frames.is_empty() || place.files.is_empty() && place.engine.is_empty());
    named.or_else(|| places().find(|place| frames.iter().any(|frame| is_in(frame, place))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str, name: &str) -> FrameReport {
        FrameReport::new(file.to_owned(), 1, name.to_owned())
    }

    #[test]
    fn the_options_of_the_engine_lead_by_what_it_does() {
        let of = |file: &str, name: &str| {
            let place = find(&[frame("torch/nn/functional.py", "linear"), frame(file, name)], None);
            place.map_or("", |place| place.advice.as_str())
        };
        let vllm = "/opt/site-packages/vllm/v1/worker/gpu_model_runner.py";
        assert!(of(vllm, "load_model").contains("--tensor-parallel-size"));
        assert!(of(vllm, "_dummy_run").contains("--gpu-memory-utilization"));
        assert!(of(vllm, "__init__").contains("--gpu-memory-utilization"));
        let llama = "/opt/site-packages/vllm/model_executor/models/llama.py";
        assert!(of(llama, "__init__").contains("--tensor-parallel-size"));
        assert!(of(llama, "forward").contains("--gpu-memory-utilization"));
        assert!(of("/sgl/python/sglang/srt/layers/linear.py", "forward").contains("--mem-fraction-static"));
        assert!(of("/opt/text_generation_server/server.py", "Prefill").contains("--max-batch-total-tokens"));
        let zero = "/opt/site-packages/deepspeed/runtime/zero/stage_1_and_2.py";
        assert!(of(zero, "initialize_optimizer_states").contains("optimizer's state"));
        assert!(of("/opt/torch/optim/adamw.py", "_init_group").contains("8-bit Adam"));
        assert_eq!(of("/home/me/vllm/train.py", "main"), "");
        assert_eq!(of("/app/train.py", "load_model"), "");
    }

    #[test]
    fn an_engine_that_the_log_names_counts_without_a_traceback() {
        let named = places().find(|place| place.words.iter().any(|word| word == "vllm serve "));
        assert!(find(&[], named).unwrap().advice.contains("--gpu-memory-utilization"));
        assert_eq!(find(&[frame("/app/train.py", "main")], named), None);
        assert_eq!(find(&[], None), None);
    }
}
