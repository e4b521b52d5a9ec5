//! Lays out reports as documents for people.
//!
//! In: a finished report. Out: a [`Document`](crate::output::document::Document), one function per command. Decides
//! wording and order only; knows no snapshot, no replay and no output format.

mod analyze;
mod breakdown;
mod diff;
mod explain;
mod failure;
mod fit;
pub(crate) mod gate;
#[cfg(feature = "cuda")]
mod live;
mod memory;
mod notes;
mod phrases;
mod plan;
mod replay;
mod screen;
mod timeline;
mod trials;
mod tried;
mod whatif;

pub use analyze::{after_run, analyze, result};
pub use diff::diff;
pub use explain::explain;
pub use fit::fit;
pub use gate::check;
#[cfg(feature = "cuda")]
pub use live::live;
pub use plan::{plan, serving_plan};
pub use replay::replay;
pub use timeline::timeline;
pub use trials::{size_search, trials};
pub use whatif::whatif;
