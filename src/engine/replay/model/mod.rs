//! The allocator model, run on the operations of a recording.
//!
//! In: a device's trace and a [`Hypothesis`] of what the file does not record. Out: whether the model writes the
//! recorded entries (`verify`); the hypothesis with which it reproduces most of them (`infer`); the same operations
//! on a simulated device, under any settings (`simulate`); one more request (`try_request`); and a snapshot file of
//! the result (`emit`). Knows no stacks but by id, and does not judge what the results mean.

mod common_values;
mod cursor;
mod emit;
mod hypothesis;
mod infer;
mod interpretations;
mod recorded_device;
mod settings_search;
mod simulate;
mod verification;
mod verify;

pub use cursor::{InferredDevice, verify};
pub use emit::{EmittedDevice, EmittedTexts, emit};
pub use hypothesis::Hypothesis;
pub use infer::{Inference, infer};
pub use simulate::{
    RequestResult, Simulation, peak_if_served, simulate, simulate_on, simulate_with_headroom, sufficient_capacity,
    try_request,
};
pub use verification::{Divergence, EntrySink, Fault, Verification, count_end_differences};
