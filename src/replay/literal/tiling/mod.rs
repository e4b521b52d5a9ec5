//! Which block covers which address: segments tiled by blocks, kept current as entries are applied.
//!
//! Tiles live in an arena and know their neighbours; a hash map finds a tile by its first address,
//! which is how every entry of a sound trace names one. Finding the tile *around* an address needs an
//! ordered index; it is built when first needed (expandable memory, or a trace that contradicts
//! itself) and kept from then on.

mod changes;
mod free;
mod state;
mod contiguous;
#[cfg(test)]
mod tests;

pub use free::{FreeKinds, Tracking};
pub use state::Tiling;
pub(crate) use state::{Change, NONE, DeviceRange, Tile};
pub use contiguous::{ContiguousRange, RangeBlock};
