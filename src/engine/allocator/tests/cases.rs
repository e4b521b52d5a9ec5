//! Cases with known answers. Those marked "observed" ran in PyTorch itself, on a simulated device.

use crate::allocator::conf::{Reserve, Settings};
use crate::allocator::device::{DeviceMemory, SimulatedDevice};
use crate::allocator::trace_action::{Action, BlockState};
use crate::allocator::{Behaviour, BlockId, CachingAllocator, PendingFreeId, Request, ServedBy};
use crate::base::ids::{PoolId, StackId};
use crate::base::units::MIB;

const SEGMENTS: u64 = 0x5000_0000_0000;
const RESERVATIONS: u64 = 0x3000_0000_0000;
const PRIVATE: PoolId = PoolId(1);

struct Run {
    allocator: CachingAllocator,
    device: SimulatedDevice,
}

fn run(minor: u32, settings: Settings, capacity: u64, limit: Option<u64>) -> Run {
    let allocator = CachingAllocator::new(Behaviour::for_release(minor), settings, limit);
    Run { allocator, device: SimulatedDevice::new(0, capacity) }
}

fn bare(size: u64) -> Request<'static> {
    Request::in_default_pool(size, 0)
}

fn plain() -> Settings {
    Settings::default()
}

fn expandable() -> Settings {
    Settings { expandable_segments: true, ..plain() }
}

fn split_at(mib: u64) -> Settings {
    Settings { max_split_size: mib * MIB, ..plain() }
}

impl Run {
    fn try_alloc(&mut self, size: u64, pool: PoolId, is_capturing: bool) -> Option<BlockId> {
        let request = Request { pool, is_capturing, ..bare(size) };
        self.allocator.malloc(&request, &mut self.device)
    }

    fn alloc(&mut self, size: u64) -> BlockId {
        self.try_alloc(size, PoolId(0), false).expect("memory")
    }

    fn alloc_in_pool(&mut self, size: u64, pool: PoolId) -> BlockId {
        self.try_alloc(size, pool, false).expect("memory")
    }

    fn fails(&mut self, size: u64) {
        assert!(self.try_alloc(size, PoolId(0), false).is_none());
    }

    fn free(&mut self, id: BlockId) {
        assert!(self.allocator.free(id, false, StackId::default()).is_none());
    }

    fn empty_cache(&mut self) {
        self.allocator.release_cached_blocks(None, &[], &[], StackId::default(), &mut self.device);
    }

    /// The entries since the last call: action, address relative to `base` and size, both in MiB.
    fn take_entries(&mut self, base: u64) -> Vec<(Action, u64, u64)> {
        let done = self.allocator.entries.drain(..).map(|entry| {
            let addr = if entry.action == Action::Oom { entry.addr } else { entry.addr - base };
            (entry.action, addr / MIB, entry.size / MIB)
        });
        done.collect()
    }

    fn retries(&self) -> (u64, u64, u64) {
        let s = &self.allocator.statistics;
        (s.num_alloc_retries, s.num_sync_all_streams, s.num_ooms)
    }
}

use Action::{Alloc, FreeCompleted, FreeRequested, Oom, SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap};

/// Observed.
#[test]
fn a_free_block_keeps_its_last_request() {
    let mut run = run(15, plain(), 1000 * MIB, None);
    let large = run.alloc(4_000_000);
    run.alloc(40);
    run.free(large);
    let written: Vec<(Action, u64)> = run.allocator.entries.iter().map(|e| (e.action, e.size)).collect();
    let expected = [
        (SegmentAlloc, 20_971_520),
        (Alloc, 4_000_000),
        (SegmentAlloc, 2_097_152),
        (Alloc, 40),
        (FreeRequested, 4_000_000),
        (FreeCompleted, 4_000_000),
    ];
    assert_eq!(written, expected);
    let (segments, blocks) = run.allocator.view();
    let blocks: Vec<_> = blocks.iter().map(|block| (block.size, block.requested, block.state)).collect();
    assert_eq!(blocks[segments[0].blocks.clone()], [(20_971_520, 4_000_000, BlockState::Inactive)]);
    let small = [(512, 40, BlockState::ActiveAllocated), (2_096_640, 0, BlockState::Inactive)];
    assert_eq!(blocks[segments[1].blocks.clone()], small);
}

/// Observed.
#[test]
fn expandable_memory_grows_and_shrinks_by_granules() {
    let mut run = run(15, expandable(), 200 * MIB, None);
    let blocks: Vec<BlockId> = (0..4).map(|_| run.alloc(30 * MIB)).collect();
    let grown = [
        (SegmentMap, 0, 40),
        (Alloc, 0, 30),
        (SegmentMap, 40, 20),
        (Alloc, 30, 30),
        (SegmentMap, 60, 40),
        (Alloc, 60, 30),
        (SegmentMap, 100, 20),
        (Alloc, 90, 30),
    ];
    assert_eq!(run.take_entries(RESERVATIONS), grown);
    run.free(blocks[1]);
    run.take_entries(RESERVATIONS);
    run.fails(150 * MIB);
    assert_eq!(run.take_entries(RESERVATIONS), [(SegmentUnmap, 40, 20), (Oom, 100, 150)]);
    run.alloc(25 * MIB);
    assert_eq!(run.take_entries(RESERVATIONS), [(SegmentMap, 40, 20), (Alloc, 30, 25)]);
    run.alloc(33 * MIB);
    assert_eq!(run.take_entries(RESERVATIONS), [(SegmentMap, 120, 40), (Alloc, 120, 33)]);
    assert_eq!(run.allocator.statistics.segment.all.allocated, 0, "nothing was a segment");
}

/// Observed.
#[test]
fn captures_do_not_retry() {
    let mut run = run(15, split_at(40), 200 * MIB, None);
    let first = run.try_alloc(60 * MIB, PRIVATE, true).expect("memory");
    run.try_alloc(60 * MIB, PRIVATE, true).expect("memory");
    run.free(first);
    run.take_entries(SEGMENTS);
    assert!(run.try_alloc(90 * MIB, PRIVATE, true).is_none());
    assert_eq!(run.take_entries(SEGMENTS), [(SegmentFree, 0, 60), (Oom, 140, 90)]);
    assert_eq!(run.retries(), (0, 0, 1));
}

/// Observed.
#[test]
fn a_failure_at_the_limit_counts_a_retry_and_a_synchronization() {
    let mut run = run(15, plain(), 1000 * MIB, Some(500 * MIB));
    run.fails(600_000_000);
    assert_eq!(run.retries(), (1, 1, 1));
    run.fails(600_000_000);
    assert_eq!(run.retries(), (2, 2, 2));
    assert_eq!(run.take_entries(SEGMENTS), [(Oom, 1000, 572), (Oom, 1000, 572)]);
}

/// Observed.
#[test]
fn among_equal_blocks_old_releases_take_the_lowest_and_new_ones_the_oldest() {
    for (minor, expected) in [(1, 0), (6, 0), (9, 0), (11, 0), (12, 100), (13, 100), (15, 100)] {
        let mut run = run(minor, plain(), 1000 * MIB, None);
        let a = run.alloc(100 * MIB);
        let b = run.alloc(100 * MIB);
        run.free(a);
        run.empty_cache();
        let d = run.alloc(100 * MIB);
        run.free(b);
        run.free(d);
        run.take_entries(SEGMENTS);
        run.alloc(100 * MIB);
        assert_eq!(run.take_entries(SEGMENTS), [(Alloc, expected, 100)], "2.{minor}");
    }
}

/// 2.12 registers every new block, 2.13 every segment.
#[test]
fn a_split_block_has_its_own_age_or_that_of_its_segment() {
    for (minor, expected) in [(11, 0), (12, 20), (13, 0)] {
        let mut run = run(minor, plain(), 1000 * MIB, None);
        let older = run.alloc(20 * MIB);
        let cut_first = run.alloc(5 * MIB);
        run.alloc(15 * MIB);
        run.free(older);
        // The older segment is cut after the newer one.
        let cut_last = run.alloc(5 * MIB);
        run.alloc(15 * MIB);
        run.free(cut_first);
        run.free(cut_last);
        run.take_entries(SEGMENTS);
        run.alloc(5 * MIB);
        assert_eq!(run.take_entries(SEGMENTS), [(Alloc, expected, 5)], "2.{minor}");
    }
}

/// Ages are counted in searches of the pool. Passes go on until enough is released.
#[test]
fn garbage_collection_releases_older_segments_first() {
    for (threshold, expected) in [
        (0.5, vec![(SegmentFree, 0, 40), (SegmentAlloc, 126, 50), (Alloc, 126, 50)]),
        // The oldest is not enough to get below 60 MiB: a second pass.
        (0.3, vec![(SegmentFree, 0, 40), (SegmentFree, 82, 44), (SegmentAlloc, 82, 50), (Alloc, 82, 50)]),
        // The threshold of 140 MiB is not reached: nothing is collected.
        (0.7, vec![(SegmentAlloc, 126, 50), (Alloc, 126, 50)]),
    ] {
        let settings = Settings { garbage_collection_threshold: threshold, ..plain() };
        let mut run = run(15, settings, 1000 * MIB, Some(200 * MIB));
        let old = run.alloc(40 * MIB);
        run.alloc(42 * MIB);
        let young = run.alloc(44 * MIB);
        run.free(old);
        run.free(young);
        let young = run.alloc(44 * MIB);
        run.free(young);
        run.take_entries(SEGMENTS);
        run.alloc(50 * MIB);
        assert_eq!(run.take_entries(SEGMENTS), expected, "{threshold}");
        assert_eq!(run.retries(), (0, 0, 0), "nothing is waited for");
    }
}

#[test]
fn without_a_limit_nothing_is_garbage_collected() {
    let settings = Settings { garbage_collection_threshold: 0.1, ..plain() };
    let mut run = run(15, settings, 1000 * MIB, None);
    let block = run.alloc(40 * MIB);
    run.free(block);
    run.alloc(50 * MIB);
    assert_eq!(run.allocator.statistics.num_device_free, 0);
}

#[test]
fn an_oversize_request_releases_the_smallest_large_enough_segment() {
    let mut run = run(15, split_at(30), 300 * MIB, None);
    let blocks: Vec<BlockId> = [120, 80, 100].map(|mib| run.alloc(mib * MIB)).into();
    blocks.into_iter().for_each(|id| run.free(id));
    run.take_entries(SEGMENTS);
    // 80 MiB exceed the request by 30, more than `max_non_split_rounding`.
    run.alloc(50 * MIB);
    let expected = [(SegmentFree, 120, 80), (SegmentAlloc, 120, 50), (Alloc, 120, 50)];
    assert_eq!(run.take_entries(SEGMENTS), expected);
    assert_eq!(run.allocator.served_by, ServedBy::GrownAfterRelease);
    assert_eq!(run.retries(), (0, 0, 0));
}

#[test]
fn an_oversize_request_releases_smaller_segments_largest_first() {
    let mut run = run(15, split_at(30), 130 * MIB, None);
    let blocks: Vec<BlockId> = [40, 30, 60].map(|mib| run.alloc(mib * MIB)).into();
    blocks.into_iter().for_each(|id| run.free(id));
    run.take_entries(SEGMENTS);
    run.alloc(70 * MIB);
    // 60 and 40 are enough, and 30 stays; but the released memory is not contiguous.
    let done = run.take_entries(SEGMENTS);
    assert_eq!(done[..2], [(SegmentFree, 70, 60), (SegmentFree, 0, 40)]);
    assert_eq!(done[2..], [(SegmentAlloc, 70, 70), (Alloc, 70, 70)]);
}

#[test]
fn an_oversize_block_serves_requests_within_the_rounding() {
    for (rounding, fits) in [(20 * MIB, false), (32 * MIB, true)] {
        let settings = Settings { max_non_split_rounding: rounding, ..split_at(24) };
        let mut run = run(15, settings, 1000 * MIB, None);
        let block = run.alloc(80 * MIB);
        run.free(block);
        run.take_entries(SEGMENTS);
        run.alloc(60 * MIB);
        assert_eq!(run.take_entries(SEGMENTS).len() == 1, fits);
        let largest = run.allocator.statistics.allocated_bytes.all.current;
        assert_eq!(largest, if fits { 80 } else { 60 } * MIB);
    }
}

#[test]
fn a_no_split_pool_allocates_whole_segments() {
    let mut run = run(15, plain(), 1000 * MIB, None);
    run.allocator.set_no_split(PRIVATE);
    run.alloc_in_pool(3 * MIB, PRIVATE);
    run.alloc_in_pool(3 * MIB, PRIVATE);
    run.alloc_in_pool(100, PRIVATE);
    let expected = [
        (SegmentAlloc, 0, 20),
        (Alloc, 0, 3),
        (SegmentAlloc, 20, 20),
        (Alloc, 20, 3),
        (SegmentAlloc, 40, 2),
        (Alloc, 40, 0),
    ];
    assert_eq!(run.take_entries(SEGMENTS), expected);
    assert_eq!(run.allocator.statistics.allocated_bytes.all.current, 42 * MIB);
    assert_eq!(run.allocator.statistics.inactive_split.all.allocated, 0);
}

#[test]
fn custom_allocator_pools_use_plain_segments() {
    let mut run = run(15, expandable(), 1000 * MIB, None);
    run.allocator.set_custom_allocator(PRIVATE);
    run.alloc_in_pool(3 * MIB, PRIVATE);
    run.alloc_in_pool(16 * MIB, PRIVATE);
    run.alloc_in_pool(MIB + 512, PRIVATE);
    let done = run.take_entries(SEGMENTS);
    let expected = [
        (SegmentAlloc, 0, 20),
        (Alloc, 0, 3),
        (Alloc, 3, 16),
        // 1 MiB is left: too little.
        (SegmentAlloc, 20, 20),
        (Alloc, 20, 1),
    ];
    assert_eq!(done, expected);
    run.alloc(3 * MIB);
    assert_eq!(run.take_entries(RESERVATIONS)[0], (SegmentMap, 0, 20), "the default pool is as ever");
}

/// Before 2.5 private pools got plain segments, but with the rule for splitting expandable ones.
#[test]
fn private_pools_are_expandable_since_2_5() {
    for (minor, first) in [(4, SegmentAlloc), (5, SegmentMap)] {
        let mut run = run(minor, expandable(), 1000 * MIB, None);
        let block = run.alloc_in_pool(20 * MIB - 512, PRIVATE);
        assert_eq!(run.allocator.entries[0].action, first, "2.{minor}");
        assert_eq!(run.allocator.blocks[block].size, 20 * MIB - 512, "2.{minor}");
    }
}

#[test]
fn a_request_above_the_fraction_fails_without_a_trace_entry() {
    let settings = Settings { throw_on_cudamalloc_oom: true, per_process_memory_fraction: 0.5, ..plain() };
    for minor in [11, 12] {
        let mut run = run(minor, settings.clone(), 100 * MIB, None);
        let served = run.try_alloc(60 * MIB, PoolId(0), false).is_some();
        let statistics = &run.allocator.statistics;
        if minor == 11 {
            assert!(served, "not known yet");
        } else {
            assert!(!served && run.allocator.entries.is_empty());
            assert_eq!((statistics.num_oom_rejections, statistics.num_ooms), (1, 0));
            assert_eq!(run.allocator.served_by, ServedBy::Rejected);
        }
    }
}

#[test]
fn a_too_small_reservation_fails_since_2_13() {
    let reserve = Some(Reserve::Bytes(60 * MIB));
    let settings = Settings { expandable_segments_reserve: reserve, ..expandable() };
    for (minor, fits) in [(12, true), (13, false)] {
        let mut run = run(minor, settings.clone(), 1000 * MIB, None);
        assert_eq!(run.try_alloc(100 * MIB, PoolId(0), false).is_some(), fits, "2.{minor}");
        assert_eq!(run.device.free_bytes(), if fits { 900 } else { 1000 } * MIB);
    }
}

#[test]
fn mapped_memory_stays_mapped_when_the_device_runs_out() {
    let mut run = run(15, expandable(), 110 * MIB, None);
    let blocks: Vec<BlockId> = (0..5).map(|_| run.alloc(20 * MIB)).collect();
    // Holes of 20 at 20 and at 60, a free block between them; then another stream allocates 20.
    run.free(blocks[1]);
    run.free(blocks[3]);
    run.empty_cache();
    run.free(blocks[2]);
    run.take_entries(RESERVATIONS);
    let request = Request { stream: 7, ..bare(20 * MIB) };
    run.allocator.malloc(&request, &mut run.device).expect("memory");
    run.allocator.entries.clear();
    run.fails(60 * MIB);
    let done = run.take_entries(RESERVATIONS);
    assert_eq!(done[0], (SegmentMap, 20, 20), "{done:?}");
    assert_eq!(done.last().unwrap().0, Oom, "{done:?}");
    assert_eq!(run.retries(), (1, 2, 1));
}

#[test]
fn pending_blocks_are_freed_by_events_or_by_a_retry() {
    let mut run = run(15, plain(), 100 * MIB, None);
    let blocks: Vec<BlockId> = (0..3).map(|_| run.alloc(30 * MIB)).collect();
    let pending_ids =
        blocks.iter().map(|id| run.allocator.free(*id, true, StackId::default()).expect("a pending free"));
    let pending_ids: Vec<PendingFreeId> = pending_ids.collect();
    run.take_entries(SEGMENTS);
    let noticed = Request { finished: &pending_ids[1..2], ..bare(30 * MIB) };
    run.allocator.malloc(&noticed, &mut run.device).expect("memory");
    assert_eq!(run.take_entries(SEGMENTS), [(FreeCompleted, 30, 30), (Alloc, 30, 30)]);
    let waits = Request { wait_order: &pending_ids[2..], ..bare(40 * MIB) };
    run.allocator.malloc(&waits, &mut run.device).expect("memory");
    let expected = [
        (FreeCompleted, 60, 30),
        (FreeCompleted, 0, 30),
        (SegmentFree, 0, 30),
        (SegmentFree, 60, 30),
        (SegmentAlloc, 60, 40),
        (Alloc, 60, 40),
    ];
    assert_eq!(run.take_entries(SEGMENTS), expected);
    assert_eq!(run.retries(), (1, 1, 0));
}

/// Observed, as `tests/oracle/unbounded.py` prints it: every round keeps 2 MiB live, and with both settings
/// maps 140 MiB more (pytorch/pytorch#123548).
#[test]
fn max_split_size_lets_expandable_segments_grow_without_bound() {
    for (settings, first, last) in [
        (expandable(), [140, 140, 160], 340),
        (Settings { max_split_size: 64 * MIB, ..expandable() }, [140, 280, 420], 13_860),
    ] {
        let mut run = run(15, settings, 81_920 * MIB, None);
        let reserved: Vec<u64> = (0..100)
            .map(|_| {
                let (a, b) = (run.alloc(91 * MIB), run.alloc(91 * MIB / 2));
                run.free(a);
                run.alloc(2 * MIB);
                run.free(b);
                run.allocator.statistics.reserved_bytes.all.current / MIB
            })
            .collect();
        assert_eq!((&reserved[..3], reserved[99]), (&first[..], last));
    }
}

/// A block that was split before `max_split_size` was set is not a segment, so it must not be released.
#[test]
fn blocks_split_before_max_split_size_are_not_released() {
    let mut before = run(15, plain(), 200 * MIB, None);
    let block = before.alloc(100 * MIB);
    before.free(block);
    before.alloc(30 * MIB);
    before.alloc(76 * MIB);
    before.allocator.settings = split_at(40);
    before.take_entries(SEGMENTS);
    before.fails(80 * MIB);
    assert_eq!(before.take_entries(SEGMENTS), [(Oom, 24, 80)], "70 MiB lie free in the first segment");
}
