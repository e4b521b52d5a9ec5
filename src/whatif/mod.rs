//! Replays a recorded program under other conditions, through the allocator model.
//!
//! In: a [`crate::study::Study`], with the calls of its program and the hypothesis inferred for it. Out: whether the
//! model reproduces the recording ([`verify_study`]), the run with other settings, another capacity or another
//! release ([`replay_with`], [`compare_settings`]), with a changed program ([`mod@program`]), at another size
//! ([`mod@fit`]), on other GPUs ([`mod@plan`]), and with the feature `cuda` on a GPU (`replay_on_gpu`). Does not know
//! why a request failed, nor how an answer is shown.

mod compare;
mod emit;
pub mod fit;
pub(crate) mod forecast;
#[cfg(feature = "cuda")]
#[doc(hidden)]
mod gpu_replay;
mod grid;
mod outcome;
mod overridden_run;
mod overrides;
pub mod plan;
pub mod program;
mod replay;
mod reports;
mod run_figures;
mod settings_report;
mod smallest_capacity;
mod sureness;
mod tried;
mod warnings;

pub use self::compare::{Tries, WhatIfOptions, compare_settings};
pub use self::emit::{Journal, ModelRun, run_model, write_snapshot};
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use self::gpu_replay::{CallReport, CallTimes, LiveDevice, LiveDifference, LiveError, LiveReport, replay_on_gpu};
pub(crate) use self::grid::{Candidate, candidates};
pub use self::outcome::{JobOutcome, NOTICEABLE_PARTS, WhyUnknown};
pub(crate) use self::outcome::{free_at_peak, free_of};
pub(crate) use self::overrides::hypothesis_with;
pub use self::overrides::{Overrides, apply_option};
pub use self::replay::{replay_with, verify_study};
pub(crate) use self::reports::inferred_options;
pub use self::reports::{
    Assumed, DivergenceReport, EntryReport, EventCounts, FailedRequest, ReplayReport, ReplayedDevice, SettingsFrom,
};
pub use self::settings_report::{Requirement, SettingsVerdict, WhatIfDevice, WhatIfReport, WhatIfRow};
pub use self::sureness::Sureness;
pub use self::tried::{TriedKind, TriedMark, TriedRow};
pub(crate) use self::tried::{TriedOn, settings_order, sort_tried};
pub(crate) use self::warnings::settings_warning;
