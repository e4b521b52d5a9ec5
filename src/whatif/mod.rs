//! A recording replayed by the model: held against itself, and under other settings, on other devices.
//!
//! [`verified`] holds the model against the recording, [`what_if`] replays it once otherwise, [`whatif`] many
//! times, and with the feature `cuda` `live` replays it on a GPU. All of them make the calls of a study's
//! program under a hypothesis that is the inferred one, less what is changed ([`WhatIf`]).

mod answer;
#[cfg(feature = "cuda")]
mod calibrate;
mod cautions;
mod change;
mod cost;
mod emitted;
pub mod fit;
mod found;
mod grid;
#[cfg(feature = "cuda")]
mod live;
pub mod program;
mod recorded;
mod replay;
mod rows;
mod smallest;
mod summary;

pub use self::answer::{
    Assumed, DivergenceReport, EntryReport, EventCounts, FailedRequest, ReplayReport,
    ReplayedDevice, WhatIfDevice, WhatIfReport, WhatIfRow,
};
#[cfg(feature = "cuda")]
pub use self::calibrate::calibrate;
pub(crate) use self::cautions::{caution, not_in_effect, one_entry, parted, reconfigured};
pub(crate) use self::change::changed;
pub use self::change::{WhatIf, option_change};
pub use self::cost::{COST_SCHEMA, Cost, Costs, CostsByCall};
pub use self::emitted::{Emitted, Journal, emitted, write_snapshot};
pub use self::found::SettingsFrom;
pub(crate) use self::found::found_settings;
pub(crate) use self::grid::COMMON;
#[cfg(feature = "cuda")]
pub use self::live::{
    CallReport, CallTimes, GpuReport, LiveDevice, LiveDifference, LiveError, LiveOptions,
    LiveReport, live,
};
pub use self::replay::{verified, what_if};
pub(crate) use self::rows::is_worth_trying;
pub use self::rows::{Asked, whatif};
pub use self::summary::{needed, outcome};
