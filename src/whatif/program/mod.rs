//! Which changes to a program would lower its peak.
//!
//! In: one recording. Out: a row for each change that the recording suggests, such as activation checkpointing of a
//! module that it calls repeatedly. A change edits the script of the program's operations, and its row has the figures
//! of the edited script's replay under the recorded settings. [`Sureness`](super::Sureness) rates one assumption: that the
//! changed program would make exactly these calls. Does not know the program's source, only its requests.
//!
//! `recorded_program` has the script and the phase of each operation; each kind of change has a file that edits the
//! script; `find_changes` lists them; `change_replay` replays them. If the recording ends with a failure, the script
//! goes on as `whatif::forecast` predicts, up to the end of one more iteration.

mod batch;
mod change_replay;
mod checkpoint;
mod cures;
mod find_changes;
mod gradients;
mod leftovers;
mod modules;
mod optimizer;
mod precision;
mod recorded_program;
mod report;

pub(super) use self::checkpoint::{checkpoint_all, checkpoint_largest};
pub(crate) use self::cures::{CureReplay, replay_in_parts, replay_without_group};
pub(super) use self::find_changes::{FindChange, replay_changes};
pub(crate) use self::find_changes::{best_optimizer_change, find_best_changes};
pub(super) use self::recorded_program::{RecordedProgram, is_tried_by_default};
pub(super) use self::report::ChangedProgram;
pub use self::report::{ProgramChange, ProgramDevice, ProgramRow};
