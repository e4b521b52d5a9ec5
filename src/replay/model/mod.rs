//! The allocator model beside a recording, and in its place.
//!
//! [`verify`] makes the recorded calls to the model, on a device that answers as the recorded one did,
//! and holds every entry that the model writes against the recording. What a file does not say is found
//! by trying ([`infer`]). [`simulate`] makes the same calls on a simulated device, under whatever
//! settings: a what-if; [`ask`] makes one more at the snapshot. [`emit`] writes the outcome as a snapshot.

mod address_ranges;
mod ask;
mod changes;
mod checkpoints;
mod divergence;
mod emit;
mod end_state;
mod hypothesis;
mod infer;
mod likely;
mod readings;
mod recorded_device;
mod simulate;
mod verification;
mod verify;
mod walk;

pub use ask::{Answer, ask};
pub use divergence::{Divergence, Fault};
pub use emit::{EmittedDevice, emit};
pub use end_state::end_differences;
pub use hypothesis::Hypothesis;
pub use infer::{Inference, Inferred, Setup, infer, settings_in_effect};
pub use simulate::{ModelFigures, Simulation, enough, fits, simulate, simulate_on};
pub use verification::{Sink, Verification};
pub use walk::{verify, verify_and_keep};
