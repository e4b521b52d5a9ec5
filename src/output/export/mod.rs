//! Recordings in the formats of other tools: tables (Parquet, CSV), traces for Perfetto, folded stacks, and windows as
//! snapshots.
//!
//! In: the study of each snapshot, as a [`Recording`]: one replay, with the lifetime of every allocation and the totals
//! after every entry. Out: bytes, written while the rows are computed. Every writer takes one recording at a time, so
//! memory does not grow with the number of snapshots. All figures are those of the replay. Knows no command line and no
//! paths.

mod folded;
mod parquet;
mod perfetto;
mod pickle;
mod protobuf;
mod recording;
mod table;
mod tables;
mod tracks;

pub use self::folded::FoldedWriter;
pub use self::parquet::ParquetTable;
pub use self::perfetto::PerfettoWriter;
pub use self::pickle::write_window;
pub(in crate::output) use self::protobuf::{push_varint, push_zigzag};
pub use self::recording::Recording;
pub use self::table::{Cell, CellOf, Column, CsvTable, Kind, Table, TableSink};
pub use self::tables::{TABLES, TableSet};
