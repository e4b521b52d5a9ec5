//! A snapshot's whole content as text, without row numbers: two files that say the same give the
//! same text, in whatever order their strings and frames came.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use std::fmt::Write as _;

use oomscope::base::ids::StackId;
use oomscope::snapshot::{Annotation, Block, Segment, Snapshot, TraceEntry};

pub fn read(bytes: &[u8]) -> Snapshot {
    Snapshot::read(bytes, &|_| ()).unwrap_or_else(|error| panic!("{error}"))
}

pub fn read_error(bytes: &[u8]) -> String {
    match Snapshot::read(bytes, &|_| ()) {
        Ok(snapshot) => panic!("read without an error:\n{}", describe(&snapshot)),
        Err(error) => error.to_string(),
    }
}

/// Everything but the warnings.
pub fn describe(snapshot: &Snapshot) -> String {
    let mut out = format!("written by {}\n", snapshot.torch);
    out.extend(snapshot.segments.iter().map(|one| segment(snapshot, one)));
    for (device, rows) in snapshot.traces.iter().enumerate() {
        let _ = writeln!(out, "trace of device {device}: {} entries", rows.len());
        for row in rows.clone() {
            let event = snapshot.entries.get(row).unwrap();
            let _ = writeln!(out, "  {}", describe_event(snapshot, event));
        }
    }
    if let Some(settings) = &snapshot.settings {
        let _ = writeln!(out, "settings '{}' {}", settings.string, serde_json::to_string(&settings.effective).unwrap());
    }
    out.extend(snapshot.annotations.iter().map(|one| annotation(snapshot, one)));
    let _ = writeln!(out, "host segments {:?}", snapshot.host_segments);
    out
}

/// A segment and its blocks, one a line.
pub fn segment(snapshot: &Snapshot, segment: &Segment) -> String {
    let Segment { device, address, total_size, stream, is_small, is_expandable, .. } = segment;
    let (pool, at) = (snapshot.pools.get(segment.pool), stack(snapshot, segment.stack));
    let mut out = format!(
        "segment {device}:{address:#x}+{total_size} stream {stream} small {is_small} expandable {is_expandable} \
         pool {pool:?} at {at}\n"
    );
    for Block { address, size, requested_size, state, stack: at, .. } in &snapshot.blocks[segment.blocks.clone()] {
        let at = stack(snapshot, *at);
        let _ = writeln!(out, "  block {address:#x}+{size} requested {requested_size} {state:?} at {at}");
    }
    out
}

pub fn annotation(snapshot: &Snapshot, annotation: &Annotation) -> String {
    let Annotation { is_start, device, time_us, .. } = annotation;
    let name = snapshot.text(annotation.name);
    format!("annotation {name} start {is_start} device {device} time {time_us}\n")
}

pub fn describe_event(snapshot: &Snapshot, event: TraceEntry) -> String {
    let text = |id: Option<_>| id.map(|id| snapshot.text(id).to_owned());
    format!(
        "{:?} {:#x}+{} stream {} time {} pool {:?} context {:?} metadata {:?} at {}",
        event.action,
        event.addr,
        event.size,
        event.stream,
        event.time_us,
        event.pool.map(|pool| snapshot.pools.get(pool)),
        text(event.compile_context),
        text(event.user_metadata),
        stack(snapshot, event.stack)
    )
}

/// The frames of a stack, innermost first.
pub fn stack(snapshot: &Snapshot, stack: StackId) -> String {
    let frames: Vec<String> = snapshot
        .stacks
        .frames(stack)
        .iter()
        .map(|id| {
            let frame = snapshot.stacks.frame(id);
            format!("{}@{}:{}", snapshot.text(frame.name), snapshot.text(frame.file), frame.line)
        })
        .collect();
    format!("[{}]", frames.join(" < "))
}

/// The warnings as `code: message`, one a line.
pub fn warnings(snapshot: &Snapshot) -> String {
    let warnings = snapshot.warnings.to_vec();
    warnings.iter().map(|w| format!("{}: {}\n", w.code, w.message)).collect()
}

/// The error of `bytes`, which must be one clean sentence: a single line that a terminal can show,
/// with a place that lies inside the input.
pub fn refusal(bytes: &[u8]) -> String {
    let message = read_error(bytes);
    assert!(!message.is_empty());
    assert!(message.len() < 700, "{} characters: {message}", message.len());
    let is_active = |c: char| c.is_control() || c == '\u{202e}';
    assert!(!message.chars().any(is_active), "{message:?}");
    if let Some((_, place)) = message.split_once("(byte ") {
        let digits: String = place.chars().take_while(char::is_ascii_digit).collect();
        let offset: usize = digits.parse().unwrap();
        assert!(offset <= bytes.len(), "{message}");
    }
    message
}
