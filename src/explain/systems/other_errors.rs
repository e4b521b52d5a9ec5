//! Errors of a GPU that people take for a lack of memory.

/// Words of an error, and what it says about memory.
const OTHER_ERRORS: [(&str, &str); 7] = [
    (
        "an illegal memory access",
        "a kernel used memory that is not its own, a defect of the program or a library that no setting of memory mends",
    ),
    ("device-side assert", "a check in a kernel failed, often an index out of range"),
    ("unhandled cuda error", "NCCL failed at a call of CUDA, whose error NCCL_DEBUG=INFO names"),
    (
        "custom_all_reduce.cuh",
        "vLLM's own all-reduce failed at a call of CUDA; --disable-custom-all-reduce uses NCCL's instead",
    ),
    ("CUDA error: ", NOT_MEMORY),
    ("CUDA Error: ", NOT_MEMORY),
    ("CUDA runtime error: ", NOT_MEMORY),
];

const NOT_MEMORY: &str = "an error of CUDA other than out of memory";

/// The meaning of an error in `line`, which has no out-of-memory message.
pub fn other_error(line: &str) -> Option<&'static str> {
    OTHER_ERRORS.iter().find_map(|(words, meaning)| line.contains(words).then_some(*meaning))
}
