//! What a page names by its place in a list of the header.

use crate::base::ids::PoolId;
use crate::base::intern::SeededMap;
use crate::study::DeviceStudy;

/// Streams and pools by name, as the header lists them.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) streams: Vec<String>,
    pub(super) pools: Vec<String>,
    rows: SeededMap<String, usize>,
}

impl Names {
    pub(super) fn stream(&mut self, handle: u64) -> usize {
        Self::row(&mut self.streams, &mut self.rows, handle.to_string())
    }

    pub(super) fn pool(&mut self, device: DeviceStudy<'_, '_>, pool: PoolId) -> usize {
        self.pool_of(device.snapshot().pools.get(pool))
    }

    pub(super) fn pool_of(&mut self, [first, second]: [u64; 2]) -> usize {
        // A colon sets them apart from streams.
        Self::row(&mut self.pools, &mut self.rows, format!("{first}:{second}"))
    }

    fn row(list: &mut Vec<String>, rows: &mut SeededMap<String, usize>, name: String) -> usize {
        *rows.entry(name).or_insert_with_key(|name| {
            list.push(name.clone());
            list.len() - 1
        })
    }
}

/// The place of `one` in a list of the header.
pub(super) fn place_in<T: PartialEq + Copy>(all: &[T], one: T) -> usize {
    all.iter().position(|other| *other == one).unwrap_or_default()
}
