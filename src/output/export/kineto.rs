//! Memory in a trace of torch.profiler (Kineto's Chrome JSON), on its clock, so that one timeline has kernels and memory.
//!
//! The trace is copied byte for byte; the events of the recordings are inserted at the start of `traceEvents`.

use std::io::{self, Write};

use memchr::memmem;
use serde_json::{Value, json};
use thiserror::Error;

use super::recording::{DeviceRecording, Recording};
use super::tracks::Slice;
use crate::base::units::size;

/// Why events cannot be added to a file.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum KinetoError {
    /// No list of events.
    #[error("is no trace of torch.profiler: it has no list \"traceEvents\" (export it with prof.export_chrome_trace)")]
    NotTrace,
    /// No time to relate its events to.
    #[error(
        "has no \"baseTimeNanoseconds\", so its clock is unknown: export it with PyTorch 2.3 or later, or leave out --with"
    )]
    NoBaseTime,
}

/// Process numbers of recordings: larger than those of any system.
const FIRST_PID: u64 = 10_000_000;

/// Copies a trace and adds recordings to it.
pub struct KinetoWriter<'p, W> {
    out: W,
    /// The rest of the trace, after the added events.
    rest: &'p [u8],
    base_ns: i128,
    /// Whether an event precedes the next one in the list.
    needs_comma: bool,
    next_pid: u64,
}

impl<'p, W: Write> KinetoWriter<'p, W> {
    /// Writes the start of `profile`, the content of the file.
    ///
    /// # Errors
    /// If it is no trace, or those of `out`.
    pub fn new(profile: &'p [u8], mut out: W) -> io::Result<Result<Self, KinetoError>> {
        let Some(start) = after_key(profile, b"\"traceEvents\"").filter(|at| profile.get(*at) == Some(&b'[')) else {
            return Ok(Err(KinetoError::NotTrace));
        };
        let base = after_key(profile, b"\"baseTimeNanoseconds\"").and_then(|at| profile.get(at..));
        let digits = base.map(|base| &base[..base.iter().take_while(|byte| byte.is_ascii_digit()).count()]);
        let Some(base) = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok()) else {
            return Ok(Err(KinetoError::NoBaseTime));
        };
        let (head, rest) = profile.split_at(start + 1);
        out.write_all(head)?;
        Ok(Ok(Self { out, rest, base_ns: base.into(), needs_comma: false, next_pid: FIRST_PID }))
    }

    /// Adds a snapshot as a process.
    ///
    /// # Errors
    /// Those of the file.
    pub fn add(&mut self, recording: &Recording<'_, '_>) -> io::Result<()> {
        let pid = self.next_pid;
        self.next_pid += 1;
        let rank = recording.rank.map_or_else(String::new, |rank| format!("rank {rank}, "));
        let name = format!("CUDA memory ({rank}{})", recording.path);
        self.event(&json!({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}))?;
        let order = json!({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": -1}});
        self.event(&order)?;
        let mut tid = 0;
        for device in recording.devices.iter().filter(|device| !device.window.is_empty()) {
            self.device(device, pid, &mut tid)?;
        }
        Ok(())
    }

    fn device(&mut self, device: &DeviceRecording<'_, '_>, pid: u64, tid: &mut u64) -> io::Result<()> {
        let id = device.device.id();
        device.counters(|counter, time_us, bytes| {
            let name = format!("cuda:{id} {}", counter.label());
            self.timed("C", time_us, json!({"name": name, "pid": pid, "args": {"bytes": bytes}}))
        })?;
        let mut lane = None;
        for slice in device.slices() {
            if lane != Some(slice.lane) {
                lane = Some(slice.lane);
                *tid += 1;
                self.thread(pid, *tid, &format!("cuda:{id} {}", slice.lane.label()))?;
            }
            let Slice { time_us, name, bytes, .. } = slice;
            let duration = time_us.end - time_us.start;
            let mut event = json!({"name": name, "pid": pid, "tid": *tid, "dur": duration});
            if let Some(bytes) = bytes {
                event["args"] = json!({"bytes": bytes});
            }
            self.timed("X", time_us.start, event)?;
        }
        *tid += 1;
        self.thread(pid, *tid, &format!("cuda:{id} failed requests"))?;
        for failure in device.failures() {
            let name = format!("out of memory: {}", size(failure.requested_bytes));
            let args = json!({
                "requested_bytes": failure.requested_bytes,
                "device_free_bytes": failure.device_free_bytes,
                "entry": failure.entry,
                "line": device.line(failure.stack),
            });
            self.timed("i", failure.time_us, json!({"name": name, "pid": pid, "tid": *tid, "s": "p", "args": args}))?;
        }
        Ok(())
    }

    fn thread(&mut self, pid: u64, tid: u64, name: &str) -> io::Result<()> {
        self.event(&json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}))
    }

    /// Adds an event at a time, in microseconds since the trace's base.
    fn timed(&mut self, kind: &str, time_us: u64, mut event: Value) -> io::Result<()> {
        let since = i128::from(time_us) * 1000 - self.base_ns;
        // Nanoseconds of 52 bits, a hundred days of microseconds, are exact.
        event["ts"] = json!(since as f64 / 1000.0);
        event["ph"] = json!(kind);
        self.event(&event)
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        if std::mem::replace(&mut self.needs_comma, true) {
            self.out.write_all(b",")?;
        }
        self.out.write_all(b"\n")?;
        serde_json::to_writer(&mut self.out, event)?;
        Ok(())
    }

    /// Writes the rest of the trace.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(&mut self) -> io::Result<()> {
        let has_events = self.rest.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| *byte != b']');
        if has_events && self.needs_comma {
            self.out.write_all(b",")?;
        }
        self.out.write_all(self.rest)?;
        self.out.flush()
    }
}

/// Where the value of `key` begins.
fn after_key(text: &[u8], key: &[u8]) -> Option<usize> {
    memmem::find_iter(text, key).find_map(|at| {
        let skip = |from: usize| {
            let blank = text.get(from..)?.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            Some(from + blank)
        };
        let colon = skip(at + key.len())?;
        (text.get(colon) == Some(&b':')).then(|| skip(colon + 1)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::{KinetoError, KinetoWriter, after_key};

    #[test]
    fn events_go_to_the_start_of_the_list() {
        let merged = |profile: &str| {
            let mut out = Vec::new();
            let mut writer = KinetoWriter::new(profile.as_bytes(), &mut out).unwrap()?;
            writer.event(&serde_json::json!({"ph": "M"})).unwrap();
            writer.finish().unwrap();
            Ok(String::from_utf8(out).unwrap())
        };
        let with_base = |events: &str| format!("{{\"baseTimeNanoseconds\": 5, \"traceEvents\": [{events}]}}");
        assert_eq!(merged(&with_base("1")).unwrap(), with_base("\n{\"ph\":\"M\"},1"));
        assert_eq!(merged(&with_base(" ")).unwrap(), with_base("\n{\"ph\":\"M\"} "));
        assert_eq!(merged("{\"traceEvents\": []}"), Err(KinetoError::NoBaseTime));
        assert_eq!(merged("{\"baseTimeNanoseconds\": 5}"), Err(KinetoError::NotTrace));
        assert_eq!(after_key(b"{\"a\" : 7}", b"\"a\""), Some(7));
    }
}
