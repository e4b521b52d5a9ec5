//! Parses the out-of-memory messages of a log.
//!
//! The bytes of a log go in, one line at a time; a [`Log`] comes out, with numbers as printed. Logs are large and
//! dirty: invalid UTF-8 is replaced, and nothing is assumed of the text before a message on its line. This room does
//! not know what the numbers mean together: [`crate::explain`] draws the conclusions.

mod allocation;
mod line;
mod log;
mod scan;
mod start;
mod traceback;

pub use allocation::{FailedAllocation, Process, Releases, Wording};
pub use line::LineSource;
pub use log::{Log, Message};
pub use scan::read;
pub(crate) use scan::{MAPPING_REFUSED, NO_EXPANDABLE};
pub use traceback::TracebackFrame;
