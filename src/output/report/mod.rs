//! Answers laid out for people.
//!
//! Takes finished answers and returns a [`Document`](crate::output::document::Document), a function for each command. It computes nothing but words and order, and knows no snapshot, no replay and no terminal: how a
//! document looks is the renderers' part.

mod alike;
mod analyze;
mod diff;
mod explain;
mod failure;
mod fit;
mod fit_curves;
pub(crate) mod gate;
mod held;
#[cfg(feature = "cuda")]
mod live;
mod memory;
mod program;
mod ranks;
mod replay;
mod summary;
mod timeline;
mod whatif;
mod words;

pub use analyze::{after_run, analyze};
pub use diff::diff;
pub use explain::explain;
pub use fit::fit;
pub use fit_curves::fit_curves;
pub use gate::check;
#[cfg(feature = "cuda")]
pub use live::{costs, live};
pub use program::program;
pub use replay::replay;
pub use timeline::timeline;
pub use whatif::whatif;
