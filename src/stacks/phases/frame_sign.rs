//! What one frame says of the phase and of the memory that its code makes.

use super::phase::Phase;
use crate::stacks::frames::{Origin, slashed};

/// What PyTorch's own code is known to make memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Makes {
    /// Code that moves or shards a model.
    Parameters,
    /// Code that builds or loads a model, and needs other memory on the way.
    Model,
    /// Code that puts sharded parameters together for a pass.
    GatheredParameters,
    /// Code that makes what collectives send and receive.
    Communication,
    /// Code that makes the buckets in which gradients are sent, or kept as well.
    Buckets,
    /// Code that makes what gradients are reduced from, and into.
    ReducedGradients,
    /// Code that sets up an optimizer.
    OptimizerState,
    /// A step of an optimizer whose state has been set up.
    Step,
    /// C++ that keeps a gradient.
    Gradients,
    /// C++ that gets scratch memory for cuBLAS, kept for good.
    Workspace,
}

/// What one frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameSign {
    /// Nothing.
    Nothing,
    /// A constructor of anything, a file that holds anything: init, unless something around it tells more.
    Constructor,
    /// A constructor in a file of optimizers.
    ConstructorOfOptimizer,
    /// Code that picks from anything: data, likewise.
    Picks,
    Init,
    /// Init, by PyTorch's own code that moves parameters or shards them, and makes nothing else.
    Parameter,
    /// Init, by PyTorch's own code for parameters, which needs other memory on the way.
    Builds,
    Data,
    Forward,
    Backward,
    Optimizer,
    /// Optimizer, by a step of PyTorch's: what others do inside, they were handed to it for.
    Step,
    /// Likewise, where all state has been set up by other code.
    PreparedStep,
    /// Optimizer, by PyTorch's code that sets up its state.
    State,
    /// Init, likewise.
    StateOfInit,
    Gradient,
    Workspace,
    /// Code that puts sharded parameters together.
    Gather,
    /// Code that makes memory for collectives.
    Collective,
    /// Code that makes the buckets of replicated training, but nothing that it calls.
    Buckets,
    /// Code that makes the memory which gradients are reduced from, and into.
    Reduce,
    /// Collectives' own code: what it makes itself, but nothing that it calls.
    Carrier,
    /// Drops the gradients of a model or of an optimizer.
    ZeroGrad,
}

impl FrameSign {
    pub(super) fn phase(self) -> Option<Phase> {
        Some(match self {
            Self::Nothing
            | Self::Workspace
            | Self::Gather
            | Self::Collective
            | Self::Buckets
            | Self::Reduce
            | Self::Carrier
            | Self::ZeroGrad => return None,
            Self::Constructor
            | Self::ConstructorOfOptimizer
            | Self::Init
            | Self::Parameter
            | Self::Builds
            | Self::StateOfInit => Phase::Init,
            Self::Picks | Self::Data => Phase::Data,
            Self::Forward => Phase::Forward,
            Self::Backward | Self::Gradient => Phase::Backward,
            Self::Optimizer | Self::Step | Self::PreparedStep | Self::State => Phase::Optimizer,
        })
    }

    pub(super) fn makes(self) -> Option<Makes> {
        Some(match self {
            Self::Parameter => Makes::Parameters,
            Self::Builds => Makes::Model,
            Self::State | Self::StateOfInit => Makes::OptimizerState,
            Self::Gradient => Makes::Gradients,
            Self::Workspace => Makes::Workspace,
            Self::Gather => Makes::GatheredParameters,
            Self::Collective => Makes::Communication,
            Self::Reduce => Makes::ReducedGradients,
            _ => return None,
        })
    }

    /// Reads a frame. PyTorch's file and function names are those of its releases 2.1 to 2.15.
    pub(super) fn of(file: &str, name: &str, origin: Origin) -> Self {
        if origin == Origin::Native {
            return native(name);
        }
        let file = &*slashed(file);
        if matches!(name, "backward" | "_engine_run_backward" | "unpack_hook" | "recompute_fn") {
            return Self::Backward;
        }
        if name == "_call_impl" || name == "_wrapped_call_impl" || name == "forward" {
            return Self::Forward;
        }
        let inside = match origin {
            Origin::Torch => file.rsplit_once("torch/").map_or(file, |(_, inside)| inside),
            _ => return of_others(file, name),
        };
        if let Some(sign) = of_sharding(inside, name) {
            return sign;
        }
        // `rsplit_once` would cut at a torch/ inside PyTorch, which there is none of.
        match (inside, name) {
            ("nn/modules/module.py", "_apply" | "to_empty") => Self::Parameter,
            ("nn/modules/module.py", "load_state_dict")
            | (_, "reset_parameters")
            | ("nn/init.py" | "nn/parameter.py", _)
            // A second model, the average of the first.
            | ("optim/swa_utils.py", "__init__") => Self::Builds,
            (_, "__init__") if inside.starts_with("nn/") => Self::Builds,
            ("serialization.py", _) => Self::Constructor,
            ("optim/optimizer.py" | "nn/modules/module.py", "zero_grad") => Self::ZeroGrad,
            (_, "__init__" | "add_param_group") if inside.starts_with("optim/") => {
                Self::StateOfInit
            }
            (_, "_init_group" | "_init_state") if inside.starts_with("optim/") => Self::State,
            // The one in optimizer.py wraps the steps of others as well.
            (_, "step") if inside.starts_with("optim/") && inside != "optim/optimizer.py" => {
                // These two make their state on the way.
                let is_prepared = !matches!(inside, "optim/sgd.py" | "optim/lbfgs.py");
                if is_prepared { Self::PreparedStep } else { Self::Step }
            }
            ("amp/grad_scaler.py", "scale")
            | ("utils/checkpoint.py" | "nn/functional.py", _) => Self::Forward,
            ("amp/grad_scaler.py" | "nn/utils/clip_grad.py", _) => Self::Optimizer,
            ("autograd/__init__.py", _) => Self::Backward,
            _ if inside.starts_with("optim/") => Self::Optimizer,
            _ if inside.starts_with("utils/data/") => Self::Data,
            _ => Self::Nothing,
        }
    }
}

/// PyTorch's code for training on several devices, wherever a release keeps it.
fn of_sharding(inside: &str, name: &str) -> Option<FrameSign> {
    if inside == "nn/parallel/distributed.py" {
        return match name {
            "_ddp_init_helper" | "_pre_forward" => Some(FrameSign::Buckets),
            "forward" | "backward" | "__init__" => None,
            _ => Some(FrameSign::Carrier),
        };
    }
    let (_, file) = inside.strip_prefix("distributed/")?.rsplit_once('/').unwrap_or(("", inside));
    Some(match (file, name) {
        ("_fsdp_param.py", "_init_sharded_param" | "reset_sharded_param")
        | ("_flat_param.py", "flatten_tensors" | "_get_shard")
        | ("_init_utils.py", "_move_states_to_device")
        | ("zero_redundancy_optimizer.py", "_build_param_buckets")
        | ("_api.py" | "api.py", "distribute_module") => FrameSign::Parameter,
        ("_fsdp_param.py", "init_all_gather_outputs" | "alloc_all_gather_outputs")
        | ("_flat_param.py", "_alloc_padded_unsharded_flat_param") => FrameSign::Gather,
        ("_fsdp_collectives.py", "foreach_all_gather" | "foreach_all_gather_copy_out")
        | ("_flat_param.py", "init_flat_param_attributes" | "_use_low_precision_shard") => {
            FrameSign::Collective
        }
        ("_fsdp_collectives.py", "foreach_reduce")
        | ("_runtime_utils.py", "_reduce_grad" | "_post_backward_hook") => FrameSign::Reduce,
        ("distributed/distributed_c10d.py", _)
        | ("distributed/utils.py", "_sync_module_states" | "_sync_params_and_buffers") => {
            FrameSign::Carrier
        }
        _ => return None,
    })
}

/// C++ frames of the backward pass and of scratch memory.
fn native(name: &str) -> FrameSign {
    if name.contains("CUDABlasWorkspace") || name.starts_with("at::cuda::getCurrentCUDABlas") {
        FrameSign::Workspace
    } else if name.starts_with("torch::autograd::AccumulateGrad::") {
        FrameSign::Gradient
    } else if name.starts_with("torch::autograd::Engine::") {
        FrameSign::Backward
    } else if name.starts_with("c10d::Reducer::") {
        FrameSign::Buckets
    } else if name.starts_with("c10d::") {
        FrameSign::Collective
    } else {
        FrameSign::Nothing
    }
}

/// Frames that are not PyTorch's: what their names are used for everywhere.
fn of_others(file: &str, name: &str) -> FrameSign {
    match name {
        "step" if is_of_an_optimizer(file) => FrameSign::Optimizer,
        "collate" | "collate_fn" => FrameSign::Data,
        "from_pretrained" | "load_state_dict" => FrameSign::Init,
        "__getitem__" => FrameSign::Picks,
        "__init__" if is_of_an_optimizer(file) => FrameSign::ConstructorOfOptimizer,
        "__init__" => FrameSign::Constructor,
        _ => FrameSign::Nothing,
    }
}

/// By the name of the file, or of its directory: further up may stand the name of a user or a project.
fn is_of_an_optimizer(file: &str) -> bool {
    let mut parts = file.rsplit(['/', '\\']);
    let is_file = parts.next().is_some_and(|name| name.contains("optim") || name.contains("adam"));
    is_file || matches!(parts.next(), Some("optim" | "optimizer" | "optimizers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(file: &str, name: &str) -> FrameSign {
        FrameSign::of(file, name, Origin::of(file, 7, name))
    }

    #[test]
    fn frames_say_what_they_are_for() {
        let torch = "/venv/lib/python3.12/site-packages/torch";
        let of = |file: &str, name: &str| mark(&format!("{torch}/{file}"), name);
        for (found, wanted) in [
            (of("nn/modules/module.py", "_apply"), FrameSign::Parameter),
            (of("nn/modules/module.py", "_call_impl"), FrameSign::Forward),
            (of("nn/modules/linear.py", "forward"), FrameSign::Forward),
            (of("nn/modules/linear.py", "__init__"), FrameSign::Builds),
            (of("nn/functional.py", "softmax"), FrameSign::Forward),
            (of("nn/init.py", "kaiming_uniform_"), FrameSign::Builds),
            (of("nn/parallel/distributed.py", "_ddp_init_helper"), FrameSign::Buckets),
            (of("nn/parallel/distributed.py", "forward"), FrameSign::Forward),
            (of("nn/parallel/distributed.py", "_pre_forward"), FrameSign::Buckets),
            (of("distributed/distributed_c10d.py", "all_gather_object"), FrameSign::Carrier),
            (of("distributed/utils.py", "to_map"), FrameSign::Nothing),
            (of("distributed/fsdp/_flat_param.py", "_get_shard"), FrameSign::Parameter),
            (
                of("distributed/_composable/fsdp/_fsdp_param.py", "alloc_all_gather_outputs"),
                FrameSign::Gather,
            ),
            (
                of("distributed/fsdp/_fully_shard/_fsdp_collectives.py", "foreach_reduce"),
                FrameSign::Reduce,
            ),
            (of("_tensor.py", "backward"), FrameSign::Backward),
            (of("autograd/__init__.py", "_make_grads"), FrameSign::Backward),
            (of("autograd/function.py", "apply"), FrameSign::Nothing),
            (of("utils/checkpoint.py", "unpack_hook"), FrameSign::Backward),
            (of("utils/checkpoint.py", "checkpoint"), FrameSign::Forward),
            (of("optim/adam.py", "_init_group"), FrameSign::State),
            (of("optim/adam.py", "_multi_tensor_adam"), FrameSign::Optimizer),
            (of("optim/adam.py", "step"), FrameSign::PreparedStep),
            (of("optim/sgd.py", "step"), FrameSign::Step),
            (of("optim/optimizer.py", "step"), FrameSign::Optimizer),
            (of("optim/adagrad.py", "__init__"), FrameSign::StateOfInit),
            (of("amp/grad_scaler.py", "scale"), FrameSign::Forward),
            (of("amp/grad_scaler.py", "_unscale_grads_"), FrameSign::Optimizer),
            (of("utils/data/dataloader.py", "__next__"), FrameSign::Data),
            (of("_ops.py", "__call__"), FrameSign::Nothing),
            (mark("/app/train.py", "train"), FrameSign::Nothing),
            (mark("/app/train.py", "step"), FrameSign::Nothing),
            (mark("/app/optimizer.py", "step"), FrameSign::Optimizer),
            (mark("/app/optim/lion.py", "step"), FrameSign::Optimizer),
            (mark("/home/adam/optimum/train.py", "step"), FrameSign::Nothing),
            (mark("/app/model.py", "__init__"), FrameSign::Constructor),
            (mark("/app/table.py", "__getitem__"), FrameSign::Picks),
            (of("serialization.py", "load"), FrameSign::Constructor),
            (
                mark(r"C:\venv\Lib\site-packages\torch\optim\adam.py", "_init_group"),
                FrameSign::State,
            ),
            (
                mark("??", "torch::autograd::Engine::thread_main(std::shared_ptr<...> const&)"),
                FrameSign::Backward,
            ),
            (
                mark("??", "at::cuda::allocateCUDABlasWorkspace(unsigned long)"),
                FrameSign::Workspace,
            ),
        ] {
            assert_eq!(found, wanted);
        }
    }
}
