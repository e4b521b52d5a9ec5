//! How large may it be? What a program needs at a size that nobody recorded, from recordings at two or more sizes.
//!
//! A size is any whole number that the program was given: a batch, a length, the side of an image, layers; or two such
//! numbers, of which the first is searched. One number is two of which the second is 1 everywhere.
//!
//! ```text
//! recordings --partners--> which request of one recording is which of another, stack by stack, in order
//!            --law, sum--> how the bytes of each grow with the size
//!            --learned---> the calls of the nearest recording, with the bytes of another size
//!            --model-----> those calls made to the allocator: peaks, failures
//!            --largest---> the largest size at which none fails, by bisection; --slice--> for each second number
//!            --growth----> which lines the memory at the peak is of, and how they grow
//! ```
//!
//! What has no partner is taken to grow as most others of its bytes do, and is said: `paired_ratio`, warnings. Where
//! less than half of the memory at the peak is paired, nothing is predicted. With three recordings or more each is predicted from the others and held
//! against itself.

mod align;
mod asked;
mod checked;
mod device;
mod doubts;
mod growth;
mod largest;
mod law;
mod learned;
mod partners;
mod prediction;
mod recording;
mod report;
mod size;
mod slice;
mod steps;
mod sum;
mod summary;

pub use self::asked::FitOptions;
pub use self::checked::Checked;
pub use self::device::FitDevice;
pub use self::growth::GrowingLine;
pub use self::law::LawKind;
pub use self::prediction::{FailedAt, SizeReport};
pub use self::recording::Sized;
pub use self::report::{FitReport, RecordingGiven, fit};
pub use self::size::Size;
pub use self::slice::{FitCurve, Largest, LargestAt};
