//! A small seeded random number generator.
//!
//! The generator must give the same bytes for the same options on every machine and with every
//! version of every crate, so it brings its own (splitmix64) instead of depending on one.

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

pub struct Random {
    state: u64,
}

impl Random {
    /// One seed serves several independent generators; `purpose` keeps them apart, so that for
    /// example other stacks do not change the sizes of the workload.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Random { state: seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93) };
        // Mix once: seeds and purposes are small numbers that differ in a few low bits only.
        random.state = random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product is uniform enough here and cheaper than a division.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub fn one_in(&mut self, chance: u64) -> bool {
        self.below(chance) == 0
    }
}
