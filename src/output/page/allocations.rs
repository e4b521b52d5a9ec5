//! Every allocation and every stretch of device memory of a recording, from its beginning to its end.

use std::collections::BTreeMap;

use crate::base::ids::{PoolId, StackId, to_u32};
use crate::base::intern::SeededMap;
use crate::replay::literal::{Change, Layout, ReplayStep, Tracking};
use crate::snapshot::{Action, Block, BlockState, Segment};
use crate::stacks::phases::Phase;
use crate::study::DeviceStudy;
use crate::study::attribution::{self, Category, Confidence};

/// How many entries were applied: 0 is before the first.
pub(super) type Moment = u32;

/// A block of the program's, as long as it is in use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allocation {
    /// From when on it is there; 0 where it is older than the trace.
    pub(super) start: Moment,
    /// When the program freed it.
    pub(super) requested: Option<Moment>,
    /// When its memory was free again.
    pub(super) done: Option<Moment>,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) requested_bytes: u64,
    pub(super) made_by: StackId,
    /// Row in [`Lifetimes::places`].
    pub(super) place: u32,
    /// What it was for, and how sure that is.
    pub(super) category: Category,
    pub(super) confidence: Confidence,
    /// What the program was doing when it came; `None` where it is older than the trace.
    pub(super) phase: Option<Phase>,
}

/// Memory that is held from the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    pub(super) start: Moment,
    pub(super) end: Option<Moment>,
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Row in [`Lifetimes::places`].
    pub(super) place: u32,
    pub(super) is_expandable: bool,
}

/// The part of a pool that serves one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) pool: PoolId,
    pub(super) stream: u64,
    pub(super) is_small: bool,
}

/// Everything that came and went on one device.
#[derive(Debug, Default)]
pub(super) struct Lifetimes {
    /// By their beginnings.
    pub(super) allocations: Vec<Allocation>,
    /// By their beginnings. Neighbours in one expandable segment are not joined.
    pub(super) stretches: Vec<Stretch>,
    pub(super) places: Vec<Place>,
    rows: SeededMap<Place, u32>,
    /// The rows of what is in use, by address.
    live: SeededMap<u64, u32>,
    /// The rows of what is held, by address.
    held: BTreeMap<u64, u32>,
}

impl Lifetimes {
    /// Of all of `device`'s trace; without one, of what the snapshot holds.
    pub(super) fn of(device: DeviceStudy<'_, '_>) -> Self {
        let mut lives = Self::default();
        let id = device.id();
        let traced = device.replay(Tracking::Changes, |step| match &step.entry {
            None => {
                let layout = Layout::from_tiling(step.tiling, id);
                lives.begin(layout.segments.iter(), &layout.blocks);
            }
            Some((index, entry)) => {
                let alloc = (entry.action == Action::Alloc).then_some(entry.addr);
                lives.apply(to_u32(*index).saturating_add(1), alloc, step);
            }
        });
        if traced.is_some() {
            lives.judge(device);
        } else {
            lives.begin(device.device().segments(), &device.snapshot().blocks);
        }
        lives
    }

    /// Finds out what every allocation was for.
    fn judge(&mut self, device: DeviceStudy<'_, '_>) {
        let told = self.allocations.iter().map(|one| attribution::Allocation {
            address: one.address,
            bytes: one.bytes,
            requested_bytes: one.requested_bytes,
            extended_stack: one.made_by,
            allocated_at: one.start.checked_sub(1),
            freed_after: one.requested,
        });
        let judged = attribution::classify_allocations(device, &told.collect::<Vec<_>>());
        for (one, judged) in self.allocations.iter_mut().zip(judged) {
            (one.category, one.confidence) = judged;
            let born = one.start.checked_sub(1);
            one.phase = born.map(|entry| device.phases().phase_at(entry as usize));
        }
    }

    fn place(&mut self, place: Place) -> u32 {
        *self.rows.entry(place).or_insert_with(|| {
            self.places.push(place);
            to_u32(self.places.len() - 1)
        })
    }

    /// What is there before the first entry.
    fn begin<'s>(&mut self, segments: impl Iterator<Item = &'s Segment>, blocks: &[Block]) {
        for segment in segments {
            let Segment { pool, stream, is_small, is_expandable, .. } = *segment;
            let place = self.place(Place { pool, stream, is_small });
            let (address, bytes) = (segment.address, segment.total_size);
            self.came(Stretch { start: 0, end: None, address, bytes, place, is_expandable });
            for block in blocks.get(segment.blocks.clone()).unwrap_or_default() {
                if block.state != BlockState::Inactive {
                    let is_pending = block.state == BlockState::ActivePendingFree;
                    self.born(Allocation {
                        start: 0,
                        requested: is_pending.then_some(0),
                        done: None,
                        address: block.address,
                        bytes: block.size,
                        requested_bytes: block.requested_size.min(block.size),
                        made_by: block.extended_stack,
                        place,
                        category: Category::Other,
                        confidence: Confidence::Low,
                        phase: None,
                    });
                }
            }
        }
    }

    /// What an entry changed, at `now`; `alloc` is the address that it handed out.
    fn apply(&mut self, now: Moment, alloc: Option<u64>, step: &ReplayStep<'_>) {
        for change in step.tiling.changes() {
            match *change {
                Change::Added(tile) => {
                    let Some(place) = self.place_of(step, tile.stream_pool) else { continue };
                    self.came(Stretch {
                        start: now,
                        end: None,
                        address: tile.addr,
                        bytes: tile.size,
                        place,
                        is_expandable: tile.is_expandable,
                    });
                }
                Change::Removed(address, bytes) => self.went(address, bytes, now),
                Change::Block(address) => self.block(address, now, alloc == Some(address), step),
            }
        }
    }

    fn place_of(&mut self, step: &ReplayStep<'_>, stream_pool: u32) -> Option<u32> {
        let of = step.tiling.stream_pools().get(stream_pool as usize)?;
        Some(self.place(Place { pool: of.pool, stream: of.stream, is_small: of.is_small }))
    }

    /// The block at `address` changed: it was just handed out if it `is_new`.
    fn block(&mut self, address: u64, now: Moment, is_new: bool, step: &ReplayStep<'_>) {
        let tile = step.tiling.tile_at(address).filter(|t| t.state != BlockState::Inactive);
        let known = self.live.get(&address).map(|at| *at as usize);
        let known = known.and_then(|at| self.allocations.get_mut(at));
        let Some(tile) = tile else {
            if let Some(known) = known {
                known.end(now);
                self.live.remove(&address);
            }
            return;
        };
        let is_pending = tile.state == BlockState::ActivePendingFree;
        if let Some(known) = known {
            let is_same = !is_new || known.start == now;
            if is_same && is_pending {
                known.requested = known.requested.or(Some(now));
                // Where an entry cuts what is on its way out, the file contradicts itself.
                known.bytes = tile.size;
            }
            // Whatever one entry says of a block several times, it is one block.
            if is_same && known.bytes == tile.size {
                return;
            }
            known.end(now);
        }
        // Nothing is freed when it comes.
        let place = (!is_pending).then(|| self.place_of(step, tile.stream_pool)).flatten();
        if let Some(place) = place {
            self.born(Allocation {
                start: now,
                requested: None,
                done: None,
                address,
                bytes: tile.size,
                requested_bytes: tile.requested,
                made_by: tile.stack,
                place,
                category: Category::Other,
                confidence: Confidence::Low,
                phase: None,
            });
        }
    }

    fn born(&mut self, allocation: Allocation) {
        self.live.insert(allocation.address, to_u32(self.allocations.len()));
        self.allocations.push(allocation);
    }

    fn came(&mut self, stretch: Stretch) {
        if stretch.bytes > 0 {
            self.held.insert(stretch.address, to_u32(self.stretches.len()));
            self.stretches.push(stretch);
        }
    }

    /// `bytes` at `address` go: whatever lies around them goes on by itself.
    fn went(&mut self, address: u64, bytes: u64, now: Moment) {
        let end = address.saturating_add(bytes);
        let touched = self.held.range(..end).rev();
        let ends_after = |at: &u32| {
            self.stretches.get(*at as usize).is_some_and(|one| one.end_address() > address)
        };
        let gone: Vec<(u64, u32)> = touched
            .take_while(|(_, at)| ends_after(at))
            .map(|(address, at)| (*address, *at))
            .collect();
        for (key, at) in gone {
            self.held.remove(&key);
            let Some(stretch) = self.stretches.get_mut(at as usize) else { continue };
            stretch.end = Some(now);
            let whole = *stretch;
            let part = |from: u64, to: u64| Stretch {
                start: now,
                end: None,
                address: from,
                bytes: to.saturating_sub(from),
                ..whole
            };
            self.came(part(whole.address, address));
            self.came(part(end, whole.end_address()));
        }
    }
}

impl Allocation {
    fn end(&mut self, now: Moment) {
        self.requested = self.requested.or(Some(now));
        self.done = Some(now);
    }
}

impl Stretch {
    pub(super) fn end_address(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }
}
