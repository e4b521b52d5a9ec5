//! Taking over memory that an allocator held before anyone watched.

use std::collections::BTreeMap;

use super::behaviour::TieBreak;
use super::block::{BlockId, Chain, PoolBlock, State};
use super::caching::CachingAllocator;
use super::free_set::FreeKey;
use super::request::{DEFAULT_POOL, Request, Ticket};
use super::size::granule;
use crate::allocator::terms::BlockState;
use crate::base::ids::{PoolId, StackId, row};

/// A segment that was there, or a mapped part of an expandable one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldSegment {
    /// Where it begins.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// The stream it serves.
    pub stream: u64,
    /// Its pool.
    pub pool: PoolId,
    /// Whether it is in the pool's half for requests up to 1 MiB.
    pub is_small: bool,
    /// For mapped memory, the range of addresses that was reserved for it: base and size.
    pub reservation: Option<(u64, u64)>,
}

/// A block that was in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// Where it begins.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Allocated or pending; free blocks are what is left between.
    pub state: BlockState,
    /// Where it was allocated, if known.
    pub context: StackId,
}

/// The blocks taken over, by address.
#[derive(Debug, Default)]
pub struct Adopted {
    /// Those that the program holds.
    pub live: Vec<(u64, BlockId)>,
    /// Those that wait for other streams.
    pub pending: Vec<(u64, Ticket)>,
    /// Residents that lie in no segment or in another resident.
    pub misfits: usize,
}

/// A segment with all its addresses, as it is laid out.
struct Body {
    free_list: u32,
    pool: PoolId,
    is_small: bool,
    /// Ranges with memory behind them, in order, none adjoining another.
    mapped: Vec<(u64, u64)>,
    reservation: Option<(u64, u64)>,
}

/// A block to be: from, to, state, and who lives there.
type Piece = (u64, u64, State, Option<Resident>);

impl CachingAllocator {
    /// Takes `held` memory over, with `residents` in it; both in address order. Segments count as made
    /// in that order, and the figures as if they had grown to what is held.
    pub fn adopt(&mut self, held: &[HeldSegment], residents: &[Resident]) -> Adopted {
        let mut adopted = Adopted::default();
        let mut residents = residents.iter().copied().peekable();
        for body in self.bodies(held) {
            let mut pieces: Vec<Piece> = Vec::new();
            let (mut from, end) = match body.reservation {
                Some((base, size)) => (base, base.saturating_add(size)),
                None => (body.mapped.first().map_or(0, |m| m.0), 0),
            };
            for (start, stop) in &body.mapped {
                pieces.push((from, *start, State::Unmapped, None));
                from = *start;
                while let Some(resident) = residents.next_if(|r| r.addr < *stop) {
                    let after = resident.addr.saturating_add(resident.size);
                    if resident.addr < from || after > *stop {
                        adopted.misfits += 1;
                        continue;
                    }
                    pieces.push((from, resident.addr, State::Free, None));
                    let state = match resident.state {
                        BlockState::ActivePendingFree => State::Pending,
                        _ => State::Allocated,
                    };
                    pieces.push((resident.addr, after, state, Some(resident)));
                    from = after;
                }
                pieces.push((from, *stop, State::Free, None));
                from = *stop;
            }
            pieces.push((from, end, State::Unmapped, None));
            pieces.retain(|(from, to, ..)| from < to);
            self.lay_out(&body, &pieces, &mut adopted);
        }
        adopted.misfits += residents.count();
        self.adopted = self.registrations;
        adopted
    }

    fn bodies(&mut self, held: &[HeldSegment]) -> Vec<Body> {
        let mut bodies: Vec<Body> = Vec::new();
        for segment in held {
            let free_list = self.pools.free_list(segment.pool, segment.stream, segment.is_small);
            let range = (segment.addr, segment.addr.saturating_add(segment.size));
            match bodies.last_mut() {
                Some(body)
                    if segment.reservation.is_some()
                        && body.reservation == segment.reservation
                        && body.free_list == free_list =>
                {
                    match body.mapped.last_mut() {
                        Some(last) if last.1 == range.0 => last.1 = range.1,
                        _ => body.mapped.push(range),
                    }
                }
                _ => bodies.push(Body {
                    free_list,
                    pool: segment.pool,
                    is_small: segment.is_small,
                    mapped: vec![range],
                    reservation: segment.reservation,
                }),
            }
        }
        bodies
    }

    fn lay_out(&mut self, body: &Body, pieces: &[Piece], adopted: &mut Adopted) {
        let mut registration = self.next_registration();
        let chain = body.reservation.map(|(base, size)| {
            self.chains.push(Chain { base, size, granule: granule(body.is_small, &self.settings) });
            row(self.chains.len() - 1)
        });
        let mut prev = BlockId::NONE;
        let mut holes = Vec::new();
        for (from, to, state, resident) in pieces {
            if prev != BlockId::NONE && self.behaviour.tie_break == TieBreak::OldestBlock {
                registration = self.next_registration();
            }
            let id = self.blocks.insert(PoolBlock {
                addr: *from,
                size: to - from,
                requested: resident.map_or(0, |r| r.requested),
                since: 0,
                prev,
                next: BlockId::NONE,
                free_list: body.free_list,
                registration,
                chain,
                state: *state,
                context: resident.map_or(StackId::default(), |r| r.context),
                segment_context: StackId::default(),
            });
            if let Some(prev) = prev.some() {
                self.blocks[prev].next = id;
            }
            prev = id;
            let block = self.blocks[id];
            match state {
                State::Unmapped => holes.push(id),
                State::Free => {
                    self.insert_free(id);
                    if chain.is_none() && pieces.len() > 1 {
                        self.statistics.inactive_split.increase(body.is_small, 1);
                        self.statistics.inactive_split_bytes.increase(body.is_small, block.size);
                    }
                }
                State::Pending => {
                    self.count_as_active(&block, body.is_small);
                    adopted.pending.push((*from, self.make_pending(id)));
                }
                State::Allocated | State::Vacant => {
                    self.count_as_active(&block, body.is_small);
                    adopted.live.push((*from, id));
                }
            }
        }
        // Only now it is known which of them are whole segments.
        for hole in holes {
            self.insert_unmapped(hole);
        }
        self.count_mapped(body);
    }

    /// Counts the memory of `body` as reserved.
    fn count_mapped(&mut self, body: &Body) {
        for (from, to) in &body.mapped {
            let size = to - from;
            self.reserved = self.reserved.saturating_add(size);
            self.statistics.reserve(body.pool, body.is_small, size);
            if body.pool != DEFAULT_POOL {
                self.pools.get_mut(body.pool).device_allocations += 1;
            }
            if body.reservation.is_none() {
                self.statistics.segment.increase(body.is_small, 1);
                if size >= self.settings.max_split_size {
                    self.statistics.oversize_segments.increase(1);
                }
            }
        }
    }

    /// Which of the adopted segments is older shows only when the allocator chooses between two: lets
    /// the free block at `addr` come first if nothing but that order is against it.
    pub fn prefer(&mut self, request: &Request<'_>, addr: u64) {
        if self.behaviour.tie_break == TieBreak::LowestAddress {
            return;
        }
        let Some(first) = self.fit(request).filter(|key| key.addr != addr) else { return };
        let free_list = self.blocks[first.id].free_list as usize;
        let free = &self.pools.free_lists[free_list].free;
        let mut alike =
            free.from(FreeKey::at_least(first.size)).take_while(|key| key.size == first.size);
        let Some(chosen) = alike.find(|key| key.addr == addr).map(|key| key.registration) else {
            return;
        };
        drop(alike);
        self.make_older(chosen, first.registration);
    }

    /// The same for whole segments that were given back in this order: of those of one size and one
    /// free list, the older one came first.
    pub fn prefer_release(&mut self, addrs: &[u64]) {
        if self.behaviour.tie_break == TieBreak::LowestAddress || self.adopted == 0 {
            return;
        }
        let whole: BTreeMap<u64, BlockId> = self
            .blocks
            .ids()
            .filter(|id| self.blocks[*id].state == State::Free && !self.blocks[*id].is_split())
            .map(|id| (self.blocks[id].addr, id))
            .collect();
        for pair in addrs.windows(2) {
            let [Some(&first), Some(&second)] = [0, 1].map(|at| whole.get(pair.get(at)?)) else {
                continue;
            };
            let (first, second) = (self.blocks[first], self.blocks[second]);
            if (first.free_list, first.size) == (second.free_list, second.size) {
                self.make_older(first.registration, second.registration);
            }
        }
    }

    /// Registration `to` is as old as `from`, and all from there on are younger; if both are guesses.
    fn make_older(&mut self, to: u32, from: u32) {
        if to >= self.adopted || from >= to {
            return;
        }
        let moved: Vec<BlockId> = self
            .blocks
            .ids()
            .filter(|id| (from..=to).contains(&self.blocks[*id].registration))
            .collect();
        for id in moved {
            let is_free = self.blocks[id].state == State::Free;
            if is_free {
                self.take_out(id);
            }
            let block = &mut self.blocks[id];
            block.registration =
                if block.registration == to { from } else { block.registration + 1 };
            if is_free {
                let since = block.since;
                self.insert_free(id);
                self.blocks[id].since = since;
            }
        }
    }
}
