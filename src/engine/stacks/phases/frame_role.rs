//! The phases of a training or inference program, and the phase and the purpose of an allocation, as far as a single frame
//! reveals them.

use crate::base::warning::words;
use crate::stacks::engines::Engine;
use crate::stacks::frames::{Origin, forward_slashes};

words! {
    /// The part of the program that allocated.
    pub enum Phase {
        /// Building, moving or loading a model or optimizer
        Init = "init",
        /// Loading or moving the model's inputs
        Data = "data",
        /// The forward pass, including the loss
        Forward = "forward",
        /// The backward pass, including recomputation by activation checkpointing
        Backward = "backward",
        /// The optimizer step, including gradient clipping and unscaling
        Optimizer = "optimizer",
        /// Anything else, or unknown
        Other = "other",
    }
}

/// The purpose of memory that known PyTorch code allocates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownPurpose {
    /// Moves or shards a model.
    Parameters,
    /// Builds or loads a model, with temporaries in between.
    Model,
    /// Gathers sharded parameters for a pass.
    GatheredParameters,
    /// Keys and values of earlier tokens.
    KvCache,
    /// Buffers that collectives send and receive.
    Communication,
    /// DDP buckets, in which gradients are sent and possibly kept.
    GradientBuckets,
    /// Buffers that sharded gradients are reduced from and into.
    ReducedGradients,
    /// Initializes optimizer state.
    OptimizerState,
    /// The step of an optimizer whose state exists already: temporaries.
    OptimizerStep,
    /// A buffer in which Megatron-LM accumulates all gradients.
    GradientBuffer,
    /// `AccumulateGrad`.
    Gradients,
    /// cuBLAS workspaces, which stay allocated.
    Workspace,
}

/// The role of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameRole {
    Nothing,
    /// Any constructor or file loader: init, unless another frame is more specific.
    Constructor,
    /// A constructor in a file named after an optimizer.
    OptimizerConstructor,
    /// `__getitem__`: data, unless another frame is more specific.
    Indexing,
    /// Its code shows no more than the phase.
    InPhase(Phase),
    /// Its code, and what it calls, allocates for this purpose.
    Allocates(KnownPurpose),
    /// Optimizer: a PyTorch step that creates its state on the way. Other code inside it is a closure.
    StepCreatingState,
    /// Optimizer: a PyTorch step whose state other code creates first.
    StepWithReadyState,
    /// Optimizer: PyTorch's code for all parameters of a step at once (`foreach`).
    ForeachStep,
    /// Optimizer: PyTorch code that initializes optimizer state during a step.
    StateInStep,
    /// Init: PyTorch code that initializes optimizer state in a constructor.
    StateInInit,
    /// DDP code that allocates buckets itself; does not apply to what it calls.
    GradientBuckets,
    /// Code that wraps collectives: allocates buffers itself; does not apply to what it calls.
    CollectiveWrapper,
    ZeroGrad,
}

impl FrameRole {
    pub(super) fn phase(self) -> Option<Phase> {
        match self {
            Self::Constructor
            | Self::OptimizerConstructor
            | Self::Allocates(KnownPurpose::Parameters | KnownPurpose::Model)
            | Self::StateInInit => Some(Phase::Init),
            Self::Indexing => Some(Phase::Data),
            Self::InPhase(phase) => Some(phase),
            Self::Allocates(KnownPurpose::Gradients) => Some(Phase::Backward),
            Self::StepCreatingState | Self::StepWithReadyState | Self::ForeachStep | Self::StateInStep => {
                Some(Phase::Optimizer)
            }
            Self::Nothing | Self::Allocates(_) | Self::GradientBuckets | Self::CollectiveWrapper | Self::ZeroGrad => {
                None
            }
        }
    }

    pub(super) fn purpose(self) -> Option<KnownPurpose> {
        match self {
            Self::Allocates(purpose) => Some(purpose),
            Self::StateInStep | Self::StateInInit => Some(KnownPurpose::OptimizerState),
            _ => None,
        }
    }

    /// Classifies a frame. File and function names are those of PyTorch 2.1 to 2.15.
    pub(super) fn classify(file: &str, name: &str, origin: Origin) -> Self {
        if origin == Origin::Native {
            return native_role(name);
        }
        let file = &*forward_slashes(file);
        if matches!(name, "backward" | "_engine_run_backward" | "unpack_hook" | "recompute_fn") {
            return Self::InPhase(Phase::Backward);
        }
        if name == "_call_impl" || name == "_wrapped_call_impl" || name == "forward" {
            return Self::InPhase(Phase::Forward);
        }
        let inside = match origin {
            Origin::Torch => file.rsplit_once("torch/").map_or(file, |(_, inside)| inside),
            _ => return other_role(file, name),
        };
        if let Some(sign) = sharding_role(inside, name) {
            return sign;
        }
        // `rsplit_once` above is safe: PyTorch has no directory `torch/` below its own.
        match (inside, name) {
            ("nn/modules/module.py", "_apply" | "to_empty") => Self::Allocates(KnownPurpose::Parameters),
            ("nn/modules/module.py", "load_state_dict")
            | (_, "reset_parameters")
            | ("nn/init.py" | "nn/parameter.py", _)
            // Weight averaging copies the model.
            | ("optim/swa_utils.py", "__init__") => Self::Allocates(KnownPurpose::Model),
            (_, "__init__") if inside.starts_with("nn/") => Self::Allocates(KnownPurpose::Model),
            ("serialization.py", _) => Self::Constructor,
            ("optim/optimizer.py" | "nn/modules/module.py", "zero_grad") => Self::ZeroGrad,
            (_, "__init__" | "add_param_group") if inside.starts_with("optim/") => Self::StateInInit,
            (_, "_init_group" | "_init_state") if inside.starts_with("optim/") => Self::StateInStep,
            ("optim/sgd.py" | "optim/lbfgs.py", "step") => Self::StepCreatingState,
            // `step` in optimizer.py also wraps the steps of custom optimizers.
            (_, "step") if inside.starts_with("optim/") && inside != "optim/optimizer.py" => Self::StepWithReadyState,
            ("amp/grad_scaler.py", "scale")
            | ("utils/checkpoint.py" | "nn/functional.py", _) => Self::InPhase(Phase::Forward),
            ("amp/grad_scaler.py" | "nn/utils/clip_grad.py", _) => Self::InPhase(Phase::Optimizer),
            ("autograd/__init__.py", _) => Self::InPhase(Phase::Backward),
            _ if inside.starts_with("optim/") && name.starts_with("_multi_tensor_") => Self::ForeachStep,
            _ if inside.starts_with("optim/") => Self::InPhase(Phase::Optimizer),
            _ if inside.starts_with("utils/data/") => Self::InPhase(Phase::Data),
            _ => Self::Nothing,
        }
    }
}

/// Roles in PyTorch's distributed code. Directories differ between releases, file names do not.
fn sharding_role(inside: &str, name: &str) -> Option<FrameRole> {
    if inside == "nn/parallel/distributed.py" {
        return match name {
            "_ddp_init_helper" | "_pre_forward" => Some(FrameRole::GradientBuckets),
            "forward" | "backward" | "__init__" => None,
            _ => Some(FrameRole::CollectiveWrapper),
        };
    }
    let (_, file) = inside.strip_prefix("distributed/")?.rsplit_once('/').unwrap_or(("", inside));
    Some(match (file, name) {
        ("_fsdp_param.py", "_init_sharded_param" | "reset_sharded_param")
        | ("_flat_param.py", "flatten_tensors" | "_get_shard")
        | ("_init_utils.py", "_move_states_to_device")
        | ("zero_redundancy_optimizer.py", "_build_param_buckets")
        | ("_api.py" | "api.py", "distribute_module") => FrameRole::Allocates(KnownPurpose::Parameters),
        ("_fsdp_param.py", "init_all_gather_outputs" | "alloc_all_gather_outputs")
        | ("_flat_param.py", "_alloc_padded_unsharded_flat_param") => {
            FrameRole::Allocates(KnownPurpose::GatheredParameters)
        }
        ("_fsdp_collectives.py", "foreach_all_gather" | "foreach_all_gather_copy_out")
        | ("_flat_param.py", "init_flat_param_attributes" | "_use_low_precision_shard") => {
            FrameRole::Allocates(KnownPurpose::Communication)
        }
        ("_fsdp_collectives.py", "foreach_reduce") | ("_runtime_utils.py", "_reduce_grad" | "_post_backward_hook") => {
            FrameRole::Allocates(KnownPurpose::ReducedGradients)
        }
        ("distributed/distributed_c10d.py", _)
        | ("distributed/utils.py", "_sync_module_states" | "_sync_params_and_buffers") => FrameRole::CollectiveWrapper,
        _ => return None,
    })
}

/// Roles of C++ frames: backward pass, workspaces, DDP and collectives.
fn native_role(name: &str) -> FrameRole {
    if name.contains("CUDABlasWorkspace") || name.starts_with("at::cuda::getCurrentCUDABlas") {
        FrameRole::Allocates(KnownPurpose::Workspace)
    } else if name.starts_with("torch::autograd::AccumulateGrad::") {
        FrameRole::Allocates(KnownPurpose::Gradients)
    } else if name.starts_with("torch::autograd::Engine::") {
        FrameRole::InPhase(Phase::Backward)
    } else if name.starts_with("c10d::Reducer::") {
        FrameRole::GradientBuckets
    } else if name.starts_with("c10d::") {
        FrameRole::Allocates(KnownPurpose::Communication)
    } else {
        FrameRole::Nothing
    }
}

/// Whether the frame is the constructor of Megatron-LM's buffers, one for parameters and one for gradients.
pub(super) fn builds_megatron_buffers((file, name): (&str, &str)) -> bool {
    name == "__init__" && forward_slashes(file).ends_with("/param_and_grad_buffer.py")
}

/// Roles of frames outside PyTorch: in serving engines, in transformers, and by conventional function names.
fn other_role(file: &str, name: &str) -> FrameRole {
    let is_cache = file.ends_with("/transformers/cache_utils.py") && matches!(name, "update" | "lazy_initialization");
    match name {
        _ if Engine::builds_model(file, name) => FrameRole::Allocates(KnownPurpose::Model),
        _ if is_cache || Engine::allocates_cache(file, name) => FrameRole::Allocates(KnownPurpose::KvCache),
        "step" if is_optimizer_file(file) => FrameRole::InPhase(Phase::Optimizer),
        "collate" | "collate_fn" => FrameRole::InPhase(Phase::Data),
        "from_pretrained" | "load_state_dict" => FrameRole::InPhase(Phase::Init),
        "__getitem__" => FrameRole::Indexing,
        "__init__" if is_optimizer_file(file) => FrameRole::OptimizerConstructor,
        "__init__" => FrameRole::Constructor,
        _ => FrameRole::Nothing,
    }
}

/// Looks at the file name and its directory only: components further up may be the name of a user or project.
fn is_optimizer_file(file: &str) -> bool {
    let mut parts = file.rsplit(['/', '\\']);
    let is_file = parts.next().is_some_and(|name| name.contains("optim") || name.contains("adam"));
    is_file || matches!(parts.next(), Some("optim" | "optimizer" | "optimizers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(file: &str, name: &str) -> FrameRole {
        FrameRole::classify(file, name, Origin::classify(file, 7, name))
    }

    fn torch_role(file: &str, name: &str) -> FrameRole {
        role(&format!("/venv/lib/python3.12/site-packages/torch/{file}"), name)
    }

    #[test]
    fn classifies_frames() {
        for (found, wanted) in [
            (torch_role("nn/modules/module.py", "_apply"), FrameRole::Allocates(KnownPurpose::Parameters)),
            (torch_role("nn/modules/module.py", "_call_impl"), FrameRole::InPhase(Phase::Forward)),
            (torch_role("nn/modules/linear.py", "forward"), FrameRole::InPhase(Phase::Forward)),
            (torch_role("nn/modules/linear.py", "__init__"), FrameRole::Allocates(KnownPurpose::Model)),
            (torch_role("nn/functional.py", "softmax"), FrameRole::InPhase(Phase::Forward)),
            (torch_role("nn/init.py", "kaiming_uniform_"), FrameRole::Allocates(KnownPurpose::Model)),
            (torch_role("nn/parallel/distributed.py", "_ddp_init_helper"), FrameRole::GradientBuckets),
            (torch_role("nn/parallel/distributed.py", "forward"), FrameRole::InPhase(Phase::Forward)),
            (torch_role("nn/parallel/distributed.py", "_pre_forward"), FrameRole::GradientBuckets),
            (torch_role("distributed/distributed_c10d.py", "all_gather_object"), FrameRole::CollectiveWrapper),
            (torch_role("distributed/utils.py", "to_map"), FrameRole::Nothing),
            (
                torch_role("distributed/fsdp/_flat_param.py", "_get_shard"),
                FrameRole::Allocates(KnownPurpose::Parameters),
            ),
            (
                torch_role("distributed/_composable/fsdp/_fsdp_param.py", "alloc_all_gather_outputs"),
                FrameRole::Allocates(KnownPurpose::GatheredParameters),
            ),
            (
                torch_role("distributed/fsdp/_fully_shard/_fsdp_collectives.py", "foreach_reduce"),
                FrameRole::Allocates(KnownPurpose::ReducedGradients),
            ),
            (torch_role("_tensor.py", "backward"), FrameRole::InPhase(Phase::Backward)),
            (torch_role("autograd/__init__.py", "_make_grads"), FrameRole::InPhase(Phase::Backward)),
            (torch_role("autograd/function.py", "apply"), FrameRole::Nothing),
            (torch_role("utils/checkpoint.py", "unpack_hook"), FrameRole::InPhase(Phase::Backward)),
            (torch_role("utils/checkpoint.py", "checkpoint"), FrameRole::InPhase(Phase::Forward)),
            (torch_role("optim/adam.py", "_init_group"), FrameRole::StateInStep),
            (torch_role("optim/adam.py", "_multi_tensor_adam"), FrameRole::ForeachStep),
            (torch_role("optim/adam.py", "_single_tensor_adam"), FrameRole::InPhase(Phase::Optimizer)),
            (torch_role("optim/adam.py", "step"), FrameRole::StepWithReadyState),
            (torch_role("optim/sgd.py", "step"), FrameRole::StepCreatingState),
            (torch_role("optim/optimizer.py", "step"), FrameRole::InPhase(Phase::Optimizer)),
            (torch_role("optim/adagrad.py", "__init__"), FrameRole::StateInInit),
            (torch_role("amp/grad_scaler.py", "scale"), FrameRole::InPhase(Phase::Forward)),
            (torch_role("amp/grad_scaler.py", "_unscale_grads_"), FrameRole::InPhase(Phase::Optimizer)),
            (torch_role("utils/data/dataloader.py", "__next__"), FrameRole::InPhase(Phase::Data)),
            (torch_role("_ops.py", "__call__"), FrameRole::Nothing),
            (
                role("/venv/site-packages/vllm/v1/worker/utils.py", "allocate_kv_cache"),
                FrameRole::Allocates(KnownPurpose::KvCache),
            ),
            (role("/venv/site-packages/vllm/v1/worker/utils.py", "bind_kv_cache"), FrameRole::Nothing),
            (
                role("/venv/site-packages/vllm/worker/cache_engine.py", "_allocate_kv_cache"),
                FrameRole::Allocates(KnownPurpose::KvCache),
            ),
            (
                role("/venv/site-packages/sglang/srt/mem_cache/memory_pool.py", "_zeros"),
                FrameRole::Allocates(KnownPurpose::KvCache),
            ),
            (
                role("/venv/site-packages/sglang/srt/model_loader/loader.py", "load_model"),
                FrameRole::Allocates(KnownPurpose::Model),
            ),
            (
                role("/venv/site-packages/transformers/cache_utils.py", "update"),
                FrameRole::Allocates(KnownPurpose::KvCache),
            ),
            (role("/app/train.py", "train"), FrameRole::Nothing),
            (role("/app/train.py", "step"), FrameRole::Nothing),
            (role("/app/optimizer.py", "step"), FrameRole::InPhase(Phase::Optimizer)),
            (role("/app/optim/lion.py", "step"), FrameRole::InPhase(Phase::Optimizer)),
            (role("/home/adam/optimum/train.py", "step"), FrameRole::Nothing),
            (role("/app/model.py", "__init__"), FrameRole::Constructor),
            (role("/app/table.py", "__getitem__"), FrameRole::Indexing),
            (torch_role("serialization.py", "load"), FrameRole::Constructor),
            (role(r"C:\venv\Lib\site-packages\torch\optim\adam.py", "_init_group"), FrameRole::StateInStep),
            (
                role("??", "torch::autograd::Engine::thread_main(std::shared_ptr<...> const&)"),
                FrameRole::InPhase(Phase::Backward),
            ),
            (
                role("??", "at::cuda::allocateCUDABlasWorkspace(unsigned long)"),
                FrameRole::Allocates(KnownPurpose::Workspace),
            ),
        ] {
            assert_eq!(found, wanted);
        }
    }
}
