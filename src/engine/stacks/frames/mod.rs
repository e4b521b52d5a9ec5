//! Classifies frames as user code, package, PyTorch or plumbing, and picks the source line that stands for a stack.

mod frame;
mod helpers;
mod location;
mod origin;
mod reader;

pub use self::frame::{FrameList, FrameReport};
pub use self::location::{BEFORE_RECORDING, CodeLocation, Culprit, LineId, UNKNOWN_NODE, code_and_caller};
pub use self::origin::{Origin, forward_slashes};
pub use self::reader::StackReader;
