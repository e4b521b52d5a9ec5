//! Whose code a stack is: which frames are the user's own, which are of installed packages, and which only
//! carry the call; and what people read of it.

mod frame;
mod line;
mod origin;
mod reader;
mod stripped;

pub use self::frame::{FrameList, FrameReport};
pub(crate) use self::line::{Culprit, LineId};
pub use self::line::{CodeLocation, UNKNOWN, lines_of};
pub use self::origin::Origin;
pub(crate) use self::origin::slashed;
pub use self::reader::StackReader;
