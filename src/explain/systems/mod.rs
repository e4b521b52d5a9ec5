//! Whose memory it was: the vendors of devices, and the systems besides PyTorch's allocator that print when memory
//! runs out, as tables. A row has the words as they are printed, what they mean, and what decides, in that system's
//! own options.
//!
//! This room is data. Where in a log the words stand is found by [`crate::explain::message`], and what an answer says of them
//! by [`crate::explain`].

mod catalogue;
mod device;
mod frameworks;
mod host;
mod serving;
mod system;
mod vendors;

pub use catalogue::systems;
pub use system::{Amount, At, System};
pub use vendors::{SNAPSHOT, Vendor, vendor};
