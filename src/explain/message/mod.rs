//! What PyTorch prints about memory, read back: out-of-memory messages in a log, the table of
//! `torch.cuda.memory_summary()`, the JSON of `torch.cuda.memory_stats()`.
//!
//! Numbers as printed, with what each stands for; what a message does not say is absent here. This room
//! draws no conclusion: [`crate::analysis`] does. Logs are large and dirty: read a line at a time, bytes
//! that are no text passed over, nothing assumed of what stands before a message on its line.

mod amount;
mod filter;
mod line;
mod log;
mod marks;
mod scan;
mod statistics;
mod traceback;
mod wording;

pub use amount::PrintedAmount;
pub use line::LineSource;
pub use log::{Log, Message, Saying};
pub use marks::Mapping;
pub use scan::read;
pub use statistics::{Gauge, Statistics};
pub use traceback::TracebackFrame;
pub use wording::{Allocation, Process, Releases, Wording};
