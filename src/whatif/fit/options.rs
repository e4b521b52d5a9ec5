//! The options of a fit.

use crate::allocator::device::GpuModel;

/// The sizes, the device and the settings of a prediction.
#[derive(Debug, Clone, Copy)]
pub struct FitOptions<'o> {
    /// Sizes to predict; if empty, the recorded ones, some larger ones, and those around the largest that fits.
    pub sizes: &'o [u64],
    /// Device memory in bytes.
    pub capacity: Option<u64>,
    /// The GPU to predict for, if it is known: how its kernels are launched.
    pub gpu: Option<&'static GpuModel>,
    /// Options that override the recorded settings.
    pub settings: Option<&'o str>,
    /// Only multiples of this are searched.
    pub multiple: u64,
}
