//! The names, files and lines that frames are made of, after those in a snapshot that PyTorch
//! 2.15 recorded with `stacks="all"`: without debug information half of the C++ frames have the
//! name `??`, their file is a shared library and their line is an offset in it.

pub const TORCH_CPU: &str = "/venv/site-packages/torch/lib/libtorch_cpu.so";
pub const TORCH_CUDA: &str = "/venv/site-packages/torch/lib/libtorch_cuda.so";
pub const TORCH_PYTHON: &str = "/venv/site-packages/torch/lib/libtorch_python.so";
pub const C10_CUDA: &str = "/venv/site-packages/torch/lib/libc10_cuda.so";
pub const C10: &str = "/venv/site-packages/torch/lib/libc10.so";
pub const PYTHON: &str = "/usr/lib/libpython3.11.so.1.0";
pub const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";
pub const TRAIN: &str = "/app/train.py";

pub type Fixed = (&'static str, &'static str, u32);

pub const GATHER: [Fixed; 3] = [
    ("torch::unwind::unwind()", TORCH_CPU, 108146796),
    ("torch::CapturedTraceback::gather(bool, bool, bool)", TORCH_CPU, 107817241),
    ("??", TORCH_CUDA, 68989582),
];
pub const MALLOC: [Fixed; 3] = [("??", C10_CUDA, 319562), ("??", C10_CUDA, 331419), ("??", C10_CUDA, 333005)];
pub const FREE: [Fixed; 3] =
    [("??", C10_CUDA, 141925), ("??", C10, 570883), ("c10::TensorImpl::~TensorImpl()", C10, 534168)];
pub const INTERPRETER: [Fixed; 13] = [
    ("PyEval_EvalCode", PYTHON, 2427107),
    ("??", PYTHON, 2722056),
    ("_PyRun_SimpleFileObject", PYTHON, 2728345),
    ("_PyRun_AnyFileObject", PYTHON, 2729995),
    ("Py_RunMain", PYTHON, 2858079),
    ("Py_BytesMain", PYTHON, 2859542),
    ("??", LIBC, 160329),
    ("__libc_start_main", LIBC, 160516),
    ("_start", "/usr/bin/python3.11", 4224),
    ("train_step", TRAIN, 152),
    ("train_epoch", TRAIN, 208),
    ("main", TRAIN, 311),
    ("<module>", TRAIN, 323),
];
pub const ENGINE: [Fixed; 8] = [
    ("??", TORCH_CPU, 98719187),
    (
        "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&, torch::autograd::Node*, torch::autograd::InputBuffer&, std::shared_ptr<torch::autograd::ReadyQueue> const&)",
        TORCH_CPU,
        98695986,
    ),
    ("torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)", TORCH_CPU, 98699867),
    (
        "torch::autograd::Engine::thread_init(int, std::shared_ptr<torch::autograd::ReadyQueue> const&, bool)",
        TORCH_CPU,
        98652511,
    ),
    ("??", TORCH_PYTHON, 8803441),
    ("??", "/lib/x86_64-linux-gnu/libstdc++.so.6", 869538),
    ("??", LIBC, 561652),
    ("??", LIBC, 1087723),
];
/// What stands between two Python frames.
pub const CALLS: [Fixed; 3] =
    [("_PyEval_EvalFrameDefault", PYTHON, 1040647), ("??", PYTHON, 2427455), ("_PyObject_Call", PYTHON, 1410119)];

/// Operators, separated by spaces.
pub const OPS: &str = "\
    addmm mm bmm baddbmm native_layer_norm native_layer_norm_backward _softmax _softmax_backward_data _log_softmax \
    nll_loss_forward embedding embedding_dense_backward gelu gelu_backward native_dropout native_dropout_backward \
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward empty_strided empty_like \
    zeros_like clone _to_copy cat add_Tensor mul_Tensor sum_dim_IntList index_select _foreach_sqrt _foreach_addcdiv \
    _foreach_mul_Scalar masked_fill_Scalar";
pub const ARGUMENTS: [&str; 4] = [
    "at::Tensor const&, at::Tensor const&",
    "at::Tensor const&, c10::ArrayRef<c10::SymInt>, std::optional<at::Tensor> const&, double",
    "c10::ArrayRef<at::Tensor>, c10::ArrayRef<c10::Scalar>",
    "c10::ArrayRef<c10::SymInt>, c10::ArrayRef<c10::SymInt>, std::optional<c10::ScalarType>, std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>",
];
/// None is of a function by whose lines a release is known: the lines here are made up.
pub const PYTHON_FILES: [(&str, &str); 16] = [
    ("forward", "/app/model/attention.py"),
    ("forward", "/app/model/mlp.py"),
    ("forward", "/app/model/block.py"),
    ("forward", "/app/model/transformer.py"),
    ("compute_loss", "/app/losses.py"),
    ("collate", "/app/data/loader.py"),
    ("forward", "/venv/site-packages/torch/nn/modules/linear.py"),
    ("forward", "/venv/site-packages/torch/nn/modules/normalization.py"),
    ("forward", "/venv/site-packages/torch/nn/modules/dropout.py"),
    ("layer_norm", "/venv/site-packages/torch/nn/functional.py"),
    ("_slow_forward", "/venv/site-packages/torch/nn/modules/module.py"),
    ("decorate_autocast", "/venv/site-packages/torch/amp/autocast_mode.py"),
    ("_stepped", "/venv/site-packages/torch/optim/optimizer.py"),
    ("_multi_tensor_adam", "/venv/site-packages/torch/optim/adam.py"),
    ("checkpoint", "/venv/site-packages/torch/utils/checkpoint.py"),
    ("backward", "/venv/site-packages/torch/autograd/function.py"),
];
