//! Where the cursor and the picture go.

use super::layout::View;
use super::recording::Moment;
use super::state::State;
use crate::base::ids::to_u32;
use crate::study::{PositionSelector, TracePosition};

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

    /// Shows `width` moments, with the cursor where it is.
    pub(super) fn zoom_to(&mut self, width: usize) {
        let all = u64::from(self.last()) + 1;
        let width = (width as u64).max(u64::from(MIN_ZOOM)).min(all);
        let before = u64::from(self.moment.saturating_sub(self.zoom.start)) * width / (self.zoom.len() as u64).max(1);
        let start = u64::from(self.moment).saturating_sub(before).min(all - width);
        let [start, end] = [start, start + width].map(|moment| Moment::try_from(moment).unwrap_or(Moment::MAX));
        self.zoom = start..end;
    }

    /// Goes where `--at` of a command would be.
    pub(super) fn go_to(&mut self, selector: PositionSelector) {
        match self.device.position(selector) {
            Some(TracePosition::Entry { event }) => self.go(i64::try_from(event).unwrap_or(i64::MAX).saturating_add(1)),
            Some(TracePosition::Start) => self.go(0),
            Some(TracePosition::Snapshot) => self.go(self.last().into()),
            None => self.message = Some(selector.describe_missing()),
        }
    }

    pub(super) fn go_to_next_failure(&mut self) {
        let failures = || self.device.failed_requests().map(|entry| entry + 1);
        let next = failures().find(|moment| *moment > self.moment as usize);
        match next.or_else(|| failures().next()) {
            Some(moment) => self.go(i64::try_from(moment).unwrap_or(i64::MAX)),
            None => self.message = Some("no request failed".to_owned()),
        }
    }

    pub(super) fn go_to_step(&mut self, is_next: bool) {
        let ends = self.device.phases().steps.ends();
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
