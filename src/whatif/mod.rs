//! What a recorded program would do under other conditions, by replay through the allocator model.
//!
//! In: a [`crate::study::Study`], with the calls of its program and the hypothesis inferred for it. Out: whether the
//! model reproduces the recording ([`verify_study`]), the run with other settings, another capacity or another
//! release ([`replay_with`], [`compare_settings`]), with a changed program ([`mod@program`]), at another size
//! ([`mod@fit`]), and with the feature `cuda` on a GPU (`replay_on_gpu`). Does not know why a request failed, nor
//! how an answer is shown.

mod reports;
#[cfg(feature = "cuda")]
mod calibrate;
mod warnings;
mod overrides;
mod cost;
mod emit;
pub mod fit;
mod inferred_settings;
mod grid;
#[cfg(feature = "cuda")]
mod gpu_replay;
pub mod program;
mod recorded_run;
mod replay;
mod compare;
mod smallest_capacity;
mod summary;

pub use self::reports::{
    Assumed, DivergenceReport, EntryReport, EventCounts, FailedRequest, ReplayReport,
    ReplayedDevice, WhatIfDevice, WhatIfReport, WhatIfRow,
};
#[cfg(feature = "cuda")]
pub use self::calibrate::calibrate;
pub(crate) use self::warnings::{settings_warning, ineffective_options, single_entry_warning, divergence_warning, settings_changed_warning};
pub(crate) use self::overrides::hypothesis_with;
pub use self::overrides::{Overrides, apply_option};
pub use self::cost::{COST_SCHEMA, Cost, Costs, CostsByCall};
pub use self::emit::{ModelRun, Journal, run_model, write_snapshot};
pub use self::inferred_settings::SettingsFrom;
pub(crate) use self::inferred_settings::inferred_options;
pub(crate) use self::grid::COMMON_SETTINGS;
#[cfg(feature = "cuda")]
pub use self::gpu_replay::{
    CallReport, CallTimes, GpuReport, LiveDevice, LiveDifference, LiveError, LiveOptions,
    LiveReport, replay_on_gpu,
};
pub use self::replay::{verify_study, replay_with};
pub(crate) use self::compare::is_worth_trying;
pub use self::compare::{WhatIfOptions, compare_settings};
pub use self::summary::{describe_requirement, describe_outcome};
