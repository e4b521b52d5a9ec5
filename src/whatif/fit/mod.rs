//! Predicts the memory of a program at a size that was not recorded, from recordings at two or more sizes.
//!
//! In: recordings of one program, each with its size. Out: the largest size that fits a device, peaks at other sizes,
//! and the source lines whose memory grows. Does not know what the size means: it is any positive whole number that the
//! program depends on, such as a batch size, a sequence length or a number of layers.
//!
//! ```text
//! recordings -- pairing ----------> which request of one recording is which of another
//!            -- law, polynomial --> the bytes of each request as a function of the size
//!            -- reductions -------> buffers of reductions, which begin at a threshold; reduction: PyTorch's launch rule
//!            -- fitted_program ---> the operations of the nearest recording with the bytes of another size
//!            -- prediction -------> their replay: peaks and failures, and the largest size at which no request fails
//!            -- next_size --------> which size to run next, where the program can be run
//!            -- growth -----------> the source lines of the memory at the peak, and how they grow
//! ```
//!
//! An unpaired request is assumed to grow like most requests of the same bytes, with a warning. If less than half of
//! the memory at the peak is paired, nothing is predicted. With three or more recordings, each is also predicted from
//! the others, to check the prediction.

mod device;
mod fitted_program;
mod growth;
mod input;
mod law;
mod next_size;
mod pairing;
mod prediction;
mod reduction;
mod reductions;
mod report;

pub use self::device::FitDevice;
pub(super) use self::fitted_program::{DeviceRecordings, FittedProgram, FittedSizes};
pub use self::growth::GrowingLine;
pub use self::input::{FitInput, FitOptions};
pub use self::law::LawKind;
pub use self::next_size::{Bracket, SizeChooser};
pub(crate) use self::next_size::{size_on_line, step_below};
pub(super) use self::prediction::{FitSearch, SizeSearch, predict};
pub use self::prediction::{Largest, LeaveOneOutCheck, PredictedFailure, SizeReport};
pub(super) use self::report::torch_version;
pub use self::report::{FitRefusal, FitReport, RecordingReport, RefusalCode, fit};
