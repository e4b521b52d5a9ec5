//! The answers about all snapshots of a job: each is added when it is known, and only its row is kept.

mod replay;
mod timeline;
mod whatif;

pub use self::replay::{FleetReplay, FleetReplayReport, FleetReplayRow};
pub use self::timeline::{FleetTimeline, FleetTimelineReport, FleetTimelineRow, MemoryPeak};
pub use self::whatif::{FleetWhatIf, FleetWhatIfReport, FleetWhatIfRow, SnapshotDevice};
