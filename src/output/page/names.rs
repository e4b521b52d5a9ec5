//! Lists of names in the header, to which the data refers by index.

use crate::base::ids::PoolId;
use crate::base::intern::SeededMap;
use crate::study::DeviceStudy;

/// The streams and pools of the header.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    pub(super) streams: Vec<String>,
    pub(super) pools: Vec<String>,
    rows: SeededMap<String, usize>,
}

impl NameTable {
    pub(super) fn stream(&mut self, handle: u64) -> usize {
        Self::row(&mut self.streams, &mut self.rows, handle.to_string())
    }

    pub(super) fn pool(&mut self, device: DeviceStudy<'_, '_>, pool: PoolId) -> usize {
        self.pool_by_id(device.snapshot().pools.get(pool))
    }

    pub(super) fn pool_by_id(&mut self, [first, second]: [u64; 2]) -> usize {
        // The colon keeps pools apart from streams in `rows`.
        Self::row(&mut self.pools, &mut self.rows, format!("{first}:{second}"))
    }

    fn row(list: &mut Vec<String>, rows: &mut SeededMap<String, usize>, name: String) -> usize {
        *rows.entry(name).or_insert_with_key(|name| {
            list.push(name.clone());
            list.len() - 1
        })
    }
}

/// The index of `one` in `all`, a list of every variant.
pub(super) fn index_of<T: PartialEq + Copy>(all: &[T], one: T) -> usize {
    let index = all.iter().position(|other| *other == one);
    debug_assert!(index.is_some(), "the list has every variant");
    index.unwrap_or_default()
}
