//! One more request, at the snapshot or another moment: what the allocator would do with it.

use super::hypothesis::Hypothesis;
use super::simulate::give_initial_memory;
use crate::allocator::device::{DeviceMemory as _, SimulatedDevice, UNBOUNDED};
use crate::allocator::{Behaviour, CachingAllocator, Request, ServedBy, round_size};
use crate::replay::literal::{Tracking, Layout, Reservations, InitialState, Tiling};
use crate::snapshot::{Action, Device};

/// What came of it.
#[derive(Debug)]
pub struct RequestResult {
    /// The request in rounded bytes.
    pub rounded_size: u64,
    /// How it was served, or that it failed.
    pub service: ServedBy,
    /// The block that serves it: its address, and the bytes of the free block it is cut from.
    pub served_from: Option<(u64, u64)>,
    /// Bytes that were given back to the device on the way.
    pub released_bytes: u64,
    /// Bytes free on the device afterwards.
    pub device_free: u64,
    /// The memory afterwards.
    pub tiling: Tiling,
}

/// Asks for `size` bytes on `stream` in the default pool, with the memory of `device` as in `layout`, or as the
/// snapshot has it. The device's capacity is that of `hypothesis`.
pub fn try_request(
    device: Device<'_>,
    layout: Option<&Layout>,
    hypothesis: &Hypothesis,
    (size, stream): (u64, u64),
) -> RequestResult {
    let settings = &hypothesis.settings;
    let mut allocator =
        CachingAllocator::new(Behaviour::for_release(hypothesis.minor), settings.clone(), hypothesis.limit);
    let capacity = hypothesis.capacity.unwrap_or(UNBOUNDED);
    let mut simulated = SimulatedDevice::new(device.id(), capacity);
    let start = layout.map_or_else(|| InitialState::from_snapshot(device), InitialState::from_layout);
    let (held, residents) = start.to_model_state(&Reservations::new(device));
    give_initial_memory(&mut simulated, &held, settings);
    allocator.add_initial_memory(&held, &residents);
    let request = Request::in_default_pool(size, stream);
    let fit = allocator.free_block_size(&request);
    let service = match allocator.malloc(&request, &mut simulated) {
        Some(_) => allocator.served_by(),
        None => ServedBy::Failed,
    };
    let (mut served, mut given_back, mut grown) = (None, 0u64, 0u64);
    for entry in allocator.entries() {
        match entry.action {
            Action::Alloc => served = Some((entry.addr, fit.unwrap_or(grown))),
            Action::SegmentFree | Action::SegmentUnmap => {
                given_back = given_back.saturating_add(entry.size);
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
        served_from: served,
        released_bytes: given_back,
        device_free: simulated.free_bytes(),
        tiling,
    }
}
