//! The allocator model beside a recording, and in its place.
//!
//! [`verify`] makes the recorded calls to the model, on a device that answers as the recorded one did,
//! and holds every entry that the model writes against the recording. What a file does not say is found
//! by trying ([`infer`]). [`simulate`] makes the same calls on a simulated device, under whatever
//! settings: a what-if; [`ask`] makes one more at the snapshot. [`emit`] writes the outcome as a snapshot.

mod address_ranges;
mod try_request;
mod settings_search;
mod checkpoints;
mod divergence;
mod emit;
mod end_state;
mod hypothesis;
mod infer;
mod common_values;
mod interpretations;
mod recorded_device;
mod simulate;
mod verification;
mod verify;
mod cursor;

pub use try_request::{RequestResult, try_request};
pub use divergence::{Divergence, Fault};
pub use emit::{EmittedDevice, emit};
pub use end_state::count_end_differences;
pub use hypothesis::Hypothesis;
pub use infer::{Inference, InferredDevice, KnownSetup, infer, settings_in_effect};
pub use simulate::{ModelFigures, Simulation, sufficient_capacity, peak_if_served, simulate, simulate_on};
pub use verification::{EntrySink, Verification};
pub use cursor::{verify, verify_with_sink};
