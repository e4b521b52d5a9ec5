//! The statistics behind `torch.cuda.memory_stats()`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::request::DEFAULT_POOL;
use crate::allocator::releases::{Rule, has_rule, key_since};
use crate::base::ids::PoolId;

/// One statistic over time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// Value now.
    pub current: u64,
    /// Highest value since the allocator was created.
    pub peak: u64,
    /// The sum of all increases.
    pub allocated: u64,
    /// The sum of all decreases.
    pub freed: u64,
}

impl Stat {
    #[inline]
    pub(super) fn increase(&mut self, amount: u64) {
        self.current = self.current.saturating_add(amount);
        self.peak = self.peak.max(self.current);
        self.allocated = self.allocated.saturating_add(amount);
    }

    #[inline]
    pub(super) fn decrease(&mut self, amount: u64) {
        self.current = self.current.saturating_sub(amount);
        self.freed = self.freed.saturating_add(amount);
    }

    /// A signed change, counted once even if several blocks caused it.
    pub(super) fn change(&mut self, amount: i64) {
        if amount >= 0 {
            self.increase(amount.unsigned_abs());
        } else {
            self.decrease(amount.unsigned_abs());
        }
    }
}

/// A statistic for all pools together, and for small and large pools separately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatByPool {
    /// All pools.
    pub all: Stat,
    /// Pools for requests up to 1 MiB.
    pub small_pool: Stat,
    /// Pools for requests above 1 MiB.
    pub large_pool: Stat,
}

impl StatByPool {
    fn size_class_mut(&mut self, is_small: bool) -> &mut Stat {
        if is_small { &mut self.small_pool } else { &mut self.large_pool }
    }

    #[inline]
    pub(super) fn increase(&mut self, is_small: bool, amount: u64) {
        self.all.increase(amount);
        self.size_class_mut(is_small).increase(amount);
    }

    #[inline]
    pub(super) fn decrease(&mut self, is_small: bool, amount: u64) {
        self.all.decrease(amount);
        self.size_class_mut(is_small).decrease(amount);
    }

    pub(super) fn change(&mut self, is_small: bool, amount: i64) {
        self.all.change(amount);
        self.size_class_mut(is_small).change(amount);
    }
}

/// The statistics of one device, by PyTorch's names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of torch.cuda.memory_stats(), documented there")]
pub struct AllocatorStatistics {
    pub allocation: StatByPool,
    pub segment: StatByPool,
    pub active: StatByPool,
    pub inactive_split: StatByPool,
    pub allocated_bytes: StatByPool,
    pub reserved_bytes: StatByPool,
    pub active_bytes: StatByPool,
    pub inactive_split_bytes: StatByPool,
    pub requested_bytes: StatByPool,
    pub oversize_allocations: Stat,
    pub oversize_segments: Stat,
    pub num_alloc_retries: u64,
    pub num_ooms: u64,
    pub num_sync_all_streams: u64,
    pub num_device_alloc: u64,
    pub num_device_free: u64,
    pub num_oom_rejections: u64,
    /// Every private pool that ever held memory.
    pub reserved_bytes_by_private_pools: BTreeMap<PoolId, StatByPool>,
}

/// Peaks and numbers of device calls of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RunFigures {
    /// Peak of reserved bytes of the recorded requests.
    pub peak_reserved_bytes: u64,
    /// Peak of allocated bytes.
    pub peak_allocated_bytes: u64,
    /// Number of device calls that allocate or map memory.
    pub device_allocs: u64,
    /// Number of device calls that free or unmap memory.
    pub device_frees: u64,
    /// Number of requests that are retried after the allocator has released its cached blocks.
    pub retries: u64,
}

impl AllocatorStatistics {
    /// The figures of the run so far.
    pub fn run_figures(&self) -> RunFigures {
        RunFigures {
            peak_reserved_bytes: self.reserved_bytes.all.peak,
            peak_allocated_bytes: self.allocated_bytes.all.peak,
            device_allocs: self.num_device_alloc,
            device_frees: self.num_device_free,
            retries: self.num_alloc_retries,
        }
    }

    pub(super) fn increase_reserved(&mut self, pool: PoolId, is_small: bool, bytes: u64) {
        self.reserved_bytes.increase(is_small, bytes);
        if pool != DEFAULT_POOL {
            self.reserved_bytes_by_private_pools.entry(pool).or_default().increase(is_small, bytes);
        }
    }

    pub(super) fn decrease_reserved(&mut self, pool: PoolId, is_small: bool, bytes: u64) {
        self.reserved_bytes.decrease(is_small, bytes);
        if let Some(private) = self.reserved_bytes_by_private_pools.get_mut(&pool) {
            private.decrease(is_small, bytes);
        }
    }

    /// The statistics of PyTorch 2.`minor` by their keys in `torch.cuda.memory_stats()`, such as
    /// `active_bytes.all.peak`. `pool_name` gives the two numbers of a pool's id. `max_split_size` is missing: it is
    /// a setting.
    pub fn figures(&self, minor: u32, pool_name: impl Fn(PoolId) -> [u64; 2]) -> BTreeMap<String, u64> {
        let by_pool = [
            ("active", &self.active),
            ("active_bytes", &self.active_bytes),
            ("allocated_bytes", &self.allocated_bytes),
            ("allocation", &self.allocation),
            ("inactive_split", &self.inactive_split),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("segment", &self.segment),
        ];
        let mut by_pool = by_pool.map(|(name, stat)| (name.to_owned(), stat)).to_vec();
        if has_rule(minor, Rule::StatisticsByPool) {
            by_pool.extend(self.reserved_bytes_by_private_pools.iter().map(|(pool, reserved)| {
                let [a, b] = pool_name(*pool);
                (format!("reserved_bytes_by_private_pools.{a}_{b}"), reserved)
            }));
        }
        let stats = by_pool.into_iter().flat_map(|(name, StatByPool { all, large_pool, small_pool })| {
            [("all", all), ("large_pool", large_pool), ("small_pool", small_pool)]
                .map(|(half, stat)| (format!("{name}.{half}"), stat))
        });
        let oversize =
            [("oversize_allocations", &self.oversize_allocations), ("oversize_segments", &self.oversize_segments)];
        let mut figures = BTreeMap::new();
        for (name, stat) in stats.chain(oversize.map(|(name, stat)| (name.to_owned(), stat))) {
            figures.insert(format!("{name}.allocated"), stat.allocated);
            figures.insert(format!("{name}.current"), stat.current);
            figures.insert(format!("{name}.freed"), stat.freed);
            figures.insert(format!("{name}.peak"), stat.peak);
        }
        for (name, value) in [
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("num_oom_rejections", self.num_oom_rejections),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
        ] {
            if key_since(name).is_none_or(|since| since <= minor) {
                figures.insert(name.to_owned(), value);
            }
        }
        figures
    }
}
