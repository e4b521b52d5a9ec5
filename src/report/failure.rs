//! The part of the page that says why requests failed.

use super::obstacles::{in_the_way, pending};
use super::sheet::Page;
use super::words::{missing, moment, of_remedies, place_in, remedies, telling_frames, when};
use crate::analysis::{DeviceReport, OomReport};
use crate::units::{count, counted, size, stream};

/// Frames of a failing request's stack that are shown.
const SHOWN_FRAMES: usize = 8;
/// Failed requests described in full; the others are listed.
const SHOWN_OOMS: usize = 1;

impl Page {
    pub(super) fn ooms(&mut self, device: &DeviceReport) {
        let shown = device.ooms.len().min(SHOWN_OOMS);
        // The last failure is the one that ended the program, if any did.
        for oom in device.ooms.iter().rev().take(shown) {
            self.line("");
            let title = format!("Out of memory on device {}", device.device);
            self.line(&format!("{} ({})", self.style.alarm(&title), when(oom, device)));
            self.oom(oom);
        }
        let earlier = device.oom_count - shown as u64;
        if earlier > 0 {
            let list: Vec<String> = device
                .ooms
                .iter()
                .rev()
                .skip(shown)
                .take(3)
                .map(|oom| format!("{} at entry {}", size(oom.requested_bytes), count(oom.event)))
                .collect();
            let more = if earlier > 3 { ", ..." } else { "" };
            self.named(
                "earlier",
                &format!(
                    "{} before that: {}{more}",
                    counted(earlier, "failed request"),
                    list.join(", ")
                ),
            );
        }
    }

    pub(super) fn oom(&mut self, oom: &OomReport) {
        let style = self.style;
        match &oom.culprit {
            Some(frame) => self.named("line", &style.strong(&place_in(frame))),
            None if oom.frames.is_empty() => self.named(
                "line",
                "unknown: this request has no stack (threads of the backward pass show only with stacks='all')",
            ),
            None => self.named("line", "none of the user's own code is on the stack"),
        }
        let exact = count(oom.requested_bytes);
        self.named(
            "request",
            &format!(
                "{} ({exact} bytes) on stream {}",
                size(oom.requested_bytes),
                stream(oom.stream)
            ),
        );
        if let Some(operation) = &oom.operation {
            self.named("doing", operation);
        }
        if let Some(metadata) = &oom.user_metadata {
            self.named("metadata", metadata);
        }
        self.verdict(oom);
        self.remedies(oom);
        self.circumstances(oom);
        let (frames, folded) = telling_frames(&oom.frames);
        for (i, frame) in frames.iter().take(SHOWN_FRAMES).enumerate() {
            self.named(if i == 0 { "stack" } else { "" }, &place_in(frame));
        }
        let mut rest = Vec::new();
        if frames.len() > SHOWN_FRAMES {
            rest.push(format!("{} more", count((frames.len() - SHOWN_FRAMES) as u64)));
        }
        if folded > 0 {
            rest.push(format!(
                "{} of interpreter, dispatcher and library calls folded",
                counted(folded as u64, "frame")
            ));
        }
        if !rest.is_empty() {
            self.named("", &style.faint(&format!("({})", rest.join(", "))));
        }
    }

    fn verdict(&mut self, oom: &OomReport) {
        let verdict = self.style.strong(&oom.verdict_reason);
        self.named(oom.verdict.word(), &verdict);
    }

    /// The memory at that moment, and what is in the way.
    fn circumstances(&mut self, oom: &OomReport) {
        self.named("missing", &missing(oom));
        self.named("at that moment", &moment(oom));
        for cause in oom.causes.iter().filter(|cause| cause.kind != oom.verdict) {
            self.named("", &format!("{} {}", size(cause.bytes), cause.note));
        }
        for (i, it) in pending(oom).iter().enumerate() {
            self.named(if i == 0 { "pending" } else { "" }, it);
        }
        for (i, it) in in_the_way(oom).iter().enumerate() {
            self.named(if i == 0 { "in the way" } else { "" }, it);
        }
    }

    /// One more request, and what would become of it.
    pub(super) fn request(&mut self, device: &DeviceReport) {
        let Some(request) = &device.request else { return };
        let oom = &request.outcome;
        self.line("");
        let asked = format!("{} more on device {}", size(request.asked_bytes), device.device);
        if request.served_from.is_some() {
            self.line(&self.style.heading(&format!("{asked} would be served")));
            self.named(oom.verdict.word(), &oom.verdict_reason);
        } else {
            self.line(&self.style.alarm(&format!("{asked} would fail")));
            self.verdict(oom);
            self.circumstances(oom);
            if request.given_back_bytes > 0 {
                let back = size(request.given_back_bytes);
                self.named("", &format!("after {back} of the cache were given back to the device"));
            }
        }
        for (i, assumed) in request.assumed.iter().enumerate() {
            self.named(if i == 0 { "assumed" } else { "" }, assumed);
        }
    }

    /// What would have helped, as replays of the same calls say.
    fn remedies(&mut self, oom: &OomReport) {
        let texts = remedies(oom);
        for (i, text) in texts.iter().enumerate() {
            self.named(if i == 0 { "remedies" } else { "" }, text);
        }
        if let Some(it) = of_remedies(oom) {
            self.named("", &self.style.faint(&it));
        }
    }
}
