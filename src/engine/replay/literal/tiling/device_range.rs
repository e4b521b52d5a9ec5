//! Ranges of device memory that hold tiles.

use crate::base::ids::PoolId;
use crate::snapshot::Segment;

/// A range of device memory: a segment, or a part mapped into an expandable one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceRange {
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) pool: PoolId,
    pub(crate) stream: u64,
    pub(crate) is_small: bool,
    pub(crate) is_expandable: bool,
}

impl From<&Segment> for DeviceRange {
    fn from(segment: &Segment) -> Self {
        Self {
            addr: segment.address,
            size: segment.total_size,
            pool: segment.pool,
            stream: segment.stream,
            is_small: segment.is_small,
            is_expandable: segment.is_expandable,
        }
    }
}
