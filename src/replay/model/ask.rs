//! One more request, at the snapshot or another moment: what the allocator would do with it.

use super::hypothesis::Hypothesis;
use super::simulate::take_over;
use crate::allocator::device::{DeviceMemory as _, Simulated, UNBOUNDED};
use crate::allocator::{Behaviour, CachingAllocator, Request, Service, round_size};
use crate::replay::facts::{Keep, Layout, Reservations, Start, Tiling};
use crate::snapshot::{Action, Device};

/// What came of it.
#[derive(Debug)]
pub struct Answer {
    /// The request in rounded bytes.
    pub rounded: u64,
    /// How it was served, or that it failed.
    pub service: Service,
    /// The block that serves it: its address, and the bytes of the free block it is cut from.
    pub served: Option<(u64, u64)>,
    /// Bytes that were given back to the device on the way.
    pub given_back: u64,
    /// Bytes free on the device afterwards.
    pub device_free: u64,
    /// The memory afterwards.
    pub tiling: Tiling,
}

/// Asks for `size` bytes on `stream` in the default pool, with the memory of `device` as in `layout`, or as the
/// snapshot has it. The device's capacity is that of `hypothesis`.
pub fn ask(
    device: Device<'_>,
    layout: Option<&Layout>,
    hypothesis: &Hypothesis,
    (size, stream): (u64, u64),
) -> Answer {
    let settings = &hypothesis.settings;
    let mut allocator =
        CachingAllocator::new(Behaviour::of(hypothesis.minor), settings.clone(), hypothesis.limit);
    let capacity = hypothesis.capacity.unwrap_or(UNBOUNDED);
    let mut simulated = Simulated::new(device.id(), capacity);
    let start = layout.map_or_else(|| Start::at_snapshot(device), Start::of_layout);
    let (held, residents) = start.to_adopt(&Reservations::new(device));
    take_over(&mut simulated, &held, settings);
    allocator.adopt(&held, &residents);
    let request = Request::plain(size, stream);
    let fit = allocator.fit_for(&request);
    let service = match allocator.malloc(&request, &mut simulated) {
        Some(_) => allocator.service(),
        None => Service::Failed,
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
    let mut tiling = Tiling::new(settings.clone(), Keep::Sums);
    Start::of_model(&allocator).lay(&mut tiling);
    Answer {
        rounded: round_size(size, settings),
        service,
        served,
        given_back,
        device_free: simulated.free_bytes(),
        tiling,
    }
}
