//! Which stack each malloc and free has.
//!
//! A stack is named by a number and spelled out into frames whenever it is needed, so that the
//! generator holds none of them: a large file has millions.

use std::collections::HashSet;

use oomscope::base::ids::StackId;

use super::frame_pool::{FrameId, FramePool, POOL};
use super::random::Random;

/// Where in a training script memory is asked for or given back.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Site {
    MallocInMain,
    MallocInBackward,
    FreeInMain,
    FreeInBackward,
}

const SITES: u64 = 4;

impl Site {
    fn is_malloc(self) -> bool {
        matches!(self, Site::MallocInMain | Site::MallocInBackward)
    }

    fn is_main(self) -> bool {
        matches!(self, Site::MallocInMain | Site::FreeInMain)
    }
}

/// What decides the frames of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content {
    site: Site,
    variant: u64,
}

/// One captured stack. PyTorch gives each its own list of frames in the pickle, even where the
/// contents are equal; events of one malloc, or of one free, share it.
#[derive(Clone, Copy)]
pub struct Traceback {
    pub number: u64,
    pub content: Content,
}

/// Draws the stacks of a workload.
pub struct StackSource {
    distinct: Option<u64>,
    random: Random,
    /// Those drawn so far, by number.
    contents: Vec<Content>,
}

impl StackSource {
    pub fn new(distinct: Option<usize>, random: Random) -> Self {
        StackSource { distinct: distinct.map(|count| count.max(1) as u64), random, contents: Vec::new() }
    }

    pub fn draw(&mut self, site: Site) -> Traceback {
        let number = self.contents.len() as u64;
        let content = match self.distinct {
            Some(distinct) => self.one_of(distinct, site),
            None => Content { site, variant: number },
        };
        self.contents.push(content);
        Traceback { number, content }
    }

    /// The traceback that a block or a segment has as its context; none for that of a free block.
    pub fn traceback(&self, context: StackId) -> Option<Traceback> {
        let number = u64::from(context.0.checked_sub(1)?);
        Some(Traceback { number, content: self.contents[number as usize] })
    }

    /// How many different stacks were drawn.
    pub fn distinct(&self) -> u64 {
        self.contents.iter().collect::<HashSet<_>>().len() as u64
    }

    /// The contents are dealt to the sites in turn. With fewer contents than sites, sites that
    /// got none use the first.
    fn one_of(&mut self, distinct: u64, site: Site) -> Content {
        let share = (distinct + SITES - 1 - site as u64) / SITES;
        if share == 0 {
            return Content { site: Site::MallocInMain, variant: 0 };
        }
        Content { site, variant: self.random.below(share) }
    }
}

/// Spells stacks out into frames.
pub struct StackSpeller {
    pub pool: FramePool,
    depth: u64,
}

/// The frames that make a stack different from all others of its site.
const DIGITS: u32 = 4;
const DIGIT_BITS: u32 = POOL.ilog2();

impl StackSpeller {
    pub fn new(depth: usize, pool: FramePool) -> Self {
        StackSpeller { pool, depth: depth as u64 }
    }

    /// Replaces `frames` by those of a stack, innermost first.
    pub fn spell(&self, content: Content, frames: &mut Vec<FrameId>) {
        let Content { site, variant } = content;
        let mut random = Random::new(variant, site as u64);
        let length = self.length(site, &mut random);
        let innermost = self.innermost(site);
        let innermost = &innermost[..innermost.len().min(length / 4)];
        let outermost = self.outermost(site);
        let outermost = &outermost[outermost.len() - outermost.len().min(length / 3)..];
        let middle = length - innermost.len() - outermost.len();
        frames.clear();
        frames.extend(innermost);
        for index in 0..self.operator_frames(site, middle) {
            let choice = match digit(variant, index) {
                Some(digit) => digit,
                None => random.below(POOL as u64) as FrameId,
            };
            frames.push(self.pool.operator[index % self.pool.operator.len()] + choice);
        }
        let python_ends = length - outermost.len();
        for index in 0..python_ends - frames.len() {
            frames.push(self.call_frame(index, &mut random));
        }
        frames.extend(outermost);
    }

    /// Stacks of mallocs are deeper than those of frees, and there are as many of both.
    fn length(&self, site: Site, random: &mut Random) -> usize {
        let percent = if site.is_malloc() { 120 } else { 80 };
        let spread = 75 + random.below(51);
        // Rounded, so that the mean over all stacks stays the depth that was asked for.
        ((self.depth * percent * spread + 5_000) / 10_000).max(1) as usize
    }

    /// Backward runs in a thread of the autograd engine, where there is no Python.
    fn operator_frames(&self, site: Site, middle: usize) -> usize {
        let at_least = middle.min(DIGITS as usize);
        match (site.is_main(), site.is_malloc()) {
            (false, _) => middle,
            (true, true) => at_least + (middle - at_least) / 3,
            (true, false) => at_least,
        }
    }

    /// One Python frame, then the interpreter's own frames that lead to the next.
    fn call_frame(&self, index: usize, random: &mut Random) -> FrameId {
        let calls = &self.pool.calls;
        match index % (calls.len() + 1) {
            0 => self.pool.python + random.below(POOL as u64) as FrameId,
            call => calls[call - 1],
        }
    }

    fn innermost(&self, site: Site) -> &[FrameId] {
        if site.is_malloc() { &self.pool.innermost_of_malloc } else { &self.pool.innermost_of_free }
    }

    fn outermost(&self, site: Site) -> &[FrameId] {
        if site.is_main() { &self.pool.outermost_in_main } else { &self.pool.outermost_in_backward }
    }
}

/// The digits of a variant, so scrambled that neighbours look unlike: the multiplication by an odd
/// number is one-to-one on the low bits, for however few digits a short stack has room.
fn digit(variant: u64, index: usize) -> Option<FrameId> {
    let shift = index as u32 * DIGIT_BITS;
    let scrambled = variant.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (shift < DIGITS * DIGIT_BITS).then(|| (scrambled >> shift) as FrameId % POOL as FrameId)
}
