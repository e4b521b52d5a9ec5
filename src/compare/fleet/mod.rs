//! The answers about all snapshots of a job: each is added when it is known, and only its row is kept.

mod whatif;

pub use self::whatif::{FleetWhatIf, FleetWhatIfReport, FleetWhatIfRow, SnapshotDevice};
