//! Replays a recorded program under other conditions, through the allocator model.
//!
//! In: a [`crate::study::Study`], with the calls of its program and the hypothesis inferred for it. Out: whether the
//! model reproduces the recording ([`verify_study`]), the run with other settings, another capacity or another
//! release ([`replay_with`], [`compare_settings`]), with a changed program ([`mod@program`]), at another size
//! ([`mod@fit`]), on other GPUs ([`mod@plan`]), and with the feature `cuda` on a GPU (`replay_on_gpu`). Does not know
//! why a request failed, nor how an answer is shown.

mod candidates;
mod compare;
mod emit;
pub mod fit;
pub(crate) mod forecast;
#[cfg(feature = "cuda")]
#[doc(hidden)]
mod gpu_replay;
mod outcome;
mod overrides;
pub mod plan;
pub mod program;
mod replay;
mod run;
mod smallest_capacity;
mod warnings;

pub(crate) use self::candidates::{Candidate, candidates};
pub use self::compare::{
    Requirement, SettingsVerdict, Tries, WhatIfDevice, WhatIfOptions, WhatIfReport, WhatIfRow, compare_settings,
};
pub use self::emit::{Journal, ModelRun, run_model, write_snapshot};
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use self::gpu_replay::{CallReport, CallTimes, LiveDevice, LiveDifference, LiveError, LiveReport, replay_on_gpu};
pub use self::outcome::{JobOutcome, NOTICEABLE_PARTS, Sureness, TriedKind, TriedMark, TriedRow, WhyUnknown};
pub(crate) use self::outcome::{TriedOn, free_of, settings_order, sort_tried};
pub use self::overrides::{Overrides, apply_option};
pub(crate) use self::overrides::{hypothesis_on, hypothesis_with};
pub(crate) use self::replay::inferred_options;
pub use self::replay::{
    Assumed, DivergenceReport, EntryReport, EventCounts, FailedRequest, ReplayReport, ReplayedDevice, SettingsFrom,
    replay_with, verify_study,
};
pub(crate) use self::warnings::settings_warning;
