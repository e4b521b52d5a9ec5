//! Performs one more request on the allocator model, at the snapshot or at another entry.

use super::hypothesis::Hypothesis;
use super::simulate::give_initial_memory;
use crate::allocator::device::{DeviceMemory as _, SimulatedDevice, UNBOUNDED};
use crate::allocator::{Request, ServedBy, round_size};
use crate::replay::literal::{InitialState, Layout, Reservations, Tiling, Tracking};
use crate::snapshot::{Action, Device};

#[derive(Debug)]
pub struct RequestResult {
    pub rounded_size: u64,
    /// [`ServedBy::Failed`] if the request failed.
    pub service: ServedBy,
    /// Address of the block, and the bytes of the free block that it was split from; `None` if the request failed.
    pub served_from: Option<(u64, u64)>,
    /// Bytes released to the device to make room.
    pub released_bytes: u64,
    /// Free bytes of the device afterwards.
    pub device_free: u64,
    /// All blocks afterwards.
    pub tiling: Tiling,
}

/// Allocates `size` bytes on `stream` in the default pool, starting from the memory of `device` in `layout`, or in the
/// snapshot.
pub fn try_request(
    device: Device<'_>,
    layout: Option<&Layout>,
    hypothesis: &Hypothesis,
    (size, stream): (u64, u64),
) -> RequestResult {
    let settings = &hypothesis.settings;
    let mut allocator = hypothesis.allocator(settings.clone());
    let capacity = hypothesis.capacity.unwrap_or(UNBOUNDED);
    let mut simulated = SimulatedDevice::new(device.id(), capacity);
    let initial_state = layout.map_or_else(|| InitialState::from_snapshot(device), InitialState::from_layout);
    let (segments, blocks) = initial_state.to_model_state(&Reservations::new(device));
    give_initial_memory(&mut simulated, &segments, settings);
    allocator.add_initial_memory(&segments, &blocks);
    let request = Request::in_default_pool(size, stream);
    let free_block_bytes = allocator.free_block_size(&request);
    let service = match allocator.malloc(&request, &mut simulated) {
        Some(_) => allocator.served_by,
        None => ServedBy::Failed,
    };
    let (mut served_from, mut released_bytes, mut grown) = (None, 0u64, 0u64);
    for entry in &allocator.entries {
        match entry.action {
            Action::Alloc => served_from = Some((entry.addr, free_block_bytes.unwrap_or(grown))),
            Action::SegmentFree | Action::SegmentUnmap => {
                released_bytes = released_bytes.saturating_add(entry.size);
            }
            Action::SegmentAlloc | Action::SegmentMap => grown = grown.saturating_add(entry.size),
            _ => {}
        }
    }
    let mut tiling = Tiling::new(settings.clone(), Tracking::Totals);
    InitialState::from_model(&allocator).place_in(&mut tiling);
    RequestResult {
        rounded_size: round_size(size, settings),
        service,
        served_from,
        released_bytes,
        device_free: simulated.free_bytes(),
        tiling,
    }
}
