//! The blocks of one device by address, kept current as entries are applied.
//!
//! In: one entry at a time. Out: every block, the totals, free memory by kind, and what the last entry changed. A tile
//! is a block of any state. Tiles live in an arena and link to their neighbours; a hash map finds a tile by its first
//! address, which is how every entry of a consistent trace names one. Finding the tile that *contains* an address needs
//! an ordered index, which is built on first use (expandable memory, or a trace that contradicts itself). Knows no
//! pools but by their id, and nothing of the allocator's decisions.

mod contiguous;
mod free;
mod recount;
mod split;
mod state;
#[cfg(test)]
mod tests;
mod tile;

pub use contiguous::{ContiguousRange, RangeBlock};
pub use free::{FreeKinds, Tracking};
pub(crate) use state::Change;
pub use state::Tiling;
pub(crate) use tile::{NONE, Tile};
