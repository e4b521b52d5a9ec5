//! One recording of the program, at one size.

use super::size::Size;
use crate::base::ids::StackId;
use crate::replay::ops::Program;
use crate::study::{DeviceStudy, Study};

/// A snapshot, and the size that the program was given when it was recorded.
#[derive(Debug, Clone, Copy)]
pub struct Sized<'s, 'a> {
    /// Any whole number: a batch, a length; or two.
    pub size: Size,
    /// Where it was read.
    pub path: &'s str,
    /// The snapshot.
    pub study: &'s Study<'a>,
}

/// One device of it.
#[derive(Debug)]
pub(super) struct Recording<'s, 'a> {
    pub(super) size: Size,
    pub(super) device: DeviceStudy<'s, 'a>,
    /// In the order of the program's requests.
    pub(super) requests: Vec<Request>,
}

/// What the program asked for once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// The index of its entry.
    pub(super) at: usize,
    pub(super) stack: StackId,
    pub(super) bytes: u64,
    /// How many requests had been made when its block was freed; `None` where that was not recorded.
    pub(super) freed: Option<usize>,
}

impl<'s, 'a> Recording<'s, 'a> {
    /// Device `id`, if it has a trace there.
    pub(super) fn of(recorded: &Sized<'s, 'a>, id: u64) -> Option<Self> {
        let device = recorded.study.device(id).filter(|device| !device.device().is_empty())?;
        let request = |(at, stack, bytes)| Request { at, stack, bytes, freed: None };
        let mut requests: Vec<Request> = device.program().requests().map(request).collect();
        for (row, made) in device.program().frees() {
            if let Some(request) = requests.get_mut(row) {
                request.freed = Some(made);
            }
        }
        Some(Self { size: recorded.size, device, requests })
    }

    pub(super) fn program(&self) -> &'s Program<'a> {
        self.device.program()
    }

    /// Whether it ends with a request that failed: what the program would have done then is not recorded.
    pub(super) fn ends_in_failure(&self) -> bool {
        let last = self.requests.last().map(|request| request.at);
        last.is_some() && self.device.device().failed().last() == last
    }
}
