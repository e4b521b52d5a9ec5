//! What is asked.

use super::size::Size;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct FitOptions<'o> {
    /// Only this device.
    pub device: Option<u64>,
    /// Sizes to tell of; those recorded, and around the largest that fits, where there are none.
    pub at: &'o [Size],
    /// Second numbers for which the largest first is looked for, beside those recorded.
    pub at_second: &'o [u64],
    /// Bytes of device memory.
    pub capacity: Option<u64>,
    /// Settings in place of those recorded.
    pub settings: Option<&'o str>,
    /// Only multiples of this are looked for, of the first number.
    pub multiple: u64,
    /// How many lines to tell of.
    pub top: usize,
    /// How many sizes a curve is to have, at least; 0 for none.
    pub curve: u64,
}
