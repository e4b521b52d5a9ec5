//! Lays out reports as documents for people.
//!
//! In: a finished report. Out: a [`Document`](crate::output::document::Document), one function per command. Decides
//! wording and order only; knows no snapshot, no replay and no output format.

mod analyze;
mod breakdown;
mod diff;
mod explain;
mod failure;
mod failure_groups;
mod fit;
mod fleet;
pub(crate) mod gate;
mod held;
#[cfg(feature = "cuda")]
mod live;
mod memory;
mod notes;
mod phrases;
mod plan;
mod ranks;
mod replay;
mod screen;
mod serving_plan;
mod summary;
mod timeline;
mod trials;
mod tried;
mod variables;
mod whatif;

pub use analyze::{after_run, analyze, result};
pub use diff::diff;
pub use explain::explain;
pub use fit::fit;
pub use fleet::fleet_whatif;
pub use gate::check;
#[cfg(feature = "cuda")]
pub use live::live;
pub use plan::plan;
#[cfg(feature = "explore")]
pub(crate) use ranks::Names;
pub use replay::replay;
pub use serving_plan::serving_plan;
pub use timeline::timeline;
pub use trials::{size_search, trials};
pub use whatif::{program, whatif};
