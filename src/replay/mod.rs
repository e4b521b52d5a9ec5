//! The trace over time.
//!
//! [`Literal`] applies a device's trace as facts: every address and size is the recorded one, and only
//! what the trace leaves out is inferred, from rules that follow from the facts and the settings (how
//! much of a free block an allocation took, [`crate::allocator::block_size`]). It decides nothing that
//! the allocator decided. Where the recording starts at an empty allocator the totals are exact; where
//! it does not, `start` rebuilds the start by undoing the trace from the final segments.
//!
//! [`verify`] asks the allocator model instead: `calls` reads the entries back into the calls that
//! caused them, the model decides, a device that answers as the recorded one did (`recorded`) grants or
//! refuses memory, and every line that the model writes is held against the recording. What a file does
//! not say is found by trying ([`infer`]). [`simulate`] makes the same calls on a simulated device, under
//! whatever settings: a what-if; [`ask`] makes one more at the snapshot. [`emit`] writes the outcome as a
//! snapshot.
//!
//! Every step of the literal replay is shown to an observer with the totals and the [`Tiling`] at that
//! moment; memory is bounded by the live blocks, not by the trace. Allocated memory never exceeds reserved
//! memory, whatever the file says, since blocks exist only inside segments.

mod ask;
mod calls;
mod divergence;
mod emit;
mod end_state;
mod given_back;
mod ground;
mod hypothesis;
mod infer;
mod layout;
mod literal;
mod program;
mod readings;
mod recorded;
mod sampler;
mod segment_pools;
mod settings;
mod shown;
mod simulate;
mod start;
mod tiling;
mod totals;
mod verification;
mod verify;

pub use ask::{Answer, ask};
pub use calls::is_completed_at_once;
pub use divergence::{Divergence, Fault, word};
pub use emit::{EmittedDevice, emit};
pub use end_state::end_differences;
pub use given_back::{GivenBack, given_back};
pub use hypothesis::{Hypothesis, UNBOUNDED};
pub use infer::{Inference, Inferred, Known, infer, settings_in_effect};
pub use layout::Layout;
pub use literal::{Literal, Outcome, Step};
pub use program::Program;
pub use sampler::{Bucket, Highest, Sampler};
pub use settings::{NEWEST, releases, settings_of, settings_under};
pub use shown::{shown_capacity, shown_limit};
pub use simulate::{Figures, Simulation, enough, fits, simulate, simulate_on};
pub use tiling::{FreeKinds, Keep, Laid, Stretch, Tiling};
pub use totals::{Home, Totals};
pub use verification::{Sink, Verification};
pub use verify::{verify, verify_and_keep};
