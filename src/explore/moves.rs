//! Where the cursor and the picture go.

use super::layout::View;
use super::recording::Moment;
use super::state::State;
use super::target::{Target, moment_at};
use crate::base::ids::to_u32;

/// The fewest moments that fill a picture.
const MIN_ZOOM: u32 = 8;

impl State<'_, '_> {
    /// The number of moments in the picture.
    pub(super) fn width(&self) -> i64 {
        i64::from(self.zoom.end) - i64::from(self.zoom.start)
    }

    pub(super) fn go(&mut self, moment: i64) {
        self.moment = Moment::try_from(moment.max(0)).unwrap_or(Moment::MAX).min(self.last());
        // The picture follows.
        let width = self.width();
        if self.moment < self.zoom.start {
            self.pan(i64::from(self.moment) - i64::from(self.zoom.start) - width / 4);
        } else if self.moment >= self.zoom.end {
            self.pan(i64::from(self.moment) - i64::from(self.zoom.end) + 1 + width / 4);
        }
        self.selected[View::Map as usize] = None;
    }

    pub(super) fn pan(&mut self, by: i64) {
        let width = to_u32(self.zoom.len());
        let start = (i64::from(self.zoom.start) + by).clamp(0, i64::from(self.last() + 1 - width));
        let start = Moment::try_from(start).unwrap_or(0);
        self.zoom = start..start + width;
    }

    /// Zooms in by `factor`, or out if it is negative, with `at` in its place.
    pub(super) fn zoom_by(&mut self, at: Moment, factor: i32) {
        let (old, all) = (self.zoom.len() as u64, u64::from(self.last()) + 1);
        let times = u64::from(factor.unsigned_abs());
        let width = if factor > 0 { (old / times).max(u64::from(MIN_ZOOM)) } else { old * times }.min(all);
        let before = u64::from(at.saturating_sub(self.zoom.start)) * width / old.max(1);
        let start = u64::from(at).saturating_sub(before).min(all - width);
        let [start, end] = [start, start + width].map(|moment| Moment::try_from(moment).unwrap_or(Moment::MAX));
        self.zoom = start..end;
    }

    pub(super) fn go_to(&mut self, target: Target) {
        let found = match target {
            Target::Start => Ok(0),
            Target::End => Ok(self.last() as usize),
            Target::Peak => {
                let entry = self.device.history().and_then(|history| history.peak.allocated_event);
                Ok(entry.map_or(0, |entry| usize::try_from(entry).unwrap_or(0) + 1))
            }
            Target::Failure => {
                let failures = || self.device.failed_requests().map(|entry| entry + 1);
                let next = failures().find(|moment| *moment > self.moment as usize);
                next.or_else(|| failures().next()).ok_or("no request failed")
            }
            Target::Entry(entry) if entry < u64::from(self.last()) => {
                Ok(usize::try_from(entry).unwrap_or(usize::MAX) + 1)
            }
            Target::Entry(_) => Err("the trace has no such entry"),
            Target::Step(step) => {
                let entries = self.device.phases().step_entries(step);
                entries.map(|entries| entries.end).ok_or("the trace has no such step")
            }
            Target::Time(us) => match moment_at(self.device, us) {
                Some(_)
                    if self.device.history().and_then(|history| history.duration_us).is_some_and(|last| us > last) =>
                {
                    Err("the trace ends before that time")
                }
                found => found.ok_or("the trace has no times"),
            },
        };
        match found {
            Ok(moment) => self.go(i64::try_from(moment).unwrap_or(i64::MAX)),
            Err(message) => self.message = Some(message.to_owned()),
        }
    }

    pub(super) fn go_to_step(&mut self, is_next: bool) {
        let ends = self.device.phases().step_ends();
        let moment = self.moment;
        let found = if is_next {
            ends.get(ends.partition_point(|end| *end <= moment))
        } else {
            ends[..ends.partition_point(|end| *end < moment)].last()
        };
        match found {
            Some(end) => self.go((*end).into()),
            None => self.message = Some(format!("no {} step", if is_next { "later" } else { "earlier" })),
        }
    }

    /// Marks the moment; at another one, shows what changed between the two.
    pub(super) fn mark(&mut self) {
        match self.marked {
            Some(marked) if marked != self.moment => self.view = View::Holders,
            _ => self.marked = Some(self.moment),
        }
    }
}
